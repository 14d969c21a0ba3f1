/// Documents made of results whose answers are known.

#include "baton/sheet/compose.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "baton/sheet/handin.h"
#include "baton/sheet/texts.h"
#include "unit/lab/synthetic.h"

namespace baton::sheet {
namespace {

using lab::Json;
using lab::test::says;
using lab::test::silent_on;
using lab::test::simulated;
using lab::test::trained;
using lab::test::with;

/// What an experiment concludes from these records at these points.
lab::Result result_of(const std::string& id, const std::vector<lab::Point>& points, const std::vector<Json>& given,
                      lab::Preset preset = lab::Preset::quick) {
  return lab::conclude(std::make_shared<const lab::Experiment>(lab::experiment_by_id(id)), points, lab::test::records(given),
                       "baton lab run " + id, preset);
}

lab::Point scaling_point(std::int64_t devices) { return {{"model", "mlp:dim=1024,depth=2"}, {"batch", 64}, {"devices", devices}}; }

lab::Result scaling(const std::vector<double>& ms, bool is_simulated = false, std::int64_t cores = 4) {
  const std::vector<std::int64_t> counts{1, 2, 4};
  std::vector<lab::Point> points;
  std::vector<Json> records;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    points.push_back(scaling_point(counts[i]));
    records.push_back(trained(ms[i], counts[i]));
  }
  records = lab::test::on_cores(cores, records);
  return result_of("strong-scaling", points, is_simulated ? simulated(records) : records);
}

/// Delays of 0 to 40 ms on 1 and 2 devices of which a step takes these times without.
lab::Result delays(double one, double two, double noise, bool is_simulated) {
  std::vector<lab::Point> points;
  std::vector<Json> records;
  for (const int delay : {0, 5, 10, 20, 40}) {
    for (const std::int64_t devices : {1, 2, 4}) {
      points.push_back({{"model", "mlp:dim=1024,depth=2"}, {"delay_ms", delay}, {"devices", devices}});
      const double ms = (devices == 1 ? one : two) + delay;
      records.push_back(with(trained(ms, devices), {{"time_low_ns", ms * 1e6 * (1 - noise)},
                                                    {"time_high_ns", ms * 1e6 * (1 + noise)},
                                                    {"oversubscribed", !is_simulated && devices > 2}}));
    }
  }
  return result_of("delay", points, is_simulated ? simulated(records) : records);
}

Evidence evidence_of(const std::string& id, lab::Result first) {
  Evidence evidence{.first = {.devices = "cpu", .summary = "2 cores of a test"}};
  evidence.first.results.emplace(id, std::move(first));
  return evidence;
}

void put_beside(Evidence& evidence, const std::string& id, lab::Result result) {
  evidence.beside.devices = "pcie-5";
  evidence.beside.summary = "pcie-5 (five GPUs)";
  evidence.beside.simulated = true;
  evidence.beside.results.emplace(id, std::move(result));
}

const Cover cover{
    .name = "Ada", .date = "2026-11-16", .command = "baton handin hw1", .full_command = "baton handin hw1 --preset full"};

/// The one task of hw1 whose heading begins so, composed.
Section section(const std::string& heading, const Evidence& evidence) {
  for (const SheetTask& task : sheet_by_id("hw1").tasks) {
    if (task.heading.starts_with(heading)) {
      return compose(sheet_by_id("hw1"), {task}, cover, evidence).sections.at(0);
    }
  }
  ADD_FAILURE() << heading;
  return {};
}

std::vector<Asked> asked_in(const Section& section) {
  std::vector<Asked> found;
  for (const Block& block : section.blocks) {
    if (const auto* asked = std::get_if<Asked>(&block)) {
      found.push_back(*asked);
    }
  }
  return found;
}

template <typename Wanted>
std::vector<Wanted> blocks_of(const Section& section) {
  std::vector<Wanted> found;
  for (const Block& block : section.blocks) {
    if (const auto* one = std::get_if<Wanted>(&block)) {
      found.push_back(*one);
    }
  }
  return found;
}

TEST(Compose, EveryQuestionOfATaskHasItsAnswerBelowTheTable) {
  const Section task = section("Task 2", evidence_of("strong-scaling", scaling({8, 5, 4})));
  const std::vector<Asked> asked = asked_in(task);
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[0].label, "Q1");
  EXPECT_TRUE(says(asked[0].answer, "No: 4 devices are 2.00 times as fast as 1"));
  EXPECT_TRUE(says(asked[1].answer, "Most between 2 and 4 devices"));
  EXPECT_TRUE(says(asked[2].answer, "Amdahl's law"));
  const std::vector<Grids> grids = blocks_of<Grids>(task);
  ASSERT_EQ(grids.size(), 1U);
  ASSERT_EQ(grids[0].row.size(), 1U);
  EXPECT_EQ(grids[0].row[0].heading, (std::vector<std::string>{"#devices", "time/step (ms)", "speedup", "efficiency"}));
  EXPECT_EQ(grids[0].row[0].rows[1], (std::vector<std::string>{"2", "5.00", "1.60×", "80.0 %"}));
  EXPECT_TRUE(
      says(blocks_of<Paragraph>(task).at(0).text,
           "Trained: Linear + ReLU blocks, DIM 1024, DEPTH 2; global batch 64; SGD, learning rate 0.01; fp32; MSE loss; seed 0. "
           "Devices: 1, 2, 4 × cpu. Command: `baton lab run strong-scaling`."));
}

