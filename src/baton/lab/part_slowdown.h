#pragma once

#include <optional>
#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cost/measured.h"
#include "baton/lab/json.h"
#include "baton/plan/plan.h"
#include "baton/training/job.h"

/// The slowdown of parts of one GPU by each other: each has multiprocessors of its own, but they share its memory, caches
/// and power. It is measured with the tasks of the step itself: what is bound by arithmetic suffers less than what is bound
/// by bytes.
namespace baton::lab {

struct PartSlowdown {
  std::size_t parts = 0;    // the number of parts that work at the same time
  int multiprocessors = 0;  // multiprocessors per part
  Nanoseconds alone;        // what a step computes on one part, task by task, while the other parts rest
  Nanoseconds beside;       // the same while all of them work
  Nanoseconds separate;     // a step if they did not slow each other down, as separate GPUs of their size: simulated
};

/// The devices that are parts of the first one's GPU; none if those are fewer than two, or if it is not a GPU.
std::vector<DeviceId> parts_of_a_gpu(const cluster::Cluster& cluster);

/// The times that a device computes in a step, by a calibration's times of its tasks: `alone` and `beside`. nullopt if it
/// has none.
std::optional<PartSlowdown> part_slowdown_of(const plan::Plan& plan, const cost::TaskKeys& keys, DeviceId device,
                                             const cost::Times& alone, const cost::Times& beside);

/// The slowdown of the parts of a GPU that the job runs on, by a calibration that is measured now or was kept.
std::optional<PartSlowdown> part_slowdown(const plan::Plan& plan, const training::Job& job);

/// The value of `beside` in a record.
Record to_record(const PartSlowdown& part_slowdown);

/// Findings from `beside` of the rows: how much longer tasks take, and what separate GPUs would do for the row that suffers
/// most.
std::vector<std::string> part_slowdown_findings(const std::vector<Record>& rows);

/// A sentence on how parts of a GPU slow down the tasks of a plan, by times that a calibration has of them; nullopt if there are no
/// parts of a GPU.
std::optional<std::string> calibrated_part_slowdown(const plan::Plan& plan, const cluster::Cluster& cluster,
                                                    const cost::TaskKeys& keys, const cost::Times& alone,
                                                    const cost::Times& beside);

}  // namespace baton::lab
