#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/base/units.h"
#include "baton/checkpoint/checkpoint.h"
#include "commands.h"
#include "options.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct LaunchWords {
  std::int64_t ranks = 2;
  std::int64_t restarts = 3;
  std::string host;
  std::string hostfile;
  std::string mpirun = "mpirun";
  std::vector<std::string> command;
};

struct Host {
  std::string name;
  std::int64_t slots = 1;
};

/// `a:2,b` as mpirun takes it.
std::vector<Host> parse_hosts(const std::string& text) {
  std::vector<Host> hosts;
  for (const std::string_view word : split(text, ',')) {
    const std::size_t colon = word.find(':');
    Host host{std::string(word.substr(0, colon)), 1};
    if (colon != std::string_view::npos) {
      host.slots = parse_integer(word.substr(colon + 1), fmt::format("the slots of '{}' in --host", word), 1, 4096);
    }
    if (host.name.empty()) {
      throw usage_error("--host '{}' has an empty name: write a:2,b:2, as for mpirun", text);
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

/// Lines of `name slots=N`, as mpirun takes them.
std::vector<Host> read_hosts(const std::string& path) {
  std::vector<Host> hosts;
  std::istringstream lines(read_file(path, "the host file " + path, Bytes(1 << 20)));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    Host host;
    if (!(words >> host.name)) {
      continue;
    }
    for (std::string word; words >> word;) {
      if (word.starts_with("slots=")) {
        host.slots = parse_integer(std::string_view(word).substr(6), fmt::format("the slots of {} in {}", host.name, path), 1,
                                   4096);
      } else {
        throw usage_error("{} has '{}' after {}, but a line is a name and slots=N", path, word, host.name);
      }
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) {
    throw usage_error("{} names no host", path);
  }
  return hosts;
}

std::string list_hosts(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  }
  return text;
}

std::int64_t slots_of(const std::vector<Host>& hosts) {
  std::int64_t sum = 0;
  for (const Host& host : hosts) {
    sum += host.slots;
  }
  return sum;
}

/// The value of a flag, under the last of its spellings among the words: `--steps 9`, `--steps=9`, `-n 9` or `-n9`.
std::optional<std::string> value_of(const std::vector<std::string>& words, std::initializer_list<std::string_view> flags) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const std::string_view flag : flags) {
      const bool is_short = !flag.starts_with("--");
      if (words[i] == flag && i + 1 < words.size()) {
        value = words[i + 1];
      } else if (words[i].starts_with(flag) && words[i].size() > flag.size() && (is_short || words[i][flag.size()] == '=')) {
        value = words[i].substr(flag.size() + (is_short ? 0 : 1));
      }
    }
  }
  return value;
}

/// The process to which this one forwards its signals, while it waits for it.
std::atomic<pid_t> child{0};
std::atomic<int> stop_signal{0};
void forward_signal(int number, siginfo_t* origin, void*) {
  stop_signal = number;
  // A typed signal has reached the child as well, which would take a second one for a demand to end at once.
  const bool typed = origin->si_code > 0;
  if (const pid_t pid = child; pid > 0 && !typed) {
    kill(pid, number);
  }
}

/// While it lives, these signals are forwarded to the child.
class SignalForwarding {
 public:
  SignalForwarding() {
    struct sigaction action {};
    action.sa_sigaction = forward_signal;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGINT, &action, &previous_[0]);
    sigaction(SIGTERM, &action, &previous_[1]);
    sigaction(SIGHUP, &action, &previous_[3]);
    action = {};
    action.sa_handler = SIG_DFL;  // otherwise the end of a child would not be reported
    sigaction(SIGCHLD, &action, &previous_[2]);
  }
  ~SignalForwarding() {
    sigaction(SIGINT, &previous_[0], nullptr);
    sigaction(SIGTERM, &previous_[1], nullptr);
    sigaction(SIGCHLD, &previous_[2], nullptr);
    sigaction(SIGHUP, &previous_[3], nullptr);
  }
  SignalForwarding(const SignalForwarding&) = delete;
  SignalForwarding& operator=(const SignalForwarding&) = delete;

 private:
  std::array<struct sigaction, 4> previous_{};
};

