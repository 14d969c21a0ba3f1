#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "baton/base/dtype.h"

namespace baton::archive {

/// The type of a stored element: one that is computed with (`DType`), or another that files hold.
class ElementType {
 public:
  struct Known {
    std::string_view name;  // in a header
    std::string_view text;  // for people
    std::int64_t size;
  };
  /// The first of them are those of `DType`, in its order.
  static constexpr std::array<Known, 13> known{{{"F32", "f32", 4},
                                                {"F64", "f64", 8},
                                                {"I32", "i32", 4},
                                                {"BF16", "bf16", 2},
                                                {"F16", "f16", 2},
                                                {"U8", "u8", 1},
                                                {"I8", "i8", 1},
                                                {"BOOL", "bool", 1},
                                                {"U16", "u16", 2},
                                                {"I16", "i16", 2},
                                                {"U32", "u32", 4},
                                                {"I64", "i64", 8},
                                                {"U64", "u64", 8}}};

  constexpr ElementType() = default;
  constexpr ElementType(DType dtype) : number_(static_cast<std::uint8_t>(dtype)) {}  // NOLINT: implicit
  static constexpr std::optional<ElementType> by_name(std::string_view name) {
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i].name == name) {
        ElementType found;
        found.number_ = static_cast<std::uint8_t>(i);
        return found;
      }
    }
    return std::nullopt;
  }

  constexpr std::string_view name() const { return known[number_].name; }
  /// The type to compute in; nullopt if there is none.
  constexpr std::optional<DType> dtype() const {
    return number_ < all_dtypes.size() ? std::optional(static_cast<DType>(number_)) : std::nullopt;
  }
  constexpr bool operator==(const ElementType&) const = default;

  friend constexpr std::int64_t size_of(ElementType type) { return known[type.number_].size; }
  friend constexpr std::string_view to_text(ElementType type) { return known[type.number_].text; }

 private:
  std::uint8_t number_ = 0;
};

}  // namespace baton::archive
