#pragma once

#include <filesystem>

namespace baton {

/// The folder for data that can be recreated, kept between runs: `$XDG_CACHE_HOME/baton`, or `~/.cache/baton`; empty if the
/// environment names neither. It may not exist yet.
std::filesystem::path cache_folder();

}  // namespace baton
