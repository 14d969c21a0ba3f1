#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "baton/base/divide.h"
#include "baton/base/stop.h"
#include "baton/exec/backend/cpu/tiles.h"
#include "baton/threads/member.h"

/// c = a b of bf16 matrices, summed in float32 by tiles, run by all threads of a team together.
///
/// Both operands are first packed into tiles, those of a row of blocks one after the other along the reduction. A block of c is 32
/// × 32: four tiles of sums, so that each tile that is loaded is used twice. The blocks are dealt to the members as rectangles.
///
/// Every sum is one chain over the tiles of the reduction, in ascending order: its bits depend neither on the size of the team nor
/// on the other rows and columns.
namespace baton::exec::cpu {

constexpr std::int64_t block_side = 32;

/// 32 × 32 sums.
using Block = std::array<float, static_cast<std::size_t>(block_side* block_side)>;

class TileProduct {
 public:
  TileProduct(TileUnit unit, std::int64_t rows, std::int64_t depth, std::int64_t columns)
      : unit_(unit), rows_(blocks_in(rows)), columns_(blocks_in(columns)), steps_((depth + tile_depth - 1) / tile_depth) {}

  /// Of the workspace of `run`, which must be aligned to 64 bytes.
  std::int64_t workspace_bytes(int team) const {
    return (rows_ + columns_) * packed_bytes() + team * sums_count() * static_cast<std::int64_t>(sizeof(Block));
  }

  /// `pack_left(row, depth, tile)` and `pack_right(column, depth, tile)` fill the tile whose first row or column, and first element
  /// of the reduction, they are given. `finish(row, column, block)` takes the sums of the block that begins there, which it may
  /// change. When it returns, all members have packed, but not all have finished.
  template <typename PackLeft, typename PackRight, typename Finish>
  void run(void* workspace, const threads::Member& member, const PackLeft& pack_left, const PackRight& pack_right,
           const Finish& finish) const {
    const Grid grid = grid_of(member.count);
    auto* left = static_cast<std::uint16_t*>(workspace);
    std::uint16_t* right = left + rows_ * packed_elements();
    const bool works = member.index < grid.rows * grid.columns;
    const int row = member.index / grid.columns;
    const int column = member.index % grid.columns;
    const Range rows = works ? divide(rows_, grid.rows, row, Remainder::spread) : Range{};
    const Range columns = works ? divide(columns_, grid.columns, column, Remainder::spread) : Range{};
    if (works) {
      pack(rows, divide(steps_, grid.columns, column, Remainder::spread), left, pack_left);
      pack(columns, divide(steps_, grid.rows, row, Remainder::spread), right, pack_right);
    }
    member.sync();
    auto* sums = reinterpret_cast<Block*>(right + columns_ * packed_elements()) + member.index * sums_count();
#if defined(__x86_64__)
    if (unit_ == TileUnit::amx) {
      return multiply<AmxTiles>(rows, columns, left, right, sums, finish);
    }
#endif
    multiply<PortableTiles>(rows, columns, left, right, sums, finish);
  }

 private:
  /// How many members share the rows and the columns.
  struct Grid {
    int rows = 1;
    int columns = 1;
  };
  static constexpr std::int64_t blocks_in(std::int64_t extent) { return (extent + block_side - 1) / block_side; }

  /// Tiles of the reduction that are multiplied before the next block of rows: the right operand's then stay in the nearest cache.
  static constexpr std::int64_t chunk = 16;
  /// Blocks of rows that share a pass over the right operand.
  static constexpr std::int64_t group = 8;

  std::int64_t packed_elements() const { return steps_ * block_side * tile_depth; }
  std::int64_t packed_bytes() const { return packed_elements() * 2; }
  std::int64_t sums_count() const { return steps_ > chunk ? std::min(rows_, group) : 1; }

