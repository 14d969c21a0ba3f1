#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace baton::exec::cpu {

#if defined(__AVX__)
namespace detail {

/// Eight rows of eight, one row a register.
struct Square {
  __m256 row[8];
};

inline void transpose(Square& square) {
  __m256* r = square.row;
  __m256 s[8];
  for (std::size_t i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (std::size_t i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xEE);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    s[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    s[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  std::copy_n(s, 8, r);
}

}  // namespace detail
#endif

/// to[column][row] = from[row][column], and zero where a gate, laid out like `to`, is not above zero.
template <bool gated = false>
void copy_transposed(std::int64_t rows, std::int64_t columns, const float* from, std::int64_t from_stride, float* to,
                     std::int64_t to_stride, const float* gate = nullptr) {
  const auto move = [&](std::int64_t row, std::int64_t column) {
    const float value = from[row * from_stride + column];
    to[column * to_stride + row] = gated && !(gate[column * to_stride + row] > 0.0F) ? 0.0F : value;
  };
#if defined(__AVX__)
  constexpr std::int64_t side = 8;
  if (rows >= side && columns >= side) {
    // The last squares of a line may overlap the ones before. Lines of `to` are finished one after the other: a power of two as
    // stride would let halves evict each other.
    for (std::int64_t next_column = 0; next_column < columns; next_column += side) {
      const std::int64_t column = std::min(next_column, columns - side);
      for (std::int64_t next_row = 0; next_row < rows; next_row += side) {
        const std::int64_t row = std::min(next_row, rows - side);
        detail::Square square;
        for (std::int64_t i = 0; i < side; ++i) {
          square.row[i] = _mm256_loadu_ps(from + (row + i) * from_stride + column);
        }
        detail::transpose(square);
        for (std::int64_t i = 0; i < side; ++i) {
          const std::int64_t place = (column + i) * to_stride + row;
          if constexpr (gated) {
            const __m256 shut = _mm256_cmp_ps(_mm256_loadu_ps(gate + place), _mm256_setzero_ps(), _CMP_NGT_UQ);
            square.row[i] = _mm256_andnot_ps(shut, square.row[i]);
          }
          _mm256_storeu_ps(to + place, square.row[i]);
        }
      }
    }
    return;
  }
#endif
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      move(row, column);
    }
  }
}

}  // namespace baton::exec::cpu
