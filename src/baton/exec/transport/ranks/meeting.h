#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "baton/exec/rounding.h"
#include "baton/exec/transport/dealing.h"
#include "baton/exec/transport/operation.h"
#include "baton/ranks/world.h"
#include "baton/threads/doorbell.h"

namespace baton::exec {

/// One rank's part in a meeting of devices of several ranks: messages and operations, each of which waits for some of the
/// others. It starts when all members of this rank have arrived. Running it allocates nothing.
class RankMeeting final : public ranks::Listener {
 public:
  RankMeeting(std::shared_ptr<ranks::World> world, std::vector<threads::Doorbell*> members);

  // Set up before the first step. Each returns its number, by which later ones can wait for it.
  using After = std::vector<std::size_t>;
  std::size_t add(const ranks::Message& message, After after = {});
  std::size_t add(Operation operation, After after = {});
  /// Makes it last at least `min_duration` after everything in `after` is over.
  void slow_down(Nanoseconds min_duration, After after);

  void begin_step();
  /// A member of this rank has arrived.
  void arrive();
  bool met() const { return met_.load(std::memory_order_acquire); }
  /// Runs operations that are ready until there are none. Any thread may call it.
  void work();
  /// The number of operations that are ready to run.
  std::size_t ready() const {
    const std::size_t head = head_.load(std::memory_order_acquire);  // first: it does not overtake the tail
    return tail_.load(std::memory_order_acquire) - head;
  }
  bool finished() const { return left_.load(std::memory_order_acquire) == 0; }
  /// The earliest time at which it is over, once everything is done; zero: at once.
  Nanoseconds over_at() const { return Nanoseconds(over_at_.load(std::memory_order_relaxed)); }
  Rounding rounding() const { return rounding_.total(); }

  void over(std::size_t number) override { complete(number); }

 private:
  struct Mark {
    Nanoseconds min_duration;
  };
  struct Node {
    std::variant<ranks::Message, Operation, Mark> what;
    int after = 0;
    std::vector<std::size_t> then;
  };
  struct Counter {
    std::atomic<int> value{0};
  };

  std::size_t add_node(std::variant<ranks::Message, Operation, Mark> what, const After& after);
  void begin(std::size_t number);
  void complete(std::size_t number);
  void ring() const;

  std::shared_ptr<ranks::World> world_;
  std::vector<threads::Doorbell*> doorbells_;
  std::vector<Node> nodes_;
  std::size_t operation_count_ = 0;
  SharedRounding rounding_;

  // Changed within a step.
  std::unique_ptr<Counter[]> waits_;                        // by node: how many others it waits for
  std::unique_ptr<std::atomic<std::size_t>[]> operations_;  // ready ones, in order: a ring buffer
  alignas(64) std::atomic<std::size_t> arrived_{0};
  std::atomic<bool> met_{false};
  alignas(64) std::atomic<std::size_t> left_{0};
  // The numbers of operations that were taken and that were ready, in all steps. They only grow, so a thread that read one
  // of them in an earlier step and continues in a later one sees that it has changed.
  std::atomic<std::size_t> head_{0};
  std::atomic<std::size_t> tail_{0};
  std::atomic<std::int64_t> over_at_{0};
};

}  // namespace baton::exec
