#pragma once

#include <string>
#include <vector>

#include "baton/lab/runner.h"

namespace baton::report {

/// A value with its unit, "5.12 ms", "85.0 %", "1.70×"; the page writes it alike (web/src/format.js).
std::string cell(const lab::Record& row, const lab::Column& column);

/// The table of a result as people read it. All numbers of a column have one unit, which its heading names, and three significant
/// figures.
struct ShownTable {
  std::vector<lab::Column> columns;  // without those that no row knows and that say so
  std::vector<std::string> headings;
  std::vector<std::vector<std::string>> cells;  // row by row
  std::vector<std::string> marks;  // the marks of each row: † more devices than cores, ‡ simulated among measured ones
  std::size_t marked = 0;          // the column that has the mark
  std::vector<std::string> notes;  // what the marks mean
};
ShownTable shown_table(const lab::Result& result);

/// Numbers with their decimal points below each other: spaces stand for the places that others of the column have.
void align_points(std::vector<std::string>& column);

}  // namespace baton::report
