#pragma once

#include <string>
#include <vector>

namespace baton::report {

/// Columns for the terminal, numbers aligned right and text left.
class Table {
 public:
  /// `text` says of each column whether it holds text. Without it, a column in which all cells begin like numbers holds numbers.
  explicit Table(std::vector<std::string> heading, std::vector<bool> text = {});
  /// The remark is printed after the last column of the row.
  void row(std::vector<std::string> cells, std::string remark = "");
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::string> remarks_;
  std::vector<bool> text_;
};

}  // namespace baton::report
