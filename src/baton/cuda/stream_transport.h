#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cuda/routes.h"
#include "baton/cuda/slice.h"
#include "baton/plan/ordering.h"
#include "baton/ranks/world.h"

namespace baton::cuda {

/// One member's part in a meeting of several ranks, on its device's stream. Its place must be current when it is called.
class StreamExchange {
 public:
  virtual ~StreamExchange() = default;
  /// Starts it; all earlier work is in the stream.
  virtual void begin() = 0;
  /// Does what can be done without waiting; true once all work of the member is in the stream.
  virtual bool progress() = 0;
  /// True if the device itself has arrived, so that it waits for other members.
  virtual bool has_come() const = 0;
};

/// Carries meetings of several ranks, by NCCL or through host memory.
class StreamTransport {
 public:
  virtual ~StreamTransport() = default;
  virtual std::unique_ptr<StreamExchange> prepare(TaskId task) = 0;
  /// Called before each step, while no exchange runs.
  virtual void begin_step() = 0;
  /// Called while a member waits: throws a failure if no exchange can finish any more.
  virtual void look() = 0;
  /// This rank fails: aborts all pending waits.
  virtual void give_up() noexcept = 0;
};

/// The context of both transports; it must outlive them.
struct StreamTransportContext {
  const Slice& slice;
  const plan::Ordering& ordering;
  const std::vector<MeetingRoute>& routes;  // by meeting
  const std::vector<int>& rank_of_device;   // per device: the rank
  const std::optional<cluster::Link>& link;
  const std::shared_ptr<ranks::World>& world;
};

/// Through host memory: out of the GPU, by the messages that devices on cores use, and into the GPU. Sums are taken on the host,
/// in the order of the members, and have the bits of those that a kernel takes.
std::unique_ptr<StreamTransport> make_staged_transport(const StreamTransportContext& context);
/// Directly between GPUs, by NCCL. All ranks construct it at the same time.
std::unique_ptr<StreamTransport> make_nccl_transport(const StreamTransportContext& context);

}  // namespace baton::cuda
