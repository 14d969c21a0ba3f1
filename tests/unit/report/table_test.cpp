#include "baton/report/table.h"

#include <gtest/gtest.h>

#include "baton/base/error.h"

namespace baton::report {
namespace {

TEST(Table, AlignsWhatBeginsAsANumberRightAndTextLeft) {
  Table table({"name", "time"});
  table.row({"a", "5 ms"});
  table.row({"longer", "12.5 ms"});
  table.row({"b", "-"});
  EXPECT_EQ(table.text(),
            "name       time\n"
            "a          5 ms\n"
            "longer  12.5 ms\n"
            "b             -\n");
}

TEST(Table, AColumnThatIsSaidToBeTextStaysLeftThoughItLooksLikeNumbers) {
  Table table({"split", "n"}, {true, false});
  table.row({"2", "10"});
  table.row({"4,4", "9"});
  EXPECT_EQ(table.text(),
            "split   n\n"
            "2      10\n"
            "4,4     9\n");
}

TEST(Table, WhatIsSaidOfARowStandsBehindIt) {
  Table table({"n"});
  table.row({"1"}, "(simulated)");
  table.row({"2"});
  EXPECT_EQ(table.text(), "n\n1  (simulated)\n2\n");
}

TEST(Table, ARowOfAnotherWidthIsABug) {
  Table table({"a", "b"});
  EXPECT_THROW(table.row({"1"}), BugError);
}

}  // namespace
}  // namespace baton::report
