#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend/cuda/slice.h"
#include "baton/exec/ranks/world.h"
#include "baton/exec/transport/gpus.h"
#include "baton/plan/ordering.h"

namespace baton::exec::cuda {

/// One member's part in a meeting of several ranks, on its device's stream. Its place is entered when it is called.
class Passage {
 public:
  virtual ~Passage() = default;
  /// What comes before it is in the stream.
  virtual void begin() = 0;
  /// Does what can be done without waiting; true once all that the member does is in the stream.
  virtual bool progress() = 0;
  /// Whether the device itself has come to it, and what is missing are others.
  virtual bool has_come() const = 0;
};

/// How meetings of several ranks cross, in one of the ways there are.
class Passages {
 public:
  virtual ~Passages() = default;
  virtual std::unique_ptr<Passage> prepare(TaskId task) = 0;
  /// Called while none is under way, before each step.
  virtual void begin_step() = 0;
  /// Called while somebody waits: a failure where none can go on any more.
  virtual void look() = 0;
  /// This rank fails: aborts all pending waits.
  virtual void give_up() noexcept = 0;
};

/// What both ways need to know; all of it outlives them.
struct Journey {
  const Slice& slice;
  const plan::Ordering& ordering;
  const std::vector<Way>& ways;    // by meeting
  const std::vector<int>& run_by;  // by device: the rank
  const std::optional<cluster::Link>& link;
  World& world;
};

/// Through host memory: out of the GPU, by the messages that devices on cores use, and into the GPU. Sums are taken on the host,
/// in the order of the members, and have the bits of those that a kernel takes.
std::unique_ptr<Passages> make_staged_passages(const Journey& journey);
/// Straight between GPUs. All ranks make them at the same time.
std::unique_ptr<Passages> make_nccl_passages(const Journey& journey);

}  // namespace baton::exec::cuda
