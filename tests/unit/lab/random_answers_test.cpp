/// Answers to rows drawn at random, with slow-downs, large noise, one device to sixteen, oversubscribed and simulated ones.

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "baton/lab/rows.h"
#include "baton/lab/runner.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::silent_on;

constexpr std::size_t most_words = 90;
constexpr std::size_t most_words_of_task_5 = 220;

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : generator_(seed) {}
  double within(double low, double high) { return std::uniform_real_distribution<double>(low, high)(generator_); }
  /// As likely between 1 and 10 as between 10 and 100.
  double scale(double low, double high) { return std::exp(within(std::log(low), std::log(high))); }
  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator_);
  }
  bool toss(double share = 0.5) { return within(0, 1) < share; }

 private:
  std::mt19937_64 generator_;
};

/// A whole number that a point has, or another where it has none.
std::int64_t value_of(const Point& point, const std::string& axis, std::int64_t otherwise) {
  const job::FieldValue* value = point.find(axis);
  return value != nullptr && std::holds_alternative<std::int64_t>(*value) ? std::get<std::int64_t>(*value) : otherwise;
}

/// A record with everything that any experiment reads, for the devices and blocks that the point has.
Json random_record(const Point& point, Chance& chance, double noise, std::int64_t cores, bool simulated) {
  const std::int64_t devices = value_of(point, key::devices, 2);
  Json record = test::trained(chance.scale(0.01, 500), devices);
  const double step = record["time_per_step_ns"];
  record["time_low_ns"] = step * (1 - chance.within(0, noise));
  record["time_high_ns"] = step * (1 + chance.within(0, 2 * noise));
  record["mean_ns"] = step * chance.within(0.9, 1.5);
  record["std_ns"] = step * chance.within(0, noise);
  record["max_ns"] = step * chance.within(1, 20);
  record["p5_ns"] = 0.9 * step;
  record["p95_ns"] = 1.2 * step;
  double left = step;
  for (const char* part : {"compute_ns", "exposed_ns", "waiting_ns"}) {
    const double taken = left * chance.within(0, 1);
    record[part] = taken;
    left -= taken;
  }
  record["rest_ns"] = left;
  record["communication_ns"] = chance.toss(0.1) ? 0 : step * chance.within(0, 1);
  record["samples_per_s"] = static_cast<double>(value_of(point, key::batch, 64)) * 1e9 / step;
  record["sent_bytes"] = devices == 1 ? 0.0 : chance.scale(1e3, 1e10);
  record["flops"] = chance.scale(1e6, 1e13);
  record["peak_bytes"] = chance.whole(1000, 1 << 30);
  record["buffer_bytes"] = chance.whole(1000, 1 << 30);
  record["oversubscribed"] = !simulated && devices > cores;
  record["origin"] = simulated ? "simulated" : "measured";
  const auto blocks = std::max(value_of(point, key::depth, 6), devices);
  std::vector<std::int64_t> each(static_cast<std::size_t>(devices), 0);
  for (std::int64_t i = 0; i < blocks; ++i) {
    ++each[static_cast<std::size_t>(i * devices / blocks)];
  }
  record.update(Json{{"blocks_each", each},
                     {"placement", std::vector<std::string>(static_cast<std::size_t>(devices), "0,1")},
                     {"transfers_forward", devices - 1},
                     {"transfers", 2 * (devices - 1)},
                     {"bytes_forward", (devices - 1) * 1024},
                     {"input_bytes", 4096},
                     {"transfer_each_ns", std::vector<double>(static_cast<std::size_t>(devices - 1), step * chance.within(0, 0.1))},
                     {"transfer_ns", step * chance.within(0, 0.1)},
                     {"transfers_step_ns", step * chance.within(0, 0.2)},
                     {"move_ns", step * chance.within(0, 0.3)},
                     {"output_ns", step / 4},
                     {"forward_ns", step / 3},
                     {"overlap_ns", chance.toss() ? 0.0 : step * 0.01},
                     {"first_device", "cpu:0"},
                     {"last_device", "cpu:1"},
                     {"log", {"1 µs  linear+relu of block 0 done on cpu:0"}},
                     {"theory", chance.within(0, 1)},
                     {"products", 4},
                     {"tflops", chance.scale(1e-3, 1e3)},
                     {"core_peak_gflops", chance.scale(1, 100)},
                     {"emulated", chance.toss()},
                     {"gradients_left", {chance.within(0, 100), chance.within(0, 100)}},
                     {"final_scale", 65536},
                     {"skipped_steps", chance.whole(0, 1)},
                     {"overflows", chance.whole(0, 9)},
                     {"trained", {{"model", "mlp"}, {"parameter_bytes", chance.whole(1, 1 << 30)}}}});
  Json times = Json::array();
  for (int s = 0; s < 30; ++s) {
    times.push_back(step * chance.within(0.9, s == 0 ? 30 : 1.1));
  }
  record["first_step_times_ns"] = times;
  Json arrivals = Json::array();
  Json kinds = Json::array();
  for (std::int64_t d = 0; d < devices; ++d) {
    record["device_list"][static_cast<std::size_t>(d)] = test::device(
        chance.within(0, 1), chance.within(0, 0.5), chance.whole(1, 1 << 30), chance.whole(0, 1 << 30), chance.whole(0, 1 << 30));
    record["device_list"][static_cast<std::size_t>(d)]["tasks"] = chance.whole(1, 50);
    arrivals.push_back({{"device", "cpu:" + std::to_string(d)},
                        {"last", chance.within(0, 1)},
                        {"held_up_ns", step * chance.within(0, 1)},
                        {"phase", "backward"},
                        {"excess_ns", step * chance.within(0, 1)}});
    for (const char* kind : {"linear", "all_reduce", "sgd"}) {
      kinds.push_back({{"device", "cpu:" + std::to_string(d)},
                       {"kind", kind},
                       {"tasks", 2},
                       {"share", chance.within(0, 1)},
                       {"path_share", chance.within(0, 1) / static_cast<double>(3 * devices)},
                       {"time_ns", step * chance.within(0, 1)},
                       {"flops", chance.scale(1, 1e9)},
                       {"bytes", chance.scale(1, 1e9)},
                       {"cores", 1}});
    }
  }
  double busy = 0;
  for (const Json& device : record["device_list"]) {
    busy += device["busy"].get<double>();
  }
  record["some_busy"] = std::min(1.0, busy) * chance.within(0.5, 1);
  if (!record["transfer_each_ns"].empty() && chance.toss()) {
    record["transfer_each_ns"][0] = step * chance.within(0, 0.1);
  }
  record["arrivals"] = devices > 1 ? arrivals : Json::array();
  record["kinds"] = kinds;
  for (int m = 0; m < chance.whole(0, 4); ++m) {
    record["messages"].push_back({{"kind", "all_reduce"},
                                  {"bytes", chance.whole(1, 5) * 1000},
                                  {"time_ns", chance.scale(100, 1e7)},
                                  {"overlapped", chance.within(0, 0.2)}});
  }
  if (simulated) {
    record["losses"] = Json::array();
    record.update(Json{{"larger_batch", 16384},
                       {"larger_batch_ns", step * chance.scale(1, 100)},
                       {"balanced_batch", chance.scale(1, 1e7)},
                       {"balanced_ns", step * chance.scale(1, 100)}});
  }
  return record;
}

