#include "baton/exec/backend/cpu/linear.h"

#include <libxsmm.h>

#include <algorithm>
#include <cstdint>

#include "baton/base/divide.h"
#include "baton/base/error.h"
#include "baton/base/memory.h"
#include "baton/base/stop.h"
#include "baton/exec/backend/cpu/generated_product.h"
#include "baton/exec/backend/cpu/transpose.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace baton::exec::cpu {

namespace {

using detail::Product;
using detail::ProductTable;
using detail::Tiles;

constexpr std::int64_t tile = TiledWeight::tile;

/// Rows that share one pass over the weight. Their packed operands and sums live in the workspace.
constexpr std::int64_t panel_rows = 128;

/// Floats of a packed operand that are kept in the L2 cache while the tiles of the weight pass by: half of
/// the smallest such cache in use. No bit of a result depends on it.
constexpr std::int64_t cached_floats = std::int64_t{64} * 1024;

/// The largest size of the workspaces of all groups of rows together, unless there is one group. No bit of a result depends on it.
constexpr std::int64_t most_floats_of_groups = std::int64_t{16} << 20;  // 64 MiB

/// Floats of a cache line.
constexpr std::int64_t line = 16;

/// The member's share of `units` equal pieces of work.
Range share(std::int64_t units, threads::Member member) { return divide(units, member.count, member.index, Remainder::spread); }

std::int64_t bytes(std::int64_t floats) { return floats * static_cast<std::int64_t>(sizeof(float)); }

bool has_avx512() { return libxsmm_get_target_archid() >= LIBXSMM_X86_AVX512; }

void check_extents(std::int64_t rows, std::int64_t in, std::int64_t out) {
  check(rows > 0 && in > 0 && out > 0, "a linear layer of {} rows, {} inputs and {} outputs", rows, in, out);
}

/// The members of a team in groups of one size, each of which does some of the rows alone: what a group packs, only its members
/// read, and few caches exchange it. Blocks of rows stay whole. `group_floats` gives the workspace of a group of this many members.
class RowGroups {
 public:
  template <typename GroupFloats>
  RowGroups(std::int64_t rows, int team, const GroupFloats& group_floats) : blocks_{rows} {
    constexpr std::int64_t panel_blocks = panel_rows / tile;
    for (int groups = 2; groups <= team; ++groups) {
      const std::int64_t each = (blocks_.count() + groups - 1) / groups;
      const bool even = 10 * each * groups <= 11 * blocks_.count();
      if (team % groups == 0 && blocks_.count() >= groups * panel_blocks && even &&
          groups * group_floats(team / groups) <= most_floats_of_groups) {
        count_ = groups;
      }
    }
    size_ = team / count_;
  }

  int count() const { return count_; }
  int size() const { return size_; }
  int group_of(const threads::Member& member) const { return member.index / size_; }

  /// Calls `run_panel(rows, member)` for the panels of the member's group, with the member as one of the group. It must sync twice.
  template <typename RunPanel>
  void for_each_panel(const threads::Member& member, const RunPanel& run_panel) const {
    const threads::Member one{member.index % size_, size_, member.barrier};
    const Range blocks = divide(blocks_.count(), count_, group_of(member), Remainder::spread);
    const std::int64_t end = std::min(blocks.end * tile, blocks_.extent);
    // Groups meet at one barrier, so all have as many panels, and the last of some may be empty.
    const std::int64_t most_rows = (blocks_.count() + count_ - 1) / count_ * tile;
    for (std::int64_t begin = blocks.begin * tile; begin < blocks.begin * tile + most_rows; begin += panel_rows) {
      if (begin < end) {
        run_panel(Range{begin, std::min(begin + panel_rows, end)}, one);
      } else {
        one.sync();
        one.sync();
      }
    }
    if (size_ == 1) {
      member.sync();
    }
  }

