#include "baton/exec/backend/cpu/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "baton/base/stop.h"
#include "baton/exec/backend/cpu/exponential.h"
#include "baton/exec/backend/cpu/lane_sums.h"
#include "baton/exec/backend/cpu/transpose.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

namespace baton::exec::cpu {
namespace {

constexpr std::int64_t side = 64;  // positions of q, and of k
constexpr std::int64_t lanes = 16;

/// The least number of whole lanes that has `count` elements.
std::int64_t in_lanes(std::int64_t count) { return (count + lanes - 1) / lanes * lanes; }

/// As many floats as a wide register holds. On processors that have only smaller registers the compiler splits it.
#if defined(__AVX512F__)
using Vector = float __attribute__((vector_size(64), aligned(4), may_alias));
#else
using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));
#endif
constexpr std::int64_t in_register = sizeof(Vector) / sizeof(float);

const Vector& vector_at(const float* place) { return *reinterpret_cast<const Vector*>(place); }
Vector& vector_at(float* place) { return *reinterpret_cast<Vector*>(place); }

/// sum + factor · line, rounded once where the machine can.
void add_product(Vector& sum, float factor, const Vector& line) {
#if defined(__AVX512F__)
  sum = _mm512_fmadd_ps(_mm512_set1_ps(factor), line, sum);
#elif defined(__AVX2__) && defined(__FMA__)
  sum = _mm256_fmadd_ps(_mm256_set1_ps(factor), line, sum);
#else
  sum += factor * line;
#endif
}

/// A matrix that is read element by element.
struct Elements {
  const float* first;
  std::int64_t row;     // from one to the next
  std::int64_t column;  // likewise
  float operator()(std::int64_t r, std::int64_t c) const { return first[r * row + c * column]; }
};

/// c = [c +] a b for `rows` rows of c and `vectors` vectors of columns, all of them in registers.
template <std::int64_t rows, std::int64_t vectors>
void multiply_block(std::int64_t inner, const Elements& a, const float* b, std::int64_t b_row, float* c, std::int64_t c_row,
                    bool add) {
  Vector sums[rows][vectors];
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t v = 0; v < vectors; ++v) {
      sums[r][v] = add ? vector_at(c + r * c_row + v * in_register) : Vector{};
    }
  }
  for (std::int64_t i = 0; i < inner; ++i) {
    Vector line[vectors];
    for (std::int64_t v = 0; v < vectors; ++v) {
      line[v] = vector_at(b + i * b_row + v * in_register);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const float factor = a(r, i);
      for (std::int64_t v = 0; v < vectors; ++v) {
        add_product(sums[r][v], factor, line[v]);
      }
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t v = 0; v < vectors; ++v) {
      vector_at(c + r * c_row + v * in_register) = sums[r][v];
    }
  }
}

/// What is known of a product on the diagonal of a causal attention, where a position sees none after its own. What is left out
/// would only add zeros.
enum class Triangle : std::uint8_t {
  none,
  wanted,  // elements of the result right of the diagonal are not wanted
  lower,   // a is zero right of its diagonal
  upper,   // a is zero left of its diagonal
};

/// One product c = [c +] a b. Columns come in whole vectors. Each element is one sum in ascending order.
struct Multiplication {
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t columns;
  Elements a;
  const float* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  bool add;
  Triangle triangle;
};

/// `count` rows of a product from `row` on, for `vectors` vectors of columns from `column` on.
template <std::int64_t count, std::int64_t vectors>
void multiply_strip(const Multiplication& product, std::int64_t row, std::int64_t column) {
  const std::int64_t first = product.triangle == Triangle::upper ? std::min(row, product.inner) : 0;
  const std::int64_t end = product.triangle == Triangle::lower ? std::min(row + count, product.inner) : product.inner;
  const Elements a{&product.a.first[row * product.a.row + first * product.a.column], product.a.row, product.a.column};
  multiply_block<count, vectors>(end - first, a, product.b + first * product.b_row + column, product.b_row,
                                 product.c + row * product.c_row + column, product.c_row, product.add);
}

