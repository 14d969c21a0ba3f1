#include "baton/measure/core_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "baton/exec/executor.h"
#include "baton/findings/median.h"
#include "baton/measure/collectives.h"
#include "baton/ranks/world.h"
#include "baton/strategy/passes.h"
#include "baton/trace/analysis.h"

namespace baton::measure {
namespace {

constexpr std::int64_t extent = 512;         // rows and columns of a product: some milliseconds on a core
constexpr std::int64_t products = 32;        // some ten looks after messages are between them, as in training
constexpr std::int64_t gathered = 16 << 20;  // bytes
constexpr std::int64_t most_gathers = 16;    // each into a place of its own
constexpr std::int64_t steps = 5;

/// The mean time of a product, by step; if messages run in parallel, only of products that end before these do.
std::vector<double> mean_times(const plan::Plan& plan, const exec::RunResult& result) {
  std::vector<double> means;
  for (const trace::StepTrace& step : result.trace.steps) {
    Nanoseconds messages_end;
    for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
      messages_end = std::max(messages_end, step.events[plan.members(MeetingId(m))[0].index()].end);
    }
    double sum = 0;
    double count = 0;
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const trace::Event& event = step.events[t];
      if (plan.tasks()[t].lane == plan::Lane::compute && (plan.meeting_count() == 0 || event.end <= messages_end)) {
        sum += static_cast<double>((event.end - event.start).count);
        count += 1;
      }
    }
    if (count > 0) {
      means.push_back(sum / count);
    }
  }
  return means;
}

}  // namespace

plan::Plan products_beside_messages(std::int64_t product_count, std::int64_t gathers, std::int64_t bytes,
                                    const cluster::Cluster& cluster, const plan::Target& target) {
  const auto count = static_cast<std::uint32_t>(cluster.size());
  const std::int64_t elements = bytes / size_of(DType::f32);
  plan::Draft draft;
  draft.title = fmt::format("{} products on each of {} devices during {} all_gathers of {} bytes", product_count, count, gathers,
                            elements * size_of(DType::f32));
  draft.meetings = static_cast<std::uint32_t>(gathers);
  for (const cluster::Device& device : cluster.devices()) {
    draft.devices.push_back(device.name);
  }
  const auto add = [&](std::uint32_t device, Shape shape) {
    return draft.add(
        {.device = DeviceId(device), .role = plan::Role::communication, .persistent = true, .shape = std::move(shape)});
  };
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const BufferId factor = add(rank, {extent, extent});
    BufferId from = add(rank, {extent, extent});  // each product is a factor of the next
    BufferId to = add(rank, {extent, extent});
    for (std::int64_t p = 0; p < product_count; ++p) {
      draft.tasks.push_back({.action = plan::Compute{op::MatrixProduct{}},
                             .device = DeviceId(rank),
                             .lane = plan::Lane::compute,
                             .reads = {factor, from},
                             .writes = {to}});
      std::swap(from, to);
    }
    const BufferId piece = add(rank, {plan::piece_of(elements, rank, count).size()});
    for (std::int64_t g = 0; g < gathers; ++g) {
      draft.tasks.push_back({.action = plan::Collective{.kind = plan::Move::all_gather,
                                                        .meeting = MeetingId(static_cast<std::size_t>(g)),
                                                        .rank = rank,
                                                        .size = count},
                             .device = DeviceId(rank),
                             .lane = plan::Lane::communication,
                             .reads = {piece},
                             .writes = {add(rank, {elements})}});
    }
  }
  return plan::finish(strategy::set_workspaces(std::move(draft), target, cluster));
}

double measure_core_share(const cluster::Cluster& cluster, const exec::Backend& backend, double bandwidth,
                          const std::shared_ptr<ranks::World>& world) {
  if (world->alone() || cluster.devices()[0].gpu) {
    return 0;
  }
  const auto time = [&](const plan::Plan& plan) {
    exec::Executor executor(plan, cluster, backend, {}, world);
    return mean_times(plan, executor.run({.steps = steps + 1, .warmup = 1}));
  };
  const std::vector<double> alone = time(products_beside_messages(products, 0, gathered, cluster, backend.target()));
  const double together = (alone.empty() ? 0 : findings::median(alone)) * static_cast<double>(products);
  const double crossing = static_cast<double>(gathered) / static_cast<double>(cluster.size()) *
                          static_cast<double>(cluster.size() - 1);
  const auto enough = static_cast<std::int64_t>(std::ceil(2 * together * bandwidth / crossing * 1e-9));
  const std::int64_t gathers = agreed(std::clamp<std::int64_t>(enough, 1, most_gathers), world.get());
  const std::vector<double> beside = time(products_beside_messages(products, gathers, gathered, cluster, backend.target()));
  if (alone.empty() || beside.empty()) {
    return 0;
  }
  const double share = 1 - findings::median(alone) / findings::median(beside);
  return std::max(0.0, share) * static_cast<double>(cluster.devices()[0].cores.size());
}

}  // namespace baton::measure
