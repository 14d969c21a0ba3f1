#include "baton/report/table.h"

#include <algorithm>
#include <cctype>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::report {
namespace {

/// "12.5 ms", "-3"; also "-" alone, which stands for no number.
bool begins_as_number(const std::string& cell) {
  const std::size_t first = cell.find_first_not_of("+-");
  return first == std::string::npos || (first <= 1 && std::isdigit(static_cast<unsigned char>(cell[first])) != 0);
}

}  // namespace

Table::Table(std::vector<std::string> heading, std::vector<bool> text)
    : rows_{std::move(heading)}, remarks_(1), text_(std::move(text)) {
  check(text_.empty() || text_.size() == rows_[0].size(), "a table of {} columns is told the kind of {}", rows_[0].size(),
        text_.size());
}

void Table::row(std::vector<std::string> cells, std::string remark) {
  check(cells.size() == rows_[0].size(), "a row of {} cells in a table of {}", cells.size(), rows_[0].size());
  for (std::string& cell : cells) {
    std::replace_if(
        cell.begin(), cell.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  }
  rows_.push_back(std::move(cells));
  remarks_.push_back(std::move(remark));
}

std::string Table::text() const {
  const std::size_t columns = rows_[0].size();
  std::vector<std::size_t> widths(columns, 0);
  std::vector<bool> left(columns, false);
  for (std::size_t c = 0; c < columns; ++c) {
    for (const std::vector<std::string>& row : rows_) {
      widths[c] = std::max(widths[c], display_width(row[c]));
    }
    left[c] = text_.empty()
                  ? !std::all_of(rows_.begin() + 1, rows_.end(), [&](const auto& row) { return begins_as_number(row[c]); })
                  : text_[c];
  }
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string space(widths[c] - display_width(rows_[r][c]), ' ');
      line += (c == 0 ? "" : "  ") + (left[c] ? rows_[r][c] + space : space + rows_[r][c]);
    }
    line += remarks_[r].empty() ? "" : "  " + remarks_[r];
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

}  // namespace baton::report
