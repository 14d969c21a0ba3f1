#include "baton/base/text.h"

#include <fmt/chrono.h>

#include <ctime>
#include <set>

#include "baton/base/error.h"

namespace baton {
namespace {

/// The number of letters to insert, delete, replace or swap with their neighbour until one word is the other.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

void for_each_setting(std::string_view text,
                      const std::function<void(std::string_view setting, const std::string& key, std::string_view value)>& visit) {
  std::set<std::string> seen;
  for_each_part(text, ',', [&](std::size_t, std::string_view setting) {
    const std::size_t equals = setting.find('=');
    const std::string key = canonical(setting.substr(0, equals));
    if (seen.contains(key)) {
      throw usage_error("'{}' has {} twice: give it once", text, key);
    }
    visit(setting, key, equals == std::string_view::npos ? std::string_view() : setting.substr(equals + 1));
    seen.insert(key);  // unknown names are refused by now, so that these are few
  });
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t longest = 64;  // nobody mistypes more
  const std::string wanted = canonical(word.substr(0, longest));
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(1, wanted.size() / 3) + 1;  // fewer edits than this
  for (const std::string& name : names) {
    const bool begun = wanted.size() >= 3 && canonical(name).starts_with(wanted);
    const std::size_t distance = begun ? 1 : edits(wanted, canonical(name));
    const bool shorter = begun && nearest != nullptr && distance == least && name.size() < nearest->size();
    if ((distance < least || shorter) && distance < std::max(wanted.size(), name.size())) {
      least = distance;
      nearest = &name;
    }
  }
  return nearest == nullptr ? "" : " (did you mean " + *nearest + "?)";
}

Error unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& names) {
  return usage_error("unknown {} '{}'{}: choose {}", what, name, did_you_mean(name, names), either(names));
}

std::size_t index_of_name(const std::vector<std::string>& names, std::string_view name, std::string_view what) {
  const auto found = std::find(names.begin(), names.end(), canonical(name));
  if (found == names.end()) {
    throw unknown_name(what, name, names);
  }
  return static_cast<std::size_t>(found - names.begin());
}

std::string time_text() { return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(std::time(nullptr))); }

bool is_utf8(std::string_view text) {
  const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    const std::size_t length = first < 0x80                    ? 1
                               : first >= 0xc2 && first < 0xe0 ? 2
                               : first >= 0xe0 && first < 0xf0 ? 3
                               : first >= 0xf0 && first < 0xf5 ? 4
                                                               : 0;
    const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (length == 0 || (length > 1 && (byte(i + 1) < low || byte(i + 1) > high))) {
      return false;
    }
    for (std::size_t k = 2; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) {
        return false;
      }
    }
    i += length;
  }
  return true;
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace baton
