#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "baton/base/ids.h"
#include "baton/exec/memory_layout.h"
#include "baton/plan/task.h"

namespace baton::exec::cpu {

/// The order of a weight, logically [out][in]: square tiles W[out/64][in/64], inside a tile the in index first and the out index
/// contiguous. Edge tiles keep their true size, so the storage is exactly out * in elements and what works element by element need
/// not know the order.
struct TiledWeight {
  static constexpr std::int64_t tile = 64;

  /// Position of the element (row, column) = (out index, in index).
  static constexpr std::int64_t offset(std::int64_t out, std::int64_t in, std::int64_t row, std::int64_t column) {
    const std::int64_t tile_row = row / tile;
    const std::int64_t tile_column = column / tile;
    const std::int64_t height = std::min(tile, out - tile_row * tile);
    return tile_row * tile * in + tile_column * tile * height + (column % tile) * height + row % tile;
  }
  /// The inverse: which (row, column) lies at a position.
  static constexpr std::pair<std::int64_t, std::int64_t> element(std::int64_t out, std::int64_t in, std::int64_t offset) {
    const std::int64_t tile_row = offset / (tile * in);
    const std::int64_t height = std::min(tile, out - tile_row * tile);
    const std::int64_t rest = offset - tile_row * tile * in;
    return {tile_row * tile + rest % height, rest / height};
  }
};

/// The layout in which a task wants an operand: `tiled` for a weight whose first axis is its outputs, `tiled_heads` if the first
/// two axes are, row-major (empty) for all else.
std::string wanted_layout(const plan::Task& task, BufferId operand);

/// Both.
std::vector<MemoryLayout> tiled_layouts();

}  // namespace baton::exec::cpu
