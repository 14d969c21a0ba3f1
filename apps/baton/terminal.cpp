#include "terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "baton/base/error.h"
#include "baton/exec/clock.h"

namespace baton::app {

namespace {

std::atomic<bool> interrupted{false};

}  // namespace

Interrupt::Interrupt() {
  interrupted = false;
  previous_ = std::signal(SIGINT, [](int) { interrupted = true; });
}

Interrupt::~Interrupt() { std::signal(SIGINT, previous_); }

bool Interrupt::asked() const { return interrupted; }

Table::Table(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }

void Table::row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_[0].size(), 0);
  for (const std::vector<std::string>& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string out;
  for (const std::vector<std::string>& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      out += c == 0 ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("  {:>{}}", row[c], widths[c]);
    }
    out += '\n';
  }
  return out;
}

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
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) {
    throw failure("{} cannot be written: {}", path, std::strerror(errno));
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0 &&
                       fsync(fileno(file)) == 0;
  int error = errno;
  const bool closed = std::fclose(file) == 0;
  error = written && !closed ? errno : error;
  if (!written || !closed || std::rename(temporary.c_str(), path.c_str()) != 0) {
    error = written && closed ? errno : error;
    std::remove(temporary.c_str());
    throw failure("{} cannot be written: {}", path, std::strerror(error));
  }
}

void check_writable(const std::string& path) {
  if (path.empty() || path == "-") {
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

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace baton::app
