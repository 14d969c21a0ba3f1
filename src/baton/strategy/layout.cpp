#include "baton/strategy/layout.h"

#include "baton/base/text.h"

namespace baton::strategy {

const std::vector<std::string>& recompute_names() {
  static const std::vector<std::string> names{"none", "light", "alternate", "all", "full"};
  return names;
}

Recompute recompute_by_name(std::string_view name) {
  return static_cast<Recompute>(index_of_name(recompute_names(), name, "--recompute"));
}

std::string_view to_text(Recompute recompute) { return recompute_names()[static_cast<std::size_t>(recompute)]; }

const std::vector<std::string>& balance_names() {
  static const std::vector<std::string> names{"even", "work", "memory"};
  return names;
}

Balance balance_by_name(std::string_view name) { return static_cast<Balance>(index_of_name(balance_names(), name, "balance")); }

}  // namespace baton::strategy
