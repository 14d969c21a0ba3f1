#pragma once

#include <cstdint>
#include <string>

#include "baton/base/units.h"

namespace baton::app {

/// A bar on the terminal's standard error while something long goes on; nothing where that is no terminal.
class ProgressBar {
 public:
  ProgressBar(std::string what, std::int64_t total, bool wanted);
  ~ProgressBar();
  void show(std::int64_t done);
  /// Takes the bar off the screen, so that other lines may be printed.
  void clear();

 private:
  std::string what_;
  std::int64_t total_;
  bool visible_;
  bool drawn_ = false;
  Nanoseconds start_;
};

/// While it lives, Ctrl-C and SIGTERM, which launchers and batch systems send, ask for an end instead of making one.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  bool asked() const;

 private:
  void (*previous_interrupt_)(int);
  void (*previous_termination_)(int);
};

/// "-" or a path. Writes to a temporary name beside it, flushes and renames: the file is whole or not there.
void write_output(const std::string& path, const std::string& text);
/// Throws what `write_output` would throw, before the work that it is to keep has begun.
void check_writable(const std::string& path);

/// One line of text that a terminal only shows: what files and flags brought along may be long, and hold signs that steer
/// terminals.
std::string printable(const std::string& sentence);

/// A word as a shell takes it for one.
std::string shell_word(const std::string& word);

}  // namespace baton::app
