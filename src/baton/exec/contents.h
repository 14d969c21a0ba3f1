#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "baton/plan/buffer.h"

namespace baton::exec {

/// Where an element of a row-major tensor lies in a buffer of that order.
std::int64_t element_offset(const plan::Buffer& buffer, std::int64_t row_major_index);

/// Puts in what a persistent buffer holds before the first step: parameters drawn from `seed`, optimizer state zero,
/// inputs and targets of the samples from `first_sample` on. What is put in does not depend on how things are split.
void fill_initial(const plan::Buffer& buffer, std::byte* memory, std::uint64_t seed, std::int64_t first_sample,
                  std::int64_t classes);

/// The buffer's elements as a row-major tensor of doubles.
std::vector<double> read_elements(const plan::Buffer& buffer, const std::byte* memory);
/// The inverse: rounds to the buffer's type.
void write_elements(const plan::Buffer& buffer, std::byte* memory, std::span<const double> elements);

}  // namespace baton::exec
