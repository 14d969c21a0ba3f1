#include "baton/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "baton/base/file.h"
#include "support/usage_sentence.h"

namespace baton::report {
namespace {

using lab::Format;
using lab::Json;
using test::says;

std::string shown(const Json& value, Format format) { return cell(lab::Record{{"key", value}}, {"key", "heading", format}); }

Format format_of(const std::string& text) {
  for (const Format format : {Format::text, Format::integer, Format::number, Format::time, Format::bytes, Format::percent,
                              Format::ratio, Format::rate, Format::flops}) {
    if (lab::to_text(format) == text) {
      return format;
    }
  }
  throw std::runtime_error("no format is called " + text);
}

TEST(Cell, IsWrittenAsThePageWritesIt) {
  const Json list = Json::parse(read_file(BATON_TEST_DATA "/support/cells.json", "the cells", Bytes(1 << 20)));
  for (const Json& one : list["cells"]) {
    EXPECT_EQ(shown(one[0], format_of(one[1])), one[2].get<std::string>()) << one;
  }
}

TEST(Column, HasOneUnitForAllItsNumbersAsOnThePage) {
  const Json list = Json::parse(read_file(BATON_TEST_DATA "/support/cells.json", "the cells", Bytes(1 << 20)));
  ASSERT_GT(list["columns"].size(), 10U);
  for (const Json& one : list["columns"]) {
    lab::Experiment experiment;
    experiment.columns = {{"own", "own", format_of(one["format"])}, {"beside", "beside", format_of(one["format"])}};
    lab::Result result;
    result.experiment = std::make_shared<const lab::Experiment>(experiment);
    for (const Json& value : one["values"]) {
      result.rows.push_back({{"own", value}});
    }
    for (const Json& value : one["beside"]) {
      result.rows.push_back({{"beside", value}});
    }
    const ShownTable table = shown_table(result);
    const std::string unit = one["unit"];
    EXPECT_EQ(table.headings[0], unit.empty() ? "own" : "own (" + unit + ")") << one;
    for (std::size_t r = 0; r < one["texts"].size(); ++r) {
      EXPECT_EQ(table.cells[r][0], one["texts"][r].get<std::string>()) << one;
    }
  }
}

TEST(Column, IsLeftOutIfNoRowKnowsItAndItSaysSo) {
  lab::Experiment experiment;
  experiment.columns = {{"a", "a", Format::integer}, {"gpu", "GPU", Format::percent, true}, {"b", "b", Format::integer}};
  lab::Result result;
  result.experiment = std::make_shared<const lab::Experiment>(experiment);
  result.rows = {{{"a", 1}}, {{"a", 2}}};
  EXPECT_EQ(shown_table(result).headings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(to_json(result)["columns"].size(), 2U);
  result.rows[1].put("gpu", 0.5);
  EXPECT_EQ(shown_table(result).headings, (std::vector<std::string>{"a", "GPU (%)", "b"}));
}

TEST(Column, MarksDevicesThatShareCoresOnlyWhereTimesAreShown) {
  lab::Experiment experiment;
  experiment.columns = {{"devices", "#devices", Format::integer}, {"memory", "memory", Format::bytes}};
  lab::Result result;
  result.rows = {{{"devices", 4}, {"memory", 64}, {"oversubscribed", true}}};
  result.experiment = std::make_shared<const lab::Experiment>(experiment);
  EXPECT_EQ(shown_table(result).marks[0], "");
  EXPECT_TRUE(shown_table(result).notes.empty());
  experiment.columns.push_back({"time", "time", Format::time});
  result.experiment = std::make_shared<const lab::Experiment>(experiment);
  EXPECT_EQ(shown_table(result).marks[0], "†");
  EXPECT_TRUE(shown_table(result).notes[0].starts_with("† more devices than cores"));
}

TEST(Column, PointsStandBelowEachOther) {
  std::vector<std::string> column{"1154", "38.3", "0.307", "-", "1.7×", ""};
  align_points(column);
  EXPECT_EQ(column, (std::vector<std::string>{"1154    ", "38.3  ", "0.307", "-", "1.7×", ""}));
}

TEST(Reference, NamesSheetTaskAndQuestion) {
  EXPECT_EQ(reference("hw1/2/Q3"), "HW1 Task 2, Q3");
  EXPECT_EQ(reference("hw1/5A/Q1"), "HW1 Task 5A, Q1");
  EXPECT_EQ(reference("practical8/1/Q2"), "Practical 8 Task 1, Q2");
  EXPECT_EQ(reference("csye-hw4/1/Q12"), "CSYE HW4 Part 1, Q12");
  EXPECT_EQ(reference(""), "");
}

TEST(Cell, OfNothingIsEmpty) { EXPECT_EQ(cell(lab::Record(), {"key", "heading", Format::time}), ""); }

std::shared_ptr<const lab::Experiment> small_experiment() {
  lab::Experiment experiment;
  experiment.id = "small";
  experiment.part = "A";
  experiment.title = "A small one";
  experiment.task = "Do it.";
  experiment.questions = {{"hw1/1/Q1", "Why?", nullptr}, {"", "How?", nullptr}, {"", "When?", nullptr}};
  experiment.columns = {{"what", "what", Format::text},
                        {"devices", "#devices", Format::integer},
                        {"time_per_step_ns", "time/step", Format::time},
                        {"speedup", "speedup", Format::ratio}};
  return std::make_shared<const lab::Experiment>(std::move(experiment));
}

lab::Result small_result() {
  lab::Result result;
  result.experiment = small_experiment();
  result.rows = {{{"what", "a"}, {"devices", 1}, {"time_per_step_ns", 2000000}, {"speedup", 1.0}},
                 {{"what", "größer"}, {"devices", 4}, {"time_per_step_ns", 12500000}, {"speedup", 0.16}, {"oversubscribed", true}},
                 {{"what", "huge"}, {"devices", 8}, {"reason", "no room"}}};
  result.answers = {{"hw1/1/Q1", "Why?", "Because."}, {"", "How?", "Slowly."}, {"", "When?", ""}};
  result.details = {"It is slow.", "1 point could not be measured here: no room."};
  result.command = "baton lab run small";
  return result;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    all.push_back(line);
  }
  return all;
}

TEST(Terminal, ShowsQuestionsWithTheirAnswersTheTableTheDetailsAndTheCommand) {
  EXPECT_EQ(to_terminal(small_result()),
            "small - A small one\n"
            "Do it.\n"
            "\n"
            "Why? (HW1 Task 1, Q1)\n"
            "  Because.\n"
            "\n"
            "How?\n"
            "  Slowly.\n"
            "\n"
            "what    #devices  time/step (ms)  speedup\n"
            "a              1            2.00    1.00×\n"
            "größer         4           12.5     0.16×  †\n"
            "huge           8               -        -\n"
            "† more devices than cores: they take turns, so the time says what the split costs, not what more hardware\n"
            "  would gain\n"
            "\n"
            "- It is slow.\n"
            "- 1 point could not be measured here: no room.\n"
            "\n"
            "Reproduce with: baton lab run small\n");
}

TEST(Terminal, MarksWhatWasSimulated) {
  lab::Result result = small_result();
  result.rows[0].set(lab::key::origin, "simulated");
  EXPECT_TRUE(says(to_terminal(result), "1.00×  ‡\n"));
  EXPECT_TRUE(says(to_terminal(result), "\n‡ simulated\n"));
  result.rows[1].set(lab::key::origin, "simulated");
  EXPECT_TRUE(says(to_terminal(result), "\nall rows are simulated\n"));
  EXPECT_EQ(to_terminal(small_result()).find("simulated"), std::string::npos);
}

TEST(Terminal, LongSentencesAreBrokenBetweenWords) {
  lab::Result result = small_result();
  std::string sentence;
  for (int i = 0; i < 60; ++i) {
    sentence += (i == 0 ? "" : " ") + std::string(i % 3 == 0 ? "größe" : "word");
  }
  result.details = {sentence};
  std::string rejoined;
  for (const std::string& line : lines(to_terminal(result))) {
    if (line.starts_with("- ") || (line.starts_with("  ") && !rejoined.empty())) {
      const auto characters = std::count_if(line.begin(), line.end(), [](unsigned char c) { return (c & 0xc0U) != 0x80U; });
      EXPECT_LE(characters, 2 + 110);
      rejoined += (rejoined.empty() ? "" : " ") + line.substr(2);
    }
  }
  EXPECT_EQ(rejoined, sentence);
}

TEST(Terminal, AWordTooLongForALineIsNotCutInsideACharacter) {
  lab::Result result = small_result();
  std::string word = "x";
  for (int i = 0; i < 150; ++i) {
    word += "ü";
  }
  result.details = {word};
  for (const std::string& line : lines(to_terminal(result))) {
    EXPECT_NO_THROW((void)Json(line).dump()) << "not UTF-8: " << line;
  }
}

TEST(Terminal, LinesOfALogStayLines) {
  lab::Result result = small_result();
  result.details = {"The log:\n   1 µs  one\n  20 µs  two"};
  EXPECT_TRUE(says(to_terminal(result), "- The log:\n     1 µs  one\n    20 µs  two\n"));
}

TEST(Markdown, IsATableThatAlignsNumbersRight) {
  const std::string text = to_markdown(small_result());
  EXPECT_TRUE(
      says(text, "## A small one (`small`)\n\nDo it.\n\n**Why?** (HW1 Task 1, Q1)\n\nBecause.\n\n**How?**\n\nSlowly.\n\n| what"));
  EXPECT_TRUE(says(text,
                   "| what | #devices | time/step (ms) | speedup |\n"
                   "|---|---:|---:|---:|\n"
                   "| a | 1 | 2.00 | 1.00× |\n"
                   "| größer | 4 † | 12.5 | 0.16× |\n"
                   "| huge | 8 | - | - |\n"
                   "\n"
                   "† more devices than cores"));
  EXPECT_TRUE(says(text, "- 1 point could not be measured here: no room.\n"));
  EXPECT_TRUE(says(text, "`baton lab run small`"));
}

TEST(Markdown, PutsALogIntoACodeBlock) {
  lab::Result result = small_result();
  result.details = {"The log:\none\ntwo"};
  EXPECT_TRUE(says(to_markdown(result), "- The log:\n\n```\none\ntwo\n```\n"));
}

TEST(Markdown, ABarInACellDoesNotOpenAColumn) {
  lab::Result result = small_result();
  result.rows[0].put("what", "a|b");
  EXPECT_TRUE(says(to_markdown(result), "| a\\|b | 1 |"));
}

const std::string csv_heading =
    "what,devices,time_per_step_ns,speedup,time_low_ns,time_high_ns,origin,oversubscribed,reason,trained_model,trained_strategy,"
    "trained_batch,trained_optimizer,trained_precision,trained_seed,trained_device\n";

TEST(Csv, HasRawValuesTheIntervalTheReasonAndWhatWasTrained) {
  lab::Result result = small_result();
  result.rows[0].put(
      "trained",
      Json{{"model", "mlp:8-8"}, {"strategy", "ddp"}, {"batch", 64}, {"optimizer", "sgd"}, {"precision", "fp32"}, {"seed", 0}});
  EXPECT_EQ(to_csv(result), csv_heading +
                                "a,1,2000000,1.0,,,,,,mlp:8-8,ddp,64,sgd,fp32,0,\n"
                                "größer,4,12500000,0.16,,,,true,,,,,,,,\n"
                                "huge,8,,,,,,,no room,,,,,,,\n");
}

TEST(Csv, QuotesWhatHoldsCommasQuotesOrNewlines) {
  lab::Result result = small_result();
  result.rows = {{{"what", "mlp:dim=8,depth=2"}, {"devices", 1}, {"reason", "he said \"no\"\nand left"}}};
  EXPECT_EQ(to_csv(result), csv_heading + "\"mlp:dim=8,depth=2\",1,,,,,,,\"he said \"\"no\"\"\nand left\",,,,,,,\n");
}

// The whole report

lab::Result with_core_peaks(const std::vector<double>& core_peaks) {
  lab::Result result = small_result();
  result.rows.clear();
  for (const double core_peak : core_peaks) {
    result.rows.push_back({{"what", "a"}, {"core_peak_gflops", core_peak}});
  }
  return result;
}

lab::RunSpec kept_of(const Json& environment) {
  return {.title = "Title", .run_command = "baton lab", .created = "2026-11-15 10:15", .environment = environment};
}

TEST(Report, HasEveryExperimentWithItsColumnsAndRows) {
  const Json report = to_report({small_result()}, kept_of({{"cpu", "A CPU"}, {"cores", 2}}));
  EXPECT_EQ(report["title"], "Title");
  EXPECT_EQ(report["created"], "2026-11-15 10:15");
  EXPECT_EQ(report["environment"]["cpu"], "A CPU");
  const Json& experiment = report["experiments"][0];
  EXPECT_EQ(experiment["id"], "small");
  EXPECT_EQ(experiment["part_title"], "Data parallelism");
  EXPECT_EQ(experiment["columns"][2].dump(), R"({"key":"time_per_step_ns","heading":"time/step","format":"time"})");
  EXPECT_EQ(experiment["rows"].size(), 3U);
  EXPECT_EQ(experiment["rows"][2]["reason"], "no room");
  EXPECT_EQ(experiment["details"][0], "It is slow.");
  EXPECT_EQ(experiment["answers"][0].dump(),
            R"({"id":"hw1/1/Q1","reference":"HW1 Task 1, Q1","question":"Why?","text":"Because."})");
  EXPECT_EQ(experiment["answers"].size(), 3U);
}

TEST(Report, IsOversubscribedWhereOneOfItsRowsIs) {
  lab::Result result = small_result();
  EXPECT_EQ(to_report({result}, kept_of({{"cpu", "A CPU"}}))["environment"]["oversubscribed"], true);
  result.rows[1].set(lab::key::oversubscribed, false);
  EXPECT_EQ(to_report({result}, kept_of({{"cpu", "A CPU"}}))["environment"]["oversubscribed"], false);
}

TEST(Report, NamesThePresetOfItsResults) {
  lab::Result result = small_result();
  EXPECT_EQ(to_report({result}, {})["preset"], "quick");
  result.preset = lab::Preset::full;
  EXPECT_EQ(to_report({result}, {})["preset"], "full");
}

TEST(Report, PlotsSayTheirScalesAndTheirBarsOfUncertainty) {
  lab::Experiment experiment = *small_experiment();
  experiment.plots = {
      {.title = "plain", .x = "devices", .y = "speedup"},
      {.title = "both", .x = "devices", .y = "time_per_step_ns", .log_x = true, .log_y = true, .low = "low", .high = "high"}};
  lab::Result result = small_result();
  result.experiment = std::make_shared<const lab::Experiment>(experiment);
  const Json report = to_report({result}, {});
  const Json& plots = report["experiments"][0]["plots"];
  EXPECT_EQ(plots[0]["log_x"], false);
  EXPECT_EQ(plots[0]["log_y"], false);
  EXPECT_TRUE(plots[0]["error"].empty());
  EXPECT_EQ(plots[1]["log_x"], true);
  EXPECT_EQ(plots[1]["log_y"], true);
  EXPECT_EQ(plots[1]["error"].dump(), R"(["low","high"])");
}

TEST(Report, TheNoiseIsJudgedByThePulse) {
  const auto sentence = [](const std::vector<double>& core_peaks) {
    return to_report({with_core_peaks(core_peaks)}, {})["noise"]["sentence"].get<std::string>();
  };
  EXPECT_EQ(sentence({10, 10, 10, 10, 10}),
            "The machine was quiet: the same computation, timed at every point, varied by 0.0 % (10th to 90th percentile).");
  EXPECT_TRUE(says(sentence({9.5, 10, 10, 10, 10.5}), "There was some noise: "));
  EXPECT_TRUE(
      says(sentence({9.5, 10, 10, 10, 10.5}), "varied by 10.0 % (10th to 90th percentile); smaller differences mean little."));
  EXPECT_TRUE(says(sentence({5, 10, 10, 10, 15}), "The machine was noisy: "));
  EXPECT_TRUE(to_report({with_core_peaks({10, 20})}, {})["noise"].is_null()) << "two core peaks say nothing";
}

TEST(Report, BeginsWithTheFirstSentencesOfTheMostTellingAnswers) {
  lab::Result other = small_result();
  other.answers = {{"", "Which?", "This one, in 1.5 ms. And more. \nAnd on."}};
  lab::Experiment scaling = *small_experiment();
  scaling.id = "strong-scaling";
  lab::Result telling = small_result();
  telling.experiment = std::make_shared<const lab::Experiment>(scaling);
  telling.answers = {{"", "Nothing?", ""}, {"", "Is it linear?", "No: 1.46 times. It is not."}};
  const Json lines = to_report({other, small_result(), telling}, {})["headline"];
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].dump(), R"({"question":"Is it linear?","text":"No: 1.46 times."})");
  EXPECT_EQ(lines[1].dump(), R"({"question":"Which?","text":"This one, in 1.5 ms."})");
}

