#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "baton/archive/safetensors.h"
#include "baton/base/ids.h"
#include "baton/base/units.h"
#include "baton/data/open.h"
#include "baton/exec/backend.h"
#include "baton/model/model.h"
#include "baton/plan/plan.h"
#include "baton/schedule/schedule.h"

namespace baton::training {

/// Parts of a job that a program supplies itself, because no field can name them. Each replaces what the specification says, if it
/// is not empty.
struct JobOverrides {
  std::optional<model::Model> model;
  /// Runs the tasks on this machine. It must fit the devices: one that computes on cores runs on no GPU.
  std::shared_ptr<const exec::Backend> backend;
  /// Makes the schedule, from the pipeline that the specification describes. It needs its number of micro-batches, or takes twice
  /// as many as there are devices.
  std::function<schedule::Grid(const schedule::Pipeline&)> schedule;
  std::optional<data::Parts> data;
  /// The weights before the first step, under the names of a checkpoint. Those that it does not hold are refused.
  std::shared_ptr<const archive::TensorReader> weights;
  /// The time of a Compute or an Update on its device, and what is said of where that comes from. For simulated clusters.
  std::function<Nanoseconds(const plan::Plan&, TaskId)> duration;
  std::string duration_origin;
};

}  // namespace baton::training
