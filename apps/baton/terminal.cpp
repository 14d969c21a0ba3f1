#include "terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/exec/clock.h"

namespace baton::app {

namespace {

std::atomic<bool> interrupted{false};

}  // namespace

Interrupt::Interrupt() {
  interrupted = false;
  const auto ask = [](int) { interrupted = true; };
  previous_interrupt_ = std::signal(SIGINT, ask);
  previous_termination_ = std::signal(SIGTERM, ask);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, previous_interrupt_);
  std::signal(SIGTERM, previous_termination_);
}

bool Interrupt::asked() const { return interrupted; }

ProgressBar::ProgressBar(std::string what, std::int64_t total, bool wanted)
    : what_(std::move(what)), total_(total), visible_(wanted && isatty(STDERR_FILENO) == 1), start_(exec::now()) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::show(std::int64_t done) {
  if (!visible_ || done == 0) {
    return;
  }
  constexpr std::int64_t width = 30;
  const std::int64_t filled = width * done / total_;
  const Nanoseconds left((exec::now() - start_).count / done * (total_ - done));
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {}/{}, {} left \033[K", what_, "", filled, "", width - filled, done, total_,
             to_text(left));
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (drawn_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    drawn_ = false;
  }
}

void write_output(const std::string& path, const std::string& text) {
  if (path == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      throw failure("the result cannot be written to standard output: {}", std::strerror(errno));
    }
    return;
  }
  write_whole(path, text);
}

void check_writable(const std::string& path) {
  if (path.empty() || path == "-") {
    return;
  }
  if (is_device(path)) {
    if (access(path.c_str(), W_OK) != 0) {
      throw failure("{} cannot be written: {}", path, std::strerror(errno));
    }
    return;
  }
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file < 0) {
    throw failure("{} cannot be written: {}", path, std::strerror(errno));
  }
  close(file);
  std::remove(temporary.c_str());
}

std::string printable(const std::string& sentence) {
  constexpr std::size_t longest = 2000;
  std::string text;
  for (const char c : sentence.substr(0, longest)) {
    const auto code = static_cast<unsigned char>(c);
    text += code < 0x20 || code == 0x7f ? fmt::format("\\x{:02x}", code) : std::string(1, c);
  }
  return text + (sentence.size() > longest ? "..." : "");
}

std::string shell_word(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n'\"\\$&;|<>*?()[]{}`#~!") == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace baton::app
