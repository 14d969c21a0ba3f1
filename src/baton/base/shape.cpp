#include "baton/base/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {

std::string to_text(const Shape& shape) { return fmt::format("{}", fmt::join(shape.extents(), "x")); }

}  // namespace baton
