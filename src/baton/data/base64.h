#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton::data {

std::string to_base64(std::string_view bytes);
/// Nullopt if the text is none.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace baton::data
