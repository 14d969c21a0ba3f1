#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "baton/model/model_name.h"

namespace baton::lab {

/// The size of a stack of Linear and ReLU as cases are called: `1024x2` has two blocks of width 1024.
struct StackSize {
  std::int64_t dim = 0;
  std::int64_t depth = 2;

  /// The size in a text such as `1024x2`, or `1024` with the usual depth. nullopt if it has another form, as the name of a model; a
  /// usage error if a number is out of range.
  static std::optional<StackSize> parse(std::string_view text);
  model::ModelName model() const;
  bool operator==(const StackSize&) const = default;
};

}  // namespace baton::lab