TEST(Compose, AQuestionThatNothingAnswersSaysSo) {
  const std::vector<Asked> asked = asked_in(section("Task 2", Evidence{}));
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[0].answer, "The devices at hand cannot show this.");
}

TEST(Compose, SharedCoresAreMarkedAndExplainedOnce) {
  const Evidence evidence = evidence_of("strong-scaling", scaling({8, 5, 9}, false, 2));
  const Document document = compose(sheet_by_id("hw1"), {sheet_by_id("hw1").tasks[1]}, cover, evidence);
  EXPECT_TRUE(says(document.notes.at(0).text, "Values marked * are of more devices than cores"));
  const std::vector<Asked> asked = asked_in(document.sections[0]);
  EXPECT_TRUE(says(asked[0].answer, "0.89 on 4*"));
  EXPECT_TRUE(silent_on(asked[0].answer, "shared cores"));
  const DataTable grid = blocks_of<Grids>(document.sections[0]).at(0).row.at(0);
  EXPECT_EQ(grid.heading.back(), "");
  EXPECT_EQ(grid.rows[1].back(), "");
  EXPECT_EQ(grid.rows[2].back(), "*");
}

TEST(Compose, WhatASimulationSaysOtherwiseStandsBesideTheAnswer) {
  Evidence evidence = evidence_of("strong-scaling", scaling({8, 5, 9}, false, 2));
  put_beside(evidence, "strong-scaling", scaling({8, 4, 2}, true));
  const Section task = section("Task 2", evidence);
  const std::vector<Asked> asked = asked_in(task);
  EXPECT_TRUE(says(asked[0].answer, "No: 2 devices are 1.60 times as fast as 1"));
  EXPECT_TRUE(says(asked[0].beside, "Simulated (pcie-5): Nearly: 4 devices are 4.00 times as fast as 1"));
  EXPECT_TRUE(silent_on(asked[0].beside, "(simulated)"));
  EXPECT_EQ(blocks_of<Grids>(task).at(0).row.size(), 2U);
}

TEST(Compose, WhatBothSayIsSaidOnce) {
  Evidence evidence = evidence_of("strong-scaling", scaling({8, 5, 4}));
  put_beside(evidence, "strong-scaling", scaling({8, 5, 4}, true));
  for (const Asked& asked : asked_in(section("Task 2", evidence))) {
    EXPECT_EQ(asked.beside, "") << asked.label;
  }
}

TEST(Compose, ATaskWithALimitOfWordsGivesTheSecondSourceWhatTheFirstLeaves) {
  Evidence evidence = evidence_of("delay", delays(3, 2.6, 0.6, false));
  put_beside(evidence, "delay", delays(3, 1, 0, true));
  const std::vector<Asked> asked = asked_in(section("Task 5, option A", evidence));
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_TRUE(says(asked[0].answer, "but noise hides it"));
  EXPECT_TRUE(
      says(asked[0].beside, "Simulated (pcie-5): It takes the speedup away: from 0 to 40 ms the speedup of 4 devices over 1"));
  std::size_t words = 0;
  for (const Asked& one : asked) {
    words += words_in(one.answer) + words_in(one.beside);
  }
  EXPECT_LE(words, 220U);
}

