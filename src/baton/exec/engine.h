#pragma once

#include <memory>
#include <span>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/addresses.h"
#include "baton/exec/backend.h"
#include "baton/exec/contents.h"
#include "baton/exec/run.h"
#include "baton/plan/memory.h"
#include "baton/plan/ordering.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"

namespace baton::exec {

/// The buffers that the data of a step goes into and those that its loss is read from, for any engine.
struct StepData {
  RandomContents source;
  std::shared_ptr<const Feed> feed = nullptr;  // if there is one, rows come from it
  std::int64_t batch = 0;                      // rows of the global batch
  std::vector<BufferId> loaded;  // inputs and targets that are filled before each step; empty if the batch stays the same
  std::vector<BufferId> ahead;   // inputs and targets that a Load fills during the step before
  std::vector<BufferId> losses;  // in the order of the batch
  /// The order in which the rows of those buffers are summed: by sample and position, however they are split and laid out, so that
  /// the sum has the same bits.
  std::vector<std::size_t> loss_order;
  std::vector<MemoryLayout> layouts = {};  // the memory layouts of the backend

  /// The first sample of a step; steps are numbered from 0.
  std::int64_t first_sample(std::int64_t step) const { return source.samples > 0 ? step * batch % source.samples : 0; }
  /// Puts in what a persistent buffer holds at the start of a step: inputs and targets of its rows, parameters of the first.
  void fill(const plan::Buffer& buffer, std::byte* memory, std::int64_t step) const;
};
/// The order of the rows of these losses.
std::vector<std::size_t> loss_order(const plan::Plan& plan, const std::vector<BufferId>& losses);
StepData step_data(const plan::Plan& plan, const DataOptions& options);

/// A verified plan, with its ordering and memory layout.
struct Assignment {
  plan::Plan plan;
  cluster::Cluster cluster;
  plan::Ordering ordering;
  plan::Memory memory;
  StepData data;
  std::shared_ptr<ranks::World> world = nullptr;  // the ranks that run it together; nullptr: this process alone
};

/// True if the task changes what is kept from step to step: parameters, states, loss scales.
bool changes_state(const plan::Plan& plan, const plan::Task& task);

/// Runs plans for a backend: threads on cores, streams on GPUs. It has allocated each device's arena, laid out as in
/// `Assignment::memory`, and filled the persistent buffers for the first step.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Runs further steps. The first failure is thrown after every device has stopped.
  virtual RunResult run(const RunOptions& options, const Progress& progress) = 0;
  /// Some bytes of a persistent buffer as they lie in memory, from `begin` on, between runs. All ranks ask for the same ones in the
  /// same order, and get them; what is written is kept by the rank that runs the buffer's device.
  virtual void read(BufferId id, std::size_t begin, std::span<std::byte> into) const = 0;
  virtual void write(BufferId id, std::size_t begin, std::span<const std::byte> bytes) = 0;
  /// Counts `steps` as done: the next step has the number and the data after them.
  virtual void continue_from(std::int64_t steps) = 0;
};

}  // namespace baton::exec
