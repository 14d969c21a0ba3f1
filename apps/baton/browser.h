#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace baton::app {

/// The browser that prints pages; nothing if there is none.
std::optional<std::string> find_browser();

/// Prints a page of HTML as PDF, in the place of the one before; a failure if the browser could not. It has a home of its own,
/// which is gone afterwards, so that it needs no home of the user and leaves nothing there.
void print_page(const std::string& browser, const std::filesystem::path& page, const std::filesystem::path& pdf);

}  // namespace baton::app
