#include "baton/sheet/escape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace baton::sheet {
namespace {

TEST(HtmlText, KeepsTextFromBeingMarkup) {
  EXPECT_EQ(html_text("a < b && \"c\" > d"), "a &lt; b &amp;&amp; &quot;c&quot; &gt; d");
  EXPECT_EQ(html_text("10 µs × 2"), "10 µs × 2");
  EXPECT_EQ(html_text(""), "");
}

TEST(MarkdownText, LeavesNoSignThatMarksAnything) {
  EXPECT_EQ(markdown_text("Ada M. O'Brien-King (née Ö)"), "Ada M. O'Brien-King (née Ö)");
  EXPECT_EQ(markdown_text("*a*_b_`c`[d](e)<b>#$x$~|&amp;\\"), "\\*a\\*\\_b\\_\\`c\\`\\[d\\](e)\\<b\\>\\#\\$x\\$\\~\\|\\&amp;\\\\");
  EXPECT_EQ(markdown_text("1. Ada"), "1\\. Ada");
  EXPECT_EQ(markdown_text("12) Ada 1."), "12\\) Ada 1.");
  EXPECT_EQ(markdown_text("- Ada - Grace"), "\\- Ada - Grace");
  EXPECT_EQ(markdown_text(""), "");
}

TEST(LatexText, EscapesItsOwnSigns) {
  EXPECT_EQ(latex_text("50 % of a_b & #3 for $4"), "50 \\% of a\\_b \\& \\#3 for \\$4");
  EXPECT_EQ(latex_text("{x}"), "\\{x\\}");
  EXPECT_EQ(latex_text("\\"), "\\textbackslash{}");
  EXPECT_EQ(latex_text("10^-8 ~ <"), "10\\^{}-8 \\~{} $<$");
}

TEST(LatexText, WritesSignsBeyondAsciiWithWhatPdflatexKnows) {
  EXPECT_EQ(latex_text("µs × − · → ² ⁿ"), "$\\mu$s $\\times$ $-$ $\\cdot$ $\\to$ $^2$ $^n$");
  EXPECT_EQ(latex_text("t₁(s + (1−s)/n)"), "t$_1$(s + (1$-$s)/n)");
  EXPECT_EQ(latex_text("José Müller"), "José Müller");  // two bytes, which it reads
  EXPECT_EQ(latex_text("日"), "?");                     // what it would stop at
}

TEST(LatexText, LeavesNoSignThatStopsLatexInAnyText) {
  std::mt19937_64 random(3);
  const std::vector<std::string> signs{"\\", "{", "}", "$", "&", "#", "%", "_",  "^",    "~",
                                       "`",  "a", "7", " ", "µ", "−", "₅", "日", "\xc3", "😀"};
  for (int tries = 0; tries < 500; ++tries) {
    std::string text;
    for (std::size_t i = random() % 40; i > 0; --i) {
      text += signs[random() % signs.size()];
    }
    const std::string written = latex_text(text);
    int depth = 0;
    std::size_t math = 0;
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (written[i] == '\\') {
        ++i;  // a command, or an escaped sign
        continue;
      }
      depth += written[i] == '{' ? 1 : written[i] == '}' ? -1 : 0;
      math += written[i] == '$' ? 1 : 0;
      EXPECT_GE(depth, 0) << written;
      EXPECT_EQ(std::string("#%&").find(written[i]), std::string::npos) << written;
      EXPECT_LT(static_cast<unsigned char>(written[i]), 0xe0) << "a sign of three bytes in " << written;
    }
    EXPECT_EQ(depth, 0) << written;
    EXPECT_EQ(math % 2, 0U) << written;
  }
}

TEST(WithCode, TellsCodeFromText) {
  const auto code = [](std::string_view part) { return "<" + std::string(part) + ">"; };
  const auto plain = [](std::string_view part) { return "(" + std::string(part) + ")"; };
  EXPECT_EQ(with_code("say `baton lab` twice", code, plain), "(say )<baton lab>( twice)");
  EXPECT_EQ(with_code("`a``b`", code, plain), "<a><b>");
  EXPECT_EQ(with_code("plain", code, plain), "(plain)");
  EXPECT_EQ(with_code("", code, plain), "");
}

TEST(Unbroken, NumbersDoNotBreakOverLines) {
  EXPECT_EQ(unbroken("are 3 145 728 elements"), "are 3\u00a0145\u00a0728 elements");
  EXPECT_EQ(unbroken("below 3 · 10^-8 do"), "below 3\u00a0·\u00a010^-8 do");
  EXPECT_EQ(unbroken("12 MiB, 5.7 % and 3 ms."), "12\u00a0MiB, 5.7\u00a0% and 3\u00a0ms.");
  EXPECT_EQ(unbroken("on 4 devices, 2 steps, 16 Bytes of 64 12"), "on 4 devices, 2 steps, 16 Bytes of 64 12");
  EXPECT_EQ(latex_text(unbroken("12 MiB")), "12~MiB");
}

}  // namespace
}  // namespace baton::sheet
