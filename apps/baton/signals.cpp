#include "signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "baton/base/file.h"
#include "baton/base/stop.h"

namespace baton::app {
namespace {

/// Times after a signal: until the first the current step may finish; until the second abandoned work may end by itself.
constexpr int grace_ms = 400;
constexpr int end_ms = 900;
constexpr int end_of_rank_ms = 600;
/// The time that a reader of a pipe may take for the output after a signal.
constexpr int reader_ms = 400;
constexpr int poll_ms = 50;
/// Two signals within this time count as one: timeout(1) signals both the process and its group.
constexpr int same_ms = 100;

std::array<int, 2> signal_pipe{-1, -1};  // a pipe, through which the handler tells the thread
std::atomic<int> first_signal{0};        // as its number; 0: none yet
std::atomic<bool> saving_after_stop{false};
std::atomic<int> open_saves{0};
std::atomic<int> pipe_writes{0};
std::mutex words_mutex;
std::string last_words;
std::function<void()> last_action;
std::function<void(int)> give_up_action;

void tell(int number) {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = write(signal_pipe[1], &byte, 1);
  errno = before;
}

/// The next signal; nullopt if the time is over before.
std::optional<int> next_signal(int limit_ms) {
  pollfd ready{signal_pipe[0], POLLIN, 0};
  unsigned char number = 0;
  while (true) {
    const int count = poll(&ready, 1, limit_ms);
    if (count == 0) {
      return std::nullopt;
    }
    if (count > 0 && read(signal_pipe[0], &number, 1) == 1) {
      return number;
    }
  }
}

[[noreturn]] void end_now(const std::string& sentence) {
  remove_temporaries();
  flush_output();
  const std::string line = fmt::format("{}baton: {}\n", isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", sentence);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  _exit(Interrupt().exit_code());
}

std::string signal_name(int number) { return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP"; }

void serve(int limit_ms) {
  const int signal = next_signal(-1).value();
  first_signal = signal;
  ask_to_stop(Stop::after_the_step);
  usleep(same_ms * 1000);
  while (next_signal(0)) {
  }
  std::optional<int> second = next_signal(grace_ms - same_ms);
  if (!second) {
    ask_to_stop(Stop::at_once);
    std::function<void(int)> action;
    {
      const std::lock_guard lock(words_mutex);
      action = give_up_action;
    }
    if (action) {
      action(signal);
    }
    second = next_signal(limit_ms - grace_ms);
  }
  int waited_ms = 0;
  while (!second && (saving_after_stop || open_saves > 0) && waited_ms < reader_ms) {
    second = next_signal(poll_ms);
    waited_ms = pipe_writes > 0 ? waited_ms + poll_ms : 0;
  }
  if (!second) {
    std::string words;
    {
      const std::lock_guard lock(words_mutex);
      words = last_words;
    }
    end_stopped(
        fmt::format("stopped by {} in the middle of its work{}", signal_name(first_signal), words.empty() ? "" : "; " + words));
  }
  first_signal = *second;
  end_now(fmt::format("ended at once by {}", signal_name(*second)));
}

}  // namespace

void watch_for_signals(bool several_ranks) {
  if (pipe2(signal_pipe.data(), O_CLOEXEC) != 0) {
    return;  // then a signal ends the process as it always does
  }
  try {
    std::thread(serve, several_ranks ? end_of_rank_ms : end_ms).detach();
  } catch (const std::system_error&) {
    return;
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
      action = {};
      action.sa_handler = tell;
      action.sa_flags = SA_RESTART;
      sigaction(number, &action, nullptr);
    }
  }
}

bool Interrupt::asked() const { return asked_to_stop(); }

void Interrupt::begin_saving() const { saving_after_stop = asked_to_stop(); }

int Interrupt::exit_code() const { return 128 + (first_signal == 0 ? SIGINT : first_signal.load()); }

int Interrupt::exit_code_anywhere(ranks::World& world) const {
  const auto word = static_cast<std::byte>(asked() ? exit_code() : 0);
  int code = 0;
  for (const ranks::Blob& one : world.all_gather(std::span(&word, 1))) {
    code = std::max(code, std::to_integer<int>(one[0]));
  }
  return code;
}

SaveGuard::SaveGuard() { ++open_saves; }
SaveGuard::~SaveGuard() { --open_saves; }

PipeWrite::PipeWrite() { ++pipe_writes; }
PipeWrite::~PipeWrite() { --pipe_writes; }

void flush_output() {
  pollfd ready{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) == 1 && ftrylockfile(stdout) == 0) {
    std::fflush(stdout);
    funlockfile(stdout);
  }
}

void say_if_stopped(std::string words) {
  const std::lock_guard lock(words_mutex);
  last_words = std::move(words);
}

void call_if_stopped(std::function<void()> action) {
  const std::lock_guard lock(words_mutex);
  last_action = std::move(action);
}

void call_if_given_up(std::function<void(int)> action) {
  const std::lock_guard lock(words_mutex);
  give_up_action = std::move(action);
}

void give_up_with(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  ask_to_stop(Stop::at_once);
}

void end_stopped(const std::string& sentence) {
  std::function<void()> action;
  {
    const std::lock_guard lock(words_mutex);
    action = std::exchange(last_action, nullptr);
  }
  if (action) {
    action();
  }
  end_now(sentence);
}

}  // namespace baton::app