 private:
  Tiles blocks_;
  int count_ = 1;
  int size_ = 1;
};

struct Side {
  std::int64_t full = 0;
  std::int64_t last = 0;  // zero: no ragged tile
};

Side side_of(Tiles tiles) { return {tiles.extent >= tile ? tile : 0, tiles.extent % tile}; }

Product generate(std::int64_t m, std::int64_t n, std::int64_t k, bool add, bool b_rows) {
  Product product{n, k, add, b_rows};
#if defined(__AVX512F__)
  if (m == tile && has_avx512()) {
    return product;
  }
#endif
  // Prefetches memory of c's size, bit by bit while it stores c; with a row-major b it prefetches nothing.
  product.generated = generate_product(
      {.m = m, .n = n, .k = k, .a_stride = m, .b_stride = b_rows ? n : k, .c_stride = m, .add = add, .b_rows = b_rows}, true);
  return product;
}

ProductTable generate_all(Side m, Side n, Side k, bool b_rows = false) {
  require_memory(Bytes(std::int64_t{32} << 20));
  libxsmm_init();
  ProductTable table;
  for (unsigned index = 0; index < 16; ++index) {
    const std::int64_t m_width = (index & 8U) != 0 ? m.last : m.full;
    const std::int64_t n_width = (index & 4U) != 0 ? n.last : n.full;
    const std::int64_t k_width = (index & 2U) != 0 ? k.last : k.full;
    if (m_width == 0 || n_width == 0 || k_width == 0) {
      continue;
    }
    table.products[index] = generate(m_width, n_width, k_width, (index & 1U) != 0, b_rows);
  }
  return table;
}

#if defined(__AVX512F__)
// If a whole tile is four vectors high, this is a twentieth faster than the generated kernel: it spreads the prefetches over the
// multiply-adds, while the other issues them in bursts that fill the line buffers.

constexpr std::int64_t vectors = tile / 16;
constexpr std::int64_t most_columns = 6;  // with `vectors` sums per column, what the registers hold

/// `fixed_k` is k if the compiler may know it, else zero. b begins with the first of the columns; row-major it has rows of `b_row`.
template <std::int64_t columns, std::int64_t fixed_k, bool add, bool b_rows>
void multiply_columns(std::int64_t any_k, std::int64_t b_row, const float* a, const float* b, float* c, std::uintptr_t& next,
                      std::uintptr_t stride) {
  const std::int64_t k = fixed_k > 0 ? fixed_k : any_k;
  __m512 sums[columns][vectors];
  for (std::int64_t n = 0; n < columns; ++n) {
    for (std::int64_t m = 0; m < vectors; ++m) {
      sums[n][m] = add ? _mm512_loadu_ps(c + n * tile + m * 16) : _mm512_setzero_ps();
    }
  }
#pragma GCC unroll 2
  for (std::int64_t i = 0; i < k; ++i) {
    __m512 column[vectors];
    for (std::int64_t m = 0; m < vectors; ++m) {
      column[m] = _mm512_loadu_ps(a + i * tile + m * 16);
    }
    if (i % 2 == 0) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): it may lie past the end, where no pointer may point
      _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T0);
      next += stride;
    }
#pragma GCC unroll 6
    for (std::int64_t n = 0; n < columns; ++n) {
      const __m512 factor = _mm512_set1_ps(b_rows ? b[i * b_row + n] : b[n * k + i]);
      for (std::int64_t m = 0; m < vectors; ++m) {
        sums[n][m] = _mm512_fmadd_ps(column[m], factor, sums[n][m]);
      }
    }
  }
  for (std::int64_t n = 0; n < columns; ++n) {
    for (std::int64_t m = 0; m < vectors; ++m) {
      _mm512_storeu_ps(c + n * tile + m * 16, sums[n][m]);
    }
  }
}

template <std::int64_t fixed_k, bool add, bool b_rows>
void multiply_tile(std::int64_t n, std::int64_t k, const float* a, const float* b, float* c, const float* next) {
  constexpr std::array kernels{multiply_columns<1, fixed_k, add, b_rows>, multiply_columns<2, fixed_k, add, b_rows>,
                               multiply_columns<3, fixed_k, add, b_rows>, multiply_columns<4, fixed_k, add, b_rows>,
                               multiply_columns<5, fixed_k, add, b_rows>, multiply_columns<6, fixed_k, add, b_rows>};
  static_assert(kernels.size() == most_columns);
  const std::int64_t prefetches = (n + most_columns - 1) / most_columns * ((k + 1) / 2);
  auto place = reinterpret_cast<std::uintptr_t>(next);
  const auto stride = static_cast<std::uintptr_t>(std::max(bytes(line), bytes(tile * tile) / prefetches));
  for (std::int64_t column = 0; column < n; column += most_columns) {
    const std::int64_t columns = std::min(most_columns, n - column);
    kernels[static_cast<std::size_t>(columns - 1)](k, n, a, b + column * (b_rows ? 1 : k), c + column * tile, place, stride);
  }
}