/// All rows of a strip of columns, `count` at a time.
template <std::int64_t count, std::int64_t vectors>
void multiply_all_rows(const Multiplication& product, std::int64_t column) {
  const auto skipped = [&](std::int64_t row, std::int64_t rows) {
    return product.triangle == Triangle::wanted && column >= row + rows;
  };
  std::int64_t row = 0;
  for (; row + count <= product.rows; row += count) {
    if (!skipped(row, count)) {
      multiply_strip<count, vectors>(product, row, column);
    }
  }
  for (; row < product.rows; ++row) {
    if (!skipped(row, 1)) {
      multiply_strip<1, vectors>(product, row, column);
    }
  }
}

/// In strips of columns, and as many rows at once as leave enough sums in registers to hide the latency of each.
void multiply(const Multiplication& product) {
  std::int64_t column = 0;
#if defined(__AVX512F__)
  if (product.triangle != Triangle::wanted) {  // narrow strips leave out more
    for (; column + 4 * lanes <= product.columns; column += 4 * lanes) {
      multiply_all_rows<4, 4>(product, column);
    }
    for (; column + 2 * lanes <= product.columns; column += 2 * lanes) {
      multiply_all_rows<8, 2>(product, column);
    }
  }
  for (; column < product.columns; column += lanes) {
    multiply_all_rows<8, 1>(product, column);
  }
#else
  for (; column < product.columns; column += lanes) {
    multiply_all_rows<4, lanes / in_register>(product, column);
  }
#endif
}

/// Copies rows of `size` elements, `step` apart, to rows of `width`, zeros after them.
void pack(std::int64_t rows, std::int64_t size, const float* from, std::int64_t step, float scale, std::int64_t width, float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < size; ++i) {
      to[r * width + i] = scale * from[r * step + i];
    }
    std::fill(to + r * width + size, to + (r + 1) * width, 0.0F);
  }
}

/// The same with rows and columns exchanged: `size` rows of a whole tile.
void pack_turned(std::int64_t rows, std::int64_t size, const float* from, std::int64_t step, float* to) {
  for (std::int64_t i = 0; i < size && rows < side; ++i) {
    std::fill(to + i * side + rows, to + (i + 1) * side, 0.0F);
  }
  copy_transposed(rows, size, from, step, to, side);
}

/// Sums and the like run in as many lanes as a vector has, always the same, which are put together at the end.
using Lanes = std::array<float, static_cast<std::size_t>(lanes)>;

float sum(const Lanes& parts) {
  float total = 0;
  for (const float part : parts) {
    total += part;
  }
  return total;
}

float sum_of_products(const float* a, const float* b, std::int64_t count) {
  Lanes parts{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      parts[static_cast<std::size_t>(lane)] += a[i + lane] * b[i + lane];
    }
  }
  for (; i < count; ++i) {
    parts[0] += a[i] * b[i];
  }
  return sum(parts);
}

/// Makes the first `held` of a row of scores their exponentials, those after them zero, and returns their sum.
float exponentials(float* row, float largest, std::int64_t held) {
  const std::int64_t end = in_lanes(held);
  for (std::int64_t c = 0; c < end; ++c) {
    row[c] = exponential(row[c] - largest);
  }
  std::fill(row + held, row + side, 0.0F);
  Lanes parts{};
  for (std::int64_t c = 0; c < end; c += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      parts[static_cast<std::size_t>(lane)] += row[c + lane];
    }
  }
  return sum(parts);
}

}  // namespace

/// The scratch memory of one member. Tiles of q, k and the like are as wide as a head, in whole vectors.
struct Attention::Scratch {
  static constexpr std::int64_t forward_tiles = 4;
  static constexpr std::int64_t backward_tiles = 8;
  static std::int64_t floats(std::int64_t tiles_of_heads, std::int64_t width, std::int64_t squares) {
    return side * (tiles_of_heads * width + squares * side + 2);
  }

  Scratch(std::byte* workspace, std::int64_t floats, std::int64_t width, int member)
      : first(reinterpret_cast<float*>(workspace) + floats * member), head(side * width) {}
  float* of_head(std::int64_t number) const { return first + 2 * side + number * head; }
  float* square(std::int64_t tiles_of_heads, std::int64_t number) const { return of_head(tiles_of_heads) + number * side * side; }
  float* largest() const { return first; }
  float* total() const { return first + side; }

  float* first;
  std::int64_t head;  // floats of a tile
};