TEST(Compose, AnAnswerThatIsTooLongLosesItsLastSentences) {
  const std::string first = "No: it is slower.";
  std::string longer = first;
  for (int i = 0; i < 40; ++i) {
    longer += " This is why.";
  }
  lab::Result result = scaling({8, 5, 4});
  for (lab::Answer& answer : result.answers) {
    answer.text = longer;
  }
  for (const Asked& asked : asked_in(section("Task 2", evidence_of("strong-scaling", result)))) {
    EXPECT_EQ(words_in(asked.answer), 88U) << asked.label;  // 4 and 28 times 3
    EXPECT_TRUE(asked.answer.starts_with(first) && asked.answer.ends_with("why."));
  }
  result = delays(3, 2.6, 0.6, false);
  for (lab::Answer& answer : result.answers) {
    answer.text = longer;
  }
  std::size_t words = 0;
  for (const Asked& asked : asked_in(section("Task 5, option A", evidence_of("delay", result)))) {
    words += words_in(asked.answer);
    EXPECT_GE(words_in(asked.answer), 70U) << asked.label;
  }
  EXPECT_LE(words, 220U);
}

TEST(Compose, AnAnswerOfTheSecondSourceHasItsTable) {
  // A cluster with one device cannot show scaling; what was measured in addition can.
  Evidence evidence{.first = {.devices = "small", .summary = "one GPU", .simulated = true}};
  evidence.first.results.emplace("strong-scaling", scaling({8}, true));
  evidence.beside = {.devices = "cpu", .summary = "4 cores of a test"};
  evidence.beside.results.emplace("strong-scaling", scaling({9, 5, 4}));
  const Section task = section("Task 2", evidence);
  EXPECT_TRUE(says(asked_in(task)[0].answer, "4 devices are 2.25 times as fast as 1"));
  EXPECT_TRUE(says(asked_in(task)[0].answer, "(Measured on cpu.)"));
  const std::vector<DataTable> grids = blocks_of<Grids>(task).at(0).row;
  ASSERT_EQ(grids.size(), 2U);
  EXPECT_EQ(grids[0].caption, "Simulated (small)");
  EXPECT_EQ(grids[1].caption, "Measured (cpu)");
  EXPECT_EQ(grids[1].rows[2][1], "4.00");
  EXPECT_TRUE(says(blocks_of<Paragraph>(task).at(1).text, "Devices: 1, 2, 4 × cpu."));
  // What the first source answers itself has no second table.
  evidence.first.results.clear();
  evidence.first.results.emplace("strong-scaling", scaling({8, 5, 4}, true));
  EXPECT_EQ(blocks_of<Grids>(section("Task 2", evidence)).at(0).row.size(), 1U);
}

TEST(Compose, OnlyColumnsThatAreShownAreExplained) {
  const auto reading = [](bool is_simulated) {
    std::vector<lab::Point> points;
    std::vector<Json> records;
    for (const char* strategy : {"dp", "ddp"}) {
      points.push_back({{"model", "mlp:dim=1024,depth=2"}, {"devices", 2}, {"strategy", strategy}});
      records.push_back(with(trained(6, 2), {{"trained", {{"parameter_bytes", 2048}}}, {"std_ns", is_simulated ? 0.0 : 1e5}}));
    }
    const lab::Result result = result_of("dp-vs-ddp", points, is_simulated ? simulated(records) : records);
    return blocks_of<Paragraph>(section("Task 4", evidence_of("dp-vs-ddp", result))).back().text;
  };
  EXPECT_TRUE(says(reading(false), "std is the standard deviation of the step times. busy is the share"));
  EXPECT_TRUE(silent_on(reading(true), "std"));
  EXPECT_TRUE(says(reading(true), "busy is the share"));
}