template <bool b_rows>
constexpr auto tile_kernel(bool whole_k, bool add) {
  return whole_k ? (add ? multiply_tile<tile, true, b_rows> : multiply_tile<tile, false, b_rows>)
                 : (add ? multiply_tile<0, true, b_rows> : multiply_tile<0, false, b_rows>);
}
#endif

std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Keeps parts of a workspace on cache lines of their own.
std::int64_t line_floats(std::int64_t floats) { return round_up(floats, line); }

/// Tiles of the reduction whose packed operand stays in the cache together.
std::int64_t chunk_tiles(std::int64_t rows) { return std::max<std::int64_t>(1, cached_floats / (rows * tile)); }

/// Copies tiles of the columns of a row-major matrix, [tile][row][column]. Reads along the rows, which the
/// hardware prefetches.
void pack_tiles(std::int64_t rows, Tiles columns, Range packed_tiles, float scale, const float* from, std::int64_t packed_rows,
                float* packed) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t t = packed_tiles.begin; t < packed_tiles.end; ++t) {
      const float* source = from + row * columns.extent + t * tile;
      const std::int64_t width = columns.width(t);
      float* to = packed + t * tile * packed_rows + row * width;
      if (width == tile) {
        for (std::int64_t i = 0; i < tile; ++i) {
          to[i] = scale * source[i];
        }
      } else {
        for (std::int64_t i = 0; i < width; ++i) {
          to[i] = scale * source[i];
        }
      }
    }
  }
}

/// sums = [sums] + the rows of a packed tile.
void add_rows(std::int64_t rows, std::int64_t width, const float* packed, bool accumulate, float* sums) {
  std::array<float, tile> totals{};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < width; ++i) {
      totals[i] += packed[row * width + i];
    }
  }
  for (std::int64_t i = 0; i < width; ++i) {
    sums[i] = (accumulate ? sums[i] : 0.0F) + totals[i];
  }
}

/// Asks for a part of the tile that the result will go to: `step` of `steps` equal parts.
void prefetch_part(std::int64_t step, std::int64_t steps, std::int64_t rows, const float* place, std::int64_t stride) {
  for (std::int64_t row = rows * step / steps; row < rows * (step + 1) / steps; ++row) {
    for (std::int64_t i = 0; i < tile; i += line) {
      __builtin_prefetch(place + row * stride + i, 1);
    }
  }
}

/// Packs tiles of the columns of a row-major matrix transposed, [row block][tile][column][row], each
/// block's rows filled up with zeros to the count that `padded` gives.
template <typename Padded>
void pack_transposed(std::int64_t rows, Tiles columns, Range packed_tiles, const float* from, Padded padded, float* packed) {
  const Tiles blocks{rows};
  for (std::int64_t block = 0; block < blocks.count(); ++block) {
    const std::int64_t block_rows = blocks.width(block);
    const std::int64_t stride = padded(block_rows);
    // One line of floats at a time, so that each row is read along many tiles, which the hardware
    // prefetches.
    for (std::int64_t row = 0; row < block_rows; row += line) {
      const std::int64_t part = std::min(line, block_rows - row);
      const bool end = row + part == block_rows;
      for (std::int64_t t = packed_tiles.begin; t < packed_tiles.end; ++t) {
        float* to = packed + block * tile * columns.extent + t * tile * stride + row;
        const std::int64_t width = columns.width(t);
        copy_transposed<false>(part, width, from + (block * tile + row) * columns.extent + t * tile, columns.extent, to, stride);
        if (!end || stride == block_rows) {
          continue;
        }
        for (std::int64_t i = 0; i < width; ++i) {
          std::fill_n(to + i * stride + part, stride - block_rows, 0.0F);
        }
      }
    }
  }
}

float relu_of(float value) { return 0.0F > value ? 0.0F : value; }

enum class Finish { plain, relu, masked };