std::size_t words_in(const std::string& text) {
  std::istringstream stream(text.substr(0, text.find('\n')));  // a log is not prose
  return static_cast<std::size_t>(std::distance(std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()));
}

/// An experiment on random numbers of devices, if it has such an axis.
Result random_result(const Experiment& experiment, Chance& chance, bool presets_devices) {
  AxisValues values;
  const bool counted = std::any_of(experiment.axes.begin(), experiment.axes.end(),
                                   [](const Axis& axis) { return axis.name == "devices"; });
  if (counted && !presets_devices) {
    std::set<std::int64_t> counts;
    for (std::int64_t i = chance.whole(1, 4); i > 0; --i) {
      counts.insert(chance.toss(0.3) ? 1 : chance.whole(1, 16));
    }
    values["devices"] = std::vector<job::FieldValue>(counts.begin(), counts.end());
  }
  const std::vector<Point> all = points(experiment, chance.toss() ? Preset::quick : Preset::full, values);
  const double noise = chance.toss() ? 0.01 : 0.9;
  const std::int64_t cores = chance.whole(1, 16);
  const bool simulated = !experiment.by_losses && chance.toss(0.3);
  std::vector<Record> records;
  for (const Point& point : all) {
    records.push_back(random_record(point, chance, noise, cores, simulated));
  }
  return conclude(std::make_shared<const Experiment>(experiment), all, std::move(records), "", Preset::quick);
}

