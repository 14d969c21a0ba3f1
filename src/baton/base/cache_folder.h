#pragma once

#include <filesystem>

namespace baton {

/// Where what can be made anew is kept between runs: `$XDG_CACHE_HOME/baton`, else `~/.cache/baton`; empty where the environment
/// names neither. It need not be there yet.
std::filesystem::path cache_folder();

}  // namespace baton
