#pragma once

#include <functional>
#include <string>

#include "baton/ranks/world.h"

/// The end of the program after SIGINT, SIGTERM or SIGHUP. After the first signal the current step may finish for a moment;
/// then it is abandoned (`asked_to_stop_at_once`); and within a second the process ends, unless the command has noticed and
/// is saving its results. A second signal ends it at once. Exit codes are 128 plus the number of the signal.
namespace baton::app {

/// Starts to watch for signals. Signals that were ignored when the program began, as under nohup, stay so. One of several
/// ranks ends earlier if it has to be ended: the others have to hear of it before the second is over, and a launcher kills
/// them then.
void watch_for_signals(bool several_ranks);

/// The stop that a signal asks for: a command checks it while it works, and says when it has noticed.
class Interrupt {
 public:
  bool asked() const;
  /// The command has stopped working. If it was asked to, it now has the time it needs to save its results.
  void begin_saving() const;
  /// 128 plus the number of the first signal.
  int exit_code() const;
  /// The exit code of a rank that was asked to stop, the same on all ranks, which call it together; 0 if none was asked.
  int exit_code_anywhere(ranks::World& world) const;
};

/// While it lives, something is being saved that a first signal must not interrupt.
class SaveGuard {
 public:
  SaveGuard();
  ~SaveGuard();
  SaveGuard(const SaveGuard&) = delete;
  SaveGuard& operator=(const SaveGuard&) = delete;
};

/// While it lives, a result is written to a pipe or a device, whose reader decides how long that takes. If it takes long, a first
/// signal ends the process although the command keeps what it has.
class PipeWrite {
 public:
  PipeWrite();
  ~PipeWrite();
  PipeWrite(const PipeWrite&) = delete;
  PipeWrite& operator=(const PipeWrite&) = delete;
};

/// Flushes what was printed so far, unless a thread is stuck printing or nobody reads it.
void flush_output();

/// The sentence that is printed if the process ends in the middle of its work, as "nothing is saved".
void say_if_stopped(std::string words);
/// Called, once, before the process ends in the middle of its work; what other ranks need to know.
void call_if_stopped(std::function<void()> action);
/// Called when the current step is abandoned because of a signal, which other ranks need to know.
void call_if_given_up(std::function<void(int signal)> action);
/// Another rank has abandoned its step because of this signal: this one does so too.
void give_up_with(int signal);

/// Ends the process in the middle of its work with that sentence, and removes unfinished files.
[[noreturn]] void end_stopped(const std::string& sentence);

}  // namespace baton::app