std::int64_t Attention::tiles() const { return (at_.positions + side - 1) / side; }
std::int64_t Attention::width() const { return in_lanes(at_.size); }

std::int64_t Attention::seen(std::int64_t t, std::int64_t key, std::int64_t columns) const {
  return at_.causal ? std::clamp<std::int64_t>(t - key + 1, 0, columns) : columns;
}

std::int64_t Attention::forward_workspace_bytes(int team) const {
  return Scratch::floats(Scratch::forward_tiles, width(), 1) * static_cast<std::int64_t>(sizeof(float)) * team;
}

std::int64_t Attention::backward_workspace_bytes(int team) const {
  return Scratch::floats(Scratch::backward_tiles, width(), 2) * static_cast<std::int64_t>(sizeof(float)) * team;
}

void Attention::forward(const float* q, const float* k, const float* v, float* o, float* sums, std::byte* workspace,
                        const threads::Member& member) const {
  const Scratch scratch(workspace, Scratch::floats(Scratch::forward_tiles, width(), 1), width(), member.index);
  const std::int64_t heads = at_.samples * at_.groups * at_.heads;
  // In turn, since a late tile of a causal attention takes longer than an early one.
  for (std::int64_t unit = member.index; unit < heads * tiles() && !asked_to_stop_at_once(); unit += member.count) {
    const std::int64_t head = unit / tiles();
    const std::int64_t group = head / at_.heads;
    forward_tile(q + head * at_.size, k + group * at_.size, v + group * at_.size, o + head * at_.size, sums + head,
                 unit % tiles() * side, scratch);
  }
}

void Attention::forward_tile(const float* q, const float* k, const float* v, float* o, float* sums, std::int64_t first,
                             const Scratch& scratch) const {
  const std::int64_t wide = width();
  const std::int64_t rows = std::min(side, at_.positions - first);
  float* own_q = scratch.of_head(0);
  float* keys = scratch.of_head(1);
  float* values = scratch.of_head(2);
  float* mixed = scratch.of_head(3);
  float* scores = scratch.square(Scratch::forward_tiles, 0);
  pack(rows, at_.size, q + first * q_step(), q_step(), 1 / std::sqrt(static_cast<float>(at_.size)), wide, own_q);
  std::fill(scratch.largest(), scratch.largest() + rows, -std::numeric_limits<float>::infinity());
  std::fill(scratch.total(), scratch.total() + rows, 0.0F);
  std::fill(mixed, mixed + rows * wide, 0.0F);
  const std::int64_t end = at_.causal ? first + rows : at_.positions;
  for (std::int64_t key = 0; key < end; key += side) {
    const std::int64_t columns = std::min(side, at_.positions - key);
    pack_turned(columns, at_.size, k + key * k_step(), k_step(), keys);
    pack(columns, at_.size, v + key * k_step(), k_step(), 1, wide, values);
    const bool diagonal = at_.causal && key == first;
    multiply(
        {rows, at_.size, side, {own_q, wide, 1}, keys, side, scores, side, false, diagonal ? Triangle::wanted : Triangle::none});
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = scores + r * side;
      const std::int64_t held = seen(first + r, key, columns);  // one at least: tiles of q and k begin at the same positions
      std::fill(row + held, row + in_lanes(held), -std::numeric_limits<float>::infinity());
      const float largest = largest_of(row, in_lanes(held), scratch.largest()[r]);
      const float keep = key == 0 ? 0 : exponential(scratch.largest()[r] - largest);
      scratch.largest()[r] = largest;
      scratch.total()[r] = scratch.total()[r] * keep + exponentials(row, largest, held);
      for (std::int64_t i = 0; i < wide; ++i) {
        mixed[r * wide + i] *= keep;
      }
    }
    multiply(
        {rows, columns, wide, {scores, side, 1}, values, wide, mixed, wide, true, diagonal ? Triangle::lower : Triangle::none});
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const float factor = 1 / scratch.total()[r];
    for (std::int64_t i = 0; i < at_.size; ++i) {
      o[(first + r) * q_step() + i] = mixed[r * wide + i] * factor;
    }
    sums[(first + r) * (q_step() / at_.size)] = scratch.largest()[r] + std::log(scratch.total()[r]);
  }
}