TEST(Report, APlotWithNothingToDrawIsLeftOutAndOneMayHavePointsAndCurvesOfItsOwn) {
  lab::Experiment experiment = *small_experiment();
  experiment.plots = {{.title = "empty", .x = "devices", .y = "nothing"},
                      {.kind = lab::Plot::Type::scatter,
                       .title = "own",
                       .x = "size",
                       .y = "time",
                       .points =
                           [](const std::vector<lab::Record>& rows) {
                             return std::vector<lab::Record>{{{"size", rows.size()}, {"time", 2}}};
                           },
                       .curves =
                           [](const std::vector<lab::Record>&) {
                             return std::vector<lab::Curve>{{.name = "law", .series = nullptr, .points = {{1, 2}, {3, 4}}}};
                           }}};
  lab::Result result = small_result();
  result.experiment = std::make_shared<const lab::Experiment>(experiment);
  const Json report = to_report({result}, {});
  const Json& plots = report["experiments"][0]["plots"];
  ASSERT_EQ(plots.size(), 1U);
  EXPECT_EQ(plots[0]["kind"], "scatter");
  EXPECT_EQ(plots[0]["rows"].dump(), R"([{"size":3,"time":2}])");
  EXPECT_EQ(plots[0]["curves"].dump(), R"([{"name":"law","series":null,"points":[[1.0,2.0],[3.0,4.0]]}])");
}

