#include "baton/exec/rank_run.h"

#include <algorithm>
#include <cstring>

#include "baton/base/error.h"
#include "baton/ranks/pack.h"

namespace baton::exec {
namespace {

void pack(ranks::Packer& packer, const GpuReading& gpu) {
  packer.add(gpu.ordinal).add(gpu.samples).add(gpu.utilization).add(gpu.memory_used).add(gpu.memory).add(gpu.clock_mhz);
  packer.add(gpu.highest_clock_mhz).add(gpu.memory_clock_mhz).add(gpu.watts).add(gpu.celsius).add(gpu.slowed_by.size());
  for (const std::string& words : gpu.slowed_by) {
    packer.add_text(words);
  }
}

GpuReading take_reading(ranks::Unpacker& unpacker) {
  GpuReading gpu;
  gpu.ordinal = unpacker.take<int>();
  gpu.samples = unpacker.take<std::int64_t>();
  gpu.utilization = unpacker.take<double>();
  gpu.memory_used = unpacker.take<Bytes>();
  gpu.memory = unpacker.take<Bytes>();
  gpu.clock_mhz = unpacker.take<int>();
  gpu.highest_clock_mhz = unpacker.take<int>();
  gpu.memory_clock_mhz = unpacker.take<int>();
  gpu.watts = unpacker.take<double>();
  gpu.celsius = unpacker.take<int>();
  for (auto count = unpacker.take<std::size_t>(); count > 0 && unpacker.good(); --count) {
    gpu.slowed_by.push_back(unpacker.take_text());
  }
  return gpu;
}

}  // namespace

std::vector<int> ranks_of(const cluster::Cluster& cluster) {
  std::vector<int> list;
  for (const cluster::Device& device : cluster.devices()) {
    list.push_back(device.rank);
  }
  return list;
}

std::vector<std::size_t> report_sizes(const plan::Plan& plan, const std::vector<int>& rank_of, const std::vector<BufferId>& losses,
                                      int ranks) {
  std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks), sizeof(StepReport::Outcome));
  for (const BufferId id : losses) {
    const int rank = rank_of[plan[id].device.index()];
    sizes[static_cast<std::size_t>(rank)] += static_cast<std::size_t>(plan[id].shape.elements()) * sizeof(double);
  }
  return sizes;
}

StepReport::StepReport(std::shared_ptr<ranks::World> world, const plan::Plan& plan, const std::vector<int>& rank_of,
                       const std::vector<BufferId>& losses)
    : world_(std::move(world)), sizes_(report_sizes(plan, rank_of, losses, world_->size())) {
  for (const BufferId id : losses) {
    loss_rows_.push_back({id, rank_of[plan[id].device.index()], static_cast<std::size_t>(plan[id].shape.elements())});
  }
  std::size_t total = 0;
  for (const std::size_t size : sizes_) {
    begins_.push_back(total);
    total += size;
  }
  all_.resize(total);
  next_.resize(begins_.size());
  mine_.resize(sizes_[static_cast<std::size_t>(world_->rank())]);
  order_ = loss_order(plan, losses);
  rows_.resize(order_.size());
}

StepReport::Summary StepReport::share(const Outcome& own, const std::function<const double*(BufferId)>& rows) {
  std::memcpy(mine_.data(), &own, sizeof own);
  std::size_t at = sizeof own;
  for (const LossRows& one : loss_rows_) {
    if (one.rank == world_->rank()) {
      std::memcpy(mine_.data() + at, rows(one.buffer), one.rows * sizeof(double));
      at += one.rows * sizeof(double);
    }
  }
  world_->all_gather(mine_, all_, sizes_);
  Summary summary;
  for (const std::size_t begin : begins_) {
    Outcome one;
    std::memcpy(&one, all_.data() + begin, sizeof one);
    summary.duration = std::max(summary.duration, one.duration);
    summary.stop_requested = summary.stop_requested || one.stop_requested;
    summary.given_up = summary.given_up || one.given_up;
    summary.changed = summary.changed || one.changed;
  }
  std::transform(begins_.begin(), begins_.end(), next_.begin(),
                 [](std::size_t begin) { return begin + sizeof(StepReport::Outcome); });
  double* next = rows_.data();
  for (const LossRows& one : loss_rows_) {
    std::size_t& place = next_[static_cast<std::size_t>(one.rank)];
    std::memcpy(next, all_.data() + place, one.rows * sizeof(double));
    place += one.rows * sizeof(double);
    next += one.rows;
  }
  for (const std::size_t row : order_) {
    summary.loss += rows_[row];
  }
  return summary;
}

