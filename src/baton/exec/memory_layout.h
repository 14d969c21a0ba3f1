#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "baton/base/shape.h"
#include "baton/plan/plan.h"

namespace baton::exec {

/// An order of a parameter's elements in memory that a backend brings and its kernels know. It takes as many bytes as the row-major
/// order, so that element-wise work (sums, updates, copies) need not know it.
struct MemoryLayout {
  std::string name;  // the name by which the backend's Target and plans refer to it
  /// `position` gives where the element with a row-major index lies in the memory of a tensor of this shape; `index` is its
  /// inverse.
  std::function<std::int64_t(const Shape& shape, std::int64_t index)> position;
  std::function<std::int64_t(const Shape& shape, std::int64_t position)> index;
};

/// The memory layouts of a backend.
using MemoryLayouts = std::span<const MemoryLayout>;

/// The layout of a buffer among those of the backend that runs its plan; nullptr: row-major.
const MemoryLayout* layout_of(const plan::Buffer& buffer, MemoryLayouts layouts);
/// A usage error if the plan has a layout that is not among them.
void require_layouts(const plan::Plan& plan, MemoryLayouts layouts, std::string_view backend);

}  // namespace baton::exec
