#include "baton/lab/store.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/lab/conditions.h"
#include "support/contents.h"
#include "support/usage_sentence.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

namespace fs = std::filesystem;
using test::trained;
using test::with;

/// A folder of the test's own, gone afterwards.
class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("baton_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Cuts the last bytes off a file, as a kill in the middle of a write would.
  void cut(const std::string& name, std::uintmax_t bytes) const {
    fs::resize_file(folder_ / name, fs::file_size(folder_ / name) - bytes);
  }

  fs::path folder_;
};

const Point first{{"devices", 1}};
const Point second{{"devices", 2}};

RunSpec spec_of(const std::string& experiment, const std::vector<Point>& points) {
  RunSpec spec;
  spec.experiment = experiment;
  spec.command = "again";
  spec.points = points;
  return spec;
}

TEST_F(StoreTest, KeepsTheLatestRecordOfEachPoint) {
  const Store store(folder_);
  store.keep("delay", first, {{"value", 1}}, false);
  store.keep("delay", second, {{"value", 2}}, false);
  store.keep("delay", first, {{"value", 3}}, true);
  const auto records = store.records("delay", false);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records.at(first).json()["value"], 3);
  EXPECT_EQ(records.at(second).json()["value"], 2);
}

TEST_F(StoreTest, RecordsComeInTheOrderOfTheirPointsAndNumbersAreNotTexts) {
  const Store store(folder_);
  const std::vector<Point> order{{{"devices", "2"}},
                                 {{"devices", 2}},
                                 {{"devices", 2}, {"delay_ms", 0.5}},
                                 {{"devices", 2}, {"delay_ms", 1.5}},
                                 {{"devices", 10}}};
  for (auto point = order.rbegin(); point != order.rend(); ++point) {
    store.keep("delay", *point, {}, true);
  }
  std::vector<Point> points;
  for (const auto& [point, record] : store.records("delay", true)) {
    points.push_back(point);
  }
  EXPECT_EQ(points, order);
}

TEST_F(StoreTest, ReadsKeysByTheNamesThatTheyHadBefore) {
  const std::map<Point, Record> records = parse_records(
      R"({"point":{"devices":1},"final":true,"record":{"pulse_gflops":61.5,"apart_bytes":4096,"value":1}})", true);
  ASSERT_EQ(records.size(), 1U);
  const Record& record = records.begin()->second;
  EXPECT_EQ(record[job::key::core_peak_gflops], 61.5);
  EXPECT_EQ(record[job::key::unshared_bytes], Bytes(4096));
  EXPECT_EQ(record.find("pulse_gflops"), nullptr);
  EXPECT_EQ(record.find("apart_bytes"), nullptr);
  EXPECT_EQ(record.json()["value"], 1);
}

TEST_F(StoreTest, OnlyFinalRecordsAreFinal) {
  const Store store(folder_);
  store.keep("delay", first, {{"value", 1}}, true);
  store.keep("delay", second, {{"value", 2}}, false);
  const auto records = store.records("delay", true);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records.at(first).json()["value"], 1);
}

TEST_F(StoreTest, ExperimentsAreKeptApart) {
  const Store store(folder_);
  store.keep("delay", first, {{"value", 1}}, true);
  EXPECT_TRUE(store.records("timing", false).empty());
}

TEST_F(StoreTest, ALineThatWasCutOffIsPassedOverAndNoOther) {
  const Store store(folder_);
  store.keep("delay", first, {{"value", 1}}, true);
  store.keep("delay", second, {{"value", 2}}, true);
  for (int bytes = 0; bytes < 12; ++bytes) {
    cut("delay.jsonl", 2);
    EXPECT_EQ(store.records("delay", true).size(), 1U);
    EXPECT_EQ(store.records("delay", true).at(first).json()["value"], 1);
  }
}

TEST_F(StoreTest, WhatIsKeptAfterACutOffLineIsNotLostWithIt) {
  const Store store(folder_);
  store.keep("delay", first, {{"value", 1}}, true);
  cut("delay.jsonl", 5);
  store.keep("delay", second, {{"value", 2}}, true);
  EXPECT_EQ(store.records("delay", true).count(second), 1U);
}

TEST_F(StoreTest, LinesThatAreNotRecordsArePassedOver) {
  const Store store(folder_);
  std::ofstream(folder_ / "delay.jsonl") << "nonsense\n[1,2]\n\n{\"point\":{}}\n"
                                         << R"({"point":{"devices":[1]},"final":true,"basis":"","record":{}})"
                                         << "\n";
  store.keep("delay", first, {{"value", 1}}, true);
  EXPECT_EQ(store.records("delay", false).size(), 1U);
}

