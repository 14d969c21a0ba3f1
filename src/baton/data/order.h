#pragma once

#include <cstdint>

#include "baton/base/random.h"
#include "baton/data/source.h"

namespace baton::data {

/// A permutation of [0, n) as a function of (seed, epoch): a Feistel network whose rounds are Philox, applied until the result is
/// below n. It has no table, so any position can be asked for, in any order and by any rank.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);

  std::uint64_t operator()(std::uint64_t position) const;

 private:
  std::uint64_t n_;
  std::uint32_t half_;  // bits of each half of a number
  RandomStream rounds_;
};

/// Says which sample is in which row of which batch. It is a pure function of the step, so that a run can continue at any
/// step, and all ranks agree without communication.
class SampleOrder {
 public:
  /// The order of a training: each epoch has the samples in another order. The samples after the last whole batch are left
  /// out, different ones in each epoch. A usage error if there are fewer samples than one batch takes.
  static SampleOrder training(std::int64_t samples, std::int64_t batch, std::uint64_t seed);
  /// The order of an evaluation: all samples in the order of the source. The last batch may be partial.
  static SampleOrder evaluation(std::int64_t samples, std::int64_t batch);

  std::int64_t samples() const { return samples_; }
  std::int64_t steps_per_epoch() const { return shuffled_ ? samples_ / batch_ : (samples_ + batch_ - 1) / batch_; }
  std::int64_t epoch(std::int64_t step) const { return step / steps_per_epoch(); }
  /// The number of rows of a step's batch that hold samples which count: all of them, except in the last step of an
  /// evaluation.
  std::int64_t rows(std::int64_t step) const;
  /// The sample in one row of a step's batch. A row that does not count repeats the first sample of the batch.
  Draw at(std::int64_t step, std::int64_t row) const;

 private:
  SampleOrder(std::int64_t samples, std::int64_t batch, std::uint64_t seed, bool shuffled)
      : samples_(samples), batch_(batch), seed_(seed), shuffled_(shuffled) {}

  std::int64_t samples_;
  std::int64_t batch_;
  std::uint64_t seed_;
  bool shuffled_;
};

}  // namespace baton::data
