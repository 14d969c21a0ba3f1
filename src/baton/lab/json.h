#pragma once

#include <nlohmann/json.hpp>

namespace baton::lab {

/// Results are objects whose keys keep their order.
using Json = nlohmann::ordered_json;

}  // namespace baton::lab