void Attention::backward(const float* dout, const float* q, const float* k, const float* v, const float* o, const float* sums,
                         float* dq, float* dk, float* dv, std::byte* workspace, const threads::Member& member) const {
  const std::int64_t wide = width();
  const Scratch scratch(workspace, Scratch::floats(Scratch::backward_tiles, wide, 2), wide, member.index);
  const float scale = 1 / std::sqrt(static_cast<float>(at_.size));
  float* keys = scratch.of_head(0);
  float* turned_keys = scratch.of_head(1);
  float* turned_values = scratch.of_head(2);
  float* own_q = scratch.of_head(3);
  float* own_dout = scratch.of_head(4);
  float* own_dq = scratch.of_head(5);
  float* own_dk = scratch.of_head(6);
  float* own_dv = scratch.of_head(7);
  float* shares = scratch.square(Scratch::backward_tiles, 0);
  float* slopes = scratch.square(Scratch::backward_tiles, 1);
  const std::int64_t groups = at_.samples * at_.groups;
  for (std::int64_t group = member.index; group < groups; group += member.count) {
    for (std::int64_t key = 0; key < at_.positions && !asked_to_stop_at_once(); key += side) {
      const std::int64_t columns = std::min(side, at_.positions - key);
      const std::int64_t place = key * k_step() + group * at_.size;
      pack(columns, at_.size, k + place, k_step(), 1, wide, keys);
      pack_turned(columns, at_.size, k + place, k_step(), turned_keys);
      pack_turned(columns, at_.size, v + place, k_step(), turned_values);
      std::fill(own_dk, own_dk + columns * wide, 0.0F);
      std::fill(own_dv, own_dv + columns * wide, 0.0F);
      for (std::int64_t head = group * at_.heads; head < (group + 1) * at_.heads; ++head) {
        for (std::int64_t first = at_.causal ? key : 0; first < at_.positions; first += side) {
          const std::int64_t rows = std::min(side, at_.positions - first);
          const std::int64_t from = first * q_step() + head * at_.size;
          pack(rows, at_.size, q + from, q_step(), scale, wide, own_q);
          pack(rows, at_.size, dout + from, q_step(), 1, wide, own_dout);
          const bool diagonal = at_.causal && key == first;
          const auto on_diagonal = [&](Triangle triangle) { return diagonal ? triangle : Triangle::none; };
          const Triangle wanted = on_diagonal(Triangle::wanted);
          const Triangle lower = on_diagonal(Triangle::lower);
          const Triangle upper = on_diagonal(Triangle::upper);
          multiply({rows, at_.size, side, {own_q, wide, 1}, turned_keys, side, shares, side, false, wanted});
          multiply({rows, at_.size, side, {own_dout, wide, 1}, turned_values, side, slopes, side, false, wanted});
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t held = seen(first + r, key, columns);
            const float mean = sum_of_products(own_dout + r * wide, o + from + r * q_step(), at_.size);
            float* share = shares + r * side;
            float* slope = slopes + r * side;
            exponentials(share, sums[(first + r) * (q_step() / at_.size) + head], held);
            for (std::int64_t c = 0; c < in_lanes(held); ++c) {
              slope[c] = share[c] * (slope[c] - mean);
            }
            std::fill(slope + in_lanes(held), slope + side, 0.0F);
          }
          multiply({columns, rows, wide, {shares, 1, side}, own_dout, wide, own_dv, wide, true, upper});
          multiply({columns, rows, wide, {slopes, 1, side}, own_q, wide, own_dk, wide, true, upper});  // q is scaled already
          multiply({rows, columns, wide, {slopes, side, 1}, keys, wide, own_dq, wide, false, lower});
          for (std::int64_t r = 0; r < rows; ++r) {
            float* to = dq + from + r * q_step();
            for (std::int64_t i = 0; i < at_.size; ++i) {
              to[i] = (key == 0 ? 0.0F : to[i]) + scale * own_dq[r * wide + i];
            }
          }
        }
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        for (std::int64_t i = 0; i < at_.size; ++i) {
          dk[place + c * k_step() + i] = own_dk[c * wide + i];
          dv[place + c * k_step() + i] = own_dv[c * wide + i];
        }
      }
    }
  }
}

}  // namespace baton::exec::cpu
