#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "signals.h"

namespace baton::app {

ProgressBar::ProgressBar(std::string what, std::int64_t total, bool wanted, std::string unit)
    : what_(std::move(what)),
      total_(total),
      unit_(std::move(unit)),
      visible_(wanted && isatty(STDERR_FILENO) == 1),
      start_(now()) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::show(std::int64_t done) {
  if (!visible_ || done == 0) {
    return;
  }
  constexpr std::int64_t width = 30;
  const std::int64_t filled = width * done / total_;
  const Nanoseconds left((now() - start_).count / done * (total_ - done));
  const std::string count = unit_ == percent ? fmt::format("{} %", 100 * done / total_)
                                             : fmt::format("{}/{} {}", done, total_, unit_);
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {}, {} left \033[K", what_, "", filled, "", width - filled, count, to_text(left));
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
  const Destination to = path == "-" ? Destination{path, STDOUT_FILENO} : destination_of(path);
  std::optional<SaveGuard> guard;
  std::optional<PipeWrite> pipe_write;
  if (to.descriptor >= 0 || to.written_into) {
    pipe_write.emplace();
  } else {
    guard.emplace();
  }
  if (path == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      throw std::system_error(errno, std::generic_category(), "standard output cannot be written");
    }
    return;
  }
  write_whole(path, text);
}

void settle_outputs(std::initializer_list<std::string*> paths) {
  std::set<std::string> taken;
  for (std::string* path : paths) {
    if (path->empty()) {
      continue;
    }
    Destination to = *path == "-" ? Destination{*path, STDOUT_FILENO} : destination_of(*path);
    if (to.descriptor == STDOUT_FILENO) {
      *path = "-";
    } else {
      require_writable(*path);
    }
    std::error_code error;
    const std::filesystem::path place = std::filesystem::weakly_canonical(std::filesystem::absolute(to.path, error), error);
    const bool device = to.written_into && std::filesystem::is_character_file(to.path, error);  // as /dev/null, which takes all
    if (!device &&
        !taken.insert(to.descriptor >= 0 ? fmt::format("{}", to.descriptor) : (place.empty() ? to.path : place).string()).second) {
      throw usage_error("two results are to be written to {}: give each a file of its own",
                        *path == "-" ? "standard output" : *path);
    }
  }
}

namespace {

/// True if the byte there belongs to a character that a terminal does not show. In text that is not UTF-8, every byte beyond ASCII
/// does.
bool steers(std::string_view text, std::size_t at, bool utf8) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned code = byte(at);
  const bool begins_c1 = code == 0xc2 && byte(at + 1) < 0xa0;
  const bool ends_c1 = at > 0 && code >= 0x80 && code < 0xa0 && byte(at - 1) == 0xc2;
  return code < 0x20 || code == 0x7f || (code >= 0x80 && (!utf8 || begins_c1 || ends_c1));
}

}  // namespace

bool steers_terminal(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (steers(text, i, true)) {
      return true;
    }
  }
  return false;
}

std::string printable(const std::string& sentence) {
  constexpr std::size_t longest = 2000;
  const bool utf8 = is_utf8(sentence);
  std::string text;
  for (std::size_t i = 0; i < std::min(sentence.size(), longest); ++i) {
    text += steers(sentence, i, utf8) ? fmt::format("\\x{:02x}", static_cast<unsigned char>(sentence[i]))
                                      : std::string(1, sentence[i]);
  }
  return text + (sentence.size() > longest ? "..." : "");
}

std::string shell_word(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n'\"\\$&;|<>*?()[]{}`#~!") == std::string::npos) {
    return word;
  }
  // A backquote would end the code in a document that shows the word, so it is written as its number.
  const bool numbered = word.find('`') != std::string::npos;
  std::string quoted = numbered ? "$'" : "'";
  for (const char c : word) {
    quoted += c == '\'' && !numbered                 ? "'\\''"
              : c == '`'                             ? "\\x60"
              : numbered && (c == '\'' || c == '\\') ? std::string("\\") + c
                                                     : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace baton::app
