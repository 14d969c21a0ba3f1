#include "baton/lab/runner.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/devices/devices.h"
#include "baton/lab/rows.h"
#include "baton/lab/spec.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::says;
using test::usage_sentence;

// Axes and points

Experiment two_axes() {
  Experiment experiment;
  experiment.id = "fake";
  experiment.axes = {{"size", "", {1, 2}, {10}}, {"kind", "", {"a", "b", "c"}, {"z"}}};
  return experiment;
}

TEST(Points, AreTheProductOfTheAxesTheLastOneVaryingFastest) {
  const std::vector<Point> all = points(two_axes(), Preset::quick, {});
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[0].text(), R"({"size":1,"kind":"a"})");
  EXPECT_EQ(all[1].text(), R"({"size":1,"kind":"b"})");
  EXPECT_EQ(all[5].text(), R"({"size":2,"kind":"c"})");
}

TEST(Points, OfTheFullPresetAreItsOwn) {
  const std::vector<Point> all = points(two_axes(), Preset::full, {});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].text(), R"({"size":10,"kind":"z"})");
}

TEST(Points, ValuesThatAreSetReplaceThoseOfAnAxis) {
  AxisValues values;
  parse_axis_values("size=7,8,9", values);
  const std::vector<Point> all = points(two_axes(), Preset::quick, values);
  ASSERT_EQ(all.size(), 9U);
  EXPECT_EQ(number(all[8], "size"), 9);
}

TEST(Points, AnAxisThatIsNotThereIsRefusedWithThoseThatAre) {
  const std::string sentence = usage_sentence([] { points(two_axes(), Preset::quick, {{"colour", {1}}}); });
  EXPECT_TRUE(says(sentence, "fake has no axis 'colour': it has size or kind"));
}

TEST(Points, ANumberThatIsNoneOfSomethingIsRefused) {
  for (const char* set : {"devices=0", "devices=2,-1", "devices=1.5", "micro-batches=0"}) {
    AxisValues values;
    parse_axis_values(set, values);
    EXPECT_TRUE(
        says(usage_sentence([&] { points(experiment_by_id("idle"), Preset::quick, values); }), "takes whole numbers above 0"))
        << set;
  }
}

TEST(Points, AnAxisCanBeSetByEverySpellingOfTheFlagThatItIs) {
  AxisValues values;
  parse_axis_values("accumulate=2", values);
  parse_axis_values("global-batch=24", values);
  const Point first = points(experiment_by_id("idle"), Preset::quick, values).at(0);
  EXPECT_EQ(number(first, key::micro_batches), 2);
  EXPECT_EQ(number(first, key::batch), 24);
}

TEST(Points, EveryAxisOfEveryExperimentCanBeSetByItsNameDashesOrUnderscores) {
  for (const Experiment& experiment : experiments()) {
    for (const Axis& axis : experiment.axes) {
      for (const char mark : {'-', '_'}) {
        std::string name = axis.name;
        std::replace(name.begin(), name.end(), '_', mark);
        AxisValues values;
        parse_axis_values(name + "=" + word_of(axis.full.back()) +
                              (std::holds_alternative<std::string>(axis.full.back()) ? ";" + word_of(axis.full.back()) : ""),
                          values);
        for (const Point& point : points(experiment, Preset::quick, values)) {
          EXPECT_EQ(point[axis.name], axis.full.back());
        }
      }
    }
  }
}

