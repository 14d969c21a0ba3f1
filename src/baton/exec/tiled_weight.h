#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "baton/base/shape.h"
#include "baton/plan/buffer.h"

namespace baton::exec {

/// The order `plan::MemoryLayout::tiled` of a weight, logically [out][in]: square tiles W[out/64][in/64], inside a tile the in
/// index first and the out index contiguous. Edge tiles keep their true size, so the storage is exactly out * in
/// elements and what works element by element need not know the order.
struct TiledWeight {
  static constexpr std::int64_t tile = 64;

  /// Place of the element (row, column) = (out index, in index).
  static constexpr std::int64_t offset(std::int64_t out, std::int64_t in, std::int64_t row, std::int64_t column) {
    const std::int64_t tile_row = row / tile;
    const std::int64_t tile_column = column / tile;
    const std::int64_t height = std::min(tile, out - tile_row * tile);
    return tile_row * tile * in + tile_column * tile * height + (column % tile) * height + row % tile;
  }
  /// The inverse: which (row, column) lies at a place.
  static constexpr std::pair<std::int64_t, std::int64_t> element(std::int64_t out, std::int64_t in, std::int64_t offset) {
    const std::int64_t tile_row = offset / (tile * in);
    const std::int64_t height = std::min(tile, out - tile_row * tile);
    const std::int64_t rest = offset - tile_row * tile * in;
    return {tile_row * tile + rest % height, rest / height};
  }

  /// How many of a tensor's elements make a row (of inputs) in a tiled order.
  static std::int64_t inputs(const Shape& shape, plan::MemoryLayout order) {
    const std::int64_t outputs = order == plan::MemoryLayout::tiled_heads ? shape[0] * shape[1] : shape[0];
    return shape.elements() / outputs;
  }
};

}  // namespace baton::exec
