#include "agree/training.h"
#include "baton/devices/backends.h"
#include "baton/trace/analysis.h"
#include "baton/trace/chrome.h"
#include "unit/trace/chrome_rules.h"

/// What is said of traces in tests/unit/trace holds of those of real runs.
namespace baton::test {
namespace {

class RealTrace : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  Case delayed_case() const {
    Case one{.model = "mlp:dim=64,depth=6", .strategy = std::get<0>(GetParam()), .backend = std::get<1>(GetParam()), .devices = 3};
    one.layout = {.bucket = Bytes(20000), .first_bucket = Bytes(1000)};
    one.delays = {{.before = plan::Phase::backward, .device = 1, .duration = Nanoseconds(500'000)}};
    return one;
  }
};

INSTANTIATE_TEST_SUITE_P(Strategy, RealTrace,
                         testing::Combine(testing::Values("single", "dp", "ddp", "layers"),
                                          testing::ValuesIn(devices::backend_names())),
                         [](const auto& one) { return std::get<0>(one.param) + "_" + std::get<1>(one.param); });

TEST_P(RealTrace, ObeysTheRulesOfChromesFormatOverSeveralSteps) {
  Training training(delayed_case());
  const exec::RunResult result = training.run(6);
  const auto threads = trace::expect_chrome_rules(trace::to_chrome_json(training.plan(), result.trace));
  std::size_t events = 0;
  for (const auto& [thread, list] : threads) {
    events += list.size();
  }
  ASSERT_FALSE(result.trace.steps.empty());
  EXPECT_EQ(events, result.trace.steps.size() * training.plan().tasks().size());
}

TEST_P(RealTrace, AccountsForEveryNanosecondOfEveryDeviceAndOfTheCriticalPath) {
  Training training(delayed_case());
  const exec::RunResult result = training.run(6);
  for (const trace::StepTrace& step : result.trace.steps) {
    for (const trace::DeviceTime& time : trace::device_times(training.plan(), step)) {
      EXPECT_EQ(time.busy + time.idle, step.duration);
      EXPECT_LE(time.delayed + time.exposed + time.waiting, time.idle);
      EXPECT_LE(time.overlapped, time.communication);
    }
    if (std::get<0>(GetParam()) != "single") {
      EXPECT_GE(trace::device_times(training.plan(), step)[1].delayed, Nanoseconds(500'000));
    }
    const std::vector<trace::PathSegment> path = trace::critical_path(training.plan(), step);
    ASSERT_FALSE(path.empty());
    EXPECT_EQ(path.front().start, Nanoseconds(0));
    EXPECT_EQ(path.back().end, step.duration);
    for (std::size_t i = 1; i < path.size(); ++i) {
      EXPECT_EQ(path[i - 1].end, path[i].start);
    }
  }
}

}  // namespace
}  // namespace baton::test
