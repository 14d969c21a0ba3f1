#include "baton/exec/backend/cpu/tile_pack.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace baton::exec::cpu {
namespace {

enum class Form { rows, pairs };

/// Columns and rows of the matrix that a tile covers.
constexpr std::int64_t height_of(Form form) { return form == Form::rows ? tile_rows : tile_depth; }
constexpr std::int64_t width_of(Form form) { return form == Form::rows ? tile_depth : tile_rows; }

template <Form form, bool turned>
void pack_plainly(const std::uint16_t* from, std::int64_t stride, std::uint16_t* tile) {
  std::array<std::uint32_t, 256> words;
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 16; ++column) {
      const auto r = static_cast<std::int64_t>(row);
      const auto c = static_cast<std::int64_t>(column);
      const std::uint16_t* low = form == Form::rows ? from + r * stride + 2 * c : from + 2 * r * stride + c;
      const std::uint16_t high = low[form == Form::rows ? 1 : stride];
      words[turned ? column * 16 + row : row * 16 + column] = *low | static_cast<std::uint32_t>(high) << 16;
    }
  }
  std::memcpy(tile, words.data(), sizeof(words));
}

#if defined(__x86_64__)
// Compiled for AVX-512 whatever the rest is compiled for: every processor with tiles has it.
#define BATON_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

using WordVector = std::uint32_t __attribute__((vector_size(64), aligned(2), may_alias));
using HalfVector = std::uint16_t __attribute__((vector_size(32), aligned(2), may_alias));

BATON_AVX512 inline void transpose(WordVector* row) {
  WordVector half[16];
  for (int i = 0; i < 16; i += 2) {
    const WordVector& a = row[i];
    const WordVector& b = row[i + 1];
    half[i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    half[i + 1] = __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const WordVector& a = half[i + j];
      const WordVector& b = half[i + j + 2];
      row[i + 2 * j] = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      row[i + 2 * j + 1] = __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  }
  // Every fourth row has the same column of each quarter: quarters are exchanged between them.
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 16; j += 8) {
      const WordVector& a = row[i + j];
      const WordVector& b = row[i + j + 4];
      half[i + j] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
      half[i + j + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
  }
  for (int i = 0; i < 8; ++i) {
    const WordVector& a = half[i];
    const WordVector& b = half[i + 8];
    row[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    row[i + 8] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
}

template <Form form, bool turned>
BATON_AVX512 void pack_in_vectors(const std::uint16_t* from, std::int64_t stride, std::uint16_t* tile) {
  WordVector row[16];
  for (std::int64_t i = 0; i < 16; ++i) {
    if (form == Form::rows) {
      row[i] = *reinterpret_cast<const WordVector*>(from + i * stride);
    } else {
      const auto& low = *reinterpret_cast<const HalfVector*>(from + 2 * i * stride);
      const auto& high = *reinterpret_cast<const HalfVector*>(from + (2 * i + 1) * stride);
      row[i] = __builtin_convertvector(low, WordVector) | __builtin_convertvector(high, WordVector) << 16;
    }
  }
  if (turned) {
    transpose(row);
  }
  for (std::int64_t i = 0; i < 16; ++i) {
    *reinterpret_cast<WordVector*>(tile + i * tile_depth) = row[i];
  }
}

bool has_vectors() {
  static const bool has = __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has;
}
#endif

template <Form form, bool turned>
void pack_whole(const std::uint16_t* from, std::int64_t stride, std::uint16_t* tile) {
#if defined(__x86_64__)
  if (has_vectors()) {
    return pack_in_vectors<form, turned>(from, stride, tile);
  }
#endif
  pack_plainly<form, turned>(from, stride, tile);
}

template <Form form, bool turned>
void pack(const Bf16Part& from, std::uint16_t* tile) {
  if (from.rows >= height_of(form) && from.columns >= width_of(form)) {
    return pack_whole<form, turned>(from.first, from.stride, tile);
  }
  alignas(64) std::array<std::uint16_t, tile_elements> filled{};
  const std::int64_t columns = std::min(from.columns, width_of(form));
  for (std::int64_t row = 0; row < std::min(from.rows, height_of(form)); ++row) {
    std::copy_n(from.first + row * from.stride, columns, filled.data() + row * width_of(form));
  }
  pack_whole<form, turned>(filled.data(), width_of(form), tile);
}

}  // namespace

void pack_rows(const Bf16Part& from, std::uint16_t* tile) { pack<Form::rows, false>(from, tile); }
void pack_rows_turned(const Bf16Part& from, std::uint16_t* tile) { pack<Form::rows, true>(from, tile); }
void pack_pairs(const Bf16Part& from, std::uint16_t* tile) { pack<Form::pairs, false>(from, tile); }
void pack_pairs_turned(const Bf16Part& from, std::uint16_t* tile) { pack<Form::pairs, true>(from, tile); }

}  // namespace baton::exec::cpu
