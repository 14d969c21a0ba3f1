#pragma once

#include <cstdint>

#include "baton/exec/backend/cpu/tiles.h"

/// Copies of parts of row-major bf16 matrices as tiles of 16 × 16 words of 32 bits; a word holds two elements that are neighbours
/// in the reduction. What lies outside the matrix is zero in the tile.
namespace baton::exec::cpu {

/// Part of a matrix: `rows` × `columns` elements, `stride` elements from one row to the next.
struct Bf16Part {
  const std::uint16_t* first = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};

/// Word (r, p) is elements 2p and 2p + 1 of row r, of at most 16 rows and 32 columns.
void pack_rows(const Bf16Part& from, std::uint16_t* tile);
/// Packs like `pack_rows`, with rows and columns of words exchanged.
void pack_rows_turned(const Bf16Part& from, std::uint16_t* tile);
/// Word (p, c) is the elements of column c in rows 2p and 2p + 1, of at most 32 rows and 16 columns.
void pack_pairs(const Bf16Part& from, std::uint16_t* tile);
void pack_pairs_turned(const Bf16Part& from, std::uint16_t* tile);

}  // namespace baton::exec::cpu