/// y = sums [+ bias], then ReLU or zeros where the mask, laid out like y, is not above zero.
template <Finish finish>
void finish_rows(std::int64_t rows, std::int64_t width, const float* sums, const float* bias, const float* mask, float* y,
                 std::int64_t stride) {
  std::array<float, tile> shift;
  shift.fill(-0.0F);  // leaves even a zero as it is
  if (bias != nullptr) {
    std::copy_n(bias, width, shift.begin());
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* from = sums + row * width;
    float* to = y + row * stride;
    const auto element = [&](std::int64_t i) {
      const float value = from[i] + shift[i];
      if constexpr (finish == Finish::masked) {
        return mask[row * stride + i] > 0.0F ? value : 0.0F;
      } else {
        return finish == Finish::relu ? relu_of(value) : value;
      }
    };
    if (width == tile) {
      for (std::int64_t i = 0; i < tile; ++i) {
        to[i] = element(i);
      }
    } else {
      for (std::int64_t i = 0; i < width; ++i) {
        to[i] = element(i);
      }
    }
  }
}

}  // namespace

void detail::Product::operator()(const float* a, const float* b, float* c, const float* next) const {
#if defined(__AVX512F__)
  if (generated == nullptr) {
    const auto multiply = b_rows ? tile_kernel<true>(k == tile, add) : tile_kernel<false>(k == tile, add);
    return multiply(n, k, a, b, c, next);
  }
#endif
  generated(a, b, c, a, next, c);
}

// On AVX-512 libxsmm splits the sum of a single vector of m over several registers when n is below 12, which
// would let the number of rows change the order of a sum. Such shapes are padded up to where it keeps one
// register.
constexpr std::int64_t unsplit_n = 12;
constexpr std::int64_t avx512_floats = 16;

/// The largest weight whose transpose is kept in the workspace.
constexpr std::int64_t most_transposed_floats = std::int64_t{4} << 20;  // 16 MiB

LinearForward::LinearForward(std::int64_t rows, std::int64_t in, std::int64_t out, bool relu)
    : rows_(rows), in_{in}, out_{out}, relu_(relu), min_block_rows_(1) {
  check_extents(rows, in, out);
  const std::int64_t last_out = out % tile;
  if (has_avx512() && last_out > 0 && last_out <= avx512_floats) {
    min_block_rows_ = unsplit_n;
  }
  Side block = side_of({rows});
  if (block.last > 0) {
    block.last = std::max(block.last, min_block_rows_);
  }
  products_ = generate_all(side_of(out_), block, side_of(in_));
}

std::int64_t LinearForward::packed_floats() const {
  return line_floats((std::min(rows_, panel_rows) + min_block_rows_) * in_.extent);
}

std::int64_t LinearForward::group_floats(int group_size) const {
  const std::int64_t rows = std::min(rows_, panel_rows);
  const Tiles blocks{rows};
  const bool one_chunk = in_.count() <= chunk_tiles(rows);
  const std::int64_t sums = std::max<std::int64_t>(group_size, one_chunk ? 0 : out_.count() * blocks.count());
  return packed_floats() + sums * tile * tile;
}

std::int64_t LinearForward::workspace_bytes(int team) const {
  const RowGroups groups(rows_, team, [this](int size) { return group_floats(size); });
  return bytes(groups.count() * group_floats(groups.size()));
}

void LinearForward::run(const float* x, const float* w, const float* bias, float* y, void* workspace, threads::Member member,
                        const float* mask) const {
  check(mask == nullptr || !relu_, "a linear layer with a mask and a ReLU of its own");
  const RowGroups groups(rows_, member.count, [this](int size) { return group_floats(size); });
  float* own = static_cast<float*>(workspace) + groups.group_of(member) * group_floats(groups.size());
  groups.for_each_panel(member, [&](Range rows, const threads::Member& one) {
    const std::int64_t begin = rows.begin * out_.extent;
    run_panel(rows.size(), x + rows.begin * in_.extent, w, bias, mask == nullptr ? nullptr : mask + begin, y + begin, own, one);
  });
}