TEST_F(StoreTest, SaysWhichLinesAreLeftOutAndWhy) {
  const Store store(folder_);
  store.keep_spec(spec_of("delay", {first, second}));
  EXPECT_EQ(damage_of(store, *store.spec("delay")).sentence, "");
  store.keep("delay", first, {{"value", 1}}, true);
  std::ofstream(folder_ / "delay.jsonl", std::ios::app) << "nonsense\n[1,2]\n\n" << std::string(17 << 20, ' ') << "\n{\"po";
  Damage damage = damage_of(store, *store.spec("delay"));
  EXPECT_EQ(damage.sentence,
            fmt::format("4 records of {} are left out: line 2 is cut off or damaged, line 3 is not a record, line 5 "
                        "is larger than the 16.0 MiB of a record, line 6 is cut off or damaged",
                        (folder_ / "delay.jsonl").string()));
  EXPECT_TRUE(damage.lost) << "the second point has no record";
  store.keep("delay", second, {{"value", 2}}, false);
  EXPECT_TRUE(damage_of(store, *store.spec("delay")).lost) << "nor a final one";
  store.keep("delay", second, {{"value", 2}}, true);
  damage = damage_of(store, *store.spec("delay"));
  EXPECT_NE(damage.sentence, "");
  EXPECT_FALSE(damage.lost);
}

TEST_F(StoreTest, RecordsThatCannotBeReadAreNoEmptyOnes) {
  const Store store(folder_);
  fs::create_directories(folder_ / "delay.jsonl");
  EXPECT_TRUE(test::says(test::usage_sentence([&] { store.records("delay", true); }), "cannot be read"));
}

TEST_F(StoreTest, RecordsWithoutASpecAreNamed) {
  const Store store(folder_);
  store.keep("delay", first, {{"value", 1}}, true);
  EXPECT_EQ(store.without_spec(), std::vector<std::string>{"delay"});
  store.keep_spec(spec_of("delay", {first}));
  EXPECT_TRUE(store.without_spec().empty());
}

TEST_F(StoreTest, ASpecComesBackAsItWas) {
  const Store store(folder_);
  RunSpec spec{.experiment = "delay",
               .title = "Delays",
               .run_command = "baton lab run delay",
               .created = "2026-11-15 10:43",
               .preset = Preset::full,
               .command = "baton lab run delay --preset full",
               .points = {first, second},
               .environment = {{"cpu", "one"}},
               .conditions = {{"run", {{"cluster", "pcie-5"}}}, {"own", Json::object()}},
               .toml = std::nullopt};
  store.keep_spec(spec);
  EXPECT_EQ(store.spec("delay"), spec);
  spec.toml = "title = 'mine'";
  store.keep_spec(spec);
  EXPECT_EQ(store.spec("delay"), spec);
  EXPECT_EQ(store.spec("timing"), std::nullopt);
  EXPECT_EQ(store.experiments(), std::vector<std::string>{"delay"});
}

TEST_F(StoreTest, AFileThatIsNoSpecIsRefused) {
  const Store store(folder_);
  for (const char* text :
       {"", "{", "[]", "{}", R"({"points":3})", R"({"points":[3]})", R"({"points":[],"toml":3})", R"({"points":[],"title":[]})",
        R"({"points":[],"environment":"x"})", R"({"points":[],"environment":{"cpu":3}})",
        R"({"points":[],"environment":{"cores":"two"}})", R"({"points":[],"environment":{"simulated_on":1}})",
        R"({"points":[],"basis":3})", R"({"points":[],"basis":{"run":3}})"}) {
    std::ofstream(folder_ / "delay.spec.json", std::ios::trunc) << text;
    EXPECT_TRUE(test::says(test::usage_sentence([&] { store.spec("delay"); }), "is not a spec of an experiment")) << text;
  }
}

TEST_F(StoreTest, RecordsThatDoNotHoldWhatTheyShouldAreRefusedInASentence) {
  const Store store(folder_);
  store.keep_spec(spec_of("strong-scaling", {first}));
  for (const Json& record : {Json{{"time_per_step_ns", "x"}}, Json{{"oversubscribed", 3}}, Json{{"reason", 1}}, Json::object(),
                             Json{{"reason", "it does not fit"}, {"trained", 5}},
                             Json{{"time_per_step_ns", 1e300}, {"time_low_ns", 1}, {"time_high_ns", 1}}}) {
    store.keep("strong-scaling", first, record, true);
    EXPECT_TRUE(test::says(test::usage_sentence([&] { conclude(store, "strong-scaling"); }), "damaged")) << record;
  }
}