/// Runs a program and waits for its end: its exit code, or 128 and the signal that ended it. One with a limit is a group of its
/// own, prints nothing, and is killed with all that it has started when the limit is over.
int run(const std::vector<std::string>& words, std::optional<Nanoseconds> limit = {}) {
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    throw failure("{} cannot be started: {}", words[0], std::strerror(errno));
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // mpirun then ends its ranks
    if (getppid() != parent) {
      _exit(127);
    }
    if (limit) {
      setpgid(0, 0);
      const int nothing = open("/dev/null", O_RDWR);
      dup2(nothing, STDOUT_FILENO);
      dup2(nothing, STDERR_FILENO);
    }
    execvp(arguments[0], arguments.data());
    fmt::print(stderr, "baton: {} cannot be started: {}\n", words[0], std::strerror(errno));
    _exit(127);
  }
  child = pid;
  if (stop_signal != 0) {  // before there was anyone to hand it on to
    kill(pid, stop_signal);
  }
  const Nanoseconds start = now();
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(pid, &status, limit ? WNOHANG : 0);
    if (ended == pid) {
      break;
    }
    if (ended < 0 && errno != EINTR) {
      throw failure("{} cannot be waited for: {}", words[0], std::strerror(errno));
    }
    if (limit && now() - start > *limit) {
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    if (limit) {
      usleep(20'000);
    }
  }
  child = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string own_program() {
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : "baton";
}

constexpr int interrupted_exit_code = 128 + SIGINT;

/// The meaning of a run's exit code, and whether another attempt may end otherwise.
struct End {
  std::string words;
  bool again = false;
};
End explain(int code) {
  if (code == lost_rank_exit_code) {
    return {"a rank was lost", true};
  }
  if (code == 2) {
    return {"the run was refused", false};
  }
  if (code == 127) {
    return {"it could not be started", false};
  }
  if (code == interrupted_exit_code) {
    return {"it was interrupted", false};
  }
  if (code > 128 && sigabbrev_np(code - 128) != nullptr) {  // mpirun has codes of its own, as 255
    return {fmt::format("a rank was ended by signal {} ({})", code - 128, strsignal(code - 128)), true};
  }
  return {fmt::format("it failed with exit code {}", code), false};
}

class Supervisor {
 public:
  explicit Supervisor(const LaunchWords& words) : ranks_(words.ranks), restarts_(words.restarts) {
    if (words.command.empty() || words.command[0] != "train") {
      throw usage_error(
          "launch starts a training on several ranks: write train and its options after two dashes, as in baton launch -n 4 "
          "--restarts 0 -- train --strategy ddp --devices cpu:1");
    }
    command_ = words.command;
    folder_ = value_of(command_, {"--checkpoint"});
    if (restarts_ > 0 && (!folder_ || !value_of(command_, {"--every"}))) {
      throw usage_error(
          "a restart continues from a checkpoint: give train --checkpoint DIR --every N, or launch --restarts "
          "0");
    }
    if (!words.host.empty() && !words.hostfile.empty()) {
      throw usage_error("hosts come from --host or from --hostfile, not from both");
    }
    std::istringstream program(words.mpirun);
    for (std::string word; program >> word;) {
      mpirun_.push_back(word);
    }
    if (mpirun_.empty()) {
      throw usage_error("--mpirun is empty: give the program that starts ranks, and flags for it");
    }
    hosts_ = !words.host.empty()       ? parse_hosts(words.host)
             : !words.hostfile.empty() ? read_hosts(words.hostfile)
                                       : std::vector<Host>{};
    if (!hosts_.empty() && slots_of(hosts_) < ranks_) {
      throw usage_error("{} ranks do not fit on {}, which have {} slots: give more hosts, or more slots as in a:4", ranks_,
                        list_hosts(hosts_), slots_of(hosts_));
    }
  }

  int supervise() {
    const SignalForwarding forwarding;
    return attempts();
  }

 private:
  int attempts() {
    for (std::int64_t attempt = 0;; ++attempt) {
      const Nanoseconds start = now();
      const int code = run(line(attempt > 0));
      const std::string took = to_text(now() - start);
      if (code == 0) {
        if (attempt > 0) {
          say("done after {} restart{}", attempt, attempt == 1 ? "" : "s");
        }
        return 0;
      }
      if (was_asked_to_stop()) {
        return 128 + stop_signal;
      }
      const End end = explain(code);
      if (code == interrupted_exit_code) {
        say("{} after {}{}", end.words, took, resume_hint());
        return code;
      }
      if (!end.again) {
        say("{} after {}; a restart would not help", end.words, took);
        return code;
      }
      if (attempt == restarts_) {
        say("{} after {}; that was the last of {} attempts{}", end.words, took, restarts_ + 1, resume_hint());
        return code;
      }
      say("{} after {}", end.words, took);
      if (all_done()) {
        say("all steps were done{}", where_to_go_on());
        return 0;
      }
      leave_out_lost_hosts();
      if (was_asked_to_stop()) {
        return 128 + stop_signal;
      }
      say("restart {} of {} on {} rank{}{}", attempt + 1, restarts_, ranks_, ranks_ == 1 ? "" : "s", where_to_go_on());
    }
  }

  bool was_asked_to_stop() const {
    if (stop_signal != 0) {
      say("ended by SIG{}{}", sigabbrev_np(stop_signal), resume_hint());
    }
    return stop_signal != 0;
  }

  template <typename... Args>
  static void say(fmt::format_string<Args...> format, Args&&... args) {
    fmt::print(stderr, "baton launch: {}\n", printable(fmt::format(format, std::forward<Args>(args)...)));
    std::fflush(stderr);
  }

  std::vector<std::string> line(bool again) const {
    std::vector<std::string> words = mpirun_;
    words.insert(words.end(), {"-n", fmt::format("{}", ranks_)});
    if (mpirun_[0].ends_with("mpirun")) {
      // Ranks of a host divide its cores themselves; more ranks than cores are a user's own choice.
      words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
    }
    if (!hosts_.empty()) {
      words.insert(words.end(), {"--host", list_hosts(hosts_)});
    }
    words.push_back(own_program());
    words.insert(words.end(), command_.begin(), command_.end());
    if (again && std::find(command_.begin(), command_.end(), "--resume") == command_.end()) {
      words.emplace_back("--resume");
    }
    return words;
  }

  std::string where_to_go_on() const {
    if (!folder_) {
      return "";
    }
    try {
      const auto found = checkpoint::newest_in(*folder_);
      return found ? fmt::format(", from {}", found->path.string()) : ", from the start: no checkpoint was written yet";
    } catch (const Error& error) {
      return fmt::format(": {}", error.what());
    }
  }

  /// For a user whose run has ended before its last step.
  std::string resume_hint() const {
    if (!folder_) {
      return "; train has no --checkpoint, so nothing is kept";
    }
    try {
      if (const auto found = checkpoint::newest_in(*folder_)) {
        const bool resumes = std::find(command_.begin(), command_.end(), "--resume") != command_.end();
        return fmt::format("; the newest checkpoint is {}, and this command continues from it: {}{}", found->path.string(),
                           command_line(), resumes ? "" : " --resume");
      }
      return "; no checkpoint was written yet";
    } catch (const Error& error) {
      return fmt::format(": {}", error.what());
    }
  }

  /// True if the last checkpoint is that of the last step: a rank was lost on the way out.
  bool all_done() const {
    const std::string steps = value_of(command_, {"--steps", "-n"}).value_or(fmt::format("{}", usual_steps));
    const auto found = folder_ ? checkpoint::newest_in(*folder_) : std::nullopt;
    return found && found->archive->metadata().count("step") == 1 && found->archive->metadata().at("step") == steps;
  }

  /// Removes hosts on which nothing can be started any more, and their ranks.
  void leave_out_lost_hosts() {
    std::vector<Host> left;
    for (const Host& host : hosts_) {
      std::vector<std::string> words = mpirun_;
      words.insert(words.end(), {"-n", "1", "--host", host.name, "true"});
      const bool started = run(words, Nanoseconds(probe_limit)) == 0;
      if (stop_signal != 0) {
        return;
      }
      if (started) {
        left.push_back(host);
      } else {
        say("{} is lost: no process can be started there", host.name);
      }
    }
    if (left.size() == hosts_.size() || left.empty()) {
      return;
    }
    hosts_ = std::move(left);
    ranks_ = std::min(ranks_, slots_of(hosts_));
  }

  static constexpr std::int64_t probe_limit = 10'000'000'000;

  std::int64_t ranks_;
  std::int64_t restarts_;
  std::vector<std::string> command_;
  std::optional<std::string> folder_;
  std::vector<std::string> mpirun_;
  std::vector<Host> hosts_;
};

}  // namespace