TEST(RandomRows, AnswersAreShortAndHoldNoNumberThatIsNone) {
  Chance chance(7);
  for (const Experiment& experiment : experiments()) {
    for (int tries = 0; tries < 12; ++tries) {
      const Result result = random_result(experiment, chance, tries % 3 == 0);
      std::size_t of_task_5 = 0;
      for (const Answer& answer : result.answers) {
        EXPECT_LE(words_in(answer.text), most_words) << experiment.id << ": " << answer.text;
        of_task_5 += answer.id.starts_with("hw1/5") ? words_in(answer.text) : 0;
        for (const char* wrong : {"nan", " inf", "(inf", "-0.00 ", "  ", "{}", ".."}) {
          EXPECT_TRUE(silent_on(answer.text.substr(0, answer.text.find('\n')), wrong)) << experiment.id;
        }
      }
      EXPECT_LE(of_task_5, most_words_of_task_5) << experiment.id;
      for (const std::string& sentence : result.details) {
        EXPECT_TRUE(silent_on(sentence, "nan")) << experiment.id;
        EXPECT_TRUE(silent_on(sentence, " inf")) << experiment.id;
      }
    }
  }
}

TEST(RandomRows, EveryQuestionIsAnsweredOnTheDevicesOfThePreset) {
  Chance chance(11);
  for (const Experiment& experiment : experiments()) {
    for (int tries = 0; tries < 8; ++tries) {
      const Result result = random_result(experiment, chance, true);
      for (const Answer& answer : result.answers) {
        const bool of_losses = !result.rows.empty() && is_simulated(result.rows[0]) && answer.id == "practical8/2/Q1";
        EXPECT_TRUE(of_losses || !answer.text.empty()) << experiment.id << ": " << answer.question;
      }
    }
  }
}

TEST(RandomRows, TheAccountOfTheLostTimeAddsUp) {
  Chance chance(13);
  for (int tries = 0; tries < 80; ++tries) {
    const Result result = random_result(experiment_by_id("strong-scaling"), chance, tries % 2 == 0);
    for (const Json& row : test::jsons(result.rows)) {
      double sum = 0;
      for (const char* part : {"ideal_ns", "unshrunk_ns", "lost_exposed_ns", "lost_waiting_ns", "lost_rest_ns"}) {
        sum += row[part].get<double>();
      }
      EXPECT_NEAR(sum / row["time_per_step_ns"].get<double>(), 1, 1e-9);
    }
  }
}