TEST_F(StoreTest, ATextWithMoreValuesThanResultsHaveIsNotParsed) {
  EXPECT_TRUE(parse_json("[1,2,[3,4],{\"a\":\"[[[[,,,,\"}]", 10).is_array());
  EXPECT_EQ(values_in("[1,2,[3,4],{\"a\":\"[[\\\"[[,,,,\"}]").values, 8U);
  EXPECT_TRUE(parse_json("[1,2,3,4,5,6,7,8,9]", 8).is_discarded());
  EXPECT_TRUE(parse_json(std::string(40, '[') + std::string(40, ']'), 1000).is_discarded());
  EXPECT_TRUE(parse_json(std::string(30, '[') + std::string(30, ']'), 1000).is_array());
}

TEST_F(StoreTest, ARecordBelongsToItsBasis) {
  const Store store(folder_);
  const Json here{{"run", {{"cluster", "pcie-5"}}}, {"own", Json::object()}};
  const Json there{{"run", {{"cluster", "dgx-a100"}}}, {"own", Json::object()}};
  ASSERT_NE(conditions_name(here), conditions_name(there));
  store.keep("delay", first, {{"value", 1}}, true, conditions_name(here));
  store.keep("delay", first, {{"value", 2}}, true, conditions_name(there));
  store.keep("delay", second, {{"value", 3}}, true, conditions_name(there));
  EXPECT_EQ(store.records("delay", true, conditions_name(here)).size(), 1U);
  EXPECT_EQ(store.records("delay", true, conditions_name(here)).at(first).json()["value"], 1);
  EXPECT_EQ(store.records("delay", true, conditions_name(there)).size(), 2U);
  EXPECT_TRUE(store.records("delay", true).empty()) << "a version that did not keep a basis";
}

TEST_F(StoreTest, AReportHasNoNumbersOfAnotherBasis) {
  const Store store(folder_);
  const auto record = [](double ms) {
    return with(trained(ms, 1), {{"schedule", "naive"}, {"theory", 0.5}, {"micro_batches", 1}});
  };
  RunSpec spec = spec_of("idle", {first});
  spec.conditions = {{"run", {{"what-if", "compute=10x"}}}, {"own", Json::object()}};
  store.keep("idle", first, record(1), true, conditions_name(spec.conditions));
  spec.conditions["run"]["what-if"] = "none";
  store.keep_spec(spec);
  EXPECT_TRUE(conclude(store, "idle").rows.empty());
  store.keep("idle", first, record(10), true, conditions_name(spec.conditions));
  EXPECT_EQ(number(conclude(store, "idle").rows.at(0), key::time_per_step_ns), 10e6);
}

TEST_F(StoreTest, ResultsOfAVersionThatKeptNoBasisAreStillReported) {
  const Store store(folder_);
  std::ofstream(folder_ / "idle.spec.json") << R"({"points":[{"devices":1}],"command":"again"})";
  const Json record = with(trained(4, 1), {{"schedule", "naive"}, {"theory", 0.5}, {"micro_batches", 1}});
  std::ofstream(folder_ / "idle.jsonl") << Json{{"point", first.json()}, {"final", true}, {"record", record}}.dump() << "\n";
  EXPECT_EQ(conclude(store, "idle").rows.size(), 1U);
}

TEST_F(StoreTest, ThousandsOfPointsComeBackWhateverTheirRecordsHold) {
  const Store store(folder_);
  std::vector<double> values(3000, 0.5);
  Json record{{"values", values}};
  constexpr int points = 500;  // 1.5 million values, of which a version kept a million
  std::ofstream file(folder_ / "delay.jsonl", std::ios::app);
  for (int i = 0; i < points; ++i) {
    record["value"] = i;
    file << Json{{"point", {{"seed", i}}}, {"final", true}, {"basis", ""}, {"record", record}}.dump() << "\n";
  }
  file.close();
  const auto records = store.records("delay", true);
  ASSERT_EQ(records.size(), static_cast<std::size_t>(points));
  EXPECT_EQ(records.at(Point{{"seed", 499}}).at("value"), 499);
}

TEST_F(StoreTest, ARecordThatCouldNotBeReadIsNotWritten) {
  const Store store(folder_);
  const Json large{{"values", std::vector<int>(1'100'000, 1)}};
  EXPECT_THROW(store.keep("delay", first, large, true), Error);
  EXPECT_TRUE(store.records("delay", true).empty());
  // A timeline is left out before it comes to that.
  store.keep("delay", first, {{"value", 1}, {"timeline", {{"events", std::vector<int>(1'100'000, 1)}}}}, true);
  EXPECT_EQ(store.records("delay", true).at(first).json().dump(), R"({"value":1})");
}

TEST_F(StoreTest, ALineThatIsTooLongIsPassedOverAndNoOther) {
  const Store store(folder_);
  std::ofstream(folder_ / "delay.jsonl") << std::string(20 << 20, 'x') << "\n";
  store.keep("delay", first, {{"value", 1}}, true);
  EXPECT_EQ(store.records("delay", true).size(), 1U);
}

