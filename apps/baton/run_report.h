#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "baton/lab/store.h"

namespace baton::app {

/// Writes report.html, report.md, report.json and a table for each experiment into the store's folder, and returns what is in them:
/// `concluded`, and what the other experiments come to that have been kept there. Timelines link to `playground`, an address or a
/// file; if it is empty, to playground.html in the folder or in the current one, if that is there.
std::vector<lab::Result> write_report(const lab::Store& store, const std::vector<lab::Result>& concluded = {},
                                      const std::string& playground = "");
constexpr const char* playground_help =
    "link timelines to this page of the playground, a file or an address (default: playground.html next to the report or here)";
/// A usage error if it is neither an address nor a file that is there.
void require_playground(const std::string& playground);
/// Prints the page there into report.pdf next to it.
void write_pdf(const std::filesystem::path& folder);

}  // namespace baton::app
