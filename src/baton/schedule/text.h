#pragma once

#include <string>
#include <string_view>

#include "baton/schedule/grid.h"

namespace baton::schedule {

/// `2F0`.
std::string to_text(const Action& action);

/// PyTorch's file format, compute actions only: one line per device, one cell per slot, empty if the device waits.
std::string to_csv(const Grid& grid);
/// The inverse; short rows are filled up. A usage error names the line and the cell. Does not check whether
/// the grid can run: that is `flaw`.
Grid parse_csv(std::string_view text);

/// The grid for the terminal: one row per device, dots where it waits. The stage is shown if a device has several.
std::string to_text(const Grid& grid);

}  // namespace baton::schedule
