#include "baton/job/json.h"

#include <algorithm>

namespace baton::job {
namespace {

constexpr std::size_t deepest = 32;

}  // namespace

JsonSize values_in(std::string_view text) {
  JsonSize size{.values = 1};
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      i += c == '\\' ? 1 : 0;
      quoted = c != '"';
      continue;
    }
    quoted = c == '"';
    if (c == '[' || c == '{') {
      size.depth = std::max(size.depth, ++depth);
      ++size.values;
    } else if (c == ']' || c == '}') {
      depth -= depth > 0 ? 1 : 0;
    } else if (c == ',') {
      ++size.values;
    }
  }
  return size;
}

Json parse_json(std::string_view text, std::size_t most_values) {
  const JsonSize size = values_in(text);
  if (size.depth > deepest || size.values > most_values) {
    return Json(Json::value_t::discarded);
  }
  return Json::parse(text, nullptr, false);
}

}  // namespace baton::job