TEST(Points, ValuesThatAnAxisCannotHaveAreRefusedBeforeAnythingRuns) {
  const auto refused = [](const char* id, const char* set) {
    return usage_sentence([&] {
      AxisValues values;
      parse_axis_values(set, values);
      std::vector<std::string> names;
      for (const auto& [name, list] : values) {
        names.push_back(name);
      }
      points(extended(experiment_by_id(id), names), Preset::quick, values);
    });
  };
  EXPECT_TRUE(says(refused("strong-scaling", "devices=1,3,x"),
                   "axis devices of experiment strong-scaling takes whole numbers above 0, but has 'x'"));
  EXPECT_TRUE(says(refused("depth", "depth=banana"), "takes whole numbers above 0, but has 'banana'"));
  EXPECT_TRUE(says(refused("delay", "delay_ms=soon"), "takes numbers of at least 0, but has 'soon'"));
  EXPECT_TRUE(says(refused("delay", "delay_ms=-5"), "takes numbers of at least 0"));
  EXPECT_TRUE(says(refused("strong-scaling", "model=banana"), "banana"));
  EXPECT_TRUE(says(refused("comm-vs-compute", "case=bigxdeep"), "unknown model 'bigxdeep'"));
  EXPECT_TRUE(says(refused("comm-vs-compute", "case=4x0"), "DEPTH of the case 4x0 is"));
  EXPECT_TRUE(says(refused("profile", "strategy=banana"), "unknown strategy 'banana'"));
  EXPECT_TRUE(says(refused("timing", "run=again"), "unknown run 'again'"));
  EXPECT_TRUE(says(refused("memory", "case=banana"), "banana"));
  EXPECT_TRUE(says(refused("profile", "optimizer=banana"), "unknown optimizer 'banana'"));
  EXPECT_TRUE(says(refused("profile", "lr=high"), "has 'high'"));
  EXPECT_TRUE(says(refused("profile", "link=banana"), "banana"));
  EXPECT_TRUE(says(refused("timing", "seed=3"), "has no axis 'seed'"));
  EXPECT_TRUE(says(refused("strong-scaling", "strategy=dp"), "and sets that option of train itself"));
  EXPECT_TRUE(says(refused("matrix-power", "batch=4"), "has no axis 'batch'"));
  EXPECT_TRUE(says(refused("matrix-power", "power=0"), "takes whole numbers above 0"));
  EXPECT_TRUE(says(refused("profile", "clip=2e9"), "--clip is '2000000000', but must be a number from 0 to"));
  EXPECT_TRUE(says(refused("profile", "bucket_mb=banana"), "takes numbers of at least 0, but has 'banana'"));
}

TEST(Points, AnAxisHasTheTypeOfItsKey) {
  for (const Experiment& experiment : experiments()) {
    for (const Axis& axis : experiment.axes) {
      for (const std::vector<job::FieldValue>* list : {&axis.quick, &axis.full}) {
        for (const job::FieldValue& value : *list) {
          const bool whole = std::holds_alternative<std::int64_t>(value);
          EXPECT_TRUE(axis.type != Axis::Type::counts || whole || axis.check) << experiment.id << " " << axis.name;
          EXPECT_TRUE(axis.type != Axis::Type::any || !whole) << experiment.id << " " << axis.name;
        }
      }
    }
  }
  EXPECT_EQ(Axis(key::depth, "", {}, {}).type, Axis::Type::counts);
  EXPECT_EQ(Axis(key::delay_ms, "", {}, {}).type, Axis::Type::numbers);
  EXPECT_EQ(Axis(key::model, "", {}, {}).type, Axis::Type::any);
}

TEST(Points, OfAUsersExperimentAreJudgedByTheFieldsOfAJob) {
  const Experiment own = parse_spec("[axes]\nbatch = [8, 16]\nschedule = [\"gpipe\"]\n", "own");
  const auto refused = [&](const char* set) {
    AxisValues values;
    parse_axis_values(set, values);
    return usage_sentence([&] { points(own, Preset::quick, values); });
  };
  EXPECT_TRUE(says(refused("batch=0"), "--batch is '0', but must be a whole number from 1"));
  EXPECT_TRUE(says(refused("batch=1.5"), "--batch is '1.5'"));
  EXPECT_TRUE(says(refused("schedule=2f2b"), "unknown schedule '2f2b'"));
  AxisValues values;
  parse_axis_values("schedule=1f1b,mine/own.csv", values);
  EXPECT_EQ(points(own, Preset::quick, values).size(), 4U);
}

