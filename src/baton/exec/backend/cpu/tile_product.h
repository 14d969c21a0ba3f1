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
/// A block of c is 32 × 32: four tiles of sums, so that each tile that is loaded is used twice. The blocks are dealt to the members
/// as rectangles. A member packs the parts of both operands that it needs into tiles of its own, as much at a time as its caches
/// hold: it waits for nobody, and reads what others wrote once.
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

  /// The bytes of workspace that `run` needs, aligned to 64 bytes.
  std::int64_t workspace_bytes(int team) const { return team * area_of(grid_of(team)).bytes(); }

  /// `pack_left(row, depth, tile)` and `pack_right(column, depth, tile)` fill the tile whose first row or column, and first element
  /// of the reduction, they are given. `finish(row, column, block)` takes the sums of the block that begins there, which it may
  /// change. When it returns, other members may not have finished.
  template <typename PackLeft, typename PackRight, typename Finish>
  void run(void* workspace, const threads::Member& member, const PackLeft& pack_left, const PackRight& pack_right,
           const Finish& finish) const {
    const Grid grid = grid_of(member.count);
    if (member.index >= grid.rows * grid.columns) {
      return;
    }
    const Area area = area_of(grid);
    auto* left = reinterpret_cast<std::uint16_t*>(static_cast<std::byte*>(workspace) + member.index * area.bytes());
    const Work work{divide(rows_, grid.rows, member.index / grid.columns, Remainder::spread),
                    divide(columns_, grid.columns, member.index % grid.columns, Remainder::spread),
                    area,
                    left,
                    left + area.rows * area.steps * block_elements,
                    reinterpret_cast<Block*>(left + (area.rows + area.columns) * area.steps * block_elements)};
#if defined(__x86_64__)
    if (unit_ == TileUnit::amx) {
      return multiply<AmxTiles>(work, pack_left, pack_right, finish);
    }
#endif
    multiply<PortableTiles>(work, pack_left, pack_right, finish);
  }

 private:
  /// The number of members that share the rows, and that of those that share the columns.
  struct Grid {
    int rows = 1;
    int columns = 1;
  };
  /// The amount that a member packs at a time: blocks of rows and of columns, and tiles of the reduction.
  struct Area {
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t steps;
    std::int64_t sums;  // blocks that are kept between parts of the reduction

    std::int64_t bytes() const {
      return (rows + columns) * steps * block_elements * 2 + sums * static_cast<std::int64_t>(sizeof(Block));
    }
  };
  struct Work {
    Range rows;
    Range columns;
    Area area;
    std::uint16_t* left;
    std::uint16_t* right;
    Block* sums;
  };

  static constexpr std::int64_t blocks_in(std::int64_t extent) { return (extent + block_side - 1) / block_side; }
  static constexpr std::int64_t tiles_in_block = block_side / tile_rows;
  static constexpr std::int64_t block_elements = block_side * tile_depth;  // elements of a block in one tile of the reduction

  // Together they fill about half of a cache of 2 MiB; one block of columns stays in the nearest cache of 48 KiB.
  static constexpr std::int64_t most_rows = 8;
  static constexpr std::int64_t most_columns = 16;
  static constexpr std::int64_t most_steps = 12;

  /// The grid that divides the work as evenly as possible, and then with the fewest operands per member.
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

  Area area_of(const Grid& grid) const {
    const std::int64_t rows = std::min(most_rows, (rows_ + grid.rows - 1) / grid.rows);
    const std::int64_t columns = std::min(most_columns, (columns_ + grid.columns - 1) / grid.columns);
    return {rows, columns, std::min(most_steps, steps_), steps_ > most_steps ? rows * columns : 1};
  }

  /// The blocks `[block][step][tile of it]`: in the order in which they are multiplied.
  template <typename Pack>
  static void pack(Range blocks, Range steps, std::uint16_t* to, const Pack& pack_tile) {
    // Two blocks at a time, whose 64 rows or columns are whole cache lines.
    constexpr std::int64_t together = 2;
    for (std::int64_t first = blocks.begin; first < blocks.end; first += together) {
      for (std::int64_t step = steps.begin; step < steps.end; ++step) {
        for (std::int64_t tile = first * tiles_in_block; tile < std::min(first + together, blocks.end) * tiles_in_block; ++tile) {
          const std::int64_t block = tile / tiles_in_block - blocks.begin;
          pack_tile(tile * tile_rows, step * tile_depth,
                    to + ((block * steps.size() + step - steps.begin) * tiles_in_block + tile % tiles_in_block) * tile_elements);
        }
      }
    }
  }

  template <typename Tiles, typename PackLeft, typename PackRight, typename Finish>
  void multiply(const Work& work, const PackLeft& pack_left, const PackRight& pack_right, const Finish& finish) const {
    Tiles tiles;
    const Area& area = work.area;
    for (std::int64_t column = work.columns.begin; column < work.columns.end; column += area.columns) {
      const Range columns{column, std::min(column + area.columns, work.columns.end)};
      for (std::int64_t row = work.rows.begin; row < work.rows.end && !asked_to_stop_at_once(); row += area.rows) {
        const Range rows{row, std::min(row + area.rows, work.rows.end)};
        for (std::int64_t step = 0; step < steps_; step += area.steps) {
          const Range steps{step, std::min(step + area.steps, steps_)};
          if (area.steps < steps_ || row == work.rows.begin) {
            pack(columns, steps, work.right, pack_right);
          }
          pack(rows, steps, work.left, pack_left);
          multiply_area(tiles, rows, columns, steps, work, finish);
        }
      }
    }
  }

  template <typename Tiles, typename Finish>
  void multiply_area(Tiles& tiles, Range rows, Range columns, Range steps, const Work& work, const Finish& finish) const {
    const bool kept = work.area.steps < steps_;
    for (std::int64_t column = 0; column < columns.size(); ++column) {
      for (std::int64_t row = 0; row < rows.size(); ++row) {
        Block& block = work.sums[kept ? column * work.area.rows + row : 0];
        multiply_block(tiles, steps.size(), steps.begin > 0, work.left + row * steps.size() * block_elements,
                       work.right + column * steps.size() * block_elements, block);
        if (steps.end == steps_) {
          finish((rows.begin + row) * block_side, (columns.begin + column) * block_side, block);
        }
      }
    }
  }

  /// block = [block] + left · right.
  template <typename Tiles>
  static void multiply_block(Tiles& tiles, std::int64_t steps, bool add, const std::uint16_t* left, const std::uint16_t* right,
                             Block& block) {
    constexpr std::int64_t stride = block_side * static_cast<std::int64_t>(sizeof(float));
    float* upper = block.data();
    float* lower = upper + tile_rows * block_side;
    if (add) {
      tiles.template load<0>(upper, stride);
      tiles.template load<1>(upper + tile_rows, stride);
      tiles.template load<2>(lower, stride);
      tiles.template load<3>(lower + tile_rows, stride);
    } else {
      tiles.template zero<0>();
      tiles.template zero<1>();
      tiles.template zero<2>();
      tiles.template zero<3>();
    }
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::uint16_t* a = left + step * block_elements;
      const std::uint16_t* b = right + step * block_elements;
      tiles.template load<4>(a, tile_bytes);
      tiles.template load<6>(b, tile_bytes);
      tiles.template add_product<0, 4, 6>();
      tiles.template load<7>(b + tile_elements, tile_bytes);
      tiles.template add_product<1, 4, 7>();
      tiles.template load<5>(a + tile_elements, tile_bytes);
      tiles.template add_product<2, 5, 6>();
      tiles.template add_product<3, 5, 7>();
    }
    tiles.template store<0>(upper, stride);
    tiles.template store<1>(upper + tile_rows, stride);
    tiles.template store<2>(lower, stride);
    tiles.template store<3>(lower + tile_rows, stride);
  }

  TileUnit unit_;
  std::int64_t rows_;     // rows of blocks
  std::int64_t columns_;  // columns of blocks
  std::int64_t steps_;    // tiles of the reduction
};

}  // namespace baton::exec::cpu
