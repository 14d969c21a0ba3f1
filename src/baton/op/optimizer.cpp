#include "baton/op/optimizer.h"

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::op {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"sgd", "momentum", "adam", "adamw"};
  return names;
}

Optimizer optimizer_by_name(std::string_view name) {
  const std::string wanted = canonical(name);
  if (wanted == "sgd") {
    return Sgd{};
  }
  if (wanted == "momentum") {
    return Sgd{.momentum = 0.9};
  }
  if (wanted == "adam") {
    return Adam{};
  }
  if (wanted == "adamw") {
    return Adam{.weight_decay = 0.01, .decoupled = true};
  }
  throw unknown_name("optimizer", name, optimizer_names());
}

std::size_t state_slots(const Optimizer& optimizer) {
  const Sgd* sgd = std::get_if<Sgd>(&optimizer);
  return sgd == nullptr ? 2 : sgd->momentum != 0 ? 1 : 0;
}

std::int64_t flops_per_element(const Optimizer& optimizer) {
  const Sgd* sgd = std::get_if<Sgd>(&optimizer);
  return sgd == nullptr ? 12 : sgd->momentum != 0 ? 4 : 2;
}

}  // namespace baton::op