void LinearForward::run_panel(std::int64_t rows, const float* x, const float* w, const float* bias, const float* mask, float* y,
                              float* workspace, threads::Member member) const {
  const Tiles blocks{rows};
  const std::int64_t last_rows = blocks.width(blocks.count() - 1);
  const std::int64_t padding = std::max<std::int64_t>(0, min_block_rows_ - last_rows);
  const std::int64_t packed_rows = rows + padding;
  // [in tile][row][column]
  float* packed = workspace;
  float* sums = workspace + packed_floats();

  const Range packing = share(in_.count(), member);
  pack_tiles(rows, in_, packing, 1.0F, x, packed_rows, packed);
  for (std::int64_t k = packing.begin; k < packing.end; ++k) {
    std::fill_n(packed + k * tile * packed_rows + rows * in_.width(k), padding * in_.width(k), 0.0F);
  }
  member.sync();

  const std::int64_t chunk = chunk_tiles(rows);
  const bool one_chunk = in_.count() <= chunk;
  const Range units = share(out_.count() * blocks.count(), member);
  const auto w_tile = [&](std::int64_t unit, std::int64_t k) {
    const std::int64_t n = unit / blocks.count();
    return w + n * tile * in_.extent + k * tile * out_.width(n);
  };
  for (std::int64_t first = 0; first < in_.count(); first += chunk) {
    const std::int64_t last = std::min(first + chunk, in_.count());
    for (std::int64_t unit = units.begin; unit < units.end && !asked_to_stop_at_once(); ++unit) {
      const std::int64_t n = unit / blocks.count();
      const std::int64_t block = unit % blocks.count();
      const std::int64_t width = out_.width(n);
      float* sum = sums + (one_chunk ? member.index : unit) * tile * tile;
      const std::int64_t place = block * tile * out_.extent + n * tile;
      for (std::int64_t k = first; k < last; ++k) {
        if (last == in_.count()) {
          prefetch_part(k - first, last - first, blocks.width(block), y + place, out_.extent);
          if (mask != nullptr) {
            prefetch_part(k - first, last - first, blocks.width(block), mask + place, out_.extent);
          }
        }
        const Product& product = products_.at(out_.ragged(n), blocks.ragged(block), in_.ragged(k), k > 0);
        const float* a = w_tile(unit, k);
        const float* next = k + 1 < last ? w_tile(unit, k + 1) : unit + 1 < units.end ? w_tile(unit + 1, first) : a;
        const float* b = packed + k * tile * packed_rows + block * tile * in_.width(k);
        product(a, b, sum, next);
      }
      if (last == in_.count()) {
        const auto finish = mask != nullptr ? finish_rows<Finish::masked>
                            : relu_         ? finish_rows<Finish::relu>
                                            : finish_rows<Finish::plain>;
        finish(blocks.width(block), width, sum, bias == nullptr ? nullptr : bias + n * tile,
               mask == nullptr ? nullptr : mask + place, y + place, out_.extent);
      }
    }
  }
  member.sync();
}

LinearBackwardInput::LinearBackwardInput(std::int64_t rows, std::int64_t in, std::int64_t out, bool mask)
    : rows_(rows), in_{in}, out_{out}, mask_(mask), row_multiple_(has_avx512() ? 16 : 8), min_block_rows_(1) {
  check_extents(rows, in, out);
  if (2 * in * out <= rows * (in + out) && in * out <= most_transposed_floats) {
    by_transposed_weight_.emplace(rows, out, in, false);
    return;
  }
  const std::int64_t last_in = in % tile;
  if (has_avx512() && last_in > 0 && last_in < unsplit_n) {
    min_block_rows_ = 2 * avx512_floats;
  }
  Side block = side_of({rows});
  // A ragged block may fill up to a whole one.
  if (block.last > 0) {
    block.last = padded_rows(block.last);
  }
  products_ = generate_all(block, side_of(in_), side_of(out_));
}

std::int64_t LinearBackwardInput::padded_rows(std::int64_t block_rows) const {
  return round_up(std::max(block_rows, min_block_rows_), row_multiple_);
}

std::int64_t LinearBackwardInput::packed_floats() const { return round_up(std::min(rows_, panel_rows), tile) * out_.extent; }

std::int64_t LinearBackwardInput::group_floats(int group_size) const {
  const std::int64_t rows = std::min(rows_, panel_rows);
  const bool one_chunk = out_.count() <= chunk_tiles(rows);
  const std::int64_t sums = std::max<std::int64_t>(group_size, one_chunk ? 0 : in_.count() * Tiles{rows}.count());
  return packed_floats() + sums * tile * tile;
}

std::int64_t LinearBackwardInput::workspace_bytes(int team) const {
  if (by_transposed_weight_) {
    return bytes(line_floats(in_.extent * out_.extent)) + by_transposed_weight_->workspace_bytes(team);
  }
  const RowGroups groups(rows_, team, [this](int size) { return group_floats(size); });
  return bytes(groups.count() * group_floats(groups.size()));
}