TEST(Report, MarkdownOfAllBeginsWithTheMachine) {
  const std::vector<lab::Result> results{small_result(), small_result()};
  const std::string text = to_markdown(results, to_report(results, kept_of({{"cpu", "A CPU"}, {"cores", 2}})));
  EXPECT_TRUE(text.starts_with("# Title\n"));
  EXPECT_TRUE(says(text, "on A CPU with 2 cores. `baton lab`"));
  EXPECT_NE(text.find("## A small one"), text.rfind("## A small one"));
}

TEST(Report, MarkdownOfWhatIsSimulatedSaysSoAboveAndBelowTheTable) {
  lab::Result result = small_result();
  result.rows[1].set(lab::key::oversubscribed, false);
  EXPECT_EQ(to_markdown(result).find("simulated"), std::string::npos);
  result.rows[0].set(lab::key::origin, "simulated");
  const std::string text = to_markdown(
      {result}, to_report({result}, kept_of({{"cpu", "A CPU"}, {"cores", 2}, {"simulated_on", "pcie-5 (a box)"}})));
  EXPECT_TRUE(says(text, "simulated on pcie-5 (a box), computed on A CPU with 2 cores. `baton lab`"));
  EXPECT_TRUE(says(text, "| a | 1 ‡ | 2.00 | 1.00× |\n"));
  EXPECT_TRUE(says(text, "\n‡ simulated\n"));
}

}  // namespace
}  // namespace baton::report
