#pragma once

#include <exception>
#include <string>
#include <utility>

/// A request from outside, for example by a signal, to end the program. It concerns the whole process: all long-running code checks
/// it.
namespace baton {

/// The kinds of stop that can be requested, from the mildest to the strongest. Any thread may ask; a lesser request than
/// the last changes nothing.
enum class Stop {
  none,
  after_the_step,  // the current step may finish
  at_once,         // the current step is abandoned
};
void ask_to_stop(Stop how);
/// Cheap enough for inner loops.
bool asked_to_stop();
bool asked_to_stop_at_once();
/// Withdraws the request: for tests, which continue afterwards.
void forget_stop();

/// Thrown by code that was abandoned in the middle.
class Stopped : public std::exception {
 public:
  explicit Stopped(std::string sentence = "stopped before it was done") : sentence_(std::move(sentence)) {}
  const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  std::string sentence_;
};

/// Throws `Stopped` if a stop was requested.
void throw_if_stop_requested();

}  // namespace baton
