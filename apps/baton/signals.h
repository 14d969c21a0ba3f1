#pragma once

#include <functional>
#include <string>

#include "baton/ranks/world.h"

/// How the program ends when SIGINT, SIGTERM or SIGHUP asks it to. The first one lets the step under way come to its end for a
/// moment; then it is given up (`asked_to_stop_at_once`); and before a second is over the process ends, unless the command has
/// noticed and is putting together what it has. A second signal ends it at once. Exit codes are 128 and the signal's number.
namespace baton::app {

/// From now on. Signals that were ignored when the program began, as under nohup, stay so. One of several ranks ends earlier if it
/// has to be ended: the others have to hear of it before the second is over, and a launcher kills them then.
void watch_for_signals(bool several_ranks);

/// What a command asks while it works, and says when it has noticed.
class Interrupt {
 public:
  bool asked() const;
  /// The command has left its work. If that is because it was asked to, it takes the time it needs to keep what it has.
  void wind_up() const;
  /// 128 and the number of the first signal.
  int exit_code() const;
  /// That of a rank that was asked, the same for all, which call it together; 0 if none was.
  int exit_code_anywhere(ranks::World& world) const;
};

/// While it lives, something is being kept that is not to be left in the middle for a first signal.
class Keeping {
 public:
  Keeping();
  ~Keeping();
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;
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

/// What was printed so far is let out, unless somebody is stuck printing it or nobody takes it.
void flush_output();

/// What is said if the process ends in the middle of its work, as "nothing is saved".
void say_if_stopped(std::string words);
/// Called, once, before the process ends in the middle of its work; what other ranks need to know.
void call_if_stopped(std::function<void()> action);
/// Called when the step under way is given up for a signal, which other ranks need to know.
void call_if_given_up(std::function<void(int signal)> action);
/// Another rank has given up its step for this signal: this one does so too.
void give_up_with(int signal);

/// Ends the process in the middle of its work with a sentence, after that, and takes unfinished files along.
[[noreturn]] void end_stopped(const std::string& sentence);

}  // namespace baton::app
