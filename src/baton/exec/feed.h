#pragma once

#include <cstdint>
#include <span>

namespace baton::exec {

/// The source of the rows of a batch, if they are not random numbers. It is a function of step and row, so every device and
/// every rank takes what it needs without communication. Any number of threads may call it at once; a read error is thrown.
class Feed {
 public:
  virtual ~Feed() = default;

  /// The number of elements of the input of one sample, and of its target.
  virtual std::int64_t input_elements() const = 0;
  virtual std::int64_t target_elements() const = 0;
  /// Writes one sample, row-major: the input in a row of the batch of a step (from 0), as numbers or as integers.
  virtual void input(std::int64_t step, std::int64_t row, std::span<float> out) const = 0;
  virtual void input(std::int64_t step, std::int64_t row, std::span<std::int32_t> out) const = 0;
  /// Writes the target that the output for that sample is compared with.
  virtual void target(std::int64_t step, std::int64_t row, std::span<float> out) const = 0;
  virtual void target(std::int64_t step, std::int64_t row, std::span<std::int32_t> out) const = 0;
  /// A number that is equal on all ranks that read the same data.
  virtual std::uint64_t fingerprint() const = 0;
};

}  // namespace baton::exec
