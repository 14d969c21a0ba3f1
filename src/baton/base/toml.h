#pragma once

#include <string_view>

namespace baton {

/// Throws out of the parser.
[[noreturn]] void break_off_toml();

}  // namespace baton

// The parser takes for granted what hostile texts do not keep to: in optimised builds that is undefined behaviour, unless it is
// made to check and to throw.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(holds) ((holds) ? void() : ::baton::break_off_toml())
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace baton {

/// The text's root. A usage error, in which `what` names the text, where it is no TOML, is larger, or has keys of so many parts
/// that descending into each would take all of the stack.
toml::table parse_toml(std::string_view text, std::string_view what);

}  // namespace baton
