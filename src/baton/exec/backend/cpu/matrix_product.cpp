#include "baton/exec/backend/cpu/matrix_product.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace baton::exec::cpu {
namespace {

std::int64_t tiles_bytes(std::int64_t inner, std::int64_t columns) {
  constexpr std::int64_t alignment = 64;
  return (inner * columns * 4 + alignment - 1) / alignment * alignment;
}

}  // namespace

MatrixProduct::MatrixProduct(std::int64_t rows, std::int64_t inner, std::int64_t columns)
    : inner_(inner), columns_(columns), forward_(rows, inner, columns, false) {}

std::int64_t MatrixProduct::workspace_bytes(int team) const {
  return tiles_bytes(inner_, columns_) + forward_.workspace_bytes(team);
}

void MatrixProduct::run(const float* a, const float* b, float* c, void* workspace, threads::Member member) const {
  auto* tiles = static_cast<float*>(workspace);
  constexpr std::int64_t tile = TiledWeight::tile;
  const std::int64_t tile_rows = (columns_ + tile - 1) / tile;
  for (std::int64_t t = tile_rows * member.index / member.count; t < tile_rows * (member.index + 1) / member.count; ++t) {
    const std::int64_t first = t * tile;
    const std::int64_t width = std::min(tile, columns_ - first);
    for (std::int64_t k = 0; k < inner_; ++k) {
      // A row of a tile is a run of b's row, since the weight is b transposed.
      std::memcpy(tiles + TiledWeight::offset(columns_, inner_, first, k), b + k * columns_ + first,
                  static_cast<std::size_t>(width) * sizeof(float));
    }
  }
  member.sync();
  forward_.run(a, tiles, nullptr, c, static_cast<std::byte*>(workspace) + tiles_bytes(inner_, columns_), member);
}

}  // namespace baton::exec::cpu
