#include "baton/exec/engine.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "baton/op/traits.h"

namespace baton::exec {
namespace {

/// The number of integers from which the elements of targets, or else of inputs, are drawn: the limit of the op that reads them.
std::int64_t integers(const plan::Plan& plan, bool targets) {
  for (const plan::Task& task : plan.tasks()) {
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    for (std::size_t i = 0; compute != nullptr && i < task.reads.size(); ++i) {
      const plan::Buffer& read = plan[task.reads[i]];
      if (read.dtype == DType::i32 && read.role != plan::Role::statistic && (read.role == plan::Role::target) == targets) {
        return op::integer_limit(compute->op, plan::operands_of(plan.buffers(), task.reads),
                                 plan::operands_of(plan.buffers(), task.writes), i);
      }
    }
  }
  return 1;
}

}  // namespace

bool changes_state(const plan::Plan& plan, const plan::Task& task) {
  return std::any_of(task.writes.begin(), task.writes.end(), [&](BufferId written) {
    const plan::Buffer& buffer = plan[written];
    return std::holds_alternative<plan::LossScaler>(buffer.content) ||
           (buffer.persistent && (buffer.role == plan::Role::parameter || buffer.role == plan::Role::optimizer_state ||
                                  buffer.role == plan::Role::statistic));
  });
}

std::vector<std::size_t> loss_order(const plan::Plan& plan, const std::vector<BufferId>& losses) {
  struct LossRow {
    std::int64_t sample;
    std::int64_t position;
    std::size_t row;
    auto operator<=>(const LossRow&) const = default;
  };
  std::vector<LossRow> places;
  for (const BufferId id : losses) {
    const plan::BatchRows unplaced{0, plan[id].shape.elements()};  // for a plan that names no rows: in the order in which they lie
    const auto* rows = std::get_if<plan::BatchRows>(&plan[id].content);
    const plan::BatchRows& content = rows == nullptr ? unplaced : *rows;
    const std::int64_t samples = content.end - content.begin;
    const std::int64_t others = plan[id].shape.elements() / samples;
    for (std::int64_t row = 0; row < plan[id].shape.elements(); ++row) {
      const bool behind = content.axis == 1;
      places.push_back({content.begin + (behind ? row % samples : row / others),
                        content.first + (behind ? row / samples : row % others), places.size()});
    }
  }
  std::sort(places.begin(), places.end());
  std::vector<std::size_t> order;
  for (const LossRow& place : places) {
    order.push_back(place.row);
  }
  return order;
}

void StepData::fill(const plan::Buffer& buffer, std::byte* memory, std::int64_t step) const {
  const bool batch = buffer.role == plan::Role::input || buffer.role == plan::Role::target;
  if (feed != nullptr && batch && std::holds_alternative<plan::BatchRows>(buffer.content)) {
    fill_rows(buffer, memory, *feed, step);
  } else {
    fill_initial(buffer, memory, source, first_sample(step), layouts);
  }
}

StepData step_data(const plan::Plan& plan, const DataOptions& options) {
  StepData data{.source = {options.seed, options.samples, integers(plan, true), integers(plan, false)},
                .feed = options.feed,
                .loaded = {},
                .ahead = {},
                .losses = {}};
  for (const plan::Task& task : plan.tasks()) {
    if (std::holds_alternative<plan::Load>(task.action)) {
      data.ahead.insert(data.ahead.end(), task.writes.begin(), task.writes.end());
    }
  }
  const std::set<BufferId> ahead(data.ahead.begin(), data.ahead.end());
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const plan::Buffer& buffer = plan.buffers()[b];
    const bool batch = buffer.role == plan::Role::input || buffer.role == plan::Role::target;
    if (batch && buffer.persistent) {
      data.batch = std::max(data.batch, std::get<plan::BatchRows>(buffer.content).end);
      if ((options.samples > 0 || options.feed != nullptr) && !ahead.contains(BufferId(b))) {
        data.loaded.push_back(BufferId(b));
      }
    }
    if (buffer.role == plan::Role::loss) {
      data.losses.push_back(BufferId(b));
    }
  }
  std::sort(data.losses.begin(), data.losses.end(), [&](BufferId a, BufferId b) {
    const auto& first = std::get<plan::BatchRows>(plan[a].content);
    const auto& second = std::get<plan::BatchRows>(plan[b].content);
    return std::pair(first.begin, first.first) < std::pair(second.begin, second.first);
  });
  // If tensors are divided, each of the devices computes the same loss: it counts once.
  data.losses.erase(std::unique(data.losses.begin(), data.losses.end(),
                                [&](BufferId a, BufferId b) { return plan[a].content == plan[b].content; }),
                    data.losses.end());
  data.loss_order = loss_order(plan, data.losses);
  return data;
}

}  // namespace baton::exec
