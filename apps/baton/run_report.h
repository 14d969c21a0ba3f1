#pragma once

#include <filesystem>

#include "baton/lab/store.h"

namespace baton::app {

/// Writes report.html, report.md, report.json and a table for each experiment into the store's folder.
void write_report(const lab::Store& store);
/// Prints the page there into report.pdf beside it.
void write_pdf(const std::filesystem::path& folder);

}  // namespace baton::app
