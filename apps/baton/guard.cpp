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

#include "baton/exec/watch/watch.h"
#include "commands.h"

namespace baton::app {
namespace {

constexpr unsigned start_limit_seconds = 120;
/// A launcher that sees all ranks end may not wait for what the last of them has said.
constexpr unsigned last_breath_microseconds = 300'000;

std::unique_ptr<exec::Watch> watch;
std::atomic<exec::Watch*> told{nullptr};  // for the signal handler
std::mutex naming;
std::string checkpoint;

std::string last_lines(const exec::Verdict& verdict) {
  std::string lines = "baton: " + verdict.text;
  const bool failed = std::any_of(verdict.losses.begin(), verdict.losses.end(),
                                  [](const exec::Loss& loss) { return loss.cause == exec::Loss::Cause::failed; });
  const std::lock_guard lock(naming);
  if (!checkpoint.empty() && !failed) {
    lines += fmt::format("baton: the last good checkpoint is {}: --resume goes on from it\n", checkpoint);
  }
  return lines;
}

/// What was printed so far is let out first, unless somebody is stuck printing it.
void flush_output() {
  if (ftrylockfile(stdout) == 0) {
    std::fflush(stdout);
    funlockfile(stdout);
  }
}

/// Where the network to rank 0 is gone, so is the launcher's word: its daemon on this host, which started
/// this rank, would stay.
void end_daemon() {
  std::ifstream file(fmt::format("/proc/{}/comm", getppid()));
  std::string name;
  if (std::getline(file, name) && name == "orted") {
    kill(getppid(), SIGTERM);
  }
}

[[noreturn]] void end(const exec::Verdict& verdict) {
  if (verdict.spoken) {
    flush_output();
    const std::string lines = last_lines(verdict);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, lines.data(), lines.size());
    usleep(last_breath_microseconds);
  }
  if (verdict.losses.front().rank == 0 && verdict.losses.front().cause == exec::Loss::Cause::silent) {
    end_daemon();
  }
  int code = lost_rank_exit_code;
  for (const exec::Loss& loss : verdict.losses) {
    code = loss.cause == exec::Loss::Cause::failed ? loss.code : code;
  }
  _exit(code);
}

}  // namespace

StartLimit::StartLimit(bool several_ranks) {
  if (several_ranks) {
    std::signal(SIGALRM, [](int) {
      constexpr std::string_view words =
          "baton: the ranks did not come together within 120 s: one of them is stopped, or cannot reach the "
          "others\n";
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, words.data(), words.size());
      _exit(lost_rank_exit_code);
    });
    alarm(start_limit_seconds);
  }
}

StartLimit::~StartLimit() { alarm(0); }

void open_guard(exec::World& world, Nanoseconds patience) {
  if (world.alone() || patience.count == 0) {
    return;
  }
  const StartLimit limit(true);
  const auto broadcast = [&](const std::string& words) {
    exec::Blob blob = exec::to_blob(words);
    world.broadcast(blob, 0);
    return exec::to_text(blob);
  };
  watch = std::make_unique<exec::Watch>(
      exec::WatchOptions{.rank = world.rank(), .size = world.size(), .patience = patience, .broadcast = broadcast}, world.board(),
      end);
  told = watch.get();
  std::signal(SIGTERM, [](int) {
    if (exec::Watch* here = told) {
      here->told_to_end();
    }
  });
}

void guard_run(const lab::Training& run) {
  if (!watch) {
    return;
  }
  std::vector<int> rank_of;
  for (const cluster::Device& device : run.job().cluster().devices()) {
    rank_of.push_back(device.rank);
  }
  watch->judge_by(std::make_shared<exec::Situation>(run.plan(), std::move(rank_of), run.steps_before()));
}

void guard_checkpoint(const std::string& path) {
  const std::lock_guard lock(naming);
  checkpoint = path;
}

void guard_failure(const std::string& why, int code) {
  if (watch) {
    watch->give_up(why, code);
  }
}

void close_guard() {
  told = nullptr;
  watch.reset();
}

}  // namespace baton::app