/// The layout of a weight with the extents exchanged: [in tile][out tile][out index][in index].
void LinearBackwardInput::transpose_weight(const float* w, float* transposed, threads::Member member) const {
  const Range units = share(out_.count() * in_.count(), member);
  for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
    const std::int64_t m = unit / in_.count();
    const std::int64_t n = unit % in_.count();
    const std::int64_t out_width = out_.width(m);
    const std::int64_t in_width = in_.width(n);
    copy_transposed(in_width, out_width, w + m * tile * in_.extent + n * tile * out_width, out_width,
                    transposed + n * tile * out_.extent + m * tile * in_width, in_width);
  }
}

void LinearBackwardInput::run(const float* dy, const float* w, const float* mask_x, float* dx, void* workspace,
                              threads::Member member) const {
  if (by_transposed_weight_) {
    auto* transposed = static_cast<float*>(workspace);
    transpose_weight(w, transposed, member);
    member.sync();
    by_transposed_weight_->run(dy, transposed, nullptr, dx, transposed + line_floats(in_.extent * out_.extent), member,
                               mask_ ? mask_x : nullptr);
    return;
  }
  const RowGroups groups(rows_, member.count, [this](int size) { return group_floats(size); });
  float* own = static_cast<float*>(workspace) + groups.group_of(member) * group_floats(groups.size());
  groups.for_each_panel(member, [&](Range rows, const threads::Member& one) {
    run_panel(rows.size(), dy + rows.begin * out_.extent, w, mask_ ? mask_x + rows.begin * in_.extent : nullptr,
              dx + rows.begin * in_.extent, own, one);
  });
}

void LinearBackwardInput::run_panel(std::int64_t rows, const float* dy, const float* w, const float* mask_x, float* dx,
                                    float* workspace, threads::Member member) const {
  const Tiles blocks{rows};
  // [row block][out tile][out index][row]
  float* packed = workspace;
  float* sums = workspace + packed_floats();
  const auto packed_tile = [&](std::int64_t block, std::int64_t k) {
    return packed + block * tile * out_.extent + k * tile * padded_rows(blocks.width(block));
  };

  pack_transposed(
      rows, out_, share(out_.count(), member), dy, [&](std::int64_t block_rows) { return padded_rows(block_rows); }, packed);
  member.sync();

  const std::int64_t chunk = chunk_tiles(rows);
  const bool one_chunk = out_.count() <= chunk;
  const Range units = share(in_.count() * blocks.count(), member);
  const auto w_tile = [&](std::int64_t unit, std::int64_t k) {
    return w + k * tile * in_.extent + unit / blocks.count() * tile * out_.width(k);
  };
  for (std::int64_t first = 0; first < out_.count(); first += chunk) {
    const std::int64_t last = std::min(first + chunk, out_.count());
    for (std::int64_t unit = units.begin; unit < units.end && !asked_to_stop_at_once(); ++unit) {
      const std::int64_t n = unit / blocks.count();
      const std::int64_t block = unit % blocks.count();
      const std::int64_t width = in_.width(n);
      const std::int64_t block_rows = blocks.width(block);
      float* sum = sums + (one_chunk ? member.index : unit) * tile * tile;
      const std::int64_t place = block * tile * in_.extent + n * tile;
      for (std::int64_t k = first; k < last; ++k) {
        if (last == out_.count()) {
          prefetch_part(k - first, last - first, block_rows, dx + place, in_.extent);
          if (mask_) {
            prefetch_part(k - first, last - first, block_rows, mask_x + place, in_.extent);
          }
        }
        const Product& product = products_.at(blocks.ragged(block), in_.ragged(n), out_.ragged(k), k > 0);
        const float* a = packed_tile(block, k);
        const float* b = w_tile(unit, k);
        const float* next = k + 1 < last ? w_tile(unit, k + 1) : unit + 1 < units.end ? w_tile(unit + 1, first) : b;
        product(a, b, sum, next);
      }
      if (last == out_.count()) {
        const auto finish = mask_ ? copy_transposed<true> : copy_transposed<false>;
        finish(width, block_rows, sum, padded_rows(block_rows), dx + place, in_.extent, mask_ ? mask_x + place : nullptr);
      }
    }
  }
  member.sync();
}

