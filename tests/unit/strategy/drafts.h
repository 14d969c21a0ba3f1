#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/plan/plan.h"
#include "baton/strategy/training_step.h"
#include "support/devices.h"

namespace baton::strategy {

inline cluster::Cluster devices(std::size_t count) { return cluster::Cluster(test::cpus(count, count)); }

/// A whole model on each device, `rows` rows each.
inline Placement replicated(const model::Model& model, std::size_t count, std::int64_t rows) {
  Placement placement;
  for (std::size_t d = 0; d < count; ++d) {
    const auto begin = static_cast<std::int64_t>(d) * rows;
    placement.replicas.push_back({{begin, begin + rows}, std::vector<DeviceId>(model.blocks().size(), DeviceId(d))});
    placement.devices.push_back(fmt::format("cpu:{}", d));
  }
  return placement;
}

/// The tasks of a draft or plan that do this, as their places in it.
template <typename Tasks>
std::vector<std::size_t> places(const Tasks& tasks, std::string_view verb) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (plan::verb(tasks[i]) == verb) {
      found.push_back(i);
    }
  }
  return found;
}

/// Whether every task touches buffers of its own device only.
inline bool local(const plan::Draft& draft) {
  for (const plan::Task& task : draft.tasks) {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        if (draft[id].device != task.device) {
          return false;
        }
      }
    }
  }
  return true;
}

/// What the buffers of a task hold, by label.
inline std::vector<std::string> labels(const plan::Draft& draft, const std::vector<BufferId>& ids) {
  std::vector<std::string> list;
  for (const BufferId id : ids) {
    list.push_back(draft[id].label);
  }
  return list;
}

}  // namespace baton::strategy