  /// As even as possible, and then with the fewest operands per member.
  Grid grid_of(int members) const {
    Grid best;
    const auto cost = [&](const Grid& grid) {
      const std::int64_t rows = (rows_ + grid.rows - 1) / grid.rows;
      const std::int64_t columns = (columns_ + grid.columns - 1) / grid.columns;
      return std::pair(rows * columns, rows + columns);
    };
    for (int rows = 1; rows <= members; ++rows) {
      const Grid grid{rows, members / rows};
      if (cost(grid) < cost(best)) {
        best = grid;
      }
    }
    return best;
  }

  /// Two blocks at a time, whose 64 columns are whole cache lines of what is packed.
  template <typename Pack>
  void pack(Range blocks, Range steps, std::uint16_t* to, const Pack& pack_tile) const {
    constexpr std::int64_t together = 2;
    constexpr std::int64_t tiles_in_block = block_side / tile_rows;
    for (std::int64_t first = blocks.begin; first < blocks.end; first += together) {
      for (std::int64_t step = steps.begin; step < steps.end; ++step) {
        for (std::int64_t tile = first * tiles_in_block; tile < std::min(first + together, blocks.end) * tiles_in_block; ++tile) {
          pack_tile(tile * tile_rows, step * tile_depth, to + (tile * steps_ + step) * tile_elements);
        }
      }
    }
  }

  template <typename Tiles, typename Finish>
  void multiply(Range rows, Range columns, const std::uint16_t* left, const std::uint16_t* right, Block* sums,
                const Finish& finish) const {
    Tiles tiles;
    for (std::int64_t first = rows.begin; first < rows.end; first += group) {
      const std::int64_t last = std::min(first + group, rows.end);
      for (std::int64_t column = columns.begin; column < columns.end && !asked_to_stop_at_once(); ++column) {
        for (std::int64_t begin = 0; begin < steps_ || begin == 0; begin += chunk) {
          const std::int64_t end = std::min(begin + chunk, steps_);
          for (std::int64_t row = first; row < last; ++row) {
            Block& block = sums[steps_ > chunk ? row - first : 0];
            multiply_block(tiles, begin, end, left + row * packed_elements(), right + column * packed_elements(), block);
            if (end == steps_) {
              finish(row * block_side, column * block_side, block);
            }
          }
        }
      }
    }
  }

  /// block = [block] + the steps from `begin` to `end`; the old sums count unless it is the first step.
  template <typename Tiles>
  void multiply_block(Tiles& tiles, std::int64_t begin, std::int64_t end, const std::uint16_t* left, const std::uint16_t* right,
                      Block& block) const {
    constexpr std::int64_t stride = block_side * static_cast<std::int64_t>(sizeof(float));
    float* upper = block.data();
    float* lower = upper + tile_rows * block_side;
    if (begin == 0) {
      tiles.template zero<0>();
      tiles.template zero<1>();
      tiles.template zero<2>();
      tiles.template zero<3>();
    } else {
      tiles.template load<0>(upper, stride);
      tiles.template load<1>(upper + tile_rows, stride);
      tiles.template load<2>(lower, stride);
      tiles.template load<3>(lower + tile_rows, stride);
    }
    const std::int64_t next = steps_ * tile_elements;
    for (std::int64_t step = begin; step < end; ++step) {
      const std::uint16_t* a = left + step * tile_elements;
      const std::uint16_t* b = right + step * tile_elements;
      tiles.template load<4>(a, tile_bytes);
      tiles.template load<6>(b, tile_bytes);
      tiles.template add_product<0, 4, 6>();
      tiles.template load<7>(b + next, tile_bytes);
      tiles.template add_product<1, 4, 7>();
      tiles.template load<5>(a + next, tile_bytes);
      tiles.template add_product<2, 5, 6>();
      tiles.template add_product<3, 5, 7>();
    }
    tiles.template store<0>(upper, stride);
    tiles.template store<1>(upper + tile_rows, stride);
    tiles.template store<2>(lower, stride);
    tiles.template store<3>(lower + tile_rows, stride);
  }

  TileUnit unit_;
  std::int64_t rows_;     // of blocks
  std::int64_t columns_;  // of blocks
  std::int64_t steps_;    // tiles of the reduction
};

}  // namespace baton::exec::cpu
