#pragma once

#include <string>
#include <string_view>

#include "baton/schedule/grid.h"

namespace baton::schedule {

/// `2F0`.
std::string to_text(const Action& action);

/// PyTorch's file of a schedule, compute actions only: a line a device, a cell a slot, empty where it waits.
std::string to_csv(const Grid& grid);
/// The inverse; rows are filled up to the longest. A usage error names the line and the cell. Says nothing
/// about whether the grid can run: that is `flaw`.
Grid parse_csv(std::string_view text);

/// For the terminal: a row a device, dots where it waits. The stage is shown where a device has several.
std::string to_text(const Grid& grid);

}  // namespace baton::schedule
