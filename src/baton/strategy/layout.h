#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/units.h"
#include "baton/schedule/grid.h"

namespace baton::strategy {

/// The activations that are freed after the forward and recomputed in the backward.
enum class Recompute : std::uint8_t {
  none,
  light,      // the results of norms, GELUs and gates, whose inputs the backward reads anyway; each where it is read
  alternate,  // the input of every second block of a stage, and what is computed from it
  all,        // the inputs of all but about the root of a stage's block count
  full        // as other programs do it: all that is computed within a block, from its input, whether the backward reads it or
              // not; except in the first and the last block of the model
};

const std::vector<std::string>& recompute_names();
Recompute recompute_by_name(std::string_view name);
std::string_view to_text(Recompute recompute);

/// The rule by which blocks are assigned to the stages of a pipeline if no split is given: by number, by arithmetic, or by
/// the memory of parameters and activations.
enum class Balance : std::uint8_t { even, work, memory };

const std::vector<std::string>& balance_names();
Balance balance_by_name(std::string_view name);

/// The split of the work: devices = dp × pp × tp. Each strategy reads what concerns it.
struct Layout {
  std::int64_t dp = 0;  // replicas; 0: what the strategy makes of the devices
  std::int64_t pp = 0;  // devices that a replica's stages are spread over; likewise
  std::int64_t tp = 0;  // devices that each tensor is divided over; likewise
  bool sp = false;      // between the divided layers the sequence is divided over the same devices
  /// The stage of ZeRO. 1: optimizer states are divided over the replicas, 2: gradients too, 3: parameters too; nullopt: the
  /// strategy's stage.
  std::optional<std::int64_t> zero;
  std::string schedule;                // the schedule of the pipeline; empty: the strategy's
  std::optional<schedule::Grid> grid;  // a schedule of the user's own
  std::int64_t chunks = 0;             // stages per device; 0: the schedule's
  std::vector<std::int64_t> split;     // blocks per stage; empty: by `balance`
  Balance balance = Balance::even;
  Recompute recompute = Recompute::none;
  std::int64_t micro_batches = 0;  // the parts that the rows of a replica are split into, accumulating gradients; 0: one, and in a
                                   // pipeline that overlaps them twice its devices
  Bytes bucket = Bytes(25 << 20);  // gradients are reduced together once they reach this size
  Bytes first_bucket = Bytes(1 << 20);  // a small first bucket lets communication begin early
};

}  // namespace baton::strategy
