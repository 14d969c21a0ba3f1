#include "baton/sheet/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <regex>
#include <set>

namespace baton::sheet {
namespace {

using lab::Plot;

std::vector<lab::Record> times(const std::vector<double>& ms) {
  std::vector<lab::Record> rows;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    rows.push_back({{"devices", std::int64_t{1} << i}, {"time_per_step_ns", ms[i] * 1e6}, {"origin", "measured"}});
  }
  return rows;
}

Plot time_against_devices(Plot::Type kind = Plot::Type::line) {
  return {.kind = kind,
          .title = "Step time",
          .x = "devices",
          .y = "time_per_step_ns",
          .x_title = "devices",
          .y_title = "time/step",
          .y_format = lab::Format::time};
}

std::vector<std::string> texts(const Picture& picture) {
  std::vector<std::string> words;
  for (const Mark& mark : picture.marks) {
    if (mark.kind == Mark::Form::text) {
      words.push_back(mark.text);
    }
  }
  return words;
}

std::vector<Mark> marks(const Picture& picture, Mark::Form kind) {
  std::vector<Mark> found;
  std::copy_if(picture.marks.begin(), picture.marks.end(), std::back_inserter(found),
               [&](const Mark& mark) { return mark.kind == kind; });
  return found;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(Draw, ALineHasADotPerRowAtTheHeightOfItsValue) {
  const Picture picture = draw(time_against_devices(), times({8, 4, 2}));
  const std::vector<Mark> dots = marks(picture, Mark::Form::dot);
  ASSERT_EQ(dots.size(), 3U);
  EXPECT_LT(dots[0].x, dots[1].x);
  EXPECT_LT(dots[0].y, dots[1].y);  // downwards, so that 8 ms lie above 4 ms
  // The axis begins at 0: from 8 to 4 is twice as far as from 4 to 2.
  EXPECT_NEAR((dots[1].y - dots[0].y) / (dots[2].y - dots[1].y), 2, 1e-6);
  const std::vector<std::string> words = texts(picture);
  EXPECT_TRUE(has(words, "Step time: time/step (ms)"));
  EXPECT_TRUE(has(words, "devices"));
  EXPECT_TRUE(has(words, "0") && has(words, "8") && has(words, "4"));
}

TEST(Draw, FewerThanTwoValuesAreNoPicture) {
  EXPECT_TRUE(draw(time_against_devices(), times({8})).marks.empty());
  EXPECT_TRUE(draw(time_against_devices(), {}).marks.empty());
  EXPECT_TRUE(draw(time_against_devices(Plot::Type::bars), times({8})).marks.empty());
  EXPECT_TRUE(draw(time_against_devices(), times({0, 0})).marks.empty());
  std::vector<lab::Record> unknown = times({8, 4});
  unknown[0].put("time_per_step_ns", nullptr);
  EXPECT_TRUE(draw(time_against_devices(), unknown).marks.empty());
}

TEST(Draw, BarsAreAsHighAsTheirValuesAndNamedInTheLegend) {
  std::vector<lab::Record> rows = times({8, 4});
  rows[0].put("strategy", "dp");
  rows[1].update(lab::Record{{"strategy", "ddp"}, {"devices", 1}});
  Plot plot = time_against_devices(Plot::Type::bars);
  plot.series = "strategy";
  const Picture picture = draw(plot, rows);
  std::vector<double> heights;
  for (const Mark& box : marks(picture, Mark::Form::box)) {
    if (std::abs(box.y2 - box.y) > 7) {  // those of the legend are 6 points high
      heights.push_back(std::abs(box.y2 - box.y));
    }
  }
  ASSERT_EQ(heights.size(), 2U);
  EXPECT_NEAR(heights[0] / heights[1], 2, 1e-6);
  EXPECT_TRUE(has(texts(picture), "dp") && has(texts(picture), "ddp"));
}

TEST(Draw, PartsBelowZeroAreStackedDownwards) {
  Plot plot = time_against_devices(Plot::Type::stacked);
  plot.parts = {"a", "b", "c"};
  plot.part_titles = {"first", "second", "third"};
  const std::vector<lab::Record> rows{{{"devices", 1}, {"a", 2e6}, {"b", 1e6}, {"c", 0.0}},
                                      {{"devices", 2}, {"a", 1e6}, {"b", -1e6}, {"c", 2e6}}};
  const Picture picture = draw(plot, rows);
  const std::vector<Mark> boxes = marks(picture, Mark::Form::box);
  ASSERT_EQ(boxes.size(), 9U);  // six parts, and three in the legend
  // The second bar: a up to 1, b down to −1, c from 1 on up to 3.
  EXPECT_DOUBLE_EQ(boxes[3].y2, boxes[4].y2);
  EXPECT_GT(boxes[4].y, boxes[4].y2);
  EXPECT_DOUBLE_EQ(boxes[5].y2, boxes[3].y);
  EXPECT_NEAR((boxes[5].y2 - boxes[5].y) / (boxes[4].y - boxes[4].y2), 2, 1e-6);
}

TEST(Draw, TheIdealAndACurveAreDashedAndNamed) {
  std::vector<lab::Record> rows{{{"devices", 1}, {"speedup", 1.0}, {"origin", "measured"}},
                                {{"devices", 4}, {"speedup", 2.0}, {"origin", "measured"}}};
  Plot plot{.kind = Plot::Type::line,
            .title = "Speedup, and Amdahl's law through it",
            .x = "devices",
            .y = "speedup",
            .x_title = "devices",
            .y_title = "speedup",
            .y_format = lab::Format::number,
            .ideal = "linear"};
  plot.curves = [](const std::vector<lab::Record>&) {
    return std::vector<lab::Curve>{{.name = "Amdahl", .series = nullptr, .points = {{1, 1}, {2, 1.5}, {4, 2}}}};
  };
  const Picture picture = draw(plot, rows);
  EXPECT_TRUE(has(texts(picture), "measured") && has(texts(picture), "Amdahl") && has(texts(picture), "ideal"));
  // A curve that is not to be seen is not named, and the title does not promise it.
  plot.curves = [](const std::vector<lab::Record>&) {
    return std::vector<lab::Curve>{{.name = "Amdahl", .series = nullptr, .points = {{1, 9}, {4, 8}}}};
  };
  const Picture without = draw(plot, rows);
  EXPECT_FALSE(has(texts(without), "Amdahl"));
  EXPECT_EQ(without.title, "Speedup");
  EXPECT_TRUE(has(texts(without), "Speedup"));
}

TEST(Draw, EverythingLiesWithinThePictureWhateverTheNumbers) {
  std::mt19937_64 random(7);
  const auto within = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  for (int tries = 0; tries < 400; ++tries) {
    const auto kind = std::array{Plot::Type::line, Plot::Type::bars, Plot::Type::stacked}[random() % 3];
    Plot plot = time_against_devices(kind);
    plot.series = random() % 2 == 0 ? "" : "case";
    plot.log_x = random() % 2 == 0;
    plot.y_format = std::array{lab::Format::time, lab::Format::bytes, lab::Format::percent, lab::Format::number}[random() % 4];
    plot.parts = {"time_per_step_ns", "other"};
    plot.part_titles = {"one", "another part with a long name"};
    const double scale = std::pow(10, within(-3, 12));
    std::vector<lab::Record> rows;
    for (std::size_t i = 0; i < 2 + random() % 5; ++i) {
      rows.push_back({{"devices", i + 1},
                      {"time_per_step_ns", scale * within(0, 1)},
                      {"other", scale * within(-1, 1)},
                      {"case", std::to_string(random() % 3)},
                      {"origin", "measured"}});
    }
    const Picture picture = draw(plot, rows);
    for (const Mark& mark : picture.marks) {
      const bool ends = mark.kind == Mark::Form::line || mark.kind == Mark::Form::box;
      for (const double x : {mark.x, ends ? mark.x2 : mark.x}) {
        EXPECT_TRUE(std::isfinite(x) && x >= 0 && x <= picture.width) << x << " of " << picture.width;
      }
      for (const double y : {mark.y, ends ? mark.y2 : mark.y}) {
        EXPECT_TRUE(std::isfinite(y) && y >= 0 && y <= picture.height) << y << " of " << picture.height;
      }
    }
  }
}

TEST(ToSvg, HasTextOfAtLeastEightPointsAndEscapesIt) {
  Picture picture{.title = "a < b"};
  picture.marks.push_back({.kind = Mark::Form::text, .x = 1, .y = 2, .text = "c & d"});
  picture.marks.push_back({.kind = Mark::Form::line, .x = 1, .y = 2, .x2 = 3, .y2 = 4});
  const std::string svg = to_svg(picture);
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex("font-size=\"([0-9.]+)\"")));
  EXPECT_GE(std::stod(size[1]), 8);
  // A point of the drawing is a point on paper.
  EXPECT_NE(svg.find("width=\"228pt\" height=\"150pt\" viewBox=\"0 0 228 150\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("aria-label=\"a &lt; b\""), std::string::npos);
  EXPECT_NE(svg.find(">c &amp; d</text>"), std::string::npos);
  EXPECT_NE(svg.find("<line x1=\"1.0\" y1=\"2.0\" x2=\"3.0\" y2=\"4.0\""), std::string::npos);
}