TEST(Compose, ASentenceOnParametersHasTheirBytesFromTheRecord) {
  std::vector<Json> records;
  std::vector<lab::Point> points;
  for (const int devices : {1, 2}) {
    points.push_back({{"dim", 512}, {"depth", 20}, {"devices", devices}});
    records.push_back(
        with(trained(6, devices), {{"trained", {{"parameter_bytes", 5 << 20}}}, {"placement", {"0-19"}}, {"blocks_each", {20}}}));
  }
  const SheetTask& task = sheet_by_id("hw3").tasks.at(3);
  const auto shown = [&](const std::vector<Json>& rows) {
    std::string text;
    for (const Paragraph& one : blocks_of<Paragraph>(
             compose(sheet_by_id("hw3"), {task}, cover, evidence_of("all-devices", result_of("all-devices", points, rows)))
                 .sections.at(0))) {
      text += one.text + "\n";
    }
    return text;
  };
  EXPECT_TRUE(says(shown(records), "PyTorch keeps all gradients until `step()`, up to 5.00 MiB more over all GPUs"));
  for (Json& record : records) {
    record.erase("trained");
  }
  EXPECT_TRUE(silent_on(shown(records), "PyTorch keeps"));
}

TEST(Compose, WhatWasRefusedSaysWhy) {
  lab::Result result = result_of("strong-scaling", {scaling_point(1), scaling_point(2)},
                                 {trained(8, 1), {{"reason", "there is no second core"}}});
  const std::vector<Paragraph> said = blocks_of<Paragraph>(section("Task 2", evidence_of("strong-scaling", result)));
  EXPECT_TRUE(std::any_of(said.begin(), said.end(),
                          [](const Paragraph& one) { return one.text == "Not measured: there is no second core."; }));
}

TEST(Compose, ReducedSizesAreNamedWithTheCommandForTheSheetsOwn) {
  const std::vector<lab::Point> points{{{"case", "256x2"}, {"batch", 64}, {"devices", 1}},
                                       {{"case", "256x2"}, {"batch", 64}, {"devices", 2}}};
  const Evidence evidence = evidence_of("comm-vs-compute", result_of("comm-vs-compute", points, {trained(8, 1), trained(5, 2)}));
  const Document document = compose(sheet_by_id("hw1"), {sheet_by_id("hw1").tasks[2]}, cover, evidence);
  ASSERT_EQ(document.notes.size(), 2U);
  EXPECT_EQ(
      document.notes[1].text,
      "Sizes are reduced: case 256x2, 1024x2, 2048x4 instead of 1024x2, 8192x8 (`comm-vs-compute`). The sheet's own: `baton handin "
      "hw1 --preset full`.");
}

TEST(Compose, WhatDriversOfGpusReportIsATableOfItsOwn) {
  std::vector<lab::Point> points;
  std::vector<Json> records;
  for (const char* strategy : {"dp", "ddp"}) {
    points.push_back({{"model", "mlp:dim=1024,depth=2"}, {"devices", 2}, {"strategy", strategy}});
    records.push_back(with(trained(6, 2), {{"trained", {{"parameter_bytes", 2048}}}}));
  }
  const auto tables = [&] {
    return blocks_of<Grids>(section("Task 4", evidence_of("dp-vs-ddp", result_of("dp-vs-ddp", points, records)))).at(0).row;
  };
  EXPECT_EQ(tables().size(), 1U) << "CPU cores have no such driver";
  for (Json& record : records) {
    record.update(Json{{"gpu_utilization_0", 0.93}, {"gpu_memory_bytes", 3 << 20}, {"gpu_watts", 120.0}, {"gpu_clock_mhz", 1980}});
  }
  ASSERT_EQ(tables().size(), 2U);
  EXPECT_EQ(tables()[1].heading, (std::vector<std::string>{"strategy", "#devices", "GPU 0 utilization", "GPU memory used (MiB)",
                                                           "power (W)", "clock (MHz)"}));
  EXPECT_EQ(tables()[1].rows[0], (std::vector<std::string>{"dp", "2", "93.0 %", "3.00", "120", "1980"}));
}

