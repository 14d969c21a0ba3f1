#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baton/base/units.h"
#include "baton/exec/ranks/presence.h"
#include "baton/exec/watch/situation.h"

namespace baton::exec {

struct WatchOptions {
  int rank = 0;
  int size = 1;
  /// A rank that is not heard of for about this long is taken for lost, one whose tasks do not move for hung: both
  /// are said within it. Who saves or ends has longer (Situation).
  Nanoseconds patience{5'000'000'000};
  /// How long a rank that starts may wait for something else than the others, before there is a Situation to judge by.
  Nanoseconds slow_start = longest_absence;
  /// Hands the words of rank 0 to every rank: called once by each, at the start.
  std::function<std::string(const std::string& words)> broadcast;
};

/// A rank that cannot go on, and why the others are sure of it.
struct LostRank {
  enum class Cause : std::uint8_t {
    closed,  // its connection is closed: it was killed or has ended without a word
    silent,  // it does not answer: it is stopped, or its network is gone
    hung,    // it answers, but its task does not end, and the others wait for it
    failed,  // it has said itself why
    ended,   // somebody told it to end
  };
  int rank = -1;  // -1: no rank in particular, all wait
  Cause cause = Cause::closed;
  Nanoseconds since;
  std::string words;  // of one that failed,
  int code = 0;       // and the exit code that it wants
};

/// Why all ranks end.
struct Ending {
  std::vector<LostRank> lost;
  std::string text;     // for people: who is lost, where it was, what each other rank waited for; a line each
  bool spoken = false;  // whether it falls to this rank to say so: to rank 0, or to all where that is the one
                        // that is lost
};

/// Watches over the other ranks, apart from what they compute and send: a thread of its own in each rank and
/// a connection to rank 0, over which both sides are heard of many times within the patience. Time in which
/// this process itself was stopped or starved is not held against the others.
class Watch {
 public:
  /// Connects all ranks; a failure says which could not be reached. `over` is called at most once, from the
  /// watch's thread, when a rank is lost; it is to end the process.
  Watch(WatchOptions options, std::shared_ptr<const Board> board, std::function<void(const Ending&)> over);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Says that this rank is done, and waits until all have said so. Rank 0 then waits until the others have ended, which it sees
  /// when their watches are gone: one that does not end within the patience is lost. Destroying a watch parts too.
  void part();

  /// From now on rank 0 can tell from the standings who waits for whom. May be called again when more is known.
  void judge_by(std::shared_ptr<const Situation> situation);

  /// This rank cannot go on: tells the others why, and waits until it is said that all end.
  void give_up(const std::string& why, int code);

  /// Somebody has told this process to end; that all do follows. May be called in a signal handler.
  void told_to_end();

 private:
  class Post;
  std::unique_ptr<Post> post_;
};

}  // namespace baton::exec
