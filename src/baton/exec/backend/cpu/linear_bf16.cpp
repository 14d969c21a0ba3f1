#include "baton/exec/backend/cpu/linear_bf16.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "baton/base/error.h"
#include "baton/base/narrow.h"
#include "baton/exec/backend/cpu/member_range.h"
#include "baton/exec/backend/cpu/tile_pack.h"
#include "baton/exec/backend/cpu/tiled_weight.h"

namespace baton::exec::cpu {
namespace {

void check_product(std::int64_t rows, std::int64_t in, std::int64_t out) {
  check(rows > 0 && in > 0 && out > 0, "a product of {} rows, {} inputs and {} outputs", rows, in, out);
}

/// `count` values from position `at` on, as floats.
void read(ConstValues from, std::int64_t at, std::int64_t count, float* to) {
  if (from.type == DType::f32) {
    std::memcpy(to, from.first + at * 4, static_cast<std::size_t>(count) * 4);
    return;
  }
  // Not by `widen`: a call per row of a block would cost more than it does.
  const auto* values = reinterpret_cast<const Bf16*>(from.first) + at;
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(values[i]);
  }
}

/// The part of a row-major matrix that a block holds.
struct BlockExtents {
  std::int64_t at;  // index of its first element
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
};

/// A block of a row-major matrix: as many rows and columns as there are.
BlockExtents extents_of(std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
  return {row * columns + column, std::min(block_side, rows - row), std::min(block_side, columns - column), columns};
}

/// Stores a block, whose columns outside the matrix are cleared so that they are not counted.
Rounding store(Block& block, const BlockExtents& extents, Values to) {
  if (to.type == DType::f32) {
    for (std::int64_t row = 0; row < extents.rows; ++row) {
      std::memcpy(to.first + (extents.at + row * extents.stride) * 4, block.data() + row * block_side,
                  static_cast<std::size_t>(extents.columns) * 4);
    }
    return {};
  }
  if (extents.columns < block_side) {
    for (std::int64_t row = 0; row < extents.rows; ++row) {
      std::fill_n(block.data() + row * block_side + extents.columns, block_side - extents.columns, 0.0F);
    }
  }
  alignas(64) std::array<std::byte, sizeof(Block) / 2> rounded;
  const Rounding done = narrow(DType::bf16, block.data(), rounded.data(), extents.rows * block_side);
  for (std::int64_t row = 0; row < extents.rows; ++row) {
    std::memcpy(to.first + (extents.at + row * extents.stride) * 2, rounded.data() + row * block_side * 2,
                static_cast<std::size_t>(extents.columns) * 2);
  }
  return done;
}

template <bool relu>
void add_shift(const float* shift, Block& block) {
  for (std::int64_t row = 0; row < block_side; ++row) {
    float* sums = block.data() + row * block_side;
    for (std::int64_t i = 0; i < block_side; ++i) {
      const float sum = sums[i] + shift[i];
      sums[i] = relu && 0.0F > sum ? 0.0F : sum;
    }
  }
}

/// A row-major matrix from one of its elements on.
Bf16Part part_of(const std::uint16_t* matrix, std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t column) {
  if (row >= rows || column >= columns) {
    return {};
  }
  return {matrix + row * columns + column, rows - row, columns - column, columns};
}

/// The tile of a weight that holds an element, from that element on: its rows are inputs and its columns outputs.
BlockExtents extents_in_weight(std::int64_t out, std::int64_t in, std::int64_t output, std::int64_t input) {
  constexpr std::int64_t side = TiledWeight::tile;
  const std::int64_t height = std::min(side, out - output / side * side);
  return {TiledWeight::offset(out, in, output, input), std::min(side - input % side, in - input), height - output % side, height};
}
Bf16Part part_of_weight(const std::uint16_t* w, std::int64_t out, std::int64_t in, std::int64_t output, std::int64_t input) {
  if (output >= out || input >= in) {
    return {};
  }
  const BlockExtents extents = extents_in_weight(out, in, output, input);
  return {w + extents.at, extents.rows, extents.columns, extents.stride};
}

/// Counts gradients that are not zero and go into a step unrounded, as `store` counts those that it rounds.
void count_unrounded(const float* gradients, std::int64_t count, Rounding& done) {
  for (std::int64_t i = 0; i < count; ++i) {
    done.values += gradients[i] != 0.0F ? 1 : 0;
  }
}

/// db = [db] + alpha (column sums of dy).
Rounding sum_columns(const std::uint16_t* dy, std::int64_t rows, std::int64_t columns, float alpha, bool accumulate, Values db,
                     const threads::Member& member) {
  Rounding done;
  const MemberRange part(member, columns, block_side);
  for (std::int64_t first = part.begin; first < part.end; first += block_side) {
    const std::int64_t count = std::min(block_side, part.end - first);
    std::array<float, block_side> totals{};
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto* from = reinterpret_cast<const Bf16*>(dy) + row * columns + first;
      if (count == block_side) {
        for (std::size_t i = 0; i < totals.size(); ++i) {
          totals[i] += static_cast<float>(from[i]);
        }
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          totals[static_cast<std::size_t>(i)] += static_cast<float>(from[i]);
        }
      }
    }
    std::array<float, block_side> before{};
    if (accumulate) {
      read({db.first, db.type}, first, count, before.data());
    }
    if (alpha != 1.0F) {
      count_unrounded(totals.data(), count, done);
    }
    for (std::size_t i = 0; i < totals.size(); ++i) {
      totals[i] = before[i] + alpha * totals[i];
    }
    if (db.type == DType::f32) {
      std::memcpy(db.first + first * 4, totals.data(), static_cast<std::size_t>(count) * 4);
    } else {
      done += narrow(db.type, totals.data(), db.first + first * 2, count);
    }
  }
  return done;
}

}  // namespace