TEST(Compose, ASecondAnswerWithoutANumberOfItsOwnIsLeftOut) {
  const auto beside = [](const std::string& first, const std::string& second) {
    lab::Result measured = scaling({8, 5, 9}, false, 2);
    lab::Result other = scaling({8, 4, 2}, true);
    measured.answers[0].text = first;
    other.answers[0].text = second;
    Evidence evidence = evidence_of("strong-scaling", measured);
    put_beside(evidence, "strong-scaling", other);
    return asked_in(section("Task 2", evidence))[0].beside;
  };
  EXPECT_EQ(beside("No: 1.60 times.", "Step time is linear."), "");
  EXPECT_EQ(beside("No: 1.60 times.", "Yes: 1.60 times."), "");
  EXPECT_EQ(beside("At 4 borders. It moves 128 KiB.", "At 4 borders. It moves 256 KiB."), "") << "a fragment";
  EXPECT_EQ(beside("No: 1.60 times.", "Yes: 2.00 times."), "Simulated (pcie-5): Yes: 2.00 times.");
}

TEST(Compose, TheLabelOfAnAnswerIsWithinItsLength) {
  std::string longest = "No.";
  for (int i = 0; i < 89; ++i) {
    longest += " So.";
  }
  Evidence evidence{.first = {.devices = "small", .summary = "one GPU", .simulated = true}};
  evidence.first.results.emplace("strong-scaling", scaling({8}, true));
  evidence.beside = {.devices = "cpu", .summary = "4 cores of a test"};
  evidence.beside.results.emplace("strong-scaling", scaling({9, 5, 4}));
  evidence.beside.results.at("strong-scaling").answers[0].text = longest;
  const std::string answer = asked_in(section("Task 2", evidence))[0].answer;
  EXPECT_TRUE(answer.ends_with("So. (Measured on cpu.)"));
  EXPECT_EQ(words_in(answer), 90U);
}

/// DP and DDP on 2 devices, with this noise.
lab::Result both_strategies(bool is_simulated) {
  std::vector<lab::Point> points;
  std::vector<Json> records;
  for (const char* strategy : {"dp", "ddp"}) {
    points.push_back({{"model", "mlp:dim=1024,depth=2"}, {"devices", 2}, {"strategy", strategy}});
    records.push_back(with(trained(6, 2), {{"trained", {{"parameter_bytes", 2048}}},
                                           {"std_ns", is_simulated         ? 0.0
                                                      : points.size() == 1 ? 6e5
                                                                           : 3e5},
                                           {"oversubscribed", !is_simulated}}));
  }
  return result_of("dp-vs-ddp", points, is_simulated ? simulated(records) : records);
}

TEST(Compose, TheNoiseThatASimulationLacksIsMeasuredBesideItAndItsMarksAreExplained) {
  Evidence evidence{.first = {.devices = "pcie-5", .summary = "five GPUs", .simulated = true}};
  evidence.first.results.emplace("dp-vs-ddp", both_strategies(true));
  evidence.beside = {.devices = "cpu", .summary = "1 core of a test"};
  evidence.beside.results.emplace("dp-vs-ddp", both_strategies(false));
  const Section task = section("Task 4", evidence);
  EXPECT_EQ(asked_in(task)[0].beside,
            "Measured (cpu): the std of step times is 10.0 % of the median under dp and 5.0 % under ddp, on 2 devices*.");
  const std::vector<DataTable> grids = blocks_of<Grids>(task).at(0).row;
  ASSERT_EQ(grids.size(), 2U);
  EXPECT_TRUE(says(grids[1].caption, "Measured (cpu)"));
  EXPECT_EQ(grids[1].rows[0].back(), "*");
  const std::string said = blocks_of<Paragraph>(task).back().text;
  EXPECT_TRUE(says(said, "std is the standard deviation"));
  EXPECT_TRUE(says(said, "Neither CPU cores nor a simulation have it: `baton lab run dp-vs-ddp --devices cuda`"));
  const Document document = compose(sheet_by_id("hw1"), {sheet_by_id("hw1").tasks[3]}, cover, evidence);
  EXPECT_TRUE(says(document.notes[0].text, "Measured on 1 core of a test: noise, which a simulation does not have."));
  EXPECT_TRUE(says(document.notes[0].text, "Values marked * are of more devices than cores"));
  EXPECT_TRUE(silent_on(document.notes[0].text, "fit"));
}