TEST_F(StoreTest, ExperimentsComeInTheOrderOfTheCourse) {
  const Store store(folder_);
  for (const char* id : {"profile", "timing", "delay"}) {
    store.keep_spec(spec_of(id, {}));
  }
  EXPECT_EQ(store.experiments(), (std::vector<std::string>{"timing", "delay", "profile"}));
}

TEST_F(StoreTest, AWholeFileReplacesTheOneBeforeAndLeavesNothingBeside) {
  fs::create_directories(folder_);
  write_whole(folder_ / "a.txt", "one");
  write_whole(folder_ / "a.txt", "two");
  EXPECT_EQ(baton::test::contents(folder_ / "a.txt"), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  EXPECT_THROW(write_whole(folder_ / "none" / "a.txt", "x"), Error);
}

TEST_F(StoreTest, AFolderInTheWayIsAFailureThatNamesIt) {
  std::ofstream(folder_.string()) << "a file";
  try {
    const Store store(folder_ / "inside");
    FAIL() << "was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::failure);
    EXPECT_TRUE(test::says(error.what(), folder_.string()));
  }
}

TEST_F(StoreTest, RunFoldersAreNewAndTheLatestIsFound) {
  const fs::path one = new_run_folder(folder_, "delay");
  const fs::path two = new_run_folder(folder_, "delay");
  EXPECT_NE(one, two);
  EXPECT_TRUE(fs::is_directory(one) && fs::is_directory(two));
  fs::create_directories(folder_ / "20990101-000000-timing");
  EXPECT_EQ(latest_run_folder(folder_, "delay"), std::max(one, two));
  EXPECT_TRUE(latest_run_folder(folder_, "idle").empty());
  EXPECT_TRUE(latest_run_folder(folder_ / "nowhere", "delay").empty());
}

TEST_F(StoreTest, TheLatestRunOfANameIsNotThatOfALongerName) {
  fs::create_directories(folder_ / "20260101-000000-split");
  fs::create_directories(folder_ / "20270101-000000-splitter");
  EXPECT_EQ(latest_run_folder(folder_, "split").filename(), "20260101-000000-split");
}

/// Records of `idle`, of which the last was under way when the run was killed.
TEST_F(StoreTest, AKilledRunConcludesFromWhatWasKept) {
  const Store store(folder_);
  const auto record = [](double ms, int devices) {
    return with(trained(ms, devices), {{"schedule", "naive"}, {"theory", 0.5}, {"micro_batches", 1}});
  };
  store.keep_spec(spec_of("idle", {first, second, {{"devices", 4}}}));
  store.keep("idle", first, record(4, 1), true);
  store.keep("idle", second, record(5, 2), false);
  store.keep("idle", {{"devices", 4}}, record(6, 4), false);
  cut("idle.jsonl", 40);
  const Result result = conclude(store, "idle");
  ASSERT_EQ(result.rows.size(), 2U);
  EXPECT_EQ(number(result.rows[1], key::time_per_step_ns), 5e6);
  EXPECT_EQ(result.command, "again");
}

TEST_F(StoreTest, AResumedRunMeasuresOnlyWhatIsNotFinal) {
  const Store store(folder_);
  store.keep("fake", first, {{"value", 1}}, true);
  store.keep("fake", second, {{"value", 2}}, false);
  static std::vector<std::string> opened;
  opened.clear();
  class Once final : public Measurement {
   public:
    void round(Nanoseconds) override {}
    Record record() const override { return Record{{"value", 3}}; }
  };
  Experiment fake;
  fake.id = "fake";
  fake.open = [](const Point& point, const Settings&) -> std::unique_ptr<Measurement> {
    opened.push_back(point.text());
    return std::make_unique<Once>();
  };
  const std::vector<Record> records = measure(
      fake, {first, second}, {}, store.records("fake", true),
      [&](const Point& point, const Record& record, bool final) { store.keep("fake", point, record, final); }, {});
  EXPECT_EQ(std::set<std::string>(opened.begin(), opened.end()), std::set<std::string>{second.text()});
  EXPECT_EQ(records[0].at("value"), 1);
  EXPECT_EQ(records[1].at("value"), 3);
  EXPECT_EQ(store.records("fake", true).size(), 2U);
}

TEST_F(StoreTest, ALossThatIsNotANumberSurvivesTheDisk) {
  const Store store(folder_);
  const Point point{{"micro_batches", 1}, {"precision", "fp32"}};
  store.keep_spec(spec_of("accumulate", {point}));
  store.keep("accumulate", point, with(trained(4), {{"losses", {1.0, std::numeric_limits<double>::quiet_NaN()}}}), true);
  const Result result = conclude(store, "accumulate");
  ASSERT_EQ(result.rows.size(), 1U);
  EXPECT_EQ(result.rows[0][key::stability], "diverges");
}

}  // namespace
}  // namespace baton::lab
