#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "baton/base/units.h"

namespace baton::app {

/// A progress bar on standard error during long work; nothing if that is not a terminal.
class ProgressBar {
 public:
  /// Shown as a share of the whole, and not as one number of another.
  static constexpr const char* percent = "%";

  /// `unit` names what is counted.
  ProgressBar(std::string what, std::int64_t total, bool wanted, std::string unit);
  ~ProgressBar();
  void show(std::int64_t done);
  /// Takes the bar off the screen, so that other lines may be printed.
  void clear();

 private:
  std::string what_;
  std::int64_t total_;
  std::string unit_;
  bool visible_;
  bool drawn_ = false;
  Nanoseconds start_;
};

/// "-" or a path. A file is whole or not there.
void write_output(const std::string& path, const std::string& text);
/// For the paths that a command was given (empty: none), throws what `write_output` would throw, before the work whose results they
/// get has begun; and a usage error if two lead to the same file. A path that stands for standard output becomes "-".
void settle_outputs(std::initializer_list<std::string*> paths);

/// One line of text without control characters: text from files and flags may be long, and contain characters that control
/// terminals.
std::string printable(const std::string& sentence);
/// True if text in UTF-8 has control characters.
bool steers_terminal(const std::string& text);

/// A word as a shell takes it for one.
std::string shell_word(const std::string& word);

}  // namespace baton::app
