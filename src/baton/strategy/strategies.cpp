#include "baton/strategy/strategies.h"

#include <algorithm>
#include <variant>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/plan/plan.h"
#include "baton/schedule/schedule.h"

namespace baton::strategy {
namespace {

const Strategy* find_strategy(std::string_view name) {
  for (const Strategy& strategy : strategies()) {
    if (strategy.name() == name) {
      return &strategy;
    }
  }
  return nullptr;
}

/// The strategy's own name, if it is written otherwise or known by another; a name that is not in the list is left as it is.
std::string known_name(std::string_view text) {
  std::string wanted = canonical(text);
  if (find_strategy(wanted) != nullptr) {
    return wanted;
  }
  if (const schedule::Schedule* schedule = schedule::find_schedule(wanted)) {
    return schedule->name == "naive" ? "layers" : schedule->name;
  }
  for (const auto& [alias, meant] : {std::pair("fsdp", "zero-3"), std::pair("tp", "tensor"), std::pair("tensor-parallel", "tensor"),
                                     std::pair("mp", "layers"), std::pair("model-parallel", "layers")}) {
    if (wanted == alias) {
      return meant;
    }
  }
  return std::string(text);
}

const Strategy& strategy_by_name(std::string_view name) {
  if (const Strategy* found = find_strategy(known_name(name))) {
    return *found;
  }
  const std::string wanted = canonical(name);
  if (wanted == "pp" || wanted == "pipeline") {
    throw usage_error("a pipeline is named by its schedule: choose layers, gpipe, 1f1b or another of `baton strategies`");
  }
  if (wanted.ends_with(".csv")) {
    throw usage_error("'{}' is not a strategy: a schedule of your own is given with --schedule {} and --pp", name, name);
  }
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) {
    names.push_back(strategy.name());
  }
  throw unknown_name("strategy", name, names);
}

}  // namespace

struct Strategy::Content {
  std::string name;
  std::string summary;
  std::variant<Build, NamedLayout> way;
  BuildTraits traits = {};
};

Strategy::Strategy() : Strategy("single") {}

Strategy::Strategy(std::string_view name) : Strategy(strategy_by_name(name)) {}

Strategy::Strategy(std::string name, std::string summary, Build build, BuildTraits traits)
    : content_(std::make_shared<const Content>(Content{std::move(name), std::move(summary), std::move(build), traits})) {}

Strategy::Strategy(std::string name, std::string summary, NamedLayout layout)
    : content_(std::make_shared<const Content>(Content{std::move(name), std::move(summary), std::move(layout)})) {}

const std::string& Strategy::name() const { return content_->name; }

const std::string& Strategy::summary() const { return content_->summary; }

const NamedLayout* Strategy::layout() const { return std::get_if<NamedLayout>(&content_->way); }

plan::Draft Strategy::build(const Request& request) const { return std::get<Build>(content_->way)(request); }

bool Strategy::is_listed() const { return std::find(strategies().begin(), strategies().end(), *this) != strategies().end(); }

bool Strategy::uses_one_device() const { return content_->traits.one_device; }

bool Strategy::has_one_owner() const { return content_->traits.one_owner; }

bool Strategy::is_by_numbers() const { return layout() != nullptr && !layout()->rest; }

}  // namespace baton::strategy
