#include "signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

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

/// From a signal on: until then the step may come to its end; until then what is given up may be left behind.
constexpr int grace_ms = 400;
constexpr int end_ms = 900;
/// Whoever signals a process and its group, as timeout(1) does, means one signal.
constexpr int same_ms = 100;

std::array<int, 2> signal_pipe{-1, -1};  // a pipe, through which the handler tells the thread
std::atomic<int> first_signal{0};        // as its number; 0: none yet
std::atomic<bool> winding_up{false};
std::atomic<int> kept_now{0};
std::mutex words_mutex;
std::string last_words;
std::function<void()> last_action;

void tell(int number) {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = write(signal_pipe[1], &byte, 1);
  errno = before;
}

/// The next signal; nothing if the time is over before.
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

void serve() {
  first_signal = next_signal(-1).value();
  ask_to_stop(Stop::after_the_step);
  usleep(same_ms * 1000);
  while (next_signal(0)) {
  }
  std::optional<int> second = next_signal(grace_ms - same_ms);
  if (!second) {
    ask_to_stop(Stop::at_once);
    second = next_signal(end_ms - grace_ms);
  }
  while (!second && (winding_up || kept_now > 0)) {
    second = next_signal(100);
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

void watch_for_signals() {
  if (pipe2(signal_pipe.data(), O_CLOEXEC) != 0) {
    return;  // then a signal ends the process as it always does
  }
  try {
    std::thread(serve).detach();
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

void Interrupt::wind_up() const { winding_up = asked_to_stop(); }

int Interrupt::exit_code() const { return 128 + (first_signal == 0 ? SIGINT : first_signal.load()); }

Keeping::Keeping() { ++kept_now; }
Keeping::~Keeping() { --kept_now; }

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
