#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace baton::trace {

/// A complete event of one thread, in nanoseconds.
struct ChromeEvent {
  std::int64_t begin;
  std::int64_t end;
  std::string name;
};

/// Holds a trace to the rules of Chrome's format that viewers rely on, and returns its complete events by (pid, tid):
/// every event has its fields, no time is negative, every process and thread that has events has a name, no two
/// complete events of one thread overlap, and every arrow has two ends that lie in events of a send and a receive.
inline std::map<std::pair<int, int>, std::vector<ChromeEvent>> expect_chrome_rules(const std::string& text) {
  using nlohmann::json;
  std::map<std::pair<int, int>, std::vector<ChromeEvent>> threads;
  const json trace = json::parse(text, nullptr, false);
  if (trace.is_discarded() || !trace.contains("traceEvents")) {
    ADD_FAILURE() << "is no JSON with traceEvents";
    return threads;
  }
  const auto nanoseconds = [](const json& micros) { return std::llround(micros.get<double>() * 1000); };
  std::set<int> processes;
  std::set<std::pair<int, int>> named;
  for (const json& event : trace.at("traceEvents")) {
    for (const char* field : {"ph", "name", "pid", "tid"}) {
      EXPECT_TRUE(event.contains(field)) << event << " has no " << field;
    }
    const std::string kind = event.at("ph");
    const std::pair<int, int> thread{event.at("pid"), event.at("tid")};
    if (kind == "M") {
      EXPECT_FALSE(event.at("args").at("name").get<std::string>().empty());
      if (event.at("name") == "process_name") {
        EXPECT_TRUE(processes.insert(thread.first).second) << event << " names a process twice";
      } else {
        EXPECT_EQ(event.at("name"), "thread_name");
        EXPECT_TRUE(named.insert(thread).second) << event << " names a thread twice";
      }
    } else if (kind == "X") {
      EXPECT_TRUE(event.at("ts").is_number() && event.at("dur").is_number()) << event;
      const std::int64_t begin = nanoseconds(event.at("ts"));
      const std::int64_t duration = nanoseconds(event.at("dur"));
      EXPECT_GE(begin, 0) << event;
      EXPECT_GE(duration, 0) << event;
      threads[thread].push_back({begin, begin + duration, event.at("name")});
    } else {
      EXPECT_TRUE(kind == "s" || kind == "f") << event << " is of an unknown kind";
    }
  }
  for (auto& [thread, events] : threads) {
    EXPECT_TRUE(processes.contains(thread.first)) << "process " << thread.first << " has no name";
    EXPECT_TRUE(named.contains(thread)) << "thread " << thread.second << " of " << thread.first << " has no name";
    std::sort(events.begin(), events.end(),
              [](const ChromeEvent& a, const ChromeEvent& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    for (std::size_t i = 1; i < events.size(); ++i) {
      EXPECT_LE(events[i - 1].end, events[i].begin)
          << events[i - 1].name << " and " << events[i].name << " overlap on thread " << thread.second << " of " << thread.first;
    }
  }
  std::map<std::int64_t, std::int64_t> tails;  // by arrow: when it starts
  std::map<std::int64_t, std::int64_t> heads;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "s" && event.at("ph") != "f") {
      continue;
    }
    const bool tail = event.at("ph") == "s";
    const std::int64_t at = nanoseconds(event.at("ts"));
    EXPECT_TRUE((tail ? tails : heads).emplace(event.at("id"), at).second) << event << " is there twice";
    EXPECT_TRUE(tail || event.value("bp", "") == "e") << event << " must bind to the event around it";
    const std::vector<ChromeEvent>& events = threads[{event.at("pid"), event.at("tid")}];
    EXPECT_TRUE(std::any_of(events.begin(), events.end(),
                            [&](const ChromeEvent& one) {
                              return one.begin <= at && at <= one.end && one.name.starts_with(tail ? "send" : "receive");
                            }))
        << event << " lies in no " << (tail ? "send" : "receive");
  }
  EXPECT_EQ(tails.size(), heads.size());
  for (const auto& [id, at] : tails) {
    EXPECT_TRUE(heads.contains(id) && heads[id] >= at) << "arrow " << id << " has no head, or one before its tail";
  }
  return threads;
}

}  // namespace baton::trace
