#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baton/base/units.h"
#include "baton/ranks/progress.h"
#include "baton/watch/stall_diagnosis.h"

namespace baton::watch {

struct WatchOptions {
  int rank = 0;
  int size = 1;
  /// A rank without a heartbeat for about this long counts as lost, one without progress as hung; both are
  /// reported within this time. Ranks that are saving or shutting down get longer (StallDiagnosis).
  Nanoseconds patience{5'000'000'000};
  /// The time that a rank which starts may wait for anything but other ranks, before there is a StallDiagnosis.
  Nanoseconds slow_start = longest_absence;
  /// Sends the text of rank 0 to every rank: called once by each, at the start.
  std::function<std::string(const std::string& words)> broadcast;
  /// Called from the watch's thread when a rank has said that it gives up its step for this signal.
  std::function<void(int signal)> stopping = {};
};

/// A lost rank, and the evidence.
struct LostRank {
  enum class Cause : std::uint8_t {
    closed,  // its connection is closed: it was killed or exited without a message
    silent,  // no heartbeat: it is stopped, or its network is lost
    hung,    // it has a heartbeat, but its task does not end and the others wait for it
    failed,  // it reported its own error
    ended,   // it received a signal to end
  };
  int rank = -1;  // -1: no rank in particular, all wait
  Cause cause = Cause::closed;
  Nanoseconds since;
  std::string words;  // the error that a failed rank reported
  int code = 0;       // the exit code that a failed rank wants
};

/// The reason for which all ranks end.
struct Ending {
  std::vector<LostRank> lost;
  std::string text;     // to print: which rank is lost, its last task, what each other rank waited for; one line each
  bool spoken = false;  // whether this rank prints the text: rank 0, or every rank if rank 0 is the
                        // lost one
};

/// Detects lost ranks, independently of MPI: one thread per rank and a connection to rank 0, over which both
/// sides send heartbeats, many within the patience. Time in which this process itself was stopped or starved
/// does not count as silence of the others.
class Watch {
 public:
  /// Connects all ranks; a failure says which could not be reached. `over` is called at most once, from the
  /// watch's thread, when a rank is lost; it must end the process.
  Watch(WatchOptions options, std::shared_ptr<const ranks::RankProgress> progress, std::function<void(const Ending&)> over);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Reports that this rank is done, and waits until all are. Rank 0 then waits until the others have exited, which closes their
  /// connections: a rank that does not exit within the patience is lost. The destructor parts too.
  void part();

  /// Sets the StallDiagnosis by which rank 0 decides which rank waits for which. May be called again when more is known.
  void judge_by(std::shared_ptr<const StallDiagnosis> diagnosis);

  /// A rank that is done may take this long to exit, if that is more than the patience. Rank 0 decides by it.
  void allow_exit(Nanoseconds longest);

  /// This rank has failed: sends its error to the others, and waits until all are told to end.
  void give_up(const std::string& why, int code);

  /// This process received a signal and gives up its step: every rank hears it (`WatchOptions::stopping`), this one too.
  void stop_all(int signal);

  /// This process received a signal to end; all ranks then end. May be called in a signal handler.
  void end_all();

 private:
  class HeartbeatThread;
  std::unique_ptr<HeartbeatThread> heartbeat_;
};

}  // namespace baton::watch
