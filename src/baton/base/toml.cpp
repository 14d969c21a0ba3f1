#include "baton/base/toml.h"

#include "baton/base/error.h"
#include "baton/base/file.h"

namespace baton {
namespace {

constexpr int most_parts = 64;

bool has_endless_key(std::string_view text) {
  int dots = 0;
  for (const char c : text) {
    constexpr std::string_view ends_a_key = ",=[]{}\n";
    dots = c == '.' ? dots + 1 : ends_a_key.find(c) != std::string_view::npos ? 0 : dots;
    if (dots >= most_parts) {
      return true;
    }
  }
  return false;
}

struct BrokenOff {};

}  // namespace

void break_off_toml() { throw BrokenOff{}; }

toml::table parse_toml(std::string_view text, std::string_view what) {
  if (text.size() > static_cast<std::size_t>(most_toml.count)) {
    throw usage_error("{} is larger than {}, the most that is read", what, to_text(most_toml));
  }
  if (has_endless_key(text)) {
    throw usage_error("{} has a key of more than {} parts", what, most_parts);
  }
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw usage_error("line {} of {} is not valid TOML: {}", error.source().begin.line, what, error.description());
  } catch (const BrokenOff&) {
    throw usage_error("{} is not valid TOML", what);
  }
}

}  // namespace baton
