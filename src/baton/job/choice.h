#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "baton/job/spec.h"
#include "baton/model/model.h"
#include "baton/strategy/layout.h"

namespace baton::job {

/// A way of splitting a step: a point of the search space. Devices = dp × pp × tp.
struct Choice {
  std::int64_t dp = 1;
  std::int64_t pp = 1;
  std::int64_t tp = 1;
  bool sp = false;
  std::int64_t zero = 0;
  std::int64_t schedule = 0;  // number in schedule::schedules(); of no meaning without a pipeline
  std::int64_t chunks = 1;    // stages per device of the pipeline
  std::int64_t micro_batches = 1;
  strategy::Recompute recompute = strategy::Recompute::none;

  std::int64_t devices() const { return dp * pp * tp; }
  bool operator==(const Choice&) const = default;
};

/// The job with that split, and with exactly as many devices as it needs.
JobSpec spec_of(const Choice& choice, JobSpec shared);

/// The split of the devices alone, which all choices of a group share.
struct Group {
  std::int64_t dp = 1;
  std::int64_t pp = 1;
  std::int64_t tp = 1;
  bool sp = false;

  std::int64_t devices() const { return dp * pp * tp; }
  auto operator<=>(const Group&) const = default;
};

/// The possible splits for a model, a batch and at most this many devices.
///   dp     up to 64 devices every number; beyond that, those that divide the batch
///   pp     up to 64 devices every number; beyond that, powers of two, divisors of the number of devices, and the smallest numbers
///   for
///          which the longest stage has this many blocks
///   tp     up to 8 devices every number; beyond that, powers of two and divisors of the number of devices up to 64
///   sp     off, and on if tensors are divided
/// All together take no more devices than there are.
std::vector<Group> groups_of(const model::Model& model, std::int64_t batch, std::int64_t devices);

/// The variants of a group: stages of ZeRO 0 to 3; every schedule, with 2, 3, 4, 6 and 8 chunks where it takes several; every
/// number of micro-batches that divides the rows of a replica evenly, and once, twice and four times the stages; every
/// recomputation, or with `of_programs` those that other training programs have: none and full. Variants that would give the same
/// plan appear once.
void for_each_choice(const Group& group, const model::Model& model, std::int64_t batch,
                     const std::function<void(const Choice& choice)>& visit, bool of_programs = false);

}  // namespace baton::job