TEST(Compose, RowsThatAClusterHasTooFewDevicesForAreNamed) {
  Evidence evidence{.first = {.devices = "pcie-2", .summary = "two GPUs", .simulated = true, .most_devices = 2}};
  evidence.first.results.emplace("strong-scaling", scaling({8, 5}, true));
  Cover with_larger = cover;
  with_larger.large_cluster = "pcie-5";
  const auto notes = [&] { return compose(sheet_by_id("hw1"), {sheet_by_id("hw1").tasks[1]}, with_larger, evidence).notes; };
  ASSERT_EQ(notes().size(), 2U);
  EXPECT_EQ(notes()[1].text, "pcie-2 has 2 devices: rows for 4 devices are missing; `--cluster pcie-5` has them.");
  evidence.first.most_devices = 4;
  EXPECT_EQ(notes().size(), 1U);
}

TEST(GridOf, AColumnHasOneUnit) {
  std::vector<Json> records{trained(0.5, 1), trained(2, 2), trained(1234.5, 4)};
  const DataTable grid = grid_of(result_of("strong-scaling", {scaling_point(1), scaling_point(2), scaling_point(4)}, records),
                                 {"devices", "time_per_step_ns", "nothing"}, "A caption");
  EXPECT_EQ(grid.caption, "A caption");
  EXPECT_EQ(grid.heading, (std::vector<std::string>{"#devices", "time/step (s)"}));
  EXPECT_EQ(grid.rows[0][1], "0.000500");
  EXPECT_EQ(grid.rows[2][1], "1.23");
  records[0] = trained(0.003, 1);  // 3 µs compared with 1.2 s: in the unit between
  const DataTable apart = grid_of(result_of("strong-scaling", {scaling_point(1), scaling_point(2), scaling_point(4)}, records),
                                  {"devices", "time_per_step_ns"}, "");
  EXPECT_EQ(apart.heading[1], "time/step (ms)");
  EXPECT_EQ(apart.rows[0][1], "0.00300");
  EXPECT_EQ(apart.rows[2][1], "1234");
  records = {trained(0.00063, 1), trained(4.55, 2), trained(22.3, 4)};  // not 22300 µs for the sake of the first
  const DataTable little = grid_of(result_of("strong-scaling", {scaling_point(1), scaling_point(2), scaling_point(4)}, records),
                                   {"devices", "time_per_step_ns"}, "");
  EXPECT_EQ(little.heading[1], "time/step (ms)");
  EXPECT_EQ(little.rows[0][1], "0.000630");
  EXPECT_EQ(little.rows[2][1], "22.3");
}

TEST(JobOf, EqualJobsHaveEqualNamesWhateverExperimentAsks) {
  const lab::Point scaled{{"model", "mlp:dim=1024,depth=2"}, {"batch", 64}, {"devices", 2}};
  const std::string job = job_of("strong-scaling", scaled);
  const auto changed = [&](const std::string& axis, const job::FieldValue& value) {
    lab::Point other = scaled;
    other.set(axis, value);
    return other;
  };
  EXPECT_FALSE(job.empty());
  EXPECT_EQ(job_of("comm-vs-compute", {{"case", "1024x2"}, {"batch", 64}, {"devices", 2}}), job);
  EXPECT_EQ(job_of("comm-vs-compute", {{"case", "1024"}, {"batch", 64}, {"devices", 2}}), job);
  EXPECT_EQ(job_of("dp-vs-ddp", {{"model", "mlp:dim=1024,depth=2"}, {"strategy", "ddp"}, {"devices", 2}}), job);
  EXPECT_EQ(job_of("delay", {{"model", "mlp:dim=1024,depth=2"}, {"delay_ms", 0}, {"devices", 2}}), job);
  EXPECT_EQ(job_of("imbalance", {{"model", "mlp:dim=1024,depth=2"}, {"delay_ms", 0}, {"devices", 2}}), job);
  for (const auto& [experiment, point] :
       std::vector<std::pair<std::string, lab::Point>>{{"strong-scaling", changed("devices", 4)},
                                                       {"strong-scaling", changed("batch", 32)},
                                                       {"dp-vs-ddp", changed("strategy", "dp")},
                                                       {"delay", changed("delay_ms", 5)},
                                                       {"comm-vs-compute", {{"case", "256x2"}, {"batch", 64}, {"devices", 2}}},
                                                       {"timing", scaled}}) {
    EXPECT_NE(job_of(experiment, point), job) << experiment << " " << point.text();
  }
}

