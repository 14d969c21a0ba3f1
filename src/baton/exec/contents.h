#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "baton/exec/feed.h"
#include "baton/exec/memory_layout.h"
#include "baton/plan/buffer.h"

namespace baton::exec {

// Functions here take the layouts of the backend that runs the buffer's plan. A row-major buffer needs none.

/// The position in a buffer of an element of its tensor, given by its row-major index. A piece is a row of elements as they lie.
std::int64_t element_offset(const plan::Buffer& buffer, std::int64_t row_major_index, MemoryLayouts layouts);

/// Random numbers that buffers are filled with.
struct RandomContents {
  std::uint64_t seed = 0;
  std::int64_t samples = 0;  // in the data set, which repeats after the last one; 0: endless
  std::int64_t classes = 1;  // labels are drawn below this number
  std::int64_t tokens = 1;   // integer inputs are drawn below this number
};

/// Fills a persistent buffer for the first step: parameters, zeros for optimizer state, inputs and targets of
/// the samples from `first_sample` on. The contents do not depend on the split.
void fill_initial(const plan::Buffer& buffer, std::byte* memory, const RandomContents& source, std::int64_t first_sample,
                  MemoryLayouts layouts);

/// Puts the rows of a step's batch that a buffer of inputs or targets holds into it, rounded to its type.
void fill_rows(const plan::Buffer& buffer, std::byte* memory, const Feed& feed, std::int64_t step);

/// Maps a position in the memory of a buffer that holds a parameter, or a part or piece of one, to the row-major number of
/// that element in the whole parameter.
class PlaceInParameter {
 public:
  explicit PlaceInParameter(const plan::Buffer& buffer, MemoryLayouts layouts);
  std::int64_t operator()(std::int64_t position) const;

 private:
  Shape part_;
  const MemoryLayout* layout_;
  std::int64_t run_;          // elements of the part that lie side by side in the whole
  std::int64_t distance_;     // from one run to the next
  std::int64_t first_;        // the first element of the part in the whole
  std::int64_t piece_begin_;  // a piece is a run of elements as they lie
};

/// The buffer's elements as a row-major tensor of doubles.
std::vector<double> read_elements(const plan::Buffer& buffer, const std::byte* memory, MemoryLayouts layouts);
/// The inverse: rounds to the buffer's type.
void write_elements(const plan::Buffer& buffer, std::byte* memory, std::span<const double> elements, MemoryLayouts layouts);

}  // namespace baton::exec