TEST(ToLatex, IsAPictureEnvironmentThatCountsUpwards) {
  Picture picture{.height = 100, .title = "t"};
  picture.marks.push_back({.kind = Mark::Form::dot, .x = 10, .y = 30});
  picture.marks.push_back({.kind = Mark::Form::text, .x = 5, .y = 20, .text = "50 %", .anchor = Mark::Anchor::right});
  const std::string tex = to_latex(picture);
  EXPECT_NE(tex.find("\\begin{picture}(228,100)"), std::string::npos);
  EXPECT_NE(tex.find("\\put(10.0,70.0)"), std::string::npos);
  EXPECT_NE(tex.find("\\put(5.0,80.0){\\makebox(0,0)[br]{50 \\%}}"), std::string::npos);
  EXPECT_NE(tex.find("\\end{picture}"), std::string::npos);
}

TEST(Draw, TheTitleSaysWhereRowsComeFromAlsoIfItIsLong) {
  Plot plot = time_against_devices();
  EXPECT_TRUE(has(texts(draw(plot, times({8, 4, 2}))), "Step time: time/step (ms)"));
  const Picture picture = draw(plot, times({8, 4, 2}), "measured");
  EXPECT_EQ(picture.title, "Step time (measured)");
  EXPECT_TRUE(has(texts(picture), "Step time: time/step (ms) (measured)"));
  plot.title = "Time of all the transfers of a forward pass";
  const std::vector<std::string> words = texts(draw(plot, times({8, 4, 2}), "simulated"));
  EXPECT_TRUE(has(words, plot.title + " (ms)"));
  EXPECT_TRUE(has(words, "(simulated)")) << "on a second line";
}

}  // namespace
}  // namespace baton::sheet