LinearForwardBf16::LinearForwardBf16(TileUnit unit, std::int64_t rows, std::int64_t in, std::int64_t out, bool relu)
    : rows_(rows), in_(in), out_(out), relu_(relu), product_(unit, rows, in, out) {
  check_product(rows, in, out);
}

Rounding LinearForwardBf16::run(const std::uint16_t* x, const std::uint16_t* w, ConstValues bias, Values y, void* workspace,
                                const threads::Member& member) const {
  Rounding done;
  product_.run(
      workspace, member,
      [&](std::int64_t row, std::int64_t input, std::uint16_t* tile) { pack_rows(part_of(x, rows_, in_, row, input), tile); },
      [&](std::int64_t output, std::int64_t input, std::uint16_t* tile) {
        pack_pairs(part_of_weight(w, out_, in_, output, input), tile);
      },
      [&](std::int64_t row, std::int64_t output, Block& block) {
        const BlockExtents extents = extents_of(row, output, rows_, out_);
        std::array<float, block_side> shift{};
        if (bias.first != nullptr) {
          read(bias, output, extents.columns, shift.data());
        }
        (relu_ ? add_shift<true> : add_shift<false>)(shift.data(), block);
        done += store(block, extents, y);
      });
  member.sync();
  return done;
}

LinearBackwardInputBf16::LinearBackwardInputBf16(TileUnit unit, std::int64_t rows, std::int64_t in, std::int64_t out)
    : rows_(rows), in_(in), out_(out), product_(unit, rows, out, in) {
  check_product(rows, in, out);
}