/// With fewer outputs the products that follow do not repay the transposition of x. Generated kernels, which prefetch only with a
/// column-major b, always have it transposed.
constexpr std::int64_t few_outputs = 768;

LinearBackwardWeight::LinearBackwardWeight(std::int64_t rows, std::int64_t in, std::int64_t out, float alpha, bool accumulate)
    : rows_(rows), in_{in}, out_{out}, alpha_(alpha), accumulate_(accumulate), x_transposed_(out >= few_outputs || !has_avx512()) {
  check_extents(rows, in, out);
  products_ = generate_all(side_of(out_), side_of(in_), side_of({rows}), !x_transposed_);
}

std::int64_t LinearBackwardWeight::workspace_bytes(int /*team*/) const {
  const std::int64_t rows = std::min(rows_, panel_rows);
  return bytes(line_floats(rows * in_.extent) + line_floats(rows * out_.extent));
}

void LinearBackwardWeight::run(const float* x, const float* dy, float* dw, float* db, void* workspace,
                               threads::Member member) const {
  for (std::int64_t row = 0; row < rows_; row += panel_rows) {
    run_panel(std::min(panel_rows, rows_ - row), accumulate_ || row > 0, x + row * in_.extent, dy + row * out_.extent, dw, db,
              static_cast<float*>(workspace), member);
  }
}

void LinearBackwardWeight::run_panel(std::int64_t rows, bool accumulate, const float* x, const float* dy, float* dw, float* db,
                                     float* workspace, threads::Member member) const {
  const Tiles blocks{rows};
  // [in tile][row][in index], or transposed [row block][in tile][in index][row]; scaled by alpha, [out tile][row][out index]
  float* packed_x = workspace;
  float* packed_dy = workspace + line_floats(std::min(rows_, panel_rows) * in_.extent);

  const auto packed_x_tile = [&](std::int64_t block, std::int64_t n) {
    return x_transposed_ ? packed_x + block * tile * in_.extent + n * tile * blocks.width(block)
                         : packed_x + n * tile * rows + block * tile * in_.width(n);
  };

  const Range in_packing = share(in_.count(), member);
  if (x_transposed_) {
    pack_transposed(
        rows, in_, in_packing, x, [](std::int64_t block_rows) { return block_rows; }, packed_x);
  } else {
    pack_tiles(rows, in_, in_packing, 1.0F, x, rows, packed_x);
  }
  const Range packing = share(out_.count(), member);
  pack_tiles(rows, out_, packing, alpha_, dy, rows, packed_dy);
  for (std::int64_t m = packing.begin; m < packing.end && db != nullptr; ++m) {
    add_rows(rows, out_.width(m), packed_dy + m * tile * rows, accumulate, db + m * tile);
  }
  member.sync();

  const std::int64_t chunk = chunk_tiles(rows);
  const auto dw_tile = [&](std::int64_t m, std::int64_t n) { return dw + m * tile * in_.extent + n * tile * out_.width(m); };
  // Units of work go strip by strip of input tiles, so that a member's are about as wide as high: it reads few packed tiles of
  // each kind.
  const Range units = share(out_.count() * in_.count(), member);
  for (std::int64_t first = 0; first < in_.count(); first += chunk) {
    const std::int64_t width = std::min(chunk, in_.count() - first);
    const std::int64_t before = first * out_.count();
    const Range own{std::max<std::int64_t>(0, units.begin - before), std::min(out_.count() * width, units.end - before)};
    for (std::int64_t unit = own.begin; unit < own.end && !asked_to_stop_at_once(); ++unit) {
      const std::int64_t m = unit / width;
      const std::int64_t n = first + unit % width;
      float* sum = dw_tile(m, n);
      const std::int64_t next_unit = std::min(unit + 1, own.end - 1);
      const float* next = dw_tile(next_unit / width, first + next_unit % width);
      for (std::int64_t block = 0; block < blocks.count(); ++block) {
        const Product& product = products_.at(out_.ragged(m), in_.ragged(n), blocks.ragged(block), accumulate || block > 0);
        const float* a = packed_dy + m * tile * rows + block * tile * out_.width(m);
        product(a, packed_x_tile(block, n), sum, next);
      }
    }
  }
  member.sync();
}

}  // namespace baton::exec::cpu
