#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "baton/cluster/cluster.h"
#include "baton/model/model.h"
#include "baton/strategy/strategy.h"

namespace baton::plan::test {

/// A model by its name in the zoo, or one of those that only tests have: `graph:gelu`, `graph:tied`.
model::Model model_of(const std::string& text);

/// The number in a variable of the environment.
std::int64_t from_environment(const char* name, std::int64_t otherwise);

struct DrawnRequest {
  strategy::Request request;
  std::string text;  // for people
};

/// Any model, strategy, schedule, stage of ZeRO, number of devices and of micro-batches, optimizer, precision and target; sizes
/// that divide evenly and such that do not. Many are refused when they are compiled.
DrawnRequest draw_request(std::mt19937& random);

}  // namespace baton::plan::test
