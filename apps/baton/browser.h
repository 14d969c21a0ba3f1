#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace baton::app {

/// The browser that prints pages; nothing if there is none.
std::optional<std::string> find_browser();

/// Prints an HTML page as PDF, replacing the one before; a failure if the browser could not. The browser gets a temporary home
/// folder, so that it does not use the user's.
void print_page(const std::string& browser, const std::filesystem::path& page, const std::filesystem::path& pdf);

}  // namespace baton::app
