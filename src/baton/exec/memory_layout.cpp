#include "baton/exec/memory_layout.h"

#include <algorithm>

#include "baton/base/error.h"

namespace baton::exec {
namespace {

const MemoryLayout* find_layout(MemoryLayouts layouts, std::string_view name) {
  const auto found = std::find_if(layouts.begin(), layouts.end(), [&](const MemoryLayout& layout) { return layout.name == name; });
  return found == layouts.end() ? nullptr : &*found;
}

}  // namespace

const MemoryLayout* layout_of(const plan::Buffer& buffer, MemoryLayouts layouts) {
  const MemoryLayout* layout = buffer.layout.empty() ? nullptr : find_layout(layouts, buffer.layout);
  check(layout != nullptr || buffer.layout.empty(), "{} has the unknown memory layout {}", buffer.label, buffer.layout);
  return layout;
}

void require_layouts(const plan::Plan& plan, MemoryLayouts layouts, std::string_view backend) {
  for (const plan::Buffer& buffer : plan.buffers()) {
    if (!buffer.layout.empty() && find_layout(layouts, buffer.layout) == nullptr) {
      throw usage_error("the plan has {} in the memory layout {}, which the backend {} does not have: compile it for that backend",
                        buffer.label, buffer.layout, backend);
    }
  }
}

}  // namespace baton::exec
