#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace baton::cluster {

/// The files of clusters/ as they were when this was built: name and text.
std::span<const std::pair<std::string_view, std::string_view>> catalogue_texts();

}  // namespace baton::cluster
