#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton::data {

std::string to_base64(std::string_view bytes);
/// nullopt if the text is not base 64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace baton::data
