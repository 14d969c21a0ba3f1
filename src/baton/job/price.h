#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "baton/job/choice.h"
#include "baton/job/reduced.h"
#include "baton/job/scenario.h"

namespace baton::job {

/// The cost of a split, without compiling it.
struct Price {
  double time = 0;          // estimated nanoseconds of a step
  double memory = 0;        // estimated bytes of the fullest device
  double least_time = 0;    // lower bound in nanoseconds of a step
  double least_memory = 0;  // lower bound in bytes of the fullest device
  double tasks = 0;      // estimated tasks of the plans that would be compiled; a task that takes longer to check counts as several
  double all_tasks = 0;  // the same if no devices were alike, so that nothing is folded
};

/// The numbers of micro-batches of the two shorter steps from which the time of a step with very many is extrapolated: once the
/// pipeline is full, each further micro-batch adds the same time. nullopt if the step itself is simulated.
std::optional<std::pair<std::int64_t, std::int64_t>> shorter_steps(const Choice& choice, std::int64_t batch);

/// Prices the splits of one job by formulas. The time of a block comes from a simulation with the job's own costs: the model with
/// each repeated block once is compiled for one replica and stage, once per number of parts and of rows (powers of two; between
/// them in proportion). Formulas add the idle time of the schedule, bytes over links for gradients and pieces, and the memory of
/// parameters, states and kept activations.
class Pricer {
 public:
  /// The layout of the request is not looked at.
  Pricer(strategy::Request request, const WhatIf& what_if, const cost::Software& software, Duration own = {});

  /// Explains why tensors of the model cannot be divided in this way; nullopt if they can.
  std::optional<std::string> refused(std::int64_t tp, bool sp);
  /// Before: tensors can be divided in this way.
  Price price(const Choice& choice);
  /// No device holds less than its part of the parameters and states. In bytes.
  double least_memory(const Choice& choice) const;

 private:
  struct Unit {
    struct Block {
      double forward = 0;  // nanoseconds
      double backward = 0;
      double weights = 0;  // the part of the backward that the gradients of weights take
      double update = 0;
      double elements = 0;  // elements of the parameters of one part
      double inner = 0;     // bytes that are kept from the forward to the backward
      double late = 0;      // bytes that the gradients of weights are computed from
      double output = 0;    // bytes that pass to the next block
    };
    std::vector<Block> blocks;  // the blocks of the reduced model
  };
  /// The device of a pipeline that needs most, and the pipeline as a whole.
  struct Pipe {
    double longest = 0;   // nanoseconds per micro-batch of the slowest device
    double whole = 0;     // nanoseconds per micro-batch of all devices together
    double forward = 0;   // nanoseconds of the forward on the slowest device
    double weights = 0;   // nanoseconds of the gradients of weights on the slowest device
    double update = 0;    // nanoseconds per step of the device with most parameters, not divided
    double elements = 0;  // parameters of that device
    double kept = 0;      // bytes per micro-batch of the device that keeps most
    double late = 0;      // bytes that wait for the gradients of weights if the backward is in halves
    double again = 0;     // bytes that recomputation makes at once
    double message = 0;   // bytes between two stages
    double backward = 0;  // nanoseconds of the slowest device's backward
  };
  using UnitKey = std::tuple<std::int64_t, bool, std::int64_t, bool>;  // tp, sp, rows, Recompute::light
  using PipeKey = std::tuple<UnitKey, std::int64_t, std::int64_t, strategy::Recompute>;

  class UnitSums;

  const Unit& unit(const UnitKey& key);
  Unit make_unit(const UnitKey& key) const;
  const Pipe& pipe(const PipeKey& key);
  Pipe make_pipe(const PipeKey& key);
  const std::vector<std::int64_t>& blocks_of_stages(std::int64_t stages);

  double spread_time(double bytes, std::int64_t dp, std::int64_t tp) const;
  double message_time(double bytes, std::int64_t dp, std::int64_t tp) const;
  double parameter_bytes(double elements, std::int64_t dp, std::int64_t zero) const;
  double in_flight(const Choice& choice) const;
  double kept_at_most(const Choice& choice, const Pipe& pipe);
  double written_copies(const Choice& choice) const;
  double least_time(const Choice& choice, double samples) const;

  struct Matrix {
    double positions;  // rows of one sample
    double rows, columns;
    double products;  // the number in all blocks: forward, gradient of the weights and, except in the first block, of the input
  };

  strategy::Request request_;
  cluster::Cluster cluster_;  // the cluster, changed as --what-if asks
  WhatIf what_if_;
  cost::Software software_;
  Duration own_;
  Reduced reduced_;
  std::vector<Matrix> matrices_;
  double port_ = 0;
  double parameters_ = 0;
  double in_node_ = 1;
  std::map<std::pair<std::int64_t, bool>, std::optional<std::string>> refused_;
  std::map<UnitKey, Unit> units_;
  std::map<PipeKey, Pipe> pipes_;
  std::map<std::int64_t, std::vector<std::int64_t>> stages_;
  /// The number of micro-batches that a device keeps at once: between forward and backward, and between the two halves of
  /// the backward. One that only some of its stages keep counts in part.
  using Moments = std::vector<std::pair<double, double>>;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, Moments> moments_;
};

}  // namespace baton::job
