#include "baton/sheet/document.h"

#include <gtest/gtest.h>

#include "support/usage_sentence.h"

namespace baton::sheet {
namespace {

using baton::test::says;

Document sample() {
  Picture picture{.title = "Speedup"};
  picture.marks.push_back({.kind = Mark::Form::text, .x = 1, .y = 1, .text = "s"});
  const DataTable grid{"Measured (cpu)", {"case", "time (ms)"}, {{"a|b", "1.50"}, {"50 % & more", "2.00"}}, {true, false}};
  return {"Homework <1>",
          "Ada & Grace",
          "2026-11-16",
          {{"Made by `baton handin hw1 --name a_b`."}},
          {{"Task 1: Start",
            {Paragraph{"Trained: a_b.", true}, Grids{{grid}}, Pictures{{picture, picture}},
             Asked{"Q1", "Why <so>?", "Because 3 < 4.", "Simulated (pcie-5): else."}}},
           {"Task 2: End", {Asked{"Q1", "And?", "Then."}, Listing{"The `__init__`:", "if a < b:\n    x = \"{}\"\n"}}}}};
}

TEST(WordsIn, CountsWhatSpacesPart) {
  EXPECT_EQ(words_in(""), 0U);
  EXPECT_EQ(words_in("  one\ttwo\nthree  "), 3U);
  EXPECT_EQ(words_in("12.3 % of 4 × 5"), 6U);
}

TEST(ToMarkdown, HasEveryPartInOrderAndPicturesInFiles) {
  std::map<std::string, std::string> files;
  const std::string text = to_markdown(sample(), files);
  EXPECT_EQ(files.size(), 2U);
  EXPECT_TRUE(says(files.at("picture-1.svg"), "<svg"));
  std::size_t at = 0;
  for (const char* part :
       {"# Homework <1>\n\nAda \\& Grace, 2026-11-16\n", "> Made by `baton handin", "## Task 1: Start\n", "Trained: a_b.\n",
        "**Measured (cpu)**\n", "| case | time (ms) |\n|---|---:|\n| a\\|b | 1.50 |\n| 50 % & more | 2.00 |\n",
        "![Speedup](picture-1.svg)\n![Speedup](picture-2.svg)\n",
        "**Q1: Why &lt;so>?**\n\nBecause 3 < 4.\n\n> Simulated (pcie-5): else.\n", "## Task 2: End\n",
        "**Q1: And?**\n\nThen.\n\nThe `__init__`:\n\n```\nif a < b:\n"}) {
    const std::size_t found = text.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\nin\n" << text;
    at = found;
  }
}

TEST(Documents, HaveANameAsItIsWhateverItsSigns) {
  Document document = sample();
  document.name = "`A` <b>*x*</b> $y$";
  document.notes = {{"On \"<script>x\" by `baton --name '<b>'`, 3 < 4."}};
  std::map<std::string, std::string> files;
  const std::string markdown = to_markdown(document, files);
  EXPECT_TRUE(says(markdown, "\\`A\\` \\<b\\>\\*x\\*\\</b\\> \\$y\\$, 2026-11-16\n"));
  EXPECT_TRUE(says(markdown, "> On \"&lt;script>x\" by `baton --name '<b>'`, 3 < 4.\n"));
  EXPECT_TRUE(says(to_html(document), "`A` &lt;b&gt;*x*&lt;/b&gt; $y$, 2026"));
  EXPECT_TRUE(says(to_latex(document), "\\author{\\`{}A\\`{} $<$b$>$*x*$<$/b$>$ \\$y\\$}"));
}

TEST(ToHtml, EscapesWhatIsTextAndMarksCode) {
  const std::string page = to_html(sample());
  EXPECT_TRUE(says(page, "<title>Homework &lt;1&gt;</title>"));
  EXPECT_TRUE(says(page, "Ada &amp; Grace, 2026-11-16"));
  EXPECT_TRUE(says(page, "<code>baton handin hw1 --name a_b</code>"));
  EXPECT_TRUE(says(page, "<p class=\"question\">Q1: Why &lt;so&gt;?</p>\n<p>Because 3 &lt; 4.</p>\n<p class=\"beside\">Simulated"));
  EXPECT_TRUE(says(page, "<pre><span class=\"line\" style=\"padding-left:4ch;text-indent:-4ch\">if a &lt; b:\n</span>"));
  EXPECT_TRUE(says(page, "<td class=\"text\">50\u00a0% &amp; more</td><td>2.00</td>"));
  for (const char* tag : {"table", "div", "tr", "svg", "p", "h2", "ul"}) {
    const auto count = [&](const std::string& part) {
      std::size_t n = 0;
      for (std::size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) {
        n += std::string(">  \n").find(page[at + part.size()]) != std::string::npos ? 1 : 0;
      }
      return n;
    };
    EXPECT_EQ(count(std::string("<") + tag), count(std::string("</") + tag)) << tag;
  }
}

TEST(ToHtml, ContentsNameTheSectionsAndTheirPagesOrAreNotThere) {
  EXPECT_EQ(to_html(sample()).find("class=\"contents\""), std::string::npos);
  const std::string page = to_html(sample(), {1, 3});
  EXPECT_TRUE(says(page, "<a href=\"#section-0\"><span>Task 1: Start</span><span>1</span></a>"));
  EXPECT_TRUE(says(page, "<a href=\"#section-1\"><span>Task 2: End</span><span>3</span></a>"));
  EXPECT_EQ(to_html(sample(), {1}).find("class=\"contents\""), std::string::npos) << "one page for two sections";
}

TEST(ToLatex, EscapesTextAndKeepsListingsAsTheyAre) {
  const std::string tex = to_latex(sample());
  EXPECT_TRUE(says(tex, "\\title{Homework $<$1$>$}"));
  EXPECT_TRUE(says(tex, "\\author{Ada \\& Grace}"));
  EXPECT_TRUE(says(tex, "\\texttt{baton handin hw1 --name a\\_b}"));
  EXPECT_TRUE(says(tex, "\\begin{tabular}{lr}"));
  EXPECT_TRUE(says(tex, "50~\\% \\& more & 2.00 \\\\"));
  EXPECT_TRUE(says(tex, "\\begin{verbatim}\nif a < b:\n    x = \"{}\"\n\\end{verbatim}"));
  EXPECT_TRUE(says(tex, "\\section*{Task 2: End}"));
}

TEST(ToHtml, AHeadingStaysWithTheFirstTableBelowIt) {
  const std::string page = to_html(sample());
  const std::size_t whole = page.find("<div class=\"whole\">\n<h2 id=\"section-0\">");
  ASSERT_NE(whole, std::string::npos);
  EXPECT_LT(page.find("</table>", whole), page.find("</div>\n</div>", whole));
  EXPECT_EQ(page.find("<div class=\"whole\">\n<h2 id=\"section-1\">"), std::string::npos) << "it has no table";
}

TEST(ToLatex, LongLinesOfCodeGoOnFurtherIn) {
  Document document = sample();
  const std::string name(60, 'a');
  document.sections[1].blocks = {Listing{"", "    x = " + name + " + " + name + "\n"}};
  EXPECT_TRUE(says(to_latex(document), "    x = " + name + " +\n        " + name + "\n\\end{verbatim}"));
}

/// As Chromium writes it: two pages, an inner node, and the places that links lead to.
std::string pdf() {
  return "%PDF-1.4\n"
         "1 0 obj\n<</Type /Catalog /Dests 2 0 R>>\nendobj\n"
         "2 0 obj\n<</section-0 [7 0 R /XYZ 0 800 0]\n/section-1 [9 0 R /XYZ 0 300 0]>>\nendobj\n"
         "3 0 obj\n<</Type /Pages\n/Count 2\n/Kids [7 0 R 9 0 R]>>\nendobj\n"
         "7 0 obj\n<</Type /Page\n/Parent 3 0 R>>\nendobj\n"
         "9 0 obj\n<</Type /Page\n/Parent 3 0 R>>\nendobj\n"
         "11 0 obj\n<</Type /StructElem\n/Kids [12 0 R]>>\nendobj\n";
}

TEST(PagesOfSections, AreReadOffAPrint) {
  EXPECT_EQ(page_count(pdf()), 2);
  EXPECT_EQ(pages_of_sections(pdf(), 2), (std::vector<int>{1, 2}));
  EXPECT_TRUE(pages_of_sections(pdf(), 3).empty()) << "one of the sections is not in it";
}

TEST(PagesOfSections, OfWhatIsNoPdfThereAreNone) {
  EXPECT_EQ(page_count(""), 0);
  EXPECT_EQ(page_count("/Kids [ 1 0 R"), 0);
  EXPECT_TRUE(pages_of_sections("no PDF", 1).empty());
  for (std::size_t cut = 0; cut < pdf().size(); cut += 7) {
    EXPECT_LE(page_count(pdf().substr(0, cut)), 2);
    EXPECT_LE(pages_of_sections(pdf().substr(0, cut), 2).size(), 2U);
  }
}

}  // namespace
}  // namespace baton::sheet
