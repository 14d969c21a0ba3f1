#pragma once

#include <cstddef>
#include <string_view>

#include "baton/base/error.h"

/// A missing key in a result that was read from a file must be an error that can be reported, not undefined behaviour.
#define JSON_ASSERT(holds) ::baton::check((holds), "a result is not what it should be: {}", #holds)

#include <nlohmann/json.hpp>

namespace baton::job {

/// Results are objects whose keys keep their order.
using Json = nlohmann::ordered_json;

/// The size of the tree of a text, computed without building it.
struct JsonSize {
  std::size_t values = 0;
  std::size_t depth = 0;
};
JsonSize values_in(std::string_view text);

/// The text's value; discarded if it is not JSON, is nested deeper than results are, or has more than this many values: a tree
/// takes many times the memory of the text that it is made of.
Json parse_json(std::string_view text, std::size_t most_values);

}  // namespace baton::job
