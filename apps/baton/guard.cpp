#include "guard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "baton/base/file.h"
#include "baton/watch/watch.h"
#include "commands.h"
#include "signals.h"

namespace baton::app {
namespace {

constexpr unsigned start_limit_seconds = 120;
/// A launcher may drop the last output of a rank if all ranks end at once, so the rank waits this long before it exits.
constexpr unsigned exit_delay_microseconds = 300'000;
/// A launcher that has lost a host gets this long to end its other ranks.
constexpr unsigned launcher_patience_microseconds = 100'000;

/// The driver frees what a process has of a GPU while the process exits, and serves one process at a time.
constexpr Nanoseconds longest_exit_with_gpus(30'000'000'000);

watch::Watch* watch = nullptr;                        // leaked on purpose: its socket closes at process exit, which rank 0 detects
std::atomic<watch::Watch*> told_watch{nullptr};       // for the thread that hears signals
const std::vector<ranks::RankHost>* hosts = nullptr;  // the hosts of all ranks; leaked like the watch
std::mutex naming;
std::string checkpoint;

std::string last_lines(const watch::Ending& ending) {
  std::string lines = "baton: " + ending.text;
  const bool failed = std::any_of(ending.lost.begin(), ending.lost.end(),
                                  [](const watch::LostRank& lost) { return lost.cause == watch::LostRank::Cause::failed; });
  const std::lock_guard lock(naming);
  if (!checkpoint.empty() && !failed) {
    lines += fmt::format("baton: the last good checkpoint is {}: --resume continues from it\n", checkpoint);
  }
  return lines;
}

/// The process that started this rank, if it has one of these names; -1 otherwise.
pid_t parent_called(std::initializer_list<std::string_view> names) {
  const pid_t parent = getppid();
  std::ifstream file(fmt::format("/proc/{}/comm", parent));
  std::string name;
  return std::getline(file, name) && std::find(names.begin(), names.end(), name) != names.end() ? parent : -1;
}

/// Ends the launcher's daemon on this host, which started this rank. If the network to rank 0 is gone, the launcher cannot end it.
void end_daemon() {
  if (const pid_t daemon = parent_called({"orted", "prted"}); daemon > 0) {
    kill(daemon, SIGTERM);
  }
}

/// Ends the launcher. If it has lost the network to one of its hosts, it may wait for its daemon there until TCP gives up, which
/// takes a quarter of an hour; SIGTERM alone does not end it then.
void end_launcher() {
  const pid_t launcher = parent_called({"mpirun", "mpiexec", "orterun", "prterun"});
  if (launcher < 0) {
    return;
  }
  std::signal(SIGTERM, SIG_IGN);  // the launcher sends it to this rank too
  kill(launcher, SIGTERM);
  for (unsigned slept = 0; slept < launcher_patience_microseconds && getppid() == launcher; slept += 10'000) {
    usleep(10'000);
  }
  if (getppid() == launcher) {
    kill(launcher, SIGKILL);
  }
}

/// True if the rank runs on another host than rank 0.
bool is_on_another_host(int rank) {
  return rank > 0 && hosts != nullptr && static_cast<std::size_t>(rank) < hosts->size() &&
         (*hosts)[static_cast<std::size_t>(rank)].host != (*hosts)[0].host;
}

[[noreturn]] void end(const watch::Ending& ending) {
  remove_temporaries();
  if (ending.spoken) {
    flush_output();
    const std::string lines = last_lines(ending);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, lines.data(), lines.size());
    usleep(exit_delay_microseconds);
  }
  if (ending.lost.front().cause == watch::LostRank::Cause::silent) {
    if (ending.lost.front().rank == 0) {
      end_daemon();
    } else if (ending.spoken && is_on_another_host(ending.lost.front().rank)) {
      end_launcher();
    }
  }
  const bool told = std::all_of(ending.lost.begin(), ending.lost.end(),
                                [](const watch::LostRank& lost) { return lost.cause == watch::LostRank::Cause::ended; });
  int code = told ? Interrupt().exit_code() : lost_rank_exit_code;
  for (const watch::LostRank& lost : ending.lost) {
    code = lost.cause == watch::LostRank::Cause::failed ? lost.code : code;
  }
  _exit(code);
}

}  // namespace

StartLimit::StartLimit(bool several_ranks) {
  if (several_ranks) {
    std::signal(SIGALRM, [](int) {
      constexpr std::string_view words =
          "baton: the ranks did not connect within 120 s: one of them is stopped, or cannot reach the "
          "others\n";
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, words.data(), words.size());
      _exit(lost_rank_exit_code);
    });
    alarm(start_limit_seconds);
  }
}

StartLimit::~StartLimit() { alarm(0); }

void open_guard(ranks::World& world, Nanoseconds patience) {
  if (world.alone() || patience.count == 0) {
    return;
  }
  const StartLimit limit(true);
  const auto broadcast = [&](const std::string& words) {
    ranks::Blob blob = ranks::to_blob(words);
    world.broadcast(blob, 0);
    return ranks::to_text(blob);
  };
  hosts = new std::vector<ranks::RankHost>(world.hosts());
  watch = new watch::Watch(
      watch::WatchOptions{
          .rank = world.rank(), .size = world.size(), .patience = patience, .broadcast = broadcast, .stopping = give_up_with},
      world.progress(), end);
  told_watch = watch;
  call_if_given_up([](int signal) {
    if (watch::Watch* here = told_watch) {
      here->stop_all(signal);
    }
  });
  call_if_stopped([] {
    if (watch::Watch* here = told_watch) {
      here->end_all();
      usleep(exit_delay_microseconds);  // the watch ends the process when all know
    }
  });
}

void guard_plan(const plan::Plan& plan, const training::Job& job, std::int64_t steps_before) {
  if (watch == nullptr) {
    return;
  }
  std::vector<int> rank_of;
  for (const cluster::Device& device : job.cluster().devices()) {
    rank_of.push_back(device.rank);
    if (device.gpu) {
      watch->allow_exit(longest_exit_with_gpus);
    }
  }
  watch->judge_by(std::make_shared<watch::StallDiagnosis>(plan, std::move(rank_of), steps_before, job.cluster().emulated_link()));
}

void guard_run(const training::Training& run) { guard_plan(run.plan(), run.job(), run.steps_before()); }

void guard_checkpoint(const std::string& path) {
  const std::lock_guard lock(naming);
  checkpoint = path;
}

void guard_failure(const std::string& why, int code) {
  if (watch != nullptr) {
    watch->give_up(why, code);
  }
}

void guard_end(ranks::World& world) {
  world.barrier();
  world.progress()->set(ranks::Activity::ending);
}

void close_guard() {
  told_watch = nullptr;
  if (watch != nullptr) {
    watch->part();
  }
}

}  // namespace baton::app
