#include "baton/schedule/schedule.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/schedule/run.h"

namespace baton::schedule {
namespace {

/// Refuses what no schedule could be made of.
void require_sound(const Pipeline& pipeline) {
  if (pipeline.devices < 1 || pipeline.chunks < 1 || pipeline.micro_batches < 1) {
    throw usage_error(
        "a pipeline needs at least one device, one stage on each and one micro-batch, not {}, {} and {}",
        pipeline.devices, pipeline.chunks, pipeline.micro_batches);
  }
  if (pipeline.devices > most_cells || pipeline.chunks > most_cells / pipeline.devices ||
      pipeline.micro_batches > most_cells / pipeline.stages() / 3) {
    throw usage_error("{} devices with {} stages each and {} micro-batches are too many for a grid",
                      pipeline.devices, pipeline.chunks, pipeline.micro_batches);
  }
}

void require_one_stage_each(std::string_view name, const Pipeline& pipeline) {
  require_sound(pipeline);
  if (pipeline.chunks != 1) {
    throw usage_error("{} has one stage on each device, not {}: interleaved and looped-bfs have several",
                      name, pipeline.chunks);
  }
}

/// What a device does for one stage, one micro-batch after the other.
std::vector<Action> in_turn(std::int64_t stage, Kind kind, std::int64_t micro_batches) {
  std::vector<Action> actions;
  for (std::int64_t k = 0; k < micro_batches; ++k) {
    actions.push_back({static_cast<std::int32_t>(stage), kind, static_cast<std::int32_t>(k)});
  }
  return actions;
}

/// `ahead` forwards, then a backward and a forward by turns, then the backwards that are left.
std::vector<Action> woven(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                          std::int64_t ahead) {
  auto forward = forwards.begin() + std::min<std::ptrdiff_t>(ahead, std::ssize(forwards));
  std::vector<Action> order(forwards.begin(), forward);
  for (const Action& backward : backwards) {
    order.push_back(backward);
    if (forward != forwards.end()) {
      order.push_back(*forward++);
    }
  }
  return order;
}

Grid naive(const Pipeline& pipeline) {
  require_sound(pipeline);
  Orders orders(static_cast<std::size_t>(pipeline.devices));
  for (std::int64_t k = 0; k < pipeline.micro_batches; ++k) {
    for (std::int64_t stage = 0; stage < pipeline.stages(); ++stage) {
      orders[static_cast<std::size_t>(stage % pipeline.devices)].push_back(
          {static_cast<std::int32_t>(stage), Kind::forward, static_cast<std::int32_t>(k)});
    }
    for (std::int64_t stage = pipeline.stages() - 1; stage >= 0; --stage) {
      orders[static_cast<std::size_t>(stage % pipeline.devices)].push_back(
          {static_cast<std::int32_t>(stage), Kind::backward, static_cast<std::int32_t>(k)});
    }
  }
  return aligned(orders);
}

Grid gpipe(const Pipeline& pipeline) {
  require_one_stage_each("gpipe", pipeline);
  Orders orders;
  for (std::int64_t stage = 0; stage < pipeline.devices; ++stage) {
    orders.push_back(woven(in_turn(stage, Kind::forward, pipeline.micro_batches),
                           in_turn(stage, Kind::backward, pipeline.micro_batches), pipeline.micro_batches));
  }
  return aligned(orders);
}

Grid one_forward_one_backward(const Pipeline& pipeline) {
  require_one_stage_each("1f1b", pipeline);
  Orders orders;
  for (std::int64_t stage = 0; stage < pipeline.devices; ++stage) {
    orders.push_back(woven(in_turn(stage, Kind::forward, pipeline.micro_batches),
                           in_turn(stage, Kind::backward, pipeline.micro_batches), pipeline.devices - stage));
  }
  return aligned(orders);
}

}  // namespace

const std::vector<Schedule>& schedules() {
  static const std::vector<Schedule> all{
      {"naive", {}, "one micro-batch at a time: one device works, the others wait", 1, naive},
      {"gpipe", {"GPipe"}, "all forwards, then all backwards", 1, gpipe},
      {"1f1b",
       {"1F1B"},
       "each backward as soon as it can, so that few activations are kept",
       1,
       one_forward_one_backward},
  };
  return all;
}

const Schedule& schedule_by_name(std::string_view name) {
  const std::string wanted = canonical(name);
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) {
    const bool alias = std::any_of(schedule.aliases.begin(), schedule.aliases.end(),
                                   [&](const std::string& other) { return canonical(other) == wanted; });
    if (schedule.name == wanted || alias) {
      return schedule;
    }
    names.push_back(schedule.name);
  }
  throw usage_error("unknown schedule '{}': choose {}", name, either(names));
}

}  // namespace baton::schedule