TEST(Points, WordsOfAJobCanBeSetBesideTheAxes) {
  AxisValues values;
  parse_axis_values("batch=4096", values);
  parse_axis_values("optimizer=adam,sgd", values);
  const Experiment wider = extended(experiment_by_id("profile"), {"batch", "optimizer"});
  const std::vector<Point> all = points(wider, Preset::quick, values);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(number(all[0], key::batch), 4096);
  EXPECT_EQ(text(all[0], key::optimizer), "adam");
  Settings settings{.machine = cluster::probe()};
  Point small = all[0];
  small.set(key::model, "mlp:dim=8,depth=2");
  small.set(key::devices, 1);
  small.set(key::batch, 24);
  const auto opened = wider.open(small, settings);
  opened->round(Nanoseconds(1));
  const Json record = opened->record().json();
  EXPECT_EQ(record["trained"]["batch"], 24);
  EXPECT_EQ(record["trained"]["optimizer"], "adam with learning rate 0.001");
}

TEST(AxisValues, NumbersBecomeNumbersAndTheRestStaysText) {
  AxisValues values;
  parse_axis_values("x=1,2.5,two,-3", values);
  EXPECT_EQ(values["x"], (std::vector<job::FieldValue>{1, 2.5, "two", -3}));
  EXPECT_TRUE(std::holds_alternative<std::int64_t>(values["x"][0]));
  EXPECT_TRUE(std::holds_alternative<double>(values["x"][1]));
}

TEST(AxisValues, ThatHoldCommasArePartedBySemicolons) {
  AxisValues values;
  parse_axis_values("model=mlp:dim=8,depth=2;mlp:dim=16,depth=2", values);
  EXPECT_EQ(values["model"], (std::vector<job::FieldValue>{"mlp:dim=8,depth=2", "mlp:dim=16,depth=2"}));
  parse_axis_values("model=mlp:dim=8,depth=2", values);
  EXPECT_EQ(values["model"], (std::vector<job::FieldValue>{"mlp:dim=8,depth=2"})) << "the last one counts";
}

TEST(AxisValues, NeedANameAndAValue) {
  for (const char* text : {"", "size", "=3", "size="}) {
    AxisValues values;
    EXPECT_TRUE(says(usage_sentence([&] { parse_axis_values(text, values); }), "axis=value,value")) << text;
  }
}

TEST(AxisValues, ThatAreNotFiniteStayText) {
  AxisValues values;
  parse_axis_values("x=nan,inf", values);
  EXPECT_EQ(values["x"], (std::vector<job::FieldValue>{"nan", "inf"})) << "JSON has no such numbers, so they would be kept as null";
}

// Measuring

/// An instance that follows a script and notes its turn in a diary.
class Scripted final : public Measurement {
 public:
  Scripted(Point point, int instance, std::vector<std::string>& diary)
      : point_(std::move(point)), instance_(instance), diary_(&diary) {
    ++open_;
  }
  ~Scripted() override { --open_; }
  Scripted(const Scripted&) = delete;
  Scripted& operator=(const Scripted&) = delete;
  void round(Nanoseconds) override {
    EXPECT_EQ(open_, 1) << "one instance at a time has the machine";
    diary_->push_back(text(point_, "name"));
    if (point_.contains("fails") && instance_ == number(point_, "fails")) {
      throw failure("{} broke", text(point_, "name"));
    }
  }
  Record record() const override {
    Record record{{"value", instance_}, {"timeline", {{"label", "step"}}}};
    if (point_.contains("times")) {
      const std::string all = text(point_, "times");
      const std::vector<std::string_view> times = split(all, ',');
      record.set(key::time_per_step_ns,
                 Nanoseconds(parse_integer(times[static_cast<std::size_t>(instance_) % times.size()], "time", 1, 1 << 20)));
    }
    return record;
  }

 private:
  Point point_;
  int instance_;
  std::vector<std::string>* diary_;
  static inline int open_ = 0;
};

std::vector<std::string>& diary() {
  static std::vector<std::string> lines;
  return lines;
}

/// A point has a name, in which instance it fails, and the times of its instances; the name "refused" is refused.
Experiment scripted() {
  diary().clear();
  Experiment experiment;
  experiment.id = "scripted";
  experiment.open = [](const Point& point, const Settings& settings) -> std::unique_ptr<Measurement> {
    if (text(point, "name") == "refused") {
      throw usage_error("there is no such device here");
    }
    return std::make_unique<Scripted>(point, settings.instance, diary());
  };
  experiment.derive = nullptr;
  experiment.details = [](const std::vector<Record>& rows) {
    return std::vector<std::string>{std::to_string(rows.size()) + " measured"};
  };
  return experiment;
}