TEST(RandomRows, TheAnswerOnSpeedFollowsTheTimes) {
  Chance chance(17);
  for (int tries = 0; tries < 300; ++tries) {
    const double before = chance.scale(1, 100);
    const double after = chance.scale(1, 100);
    const double noise = chance.within(0, 0.9);
    std::vector<Json> rows;
    for (const double ms : {before, after}) {
      rows.push_back(test::with(test::trained(ms, 4), {{"schedule", rows.empty() ? "naive" : "1f1b"},
                                                       {"theory", 0.2},
                                                       {"micro_batches", rows.empty() ? 1 : 8},
                                                       {"time_low_ns", ms * 1e6 * (1 - noise)},
                                                       {"time_high_ns", ms * 1e6 * (1 + noise)}}));
    }
    const std::string said = test::headline("idle", rows);
    const bool apart = differs(rows[0], rows[1]);
    EXPECT_EQ(said.find("wins most back") != std::string::npos, apart && after < before) << said;
    EXPECT_EQ(said.find("is slower") != std::string::npos, apart && after > before) << said;
    EXPECT_EQ(said.find("beyond the noise") != std::string::npos, !apart) << said;
  }
}

TEST(RandomRows, DeviceZeroIsNamedExactlyWhereItHoldsTheOthersUpMost) {
  Chance chance(19);
  for (int tries = 0; tries < 300; ++tries) {
    const std::int64_t devices = chance.whole(2, 16);
    Json arrivals = Json::array();
    double all = 0;
    for (std::int64_t d = 0; d < devices; ++d) {
      const double held_up = chance.scale(1e3, 3e7);
      all += held_up;
      arrivals.push_back({{"device", "cpu:" + std::to_string(d)},
                          {"last", chance.within(0, 1)},
                          {"held_up_ns", held_up},
                          {"phase", "backward"},
                          {"excess_ns", 0}});
    }
    const double first = arrivals[0]["held_up_ns"];
    const bool clear = std::floor(first) / all >= (1 + 1.0 / static_cast<double>(devices)) / 2 && first >= 0.05 * 40e6;
    const double share = first / all - (1 + 1.0 / static_cast<double>(devices)) / 2;
    if (std::abs(share) < 1e-3) {
      continue;  // whole nanoseconds decide
    }
    const std::vector<Json> rows{test::with(test::trained(20, devices), {{"delay_ms", 0}}),
                                 test::with(test::trained(40, devices), {{"delay_ms", 20}, {"arrivals", arrivals}})};
    const std::string said = test::answer("imbalance", "hw1/5C/Q2", rows);
    EXPECT_EQ(said.find("All wait for device 0") == 0, clear) << said;
  }
}

/// Every question of the sheets that an experiment answers: task by task.
TEST(Sheets, EveryQuestionHasOneExperimentThatAnswersIt) {
  std::map<std::string, int> answered;
  for (const Experiment& experiment : experiments()) {
    for (const Question& question : experiment.questions) {
      if (!question.id.empty()) {
        ++answered[question.id];
      }
    }
  }
  const std::vector<std::string> asked{
      "hw1/1/Q1",        "hw1/1/Q2",        "hw1/2/Q1",        "hw1/2/Q2",        "hw1/2/Q3",        "hw1/3/Q1",
      "hw1/3/Q2",        "hw1/3/Q3",        "hw1/4/Q1",        "hw1/4/Q2",        "hw1/4/Q3",        "hw1/5A/Q1",
      "hw1/5A/Q2",       "hw1/5A/Q3",       "hw1/5B/Q1",       "hw1/5B/Q2",       "hw1/5C/Q1",       "hw1/5C/Q2",
      "hw3/1/Q1",        "hw3/1/Q2",        "hw3/2/Q1",        "hw3/3/Q1",        "hw3/4/Q1",        "hw3/4/Q2",
      "hw3/5/Q1",        "hw3/5/Q2",        "practical8/1/Q1", "practical8/1/Q2", "practical8/1/Q3", "practical8/2/Q1",
      "practical8/3/Q1", "practical8/4/Q1", "practical8/5/Q1", "csye-hw4/1/Q9",   "csye-hw4/1/Q11",  "csye-hw4/1/Q12",
      "csye-hw4/1/Q13",  "csye-hw4/2/Q1",   "csye-hw4/3/Q1"};
  for (const std::string& id : asked) {
    EXPECT_EQ(answered[id], 1) << id;
  }
  EXPECT_EQ(answered.size(), asked.size());
}

}  // namespace
}  // namespace baton::lab
