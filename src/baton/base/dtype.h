#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

/// The type of one element. `f64` exists for checking gradients and for sums of losses, `i32` for class labels.
enum class DType : std::uint8_t { f32, f64, i32 };

constexpr std::int64_t size_of(DType type) { return type == DType::f64 ? 8 : 4; }
constexpr std::string_view to_text(DType type) {
  return type == DType::f32 ? "f32" : type == DType::f64 ? "f64" : "i32";
}

}  // namespace baton