struct Kept {
  std::string name;
  Json record;
  bool final;
};

Settings without_limit() {
  Settings settings;
  settings.time_limit = Nanoseconds(1'000'000'000'000);  // never reached: rounds take no time
  return settings;
}

std::vector<Json> run(const std::vector<Point>& points, std::vector<Kept>& kept, const std::map<Point, Record>& known = {},
                      const Progress& progress = {}, const Settings& settings = without_limit()) {
  return test::jsons(measure(
      scripted(), points, settings, known,
      [&](const Point& point, const Record& record, bool final) {
        kept.push_back({text(point, "name"), record.json(), final});
      },
      progress));
}

TEST(Measure, EveryPointHasFiveFreshInstancesWhichTakeTurnsInChangingOrder) {
  std::vector<Kept> kept;
  const std::vector<Json> records = run({{{"name", "a"}}, {{"name", "b"}}, {{"name", "c"}}}, kept);
  ASSERT_EQ(diary().size(), 15U);
  std::set<std::string> orders;
  for (std::size_t round = 0; round < 5; ++round) {
    const auto begin = diary().begin() + static_cast<std::ptrdiff_t>(3 * round);
    std::vector<std::string> order(begin, begin + 3);
    orders.insert(order[0] + order[1] + order[2]);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<std::string>{"a", "b", "c"})) << "round " << round;
  }
  EXPECT_GT(orders.size(), 2U);
  EXPECT_EQ(diary()[3], diary()[2]) << "the second round is the first one backwards";
  EXPECT_EQ(records[0]["instances"], 5);
  EXPECT_EQ(records[0]["stopped"], "instances");
}

TEST(Measure, TimeThatIsUpEndsAPointAfterFourInstances) {
  std::vector<Kept> kept;
  Settings settings;
  settings.time_limit = Nanoseconds(0);
  const std::vector<Json> records = run({{{"name", "a"}}}, kept, {}, {}, settings);
  EXPECT_EQ(records[0]["instances"], 4);
  EXPECT_EQ(records[0]["stopped"], "time limit");
}

TEST(Measure, APreciseRunGoesOnUntilEveryTwoPointsAreToldApart) {
  std::vector<Kept> kept;
  Settings settings = without_limit();
  settings.precise = true;
  const Point quiet{{"name", "quiet"}, {"times", "1000,1001"}};
  const Point calm{{"name", "calm"}, {"times", "1000,1002,1001"}};
  const Point noisy{{"name", "noisy"}, {"times", "1000,1050,1010"}};
  const std::vector<Json> easy = run({quiet, calm}, kept, {}, {}, settings);
  EXPECT_EQ(easy[0]["instances"], 10);
  EXPECT_EQ(easy[1]["stopped"], "precise");
  const std::vector<Json> hard = run({quiet, noisy}, kept, {}, {}, settings);
  EXPECT_GT(hard[1]["instances"], 10);
  EXPECT_EQ(hard[0]["instances"], hard[1]["instances"]) << "they take turns to the end";
  EXPECT_EQ(hard[1]["stopped"], "precise");
}

TEST(Measure, ASimulatedPointHasOneInstance) {
  std::vector<Kept> kept;
  Settings settings = without_limit();
  settings.cluster = "pcie-5";
  EXPECT_EQ(run({{{"name", "a"}}}, kept, {}, {}, settings)[0]["instances"], 1);
  EXPECT_EQ(diary().size(), 1U);
}

TEST(Measure, PointsThatTookTurnsSaySoAndHowTheMachineDrifted) {
  std::vector<Kept> kept;
  const std::vector<Json> records = run({{{"name", "a"}, {"times", "100,100,100,110,110"}},
                                         {{"name", "b"}, {"times", "200,200,200,220,220"}},
                                         {{"name", "c"}, {"times", "300,300,300,330,330"}}},
                                        kept);
  EXPECT_EQ(records[0]["batch_name"], records[2]["batch_name"]);
  EXPECT_NEAR(records[0]["drift"], std::log(1.1) * std::sqrt(0.3), 1e-9);
  EXPECT_NE(run({{{"name", "a"}}}, kept)[0]["batch_name"], records[0]["batch_name"]);
}

