#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "baton/exec/backend/cpu/amx.h"

/// A thread's eight tile registers. A tile is 16 rows of 64 bytes: 16 × 32 of a left operand, 16 pairs of rows × 16 columns of a
/// right operand (the two elements of a pair side by side), or 16 × 16 float32 sums.
namespace baton::exec::cpu {

constexpr std::int64_t tile_rows = 16;
constexpr std::int64_t tile_bytes = 64;                         // bytes per row of a tile
constexpr std::int64_t tile_depth = 32;                         // the part of the reduction that one tile of each operand holds
constexpr std::int64_t tile_elements = tile_rows * tile_depth;  // elements of bf16 per tile

#if defined(__x86_64__)
/// The tile registers of the processor, configured while the object lives. They are used by assembly, because GCC 12 drops stores
/// to what its _tile_loadconfig reads, and the intrinsics would need the file compiled for AMX.
class AmxTiles {
 public:
  AmxTiles() {
    Configuration all{};
    all.rows.fill(tile_rows);
    all.bytes.fill(tile_bytes);
    asm volatile("ldtilecfg %0" ::"m"(all));
  }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
  ~AmxTiles() { asm volatile("tilerelease"); }

  template <int tile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  /// `stride`: bytes from one row to the next.
  template <int tile>
  void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  /// sums += left · right.
  template <int sums, int left, int right>
  void add_product() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
  }

 private:
  struct Configuration {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::array<std::uint8_t, 14> reserved{};
    std::array<std::uint16_t, 8> bytes{};
    std::array<std::uint16_t, 8> more_bytes{};
    std::array<std::uint8_t, 8> rows{};
    std::array<std::uint8_t, 8> more_rows{};
  };
  static_assert(sizeof(Configuration) == 64);
};
#endif

/// Tile registers in plain C++. For each sum, the even and the odd elements of the reduction are added up separately, from zero, in
/// ascending order; then they are added to each other and to the sum. Numbers below the normal range count as zero, everywhere.
class PortableTiles {
 public:
  template <int tile>
  void zero() {
    sums(tile) = {};
  }
  template <int tile>
  void load(const void* from, std::int64_t stride) {
    for (std::int64_t row = 0; row < tile_rows; ++row) {
      std::memcpy(tiles_[tile].data() + row * tile_bytes, static_cast<const std::byte*>(from) + row * stride, tile_bytes);
    }
  }
  template <int tile>
  void store(void* to, std::int64_t stride) {
    for (std::int64_t row = 0; row < tile_rows; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * stride, tiles_[tile].data() + row * tile_bytes, tile_bytes);
    }
  }
  template <int sum, int left, int right>
  void add_product() {
    for (std::int64_t row = 0; row < tile_rows; ++row) {
      std::array<float, 16> even{};
      std::array<float, 16> odd{};
      for (std::int64_t pair = 0; pair < tile_depth / 2; ++pair) {
        const std::uint32_t a = word(left, row, pair);
        for (std::int64_t column = 0; column < 16; ++column) {
          const auto c = static_cast<std::size_t>(column);
          const std::uint32_t b = word(right, pair, column);
          even[c] = normal(std::fma(low(a), low(b), even[c]));
          odd[c] = normal(std::fma(high(a), high(b), odd[c]));
        }
      }
      for (std::int64_t column = 0; column < 16; ++column) {
        const auto c = static_cast<std::size_t>(column);
        const float before = normal(std::bit_cast<float>(word(sum, row, column)));
        set(sum, row, column, std::bit_cast<std::uint32_t>(normal(before + normal(even[c] + odd[c]))));
      }
    }
  }

 private:
  using Tile = std::array<std::byte, static_cast<std::size_t>(tile_rows* tile_bytes)>;

  static float normal(float value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
  }
  static float low(std::uint32_t pair) { return normal(std::bit_cast<float>(pair << 16)); }
  static float high(std::uint32_t pair) { return normal(std::bit_cast<float>(pair & 0xffff0000U)); }

  Tile& sums(int tile) { return tiles_[static_cast<std::size_t>(tile)]; }
  std::uint32_t word(int tile, std::int64_t row, std::int64_t column) const {
    std::uint32_t value = 0;
    std::memcpy(&value, tiles_[static_cast<std::size_t>(tile)].data() + row * tile_bytes + column * 4, 4);
    return value;
  }
  void set(int tile, std::int64_t row, std::int64_t column, std::uint32_t value) {
    std::memcpy(tiles_[static_cast<std::size_t>(tile)].data() + row * tile_bytes + column * 4, &value, 4);
  }

  std::array<Tile, 8> tiles_{};
};

}  // namespace baton::exec::cpu
