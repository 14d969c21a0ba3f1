#include "baton/data/order.h"

#include <algorithm>
#include <bit>

#include "baton/base/error.h"

namespace baton::data {
namespace {

constexpr std::uint64_t feistel_rounds = 6;

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch)
    : n_(n),
      half_(std::max(1U, static_cast<std::uint32_t>(std::bit_width(n == 0 ? 0 : n - 1) + 1) / 2)),
      rounds_(seed, RandomStream::Domain::order, epoch) {}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  check(position < n_, "position {} of {} samples", position, n_);
  const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
  std::uint64_t number = position;
  do {
    std::uint64_t left = number >> half_;
    std::uint64_t right = number & mask;
    for (std::uint64_t round = 0; round < feistel_rounds; ++round) {
      // Each block of the stream gives one word: this one belongs to (right, round).
      const std::uint64_t mixed = left ^ (rounds_.word(4 * (right * feistel_rounds + round)) & mask);
      left = right;
      right = mixed;
    }
    number = left << half_ | right;
  } while (number >= n_);
  return number;
}

SampleOrder SampleOrder::training(std::int64_t samples, std::int64_t batch, std::uint64_t seed) {
  if (samples < batch) {
    throw usage_error("the data has {} sample{}, fewer than one batch of {}: give a smaller --batch or more data", samples,
                      samples == 1 ? "" : "s", batch);
  }
  return SampleOrder(samples, batch, seed, true);
}

SampleOrder SampleOrder::evaluation(std::int64_t samples, std::int64_t batch) {
  if (samples < 1) {
    throw usage_error("there is no sample to evaluate on: the data is shorter than one sample of this model");
  }
  return SampleOrder(samples, batch, 0, false);
}

std::int64_t SampleOrder::rows(std::int64_t step) const { return std::min(batch_, samples_ - step % steps_per_epoch() * batch_); }

Draw SampleOrder::at(std::int64_t step, std::int64_t row) const {
  const std::int64_t counted = row < rows(step) ? row : 0;
  const std::int64_t position = step % steps_per_epoch() * batch_ + counted;
  const auto in_epoch = static_cast<std::uint64_t>(epoch(step));
  if (!shuffled_) {
    return {position, in_epoch};
  }
  const Permutation permutation(static_cast<std::uint64_t>(samples_), seed_, in_epoch);
  return {static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(position))), in_epoch};
}

}  // namespace baton::data
