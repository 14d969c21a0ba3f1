#pragma once

#include <string>
#include <vector>

namespace baton::report {

/// Columns for the terminal, numbers aligned right and text left.
class Table {
 public:
  /// `text` says of each column whether it holds text; where it is not given, a column whose cells all begin as numbers do holds
  /// numbers.
  explicit Table(std::vector<std::string> heading, std::vector<bool> text = {});
  /// What is said of the row stands after its last column.
  void row(std::vector<std::string> cells, std::string remark = "");
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::string> remarks_;
  std::vector<bool> text_;
};

}  // namespace baton::report
