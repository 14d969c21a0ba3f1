#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "baton/report/page.h"

namespace baton::report {
namespace {

using nlohmann::ordered_json;

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) {
    ++times;
  }
  return times;
}

TEST(Page, HoldsTitleAndReport) {
  const std::string page = to_page({{"title", "Scaling & more"}, {"experiments", ordered_json::array()}});
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_EQ(count(page, "<title>Scaling &amp; more</title>"), 1);
  EXPECT_EQ(count(page, R"({"title":"Scaling & more","experiments":[]})"), 1);
  EXPECT_EQ(count(page, "baton:report"), 0);
}

TEST(Page, ReportCannotEndItsElement) {
  const ordered_json report = {{"title", "x"}, {"notes", "</script><!--<script>"}};
  const std::string page = fill_page("<script><!--baton:report--></script>", report);
  EXPECT_EQ(page, R"(<script>{"title":"x","notes":"\u003c/script>\u003c!--\u003cscript>"}</script>)");
}

TEST(Page, MarksInsideTheReportStay) {
  const std::string page = fill_page("<!--baton:title-->|<!--baton:other-->", {{"title", "<!--baton:report-->"}});
  EXPECT_EQ(page, "&lt;!--baton:report--&gt;|<!--baton:other-->");
}

TEST(Page, BytesThatAreNotTextAreReplaced) {
  EXPECT_EQ(fill_page("<!--baton:report-->", ordered_json("\xff")), "\"\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace baton::report
