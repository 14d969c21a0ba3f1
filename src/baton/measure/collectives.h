#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/findings/fits.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"

/// The cost of messages between devices, measured with plans that contain only one kind of meeting.
namespace baton::measure {

/// The plan's moves (plan/move.h), in the order of that table.
std::vector<plan::Move> every_operation();
/// One of them by its name there. A usage error lists them.
plan::Move operation_by_name(std::string_view name);

/// The measurement's options: float32 elements, by the size of the whole that is reduced, gathered or sent.
struct BenchOptions {
  std::vector<plan::Move> operations = every_operation();
  std::int64_t min_bytes = 8;
  std::int64_t max_bytes = 64 << 20;
  std::int64_t factor = 4;        // from one size to the next
  Nanoseconds time{100'000'000};  // for one size of one operation, about
};
/// `8:64MiB`, or `8:64MiB:2` with the factor; a single size alone. A usage error names what is wrong.
void parse_sizes(std::string_view text, BenchOptions& options);

/// A row of the table. Columns are those of nccl-tests.
struct BenchRow {
  plan::Move operation = plan::Move::all_reduce;
  std::int64_t bytes = 0;  // bytes of the whole tensor
  std::int64_t count = 0;  // elements that a member brings or takes (for reduce_scatter and all_gather: of one piece)
  Nanoseconds time;        // the median from the end of one to the end of the next, one after the other
  Nanoseconds low;         // the 5th and the 95th percentile
  Nanoseconds high;
  std::int64_t wrong = 0;  // elements that are not what they should be

  double algorithm_bandwidth() const;               // bytes per second: size over time
  double bus_bandwidth(std::size_t members) const;  // what a link would have to carry, whatever the algorithm
};

/// A plan that contains only meetings of one kind, one after the other; and by device, the buffers that the members send
/// in all of them and receive in the last; not valid for a device that sends or receives nothing.
struct MeetingsPlan {
  plan::Plan plan;
  std::vector<BufferId> brought;
  std::vector<BufferId> taken;
};
/// Members send the same buffers every time, and receive what is not reduced in place into other buffers each
/// time. A send_receive goes from the first device to the second. `elements` are of the whole; all buffers
/// are persistent.
MeetingsPlan meetings(plan::Move operation, std::int64_t elements, std::int64_t copies, const std::vector<std::string>& devices);

/// Called before each measurement; false: stop, keeping what was measured.
using BenchProgress = std::function<bool(std::size_t done, std::size_t total)>;
/// Runs each operation at each size on the devices, with the transport that an executor uses for them, and
/// checks the results. With several ranks all call it, and the rows of rank 0 are the result. A usage error
/// if there is only one device.
std::vector<BenchRow> bench_collectives(const cluster::Cluster& cluster, const exec::Backend& backend, const BenchOptions& options,
                                        const BenchProgress& progress = {}, const std::shared_ptr<ranks::World>& world = nullptr);

/// The formula fitted to the rows of an operation: a meeting of S bytes takes alpha + S / beta.
findings::AlphaBeta fit(const std::vector<BenchRow>& rows, plan::Move operation);

/// The value of rank 0, on all ranks.
std::int64_t agreed(std::int64_t number, ranks::World* world);

/// The links that follow from the rows: latency and bandwidth are those of send_receive, and the algorithm is the one
/// whose formula is nearest to the measured collectives.
struct MeasuredLinks {
  cluster::Link link;
  cluster::Algorithm algorithm = cluster::Algorithm::ring;
  double median_error = 0;  // relative error of the collectives under that algorithm; 0 if there are none
};
MeasuredLinks measured_links(const std::vector<BenchRow>& rows, const cluster::Cluster& cluster);

/// A cluster's file, for `baton simulate --cluster FILE`, of these devices joined by such links. `origin`
/// says how it was measured.
std::string to_cluster_file(const cluster::Cluster& cluster, const MeasuredLinks& links, const std::string& origin);

}  // namespace baton::measure
