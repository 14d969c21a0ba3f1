#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "baton/base/file.h"
#include "baton/exercise/confine.h"

namespace baton::exercise {

using Clock = std::chrono::steady_clock;
Clock::time_point after(double seconds);

/// The results of a command that ran to its end, or past its time.
struct Ended {
  bool late = false;
  int code = 0;         // 128 and the signal's number if a signal ended it
  std::string printed;  // the output of the program, of stdout and stderr
};
/// Runs a command with these limits of time and memory (0: none), in a process group of its own, of which nothing is left.
/// It is not confined further: compilers write files and start processes. If `given_up` says so while it runs, it is ended as if it
/// were late.
Ended run_command(const std::vector<std::string>& words, double seconds, std::int64_t memory,
                  const std::function<bool()>& given_up = {});

/// A checked program while it runs: confined, in a process of its own. It is told cases and heard over the channel; what it prints
/// is kept aside. It ends with this value.
class Process {
 public:
  Process(const std::filesystem::path& program, const Limits& limits);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Sends a message; what cannot be sent shows when the answer is missing.
  void tell(const std::string& message, Clock::time_point deadline);
  /// Takes what has arrived, without waiting.
  void pump();
  /// The next whole message of those that have arrived.
  std::optional<std::string> take();
  /// Waits for the next message; nullopt if the program ends, sends something other than a message, or is late.
  std::optional<std::string> hear(Clock::time_point deadline);

  int channel() const { return channel_.get(); }
  bool ended() const { return ended_; }
  bool babbles() const { return babbles_; }
  /// Ends it, if it runs, and says how it ended: "was ended by signal 11 (segmentation fault)". Empty if it ran until then.
  std::string end();
  /// The beginning of what it has printed.
  std::string printed() const;

 private:
  pid_t pid_ = -1;
  Descriptor channel_{-1};
  Descriptor output_{-1};
  std::string arrived_;
  bool ended_ = false;    // the channel is closed on its side
  bool babbles_ = false;  // what arrived is not a message
};

}  // namespace baton::exercise