TEST(Sheets, QuestionsThatAreAnsweredInOurOwnWordsAreShort) {
  std::size_t answered = 0;
  for (const Sheet& sheet : sheets()) {
    for (const SheetTask& task : sheet.tasks) {
      for (const AskedOn& question : task.questions) {
        EXPECT_LE(words_in(question.answer), most_words_of_answer) << question.id;
        answered += question.answer.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_EQ(answered, 14U);  // thirteen questions of csye-hw4, and the rule of hw3's third task
}

TEST(Sheets, EveryFileThatATaskNamesIsHandedIn) {
  for (const Sheet& sheet : sheets()) {
    for (const std::string& option : options_of(sheet).empty() ? std::vector<std::string>{""} : options_of(sheet)) {
      const std::vector<SheetTask> tasks = tasks_of(sheet, option);
      const Files files = code_of(sheet, tasks, Evidence{});
      for (const SheetTask& task : tasks) {
        for (const std::string& program : task.programs) {
          EXPECT_TRUE(files.contains("code/" + program)) << sheet.id << " " << program;
        }
      }
      EXPECT_TRUE(files.contains("code/CMakeLists.txt") && files.contains("code/measure.h") && files.contains("code/README.md"));
    }
  }
}

TEST(CodeOf, ProgramsHaveTheSizesOfTheTables) {
  std::vector<lab::Point> points;
  std::vector<Json> records;
  for (const char* size : {"64x2", "128x3"}) {
    for (const std::int64_t devices : {1, 2}) {
      points.push_back({{"case", size}, {"batch", 64}, {"devices", devices}});
      records.push_back(trained(8.0 / static_cast<double>(devices), devices));
    }
  }
  const Sheet& sheet = sheet_by_id("hw1");
  const Files files = code_of(sheet, tasks_of(sheet, "A"),
                              evidence_of("comm-vs-compute", result_of("comm-vs-compute", points, records)));
  EXPECT_TRUE(says(files.at("code/task3_communication.cpp"), "cases_of_the_tables = {\"64x2\", \"128x3\"};"));
  EXPECT_TRUE(says(files.at("code/task3_case_b.py"), "MODEL = \"mlp:dim=128,depth=3\""));
  EXPECT_TRUE(says(files.at("code/measure.h"), "dim_of_the_tables = \"1024\";"));
  EXPECT_TRUE(says(code_of(sheet, tasks_of(sheet, "A"), Evidence{}).at("code/task3_communication.cpp"),
                   "cases_of_the_tables = {\"1024x2\", \"8192x8\"};"));
}

TEST(CodeOf, TheScriptOfMatrixPowersHasTheSheetsSizeWhateverWasMeasured) {
  const Sheet& sheet = sheet_by_id("csye-hw4");
  const lab::Point point{{"size", 64}, {"power", 10}, {"precision", "fp32"}, {"devices", 1}};
  const Json record = with(trained(8, 1), {{"size", 64}, {"power", 10}, {"tflops", 1.0}, {"products", 4}});
  const Files files = code_of(sheet, sheet.tasks, evidence_of("matrix-power", result_of("matrix-power", {point}, {record})));
  EXPECT_TRUE(says(files.at("code/part2_matrix_power.py"), "SIZE = 10000"));
  EXPECT_TRUE(says(files.at("code/README.md"), "python3 part2_matrix_power.py --size 64 "));
}

TEST(CodeOf, TheWidthIsThatOfTheTables) {
  const Sheet& sheet = sheet_by_id("hw3");
  std::vector<lab::Point> points;
  std::vector<Json> records;
  for (const int depth : {6, 12}) {
    points.push_back({{"dim", 48}, {"depth", depth}, {"devices", 2}});
    records.push_back(trained(depth, 2));
  }
  const Files files = code_of(sheet, sheet.tasks, evidence_of("depth", result_of("depth", points, records)));
  EXPECT_TRUE(says(files.at("code/measure.h"), "dim_of_the_tables = \"48\";"));
  EXPECT_TRUE(says(files.at("code/task2_depth.py"), "MODEL = \"mlp:dim=48,depth=6\""));
}

}  // namespace
}  // namespace baton::sheet