trace::Trace merge(const plan::Plan& plan, const std::vector<int>& rank_of, const std::vector<std::vector<StepSlice>>& slices,
                   const std::vector<ranks::ClockFit>& clocks) {
  trace::Trace trace;
  for (std::size_t s = 0; s < slices[0].size(); ++s) {
    std::vector<Nanoseconds> starts;
    Nanoseconds end;
    for (std::size_t r = 0; r < slices.size(); ++r) {
      const StepSlice& slice = slices[r][s];
      starts.push_back(clocks[r].on_rank_0(slice.start));
      end = r == 0 ? starts[r] + slice.duration : std::max(end, starts[r] + slice.duration);
    }
    const Nanoseconds origin = *std::min_element(starts.begin(), starts.end());
    trace::StepTrace step{.duration = end - origin, .events = {}};
    std::vector<std::size_t> next(slices.size(), 0);
    for (const plan::Task& task : plan.tasks()) {
      const auto rank = static_cast<std::size_t>(rank_of[task.device.index()]);
      trace::Event event = slices[rank][s].events[next[rank]++];
      event.start += starts[rank] - origin;
      event.end += starts[rank] - origin;
      step.events.push_back(event);
    }
    trace.steps.push_back(std::move(step));
  }
  return trace;
}

void gather_result(ranks::World& world, const plan::Plan& plan, const std::vector<int>& rank_of,
                   const std::vector<ranks::ClockFit>& clocks, std::span<const Nanoseconds> starts, RunResult& result) {
  ranks::Packer mine;
  mine.add(result.trace.steps.size());
  for (std::size_t s = 0; s < result.trace.steps.size(); ++s) {
    const trace::StepTrace& step = result.trace.steps[s];
    mine.add(starts[s]);
    mine.add(step.duration);
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      if (rank_of[plan.tasks()[t].device.index()] == world.rank()) {
        mine.add(step.events[t]);
      }
    }
  }
  mine.add(result.roundings.size());
  for (const RoundingTally& tally : result.roundings) {
    mine.add(tally);
  }
  mine.add(result.gpus.size());
  for (const GpuReading& gpu : result.gpus) {
    pack(mine, gpu);
  }
  result.trace.steps.clear();
  const std::vector<ranks::Blob> all = world.gather(mine.span());
  if (world.rank() != 0) {
    return;
  }
  std::vector<std::size_t> tasks(all.size(), 0);
  for (const plan::Task& task : plan.tasks()) {
    ++tasks[static_cast<std::size_t>(rank_of[task.device.index()])];
  }
  std::vector<std::vector<StepSlice>> slices(all.size());
  result.roundings.clear();
  result.gpus.clear();
  for (std::size_t r = 0; r < all.size(); ++r) {
    ranks::Unpacker unpacker(all[r]);
    slices[r].resize(unpacker.take<std::size_t>());
    check(slices[r].size() == slices[0].size(), "rank {} traced {} steps, rank 0 {}", r, slices[r].size(), slices[0].size());
    for (StepSlice& slice : slices[r]) {
      slice.start = unpacker.take<Nanoseconds>();
      slice.duration = unpacker.take<Nanoseconds>();
      for (std::size_t t = 0; t < tasks[r]; ++t) {
        slice.events.push_back(unpacker.take<trace::Event>());
      }
    }
    for (auto count = unpacker.take<std::size_t>(); count > 0 && unpacker.good(); --count) {
      add_tally(result.roundings, unpacker.take<RoundingTally>());
    }
    for (auto count = unpacker.take<std::size_t>(); count > 0 && unpacker.good(); --count) {
      result.gpus.push_back(take_reading(unpacker));
      result.gpus.back().rank = static_cast<int>(r);
    }
    check(unpacker.good() && unpacker.empty(), "the result of rank {} is cut short or too long", r);
  }
  result.trace.steps = merge(plan, rank_of, slices, clocks).steps;
}

void gather_result(ranks::World& world, const plan::Plan& plan, const std::vector<int>& rank_of,
                   const std::vector<ranks::ClockReading>& clocks_before, std::span<const Nanoseconds> starts, RunResult& result) {
  if (world.alone()) {
    return;
  }
  const std::vector<ranks::ClockReading> clocks_after = ranks::read_clocks(world);
  for (std::size_t r = 0; r < clocks_after.size(); ++r) {
    result.clocks.push_back(ranks::fit_clock(clocks_before[r], clocks_after[r]));
  }
  gather_result(world, plan, rank_of, result.clocks, starts, result);
}

void share_bytes(ranks::World& world, int root, std::span<std::byte> bytes) {
  constexpr std::size_t most = std::size_t{4} << 20;
  for (; !world.alone() && !bytes.empty(); bytes = bytes.subspan(std::min(most, bytes.size()))) {
    const std::span<std::byte> part = bytes.first(std::min(most, bytes.size()));
    ranks::Blob blob(part.begin(), part.end());
    world.broadcast(blob, root);
    check(blob.size() == part.size(), "a rank has {} bytes of a buffer and another {}", blob.size(), part.size());
    std::copy(blob.begin(), blob.end(), part.begin());
  }
}

}  // namespace baton::exec
