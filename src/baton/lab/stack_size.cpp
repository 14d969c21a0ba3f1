#include "baton/lab/stack_size.h"

#include <fmt/format.h>

#include "baton/base/units.h"
#include "baton/model/settings.h"
#include "baton/model/zoo.h"

namespace baton::lab {

std::optional<StackSize> StackSize::parse(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789x") != std::string_view::npos) {
    return std::nullopt;
  }
  const std::size_t cross = text.find('x');
  StackSize size{.dim = parse_integer(text.substr(0, cross), fmt::format("DIM of the case {}", text), 1, model::max_width)};
  if (cross != std::string_view::npos) {
    size.depth = parse_integer(text.substr(cross + 1), fmt::format("DEPTH of the case {}", text), 1, model::max_width);
  }
  return size;
}

model::ModelName StackSize::model() const { return model::mlp_name(dim, depth); }

}  // namespace baton::lab