void add_launch_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("launch",
                                             "Train on several ranks, and restart from the last checkpoint if a rank is lost");
  auto words = std::make_shared<LaunchWords>();
  add_number(*command, "-n,--ranks", words->ranks, std::int64_t{1}, std::int64_t{1} << 20,
             "number of ranks; each uses the devices of `--devices`");
  add_number(*command, "--restarts", words->restarts, std::int64_t{0}, std::int64_t{1'000'000},
             "how many times to restart after a rank is lost");
  command->add_option("--host", words->host, "hosts and their slots, for example a:2,b:2 (default: this host)")->type_name("HOSTS");
  command->add_option("--hostfile", words->hostfile, "a file that lists hosts, in the format of mpirun")->type_name("FILE");
  command->add_option("--mpirun", words->mpirun, "the program that starts ranks, with its own options")
      ->type_name("COMMAND")
      ->capture_default_str();
  command->add_option("command", words->command, "after two dashes: train and its options")->type_name("COMMAND");
  command->footer(
      "\nExamples:\n  baton launch -n 4 -- train --strategy ddp --devices cpu:1 --checkpoint run --every 100 "
      "--steps 10000\n"
      "  baton launch -n 4 --host a:2,b:2 --restarts 10 -- train --strategy 1f1b --devices cpu:1 "
      "--checkpoint run --every 100");
  command->callback([words, &exit_code] { exit_code = Supervisor(*words).supervise(); });
}

}  // namespace baton::app