TEST(Measure, ARefusedPointHasAReasonAndTheOthersGoOn) {
  std::vector<Kept> kept;
  const std::vector<Json> records = run({{{"name", "refused"}}, {{"name", "b"}}}, kept);
  EXPECT_EQ(records[0].dump(), R"({"reason":"there is no such device here"})");
  EXPECT_EQ(records[1]["instances"], 5);
  EXPECT_EQ(kept[0].name, "refused");
  EXPECT_TRUE(kept[0].final);
}

TEST(Measure, AFailureUnderWayIsAReasonTooAndEndsThePoint) {
  std::vector<Kept> kept;
  const std::vector<Json> records = run({{{"name", "a"}, {"fails", 1}}, {{"name", "b"}}}, kept);
  EXPECT_EQ(records[0].dump(), R"({"reason":"a broke"})");
  EXPECT_EQ(records[1]["instances"], 5);
  EXPECT_EQ(std::count(diary().begin(), diary().end(), "a"), 2);
}

TEST(Measure, EveryInstanceIsKeptAndOnlyTheLastIsFinalWithTheTimeline) {
  std::vector<Kept> kept;
  run({{{"name", "a"}}}, kept);
  ASSERT_EQ(kept.size(), 5U);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].final, i == 4);
    EXPECT_EQ(kept[i].record["instances"], i + 1);
    EXPECT_EQ(kept[i].record.contains("timeline"), i == 4);
    EXPECT_EQ(kept[i].record["stopped"], i == 4 ? "instances" : "not finished");
  }
}

TEST(Measure, AKnownPointIsNotMeasuredAgain) {
  std::vector<Kept> kept;
  const Point known{{"name", "a"}};
  const std::vector<Json> records = run({known, {{"name", "b"}}}, kept, {{known, Record{{"value", 42}}}});
  EXPECT_EQ(records[0]["value"], 42);
  EXPECT_EQ(diary(), std::vector<std::string>(5, "b"));
}

