#include "baton/schedule/schedule.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/schedule/generators.h"

namespace baton::schedule {
namespace {

double kept_by_naive(const Pipeline&) { return 1; }
double kept_by_all(const Pipeline& pipeline) { return static_cast<double>(pipeline.micro_batches); }
double kept_by_1f1b(const Pipeline& pipeline) { return static_cast<double>(pipeline.devices); }
double kept_by_interleaved(const Pipeline& pipeline) {
  const auto devices = static_cast<double>(pipeline.devices);
  const auto chunks = static_cast<double>(pipeline.chunks);
  return (2 * (devices - 1) + (chunks - 1) * devices + 1) / chunks;
}

}  // namespace

const std::vector<Schedule>& schedules() {
  static const std::vector<Schedule> all{
      {"naive", {}, "one micro-batch at a time: one device works, the others wait", 1, naive, {false, 1, kept_by_naive}},
      {"gpipe", {"GPipe"}, "all forwards, then all backwards", 1, gpipe, {true, 1, kept_by_all}},
      {"1f1b",
       {"1F1B"},
       "runs each backward as soon as possible, so that few activations are kept",
       1,
       one_forward_one_backward,
       {true, 1, kept_by_1f1b}},
      {"interleaved",
       {"Interleaved1F1B"},
       "1f1b with several smaller stages on each device",
       2,
       interleaved,
       {true, 1, kept_by_interleaved}},
      {"looped-bfs", {"LoopedBFS"}, "gpipe with several smaller stages on each device", 2, looped_bfs, {true, 1, kept_by_all}},
      {"zb-h1",
       {"zero-bubble", "zb"},
       "splits backwards into input and weight gradients and fills idle time with the latter; every device keeps as many "
       "activations as the first device of 1f1b",
       1,
       zero_bubble_h1,
       {true, 1.0 / 3}},
      {"zb-h2", {}, "zb-h1 without idle time between tasks, for twice the activations", 1, zero_bubble_h2, {true, 0}},
      {"zb-v",
       {"ZBVZeroBubble"},
       "two stages per device, placed in a V; no idle time between tasks; every device keeps as many activations as the first "
       "device of 1f1b",
       2,
       zero_bubble_v,
       {true, 0}},
      {"interleaved-zb",
       {"InterleavedZeroBubble"},
       "interleaved, with backwards split as in zb-h1",
       2,
       interleaved_zero_bubble,
       {true, 1.0 / 3}},
  };
  return all;
}

const Schedule* find_schedule(std::string_view name) {
  std::string wanted = canonical(name);
  constexpr std::string_view pytorch = "schedule";
  if (wanted.starts_with(pytorch)) {
    wanted.erase(0, pytorch.size());
  }
  for (const Schedule& schedule : schedules()) {
    const bool alias = std::any_of(schedule.aliases.begin(), schedule.aliases.end(),
                                   [&](const std::string& other) { return canonical(other) == wanted; });
    if (schedule.name == wanted || alias) {
      return &schedule;
    }
  }
  return nullptr;
}

const Schedule& schedule_by_name(std::string_view name) {
  if (const Schedule* found = find_schedule(name)) {
    return *found;
  }
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) {
    names.push_back(schedule.name);
  }
  throw unknown_name("schedule", name, names);
}

}  // namespace baton::schedule
