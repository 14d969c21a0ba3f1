#pragma once

#include <exception>
#include <string>
#include <utility>

/// A request from outside, as by a signal, that the program end. It is of the whole process: whatever may last long looks at it.
namespace baton {

/// What has been asked for, in this order. Any thread may ask; a lesser request than the last changes nothing.
enum class Stop {
  none,
  after_the_step,  // what is under way may come to its end
  at_once,         // it is given up, wherever it stands
};
void ask_to_stop(Stop how);
/// Cheap enough for inner loops.
bool asked_to_stop();
bool asked_to_stop_at_once();
/// For tests, which go on afterwards.
void forget_stop();

/// Thrown by what was given up in the middle.
class Stopped : public std::exception {
 public:
  explicit Stopped(std::string sentence = "stopped before it was done") : sentence_(std::move(sentence)) {}
  const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  std::string sentence_;
};

/// Throws that if somebody has asked.
void end_if_asked();

}  // namespace baton
