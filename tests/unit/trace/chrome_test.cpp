#include "baton/trace/chrome.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "unit/trace/chrome_rules.h"
#include "unit/trace/steps.h"

namespace baton::trace {
namespace {

/// Two steps of a computation that is sent to a second device, which computes on.
struct Example {
  Written written{.devices = 2};
  Trace trace;

  Example() {
    const TaskId first = written.compute(0, 1'500, 10'000);
    written.tasks.back().labels = {.phase = plan::Phase::forward, .block = 3};
    written.send(0, 1, 0, 10'000, 30'007, {first});
    const TaskId received = written.receive(1, 0, 0, 0, 30'007);
    written.compute(1, 30'007, 50'000, {received});
    written.step.duration = Nanoseconds(55'000);
    written.step.events[1].sent = Bytes(640);
    written.step.events[2].received = Bytes(640);
    trace.steps = {written.step, written.step};
  }
};

TEST(Chrome, ObeysTheFormatsRules) {
  const Example example;
  const auto threads = expect_chrome_rules(to_chrome_json(example.written.plan(), example.trace));
  ASSERT_EQ(threads.size(), 4U) << "two devices, two lanes each";
  for (const auto& [thread, events] : threads) {
    EXPECT_EQ(events.size(), 2U) << "one a step";
  }
}

TEST(Chrome, ShowsWhatOverlapsInOneLaneOnThreadsOfItsOwn) {
  Written written{.devices = 2};
  written.send(0, 1, 0, 0, 100);
  written.receive(1, 0, 0, 0, 100);
  written.send(0, 1, 1, 50, 150);
  written.receive(1, 0, 1, 50, 150);
  written.step.duration = Nanoseconds(150);
  Trace trace;
  trace.steps = {written.step};
  const auto threads = expect_chrome_rules(to_chrome_json(written.plan(), trace));
  EXPECT_EQ(threads.size(), 4U) << "two devices, two messages at once each";
}

TEST(Chrome, GivesTimesToTheNanosecondAndLetsStepsFollowOneAnother) {
  const Example example;
  auto threads = expect_chrome_rules(to_chrome_json(example.written.plan(), example.trace));
  const std::vector<ChromeEvent>& computed = threads[{0, 0}];
  ASSERT_EQ(computed.size(), 2U);
  EXPECT_EQ(computed[0].name, "relu 3");
  EXPECT_EQ(computed[0].begin, 1'500);
  EXPECT_EQ(computed[0].end, 10'000);
  EXPECT_EQ(computed[1].begin, 55'000 + 1'500);
  const std::vector<ChromeEvent>& received = threads[{1, 1}];
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[1].end, 55'000 + 30'007);
}

TEST(Chrome, DrawsAnArrowATransferAndStep) {
  const Example example;
  const nlohmann::json json = nlohmann::json::parse(to_chrome_json(example.written.plan(), example.trace));
  std::set<std::int64_t> arrows;
  for (const nlohmann::json& event : json.at("traceEvents")) {
    if (event.at("ph") == "s") {
      arrows.insert(event.at("id").get<std::int64_t>());
      EXPECT_EQ(event.at("pid"), 0);
    }
    if (event.at("ph") == "f") {
      EXPECT_EQ(event.at("pid"), 1);
    }
  }
  EXPECT_EQ(arrows.size(), 2U);
}

TEST(Chrome, SaysWhetherItWasMeasuredOrSimulatedAndWhatCrossed) {
  Example example;
  for (const Origin origin : {Origin::measured, Origin::simulated}) {
    example.trace.origin = origin;
    const nlohmann::json json = nlohmann::json::parse(to_chrome_json(example.written.plan(), example.trace));
    EXPECT_EQ(json.at("otherData").at("origin"), to_text(origin));
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (const nlohmann::json& event : json.at("traceEvents")) {
      if (event.at("ph") == "X") {
        sent += event.at("args").at("sent_bytes").get<std::int64_t>();
        received += event.at("args").at("received_bytes").get<std::int64_t>();
      }
    }
    EXPECT_EQ(sent, 2 * 640);
    EXPECT_EQ(received, 2 * 640);
  }
}

TEST(Chrome, OfNoStepsStillNamesTheDevices) {
  const Example example;
  EXPECT_TRUE(expect_chrome_rules(to_chrome_json(example.written.plan(), Trace{})).empty());
}

/// A trace of one named thread with these events.
std::string with_events(const std::string& events) {
  return R"({"traceEvents":[{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"cpu:0"}},
            {"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"compute"}})" +
         events + "]}";
}

TEST(ChromeRules, FindWhatIsWrong) {
  expect_chrome_rules(with_events(R"(,{"ph":"X","name":"a","pid":0,"tid":0,"ts":1,"dur":2},
                                     {"ph":"X","name":"b","pid":0,"tid":0,"ts":3,"dur":2})"));
  EXPECT_NONFATAL_FAILURE(expect_chrome_rules("{\"traceEvents\":[}"), "is no JSON");
  EXPECT_NONFATAL_FAILURE(expect_chrome_rules(with_events(R"(,{"ph":"X","name":"a","pid":0,"tid":0,"ts":1,"dur":2.001},
                                                  {"ph":"X","name":"b","pid":0,"tid":0,"ts":3,"dur":2})")),
                          "a and b overlap");
  EXPECT_NONFATAL_FAILURE(expect_chrome_rules(with_events(R"(,{"ph":"X","name":"a","pid":0,"tid":1,"ts":1,"dur":2})")),
                          "thread 1 of 0");
  EXPECT_NONFATAL_FAILURE(expect_chrome_rules(with_events(R"(,{"ph":"X","name":"a","pid":0,"tid":0,"ts":-1,"dur":2})")), "begin");
  EXPECT_NONFATAL_FAILURE(expect_chrome_rules(with_events(R"(,{"ph":"X","name":"send","pid":0,"tid":0,"ts":1,"dur":2},
                {"ph":"X","name":"receive","pid":0,"tid":0,"ts":4,"dur":2},
                {"ph":"s","name":"transfer","id":1,"pid":0,"tid":0,"ts":0.5},
                {"ph":"f","bp":"e","name":"transfer","id":1,"pid":0,"tid":0,"ts":6})")),
                          "lies in no send");
}

}  // namespace
}  // namespace baton::trace