TEST(Measure, AStopEndsAfterTheInstanceAndKeepsWhatWasMeasured) {
  std::vector<Kept> kept;
  int calls = 0;
  const std::vector<Json> records = run({{{"name", "a"}}, {{"name", "b"}}, {{"name", "c"}}}, kept, {},
                                        [&](double, const std::string&) { return ++calls < 2; });
  EXPECT_EQ(diary(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(records[0]["instances"], 1);
  EXPECT_EQ(records[1]["stopped"], "not finished");
  EXPECT_TRUE(records[2].empty());
  EXPECT_EQ(kept.size(), 2U);
}

TEST(Measure, WhatCannotBeKeptEndsTheRunAndIsNoReasonOfAPoint) {
  EXPECT_THROW(measure(scripted(), {{{"name", "a"}}}, without_limit(), {},
                       [](const Point&, const Record&, bool) { throw failure("the disk is full"); }, {}),
               Error);
}

TEST(Measure, ProgressNeverFallsAndEndsAtOne) {
  std::vector<Kept> kept;
  double last = 0;
  std::vector<Point> many;
  for (int i = 0; i < 40; ++i) {  // more than take turns
    many.push_back({{"name", std::to_string(i)}});
  }
  bool fell = false;
  run(many, kept, {}, [&](double done, const std::string& what) {
    fell = fell || done < last;
    last = done;
    EXPECT_TRUE(says(what, "scripted name="));
    return true;
  });
  EXPECT_DOUBLE_EQ(last, 1);
  EXPECT_FALSE(fell);
}

// Concluding

TEST(Conclude, RowsAreThePointAndItsRecordAndReasonsAreCountedAmongTheFindings) {
  const std::vector<Point> points{{{"name", "a"}}, {{"name", "x"}}, {{"name", "y"}}, {{"name", "z"}}};
  const Result result = conclude(std::make_shared<const Experiment>(scripted()), points,
                                 {Json{{"value", 1}}, Json{{"reason", "too big"}}, Json{{"reason", "too big"}}, Record()},
                                 "command", Preset::quick);
  ASSERT_EQ(result.rows.size(), 3U) << "a point without a record has no row";
  EXPECT_EQ(result.rows[0].json().dump(), R"({"name":"a","value":1})");
  EXPECT_EQ(result.details, (std::vector<std::string>{"1 measured", "2 points could not be measured here: too big."}));
}

TEST(Conclude, WhereNothingWasMeasuredOnlyReasonsAreFound) {
  const Result result = conclude(std::make_shared<const Experiment>(scripted()), {{{"name", "x"}}}, {Json{{"reason", "too big"}}},
                                 "", Preset::quick);
  EXPECT_EQ(result.details, (std::vector<std::string>{"1 point could not be measured here: too big."}));
}

TEST(Conclude, TimelinesLeaveTheRows) {
  const Result result = conclude(std::make_shared<const Experiment>(scripted()), {{{"name", "a"}}},
                                 {Json{{"value", 1}, {"timeline", {{"label", "step"}}}}}, "", Preset::quick);
  ASSERT_EQ(result.timelines.size(), 1U);
  EXPECT_EQ(result.timelines[0][key::label], "step");
  EXPECT_FALSE(result.rows[0].has(key::timeline));
  EXPECT_FALSE(result.timelines[0].has(key::oversubscribed));
}

TEST(Conclude, ATimelineOfDevicesThatSharedCoresSaysSo) {
  const Result result = conclude(std::make_shared<const Experiment>(scripted()), {{{"name", "a"}}},
                                 {Json{{"value", 1}, {"oversubscribed", true}, {"timeline", {{"label", "step"}}}}}, "",
                                 Preset::quick);
  ASSERT_EQ(result.timelines.size(), 1U);
  EXPECT_EQ(result.timelines[0][key::oversubscribed], true);
}

/// Strong scaling of two models: one scales perfectly, the other not at all.
Result two_models() {
  const Experiment& experiment = experiment_by_id("strong-scaling");
  AxisValues values;
  parse_axis_values("model=mlp:dim=8,depth=2;mlp:dim=16,depth=2", values);
  parse_axis_values("devices=1,2", values);
  const std::vector<Point> all = points(experiment, Preset::quick, values);
  const Json timeline{{"timeline", {{"label", "ddp on 1"}}}};
  return conclude(std::make_shared<const Experiment>(experiment), all,
                  {test::with(test::trained(8, 1), timeline), test::trained(4, 2), test::trained(100, 1), test::trained(100, 2)},
                  "", Preset::quick);
}

TEST(Groups, AnAnswerHasALineForEachGroupOfRowsThatAreNotCompared) {
  const Result result = two_models();
  ASSERT_EQ(result.answers.size(), 3U);
  EXPECT_EQ(result.answers[0].id, "hw1/2/Q1");
  EXPECT_EQ(result.answers[0].question, "Is scaling linear?");
  EXPECT_TRUE(result.answers[0].text.starts_with("mlp:dim=8,depth=2: Nearly: 2 devices are 2.00 times as fast as 1"));
  EXPECT_TRUE(says(result.answers[0].text, "\nmlp:dim=16,depth=2: No: 2 devices are 1.00 times"));
  for (const std::string& sentence : result.details) {
    EXPECT_TRUE(sentence.starts_with("mlp:dim=8,depth=2: ") || sentence.starts_with("mlp:dim=16,depth=2: ")) << sentence;
  }
}

TEST(Groups, AreInTheTableThePlotsAndTheTimelines) {
  const Result result = two_models();
  EXPECT_EQ(result.experiment->columns.front().key, "model");
  EXPECT_EQ(result.experiment->columns.size(), experiment_by_id("strong-scaling").columns.size() + 1);
  ASSERT_EQ(result.rows.size(), 4U);
  EXPECT_EQ(result.rows[1][key::speedup], 2.0);
  EXPECT_EQ(result.rows[3][key::speedup], 1.0);
  for (const Plot& plot : result.experiment->plots) {
    EXPECT_EQ(plot.series, "model");
    EXPECT_FALSE(plot.curves || plot.points) << "they would be of all groups at once";
  }
  ASSERT_EQ(result.timelines.size(), 1U);
  EXPECT_EQ(result.timelines[0][key::label], "mlp:dim=8,depth=2: ddp on 1");
}

TEST(Groups, OfSeveralAxesAreNamedByAllOfThemAndStandBesideASeries) {
  Experiment experiment = scripted();
  experiment.axes = {{"batch", "", {1}, {1}}, {"model", "", {"mlp:4-4"}, {"mlp:4-4"}}, {"kind", "", {"x", "y"}, {"x"}}};
  experiment.plots = {{.x = "value", .series = "kind"}, {.x = "batch"}};
  experiment.derive = [](std::vector<Record>& rows) {
    for (Record& row : rows) {
      row = Record{{"kind", row.at("kind")}, {"of", row.at("batch")}, {"value", rows.size()}};
    }
  };
  experiment.details = [](const std::vector<Record>& rows) {
    return std::vector<std::string>{std::to_string(rows.size()) + " measured", "batch " + text(rows[0], "of")};
  };
  AxisValues values;
  parse_axis_values("batch=1,2", values);
  parse_axis_values("model=mlp:4-4;mlp:8-8", values);
  const std::vector<Point> all = points(experiment, Preset::quick, values);
  const Result result = conclude(std::make_shared<const Experiment>(experiment), all,
                                 std::vector<Record>(all.size(), Record{{"value", 1}}), "", Preset::quick);
  EXPECT_EQ(result.details, (std::vector<std::string>{"batch 1, mlp:4-4: batch 1", "batch 1, mlp:8-8: batch 1",
                                                      "batch 2, mlp:4-4: batch 2", "batch 2, mlp:8-8: batch 2", "2 measured"}))
      << "what holds for every group is said once";
  ASSERT_EQ(result.rows.size(), 8U);
  EXPECT_EQ(result.rows[7][key::batch], 2) << "what derived rows do not keep is put back";
  EXPECT_EQ(result.rows[7].at("value"), 2);
  EXPECT_EQ(text(result.rows[7], result.experiment->plots[0].series), "batch 2, mlp:8-8, y");
  EXPECT_EQ(result.experiment->plots[1].series, "model") << "the axis that a plot is drawn against tells no lines apart";
}

TEST(Groups, ThereAreNoneWhereEachSuchAxisHasOneValue) {
  const Experiment& experiment = experiment_by_id("strong-scaling");
  const auto kept = std::make_shared<const Experiment>(experiment);
  const Result result = conclude(kept, points(experiment, Preset::quick, {}),
                                 {test::trained(8, 1), test::trained(4, 2), test::trained(2, 4)}, "", Preset::quick);
  EXPECT_EQ(result.experiment->columns.size(), kept->columns.size());
  EXPECT_TRUE(result.answers.front().text.starts_with("Nearly: 4 devices"));
  EXPECT_EQ(result.experiment->task, "The global batch stays at 64 while the number of devices grows.");
}

// Devices

Settings on_cores(std::vector<int> cores) {
  Settings settings;
  settings.machine.cores = std::move(cores);
  return settings;
}

TEST(DevicesFor, AreAllAlikeUpToTheMost) {
  EXPECT_EQ(devices_for(on_cores({0, 1, 2, 3, 4, 5, 6, 7}), 1, 4).text(), "cpu:0-0+1-1");
  EXPECT_EQ(devices_for(on_cores({0, 1, 2, 3, 4, 5, 6, 7}), 2, 4).text(), "cpu:0-0+1-1,2-2+3-3");
  EXPECT_EQ(devices_for(on_cores({0, 1, 2, 3, 4, 5, 6, 7}), 4, 4).text(), "cpu:0-0+1-1,2-2+3-3,4-4+5-5,6-6+7-7");
}

TEST(DevicesFor, AreNumbersOfCoresAndNotText) {
  EXPECT_EQ(std::get<cluster::CoreSets>(devices_for(on_cores({1, 3, 5, 7}), 2, 2).names()), (cluster::CoreSets{{{1, 3}, {5, 7}}}));
  Settings settings = on_cores({0, 1});
  settings.cluster = "pcie-5";
  EXPECT_EQ(devices_for(settings, 3, 4).count(), 3);
}

TEST(DevicesFor, TakeTurnsWhereCoresAreFewer) {
  EXPECT_EQ(devices_for(on_cores({0, 1}), 4, 4).text(), "cpu:0-0,1-1,0-0,1-1");
  EXPECT_EQ(devices_for(on_cores({5}), 2, 4).text(), "cpu:5-5,5-5");
}

TEST(DevicesFor, BeyondTheMostStillFit) { EXPECT_EQ(devices_for(on_cores({0, 1, 2, 3}), 4, 2).text(), "cpu:0-0,1-1,2-2,3-3"); }

TEST(DevicesFor, ArePartsOfAGpuAsManyAsTheRunNeedsAtMost) {
  Settings settings;
  settings.devices = parse_device_type("cuda:0");
  EXPECT_EQ(devices_for(settings, 1, 4).text(), "cuda:0/4:1") << "the run does not say";
  settings.most_devices = 2;
  EXPECT_EQ(devices_for(settings, 1, 4).text(), "cuda:0/2:1");
  EXPECT_EQ(devices_for(settings, 2, 4).text(), "cuda:0/2:2");
  settings.most_devices = 1;
  EXPECT_EQ(devices_for(settings, 1, 2).text(), "cuda:0/1:1") << "nothing is compared: one device has the whole GPU";
  settings.devices = parse_device_type("cuda:0/5");
  EXPECT_EQ(devices_for(settings, 1, 2).text(), "cuda:0/5:1") << "as the user cut it";
}

TEST(DevicesFor, UseOnlyCoresThatTheProcessMayUse) {
  const Settings settings = on_cores({0, 2, 4, 6});
  for (const cluster::Device& device : devices::open_devices(devices_for(settings, 2, 2).names(), settings.machine)) {
    for (const int core : device.cores) {
      EXPECT_EQ(core % 2, 0) << device.name << " has core " << core;
    }
  }
}

TEST(Experiments, AreFoundByIdDashesOrUnderscores) {
  EXPECT_EQ(experiment_by_id("Dp_vs_DDP").id, "dp-vs-ddp");
  EXPECT_TRUE(
      says(usage_sentence([] { experiment_by_id("nonsense"); }), "unknown experiment 'nonsense': choose timing, strong-scaling"));
}

TEST(Experiments, ColumnsAndPlotsHaveHeadingsAndEveryAxisHasValues) {
  for (const Experiment& experiment : experiments()) {
    EXPECT_FALSE(experiment.questions.empty()) << experiment.id;
    EXPECT_TRUE(experiment.open) << experiment.id;
    for (const Question& question : experiment.questions) {
      EXPECT_TRUE(question.answer) << experiment.id << " " << question.text;
    }
    for (const Axis& axis : experiment.axes) {
      EXPECT_FALSE(axis.quick.empty() || axis.full.empty()) << experiment.id << " " << axis.name;
    }
    for (const Plot& plot : experiment.plots) {
      EXPECT_EQ(plot.parts.size(), plot.part_titles.size()) << experiment.id << " " << plot.title;
    }
  }
}

TEST(Experiments, StepTimesAndSpeedupsAreDrawnWithTheirUncertainty) {
  for (const char* id : {"strong-scaling", "comm-vs-compute", "delay", "dp-vs-ddp", "depth", "matrix-power", "timing"}) {
    for (const Plot& plot : experiment_by_id(id).plots) {
      if (plot.kind != Plot::Type::stacked && plot.y == "time_per_step_ns") {
        EXPECT_EQ(plot.low, "time_low_ns") << id;
        EXPECT_EQ(plot.high, "time_high_ns") << id;
      }
      if (plot.y == "speedup") {
        EXPECT_EQ(plot.low, "speedup_low") << id;
      }
    }
  }
}

TEST(Experiments, APointThatIsNoNumberIsRefusedInASentence) {
  const Settings settings = on_cores({0});
  EXPECT_TRUE(says(usage_sentence([&] {
                     const Experiment& experiment = experiment_by_id("strong-scaling");
                     experiment.open({{"model", "mlp:dim=8,depth=1"}, {"batch", 8}, {"devices", "two"}}, settings);
                   }),
                   "two"));
}

}  // namespace
}  // namespace baton::lab