Rounding LinearBackwardInputBf16::run(const std::uint16_t* dy, const std::uint16_t* w, ConstValues mask_x, Values dx,
                                      void* workspace, const threads::Member& member) const {
  Rounding done;
  product_.run(
      workspace, member,
      [&](std::int64_t row, std::int64_t output, std::uint16_t* tile) { pack_rows(part_of(dy, rows_, out_, row, output), tile); },
      [&](std::int64_t input, std::int64_t output, std::uint16_t* tile) {
        pack_rows_turned(part_of_weight(w, out_, in_, output, input), tile);
      },
      [&](std::int64_t row, std::int64_t input, Block& block) {
        const BlockExtents extents = extents_of(row, input, rows_, in_);
        if (mask_x.first != nullptr) {
          for (std::int64_t r = 0; r < extents.rows; ++r) {
            std::array<float, block_side> gate{};
            read(mask_x, extents.at + r * extents.stride, extents.columns, gate.data());
            float* sums = block.data() + r * block_side;
            for (std::size_t i = 0; i < gate.size(); ++i) {
              sums[i] = gate[i] > 0.0F ? sums[i] : 0.0F;
            }
          }
        }
        done += store(block, extents, dx);
      });
  member.sync();
  return done;
}

LinearBackwardWeightBf16::LinearBackwardWeightBf16(TileUnit unit, std::int64_t rows, std::int64_t in, std::int64_t out, float alpha,
                                                   bool accumulate)
    : rows_(rows), in_(in), out_(out), alpha_(alpha), accumulate_(accumulate), product_(unit, in, rows, out) {
  check_product(rows, in, out);
}

Rounding LinearBackwardWeightBf16::run(const std::uint16_t* x, const std::uint16_t* dy, Values dw, Values db, void* workspace,
                                       const threads::Member& member) const {
  Rounding done;
  if (db.first != nullptr) {
    done += sum_columns(dy, rows_, out_, alpha_, accumulate_, db, member);
  }
  product_.run(
      workspace, member,
      [&](std::int64_t input, std::int64_t row, std::uint16_t* tile) {
        pack_pairs_turned(part_of(x, rows_, in_, row, input), tile);
      },
      [&](std::int64_t output, std::int64_t row, std::uint16_t* tile) { pack_pairs(part_of(dy, rows_, out_, row, output), tile); },
      [&](std::int64_t input, std::int64_t output, Block& block) {
        BlockExtents extents = extents_in_weight(out_, in_, output, input);
        extents.rows = std::min(block_side, extents.rows);
        extents.columns = std::min(block_side, extents.columns);
        for (std::int64_t r = 0; r < extents.rows; ++r) {
          std::array<float, block_side> before{};
          if (accumulate_) {
            read({dw.first, dw.type}, extents.at + r * extents.stride, extents.columns, before.data());
          }
          float* sums = block.data() + r * block_side;
          if (alpha_ != 1.0F) {
            count_unrounded(sums, extents.columns, done);
          }
          for (std::size_t i = 0; i < before.size(); ++i) {
            sums[i] = before[i] + alpha_ * sums[i];
          }
        }
        done += store(block, extents, dw);
      });
  member.sync();
  return done;
}

MatrixProductBf16::MatrixProductBf16(TileUnit unit, std::int64_t rows, std::int64_t inner, std::int64_t columns)
    : rows_(rows), inner_(inner), columns_(columns), product_(unit, rows, inner, columns) {
  check_product(rows, inner, columns);
}

Rounding MatrixProductBf16::run(const std::uint16_t* a, const std::uint16_t* b, Values c, void* workspace,
                                const threads::Member& member) const {
  Rounding done;
  product_.run(
      workspace, member,
      [&](std::int64_t row, std::int64_t inner, std::uint16_t* tile) { pack_rows(part_of(a, rows_, inner_, row, inner), tile); },
      [&](std::int64_t column, std::int64_t inner, std::uint16_t* tile) {
        pack_pairs(part_of(b, inner_, columns_, inner, column), tile);
      },
      [&](std::int64_t row, std::int64_t column, Block& block) {
        done += store(block, extents_of(row, column, rows_, columns_), c);
      });
  member.sync();
  return done;
}

}  // namespace baton::exec::cpu
