#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace baton {

/// The type of one element. `f64` exists for checking gradients and for sums of losses, `i32` for class labels; `bf16` and
/// `f16` are the 16-bit floating types (base/narrow.h).
enum class DType : std::uint8_t { f32, f64, i32, bf16, f16 };

constexpr std::array<DType, 5> all_dtypes{DType::f32, DType::f64, DType::i32, DType::bf16, DType::f16};

constexpr bool is_narrow(DType type) { return type == DType::bf16 || type == DType::f16; }
constexpr std::int64_t size_of(DType type) { return type == DType::f64 ? 8 : is_narrow(type) ? 2 : 4; }
constexpr std::string_view to_text(DType type) {
  constexpr std::array<std::string_view, 5> names{"f32", "f64", "i32", "bf16", "f16"};
  return names[static_cast<std::size_t>(type)];
}
constexpr std::optional<DType> dtype_by_name(std::string_view name) {
  for (const DType type : all_dtypes) {
    if (to_text(type) == name) {
      return type;
    }
  }
  return std::nullopt;
}

}  // namespace baton
