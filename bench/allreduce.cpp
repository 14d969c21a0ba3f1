/// An all-reduce between devices of one process, compared with a bare loop: two pinned threads or more that each sum their part
/// of the buffers into all of them, with nothing around it.
///   build/release/bench/allreduce --bytes 67108864 --devices 2 --repeat 20

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "baton/base/clock.h"
#include "baton/cluster/machine.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/plan/plan.h"
#include "baton/threads/memory_arena.h"
#include "baton/threads/team.h"
#include "baton/trace/analysis.h"

namespace {

using namespace baton;

plan::Plan all_reduce_plan(std::int64_t elements, std::size_t devices) {
  plan::Draft draft;
  draft.title = "all-reduce";
  const MeetingId meeting = draft.new_meeting();
  for (std::size_t d = 0; d < devices; ++d) {
    draft.devices.push_back(fmt::format("cpu:{}", d));
    const BufferId buffer = draft.add(
        {.device = DeviceId(d), .role = plan::Role::gradient, .persistent = true, .shape = {elements}});
    draft.tasks.push_back({.action = plan::Collective{plan::Move::all_reduce, meeting, static_cast<std::uint32_t>(d),
                                                      static_cast<std::uint32_t>(devices)},
                           .device = DeviceId(d),
                           .lane = plan::Lane::communication,
                           .reads = {buffer},
                           .writes = {buffer}});
  }
  return plan::finish(std::move(draft));
}

std::vector<Nanoseconds> bare_loop(std::int64_t elements, const std::vector<cluster::Device>& devices, std::int64_t repeat) {
  const std::size_t count = devices.size();
  std::vector<threads::MemoryArena> arenas;
  for (std::size_t d = 0; d < count; ++d) {
    arenas.emplace_back(Bytes(elements * 4));
  }
  std::vector<Nanoseconds> times(static_cast<std::size_t>(repeat));
  std::barrier meet(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (std::size_t d = 0; d < count; ++d) {
    threads.emplace_back([&, d] {
      threads::pin_to_core(devices[d].cores[0]);
      std::vector<float*> buffers;
      for (const threads::MemoryArena& arena : arenas) {
        buffers.push_back(reinterpret_cast<float*>(arena.at(0)));
      }
      std::fill_n(buffers[d], elements, 0.0F);
      const auto n = static_cast<std::int64_t>(count);
      const std::int64_t begin = static_cast<std::int64_t>(d) * elements / n;
      const std::int64_t end = (static_cast<std::int64_t>(d) + 1) * elements / n;
      for (std::int64_t r = 0; r < repeat; ++r) {
        meet.arrive_and_wait();
        const Nanoseconds start = now();
        if (count == 2) {
          float* __restrict a = buffers[0];
          float* __restrict b = buffers[1];
          for (std::int64_t i = begin; i < end; ++i) {
            const float sum = a[i] + b[i];
            a[i] = sum;
            b[i] = sum;
          }
        } else {
          constexpr std::int64_t block = 1024;  // floats, which stay in the first cache
          std::array<float, block> sums;
          for (std::int64_t first = begin; first < end; first += block) {
            const std::int64_t length = std::min(block, end - first);
            std::copy_n(buffers[0] + first, length, sums.data());
            for (std::size_t o = 1; o < count; ++o) {
              const float* __restrict other = buffers[o] + first;
              for (std::int64_t i = 0; i < length; ++i) {
                sums[static_cast<std::size_t>(i)] += other[i];
              }
            }
            for (float* buffer : buffers) {
              std::copy_n(sums.data(), length, buffer + first);
            }
          }
        }
        meet.arrive_and_wait();
        if (d == 0) {
          times[static_cast<std::size_t>(r)] = now() - start;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t bytes = 64 << 20;
  std::int64_t devices = 2;
  std::int64_t repeat = 20;
  CLI::App program("All-reduce between devices of one process, compared with a bare loop");
  program.add_option("--bytes", bytes)->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 32));
  program.add_option("--devices", devices)->check(CLI::Range(2, 64));
  program.add_option("--repeat", repeat)->check(CLI::Range(3, 100000));
  CLI11_PARSE(program, argc, argv);

  const cluster::Machine machine = cluster::probe();
  const cluster::Cluster cluster(cluster::cpu_devices({.count = static_cast<std::size_t>(devices)}, machine));
  const plan::Plan plan = all_reduce_plan(bytes / 4, cluster.size());
  const auto backend = exec::make_reference_backend();
  exec::Executor executor(plan, cluster, *backend);
  std::vector<Nanoseconds> ours;
  std::vector<Nanoseconds> bare;
  for (int round = 0; round < 3; ++round) {  // interleaved, so that drift favours neither
    const exec::RunResult result = executor.run({.steps = repeat + 2, .warmup = 2});
    ours.insert(ours.end(), result.step_times.begin() + 2, result.step_times.end());
    const std::vector<Nanoseconds> times = bare_loop(bytes / 4, cluster.devices(), repeat + 2);
    bare.insert(bare.end(), times.begin() + 2, times.end());
  }
  fmt::print("{{\"bytes\": {}, \"devices\": {}, \"time_ns\": {}, \"bare_time_ns\": {}}}\n", bytes, devices,
             trace::spread(ours).median.count, trace::spread(bare).median.count);
}
