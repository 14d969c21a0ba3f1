#pragma once

#include <optional>
#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cost/measured.h"
#include "baton/exec/backend.h"
#include "baton/lab/json.h"
#include "baton/plan/plan.h"
#include "baton/strategy/step.h"

/// How parts of one GPU slow each other down: each has multiprocessors of its own, but they share its memory, caches and power.
namespace baton::lab {

/// A product of square matrices on one of several parts.
struct Crowding {
  std::size_t parts = 0;    // that work at the same time
  int multiprocessors = 0;  // of each
  std::string precision;
  std::int64_t size = 0;  // rows of the matrices
  Nanoseconds alone;      // while the other parts rest
  Nanoseconds beside;     // while all of them do the same
};

/// The devices that are parts of the first one's GPU; none where those are fewer than two, or where it is no GPU.
std::vector<DeviceId> parts_of_a_gpu(const cluster::Cluster& cluster);

/// Multiplies on the first of the devices, then on all of them at once, in turns, for some tenths of a second.
Crowding measure_crowding(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices, const exec::Backend& backend,
                          strategy::Precision precision, std::int64_t size);

/// Measured now for the parts of a GPU in the cluster, or earlier in this process for equal ones. Nothing where there are none, or
/// where it cannot be measured: it only adds to what a run says.
std::optional<Crowding> crowding(const cluster::Cluster& cluster, const exec::Backend& backend, strategy::Precision precision);

/// For a record, as `beside`.
Json to_json(const Crowding& crowding);

/// What the rows' `beside` say, a sentence for each way of cutting a GPU and each precision.
std::vector<std::string> crowding_findings(const std::vector<Json>& rows);

/// The same of a plan's products, by times that a calibration has of them; nothing where no parts of a GPU or no products are.
std::optional<std::string> calibrated_crowding(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::Times& alone,
                                               const cost::Times& beside);

}  // namespace baton::lab
