#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace baton {

/// An error that a user can cause and fix: one sentence that names the problem and what would be accepted.
/// `usage` ends the program with exit code 2, `failure` with 1. Only the command line catches it to print.
class Error : public std::runtime_error {
 public:
  enum class Kind { usage, failure };

  Error(Kind kind, const std::string& sentence) : std::runtime_error(sentence), kind_(kind) {}

  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

/// An error in what was asked for: a bad flag, a refused plan, a file that is not what it says.
template <typename... Args>
Error usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(Error::Kind::usage, fmt::format(format, std::forward<Args>(args)...));
}

/// An error while running: no memory, no permission, a lost device.
template <typename... Args>
Error failure(fmt::format_string<Args...> format, Args&&... args) {
  return Error(Error::Kind::failure, fmt::format(format, std::forward<Args>(args)...));
}

/// An error that only a bug in Baton can cause.
class BugError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A format string that remembers where it was written.
template <typename... Args>
struct Located {
  template <typename Text>
  consteval Located(const Text& text, std::source_location here = std::source_location::current())  // NOLINT: implicit
      : format(text), where(here) {}

  fmt::format_string<Args...> format;
  std::source_location where;
};

/// Asserts an invariant of the code, in every build; the message names the values.
template <typename... Args>
void check(bool holds, Located<std::type_identity_t<Args>...> message, Args&&... args) {
  if (holds) [[likely]] {
    return;
  }
  throw BugError(fmt::format("{}:{}: {}", message.where.file_name(), message.where.line(),
                             fmt::format(message.format, std::forward<Args>(args)...)));
}

}  // namespace baton
