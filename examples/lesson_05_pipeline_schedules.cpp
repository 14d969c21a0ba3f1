/// Lesson 5: pipeline schedules.
///
/// A batch is cut into micro-batches that follow each other through the stages. Which device does what in
/// which order is a grid: one row per device, one column per slot of time. F is a forward, B a backward; I and W
/// are its halves, the gradient of the input (which the stage before waits for) and of the weights (which
/// nobody does).

#include <algorithm>
#include <cstdio>

#include "baton/schedule/flaw.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"

using namespace baton;

int main() {
  const std::int64_t devices = 4;
  const std::int64_t micro_batches = 8;

  // The costs of each schedule, if F, I and W take a unit of time each and B two. A stage is 1/v of the layers of a device that has
  // v of them, so times and activations are divided by v.
  std::printf("%ld devices, %ld micro-batches\n", static_cast<long>(devices), static_cast<long>(micro_batches));
  std::printf("%-15s %10s %6s %15s %12s\n", "schedule", "step time", "idle", "longest bubble", "activations");
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    const auto chunks = static_cast<double>(schedule.default_chunks);
    const schedule::Grid grid = schedule.grid({devices, schedule.default_chunks, micro_batches});
    const schedule::Timing timing = schedule::replay(grid);
    std::int64_t bubble = 0;
    for (std::size_t d = 0; d < grid.rows.size(); ++d) {
      bubble = std::max(bubble, timing.bubble(d));
    }
    const std::vector<std::int64_t> kept = schedule::in_flight(grid);
    std::printf("%-15s %10.1f %4.1f %% %15.1f %12.1f\n", schedule.name.c_str(), static_cast<double>(timing.makespan) / chunks,
                100 * timing.idle_share(), static_cast<double>(bubble) / chunks,
                static_cast<double>(*std::max_element(kept.begin(), kept.end())) / chunks);
  }

  // A smaller pipeline, drawn.
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    std::printf("\n%s: %s\n%s", schedule.name.c_str(), schedule.summary.c_str(),
                to_text(schedule.grid({3, schedule.default_chunks, 5})).c_str());
  }

  // A schedule is data: one can be written by hand, as PyTorch does, and is checked before anything runs.
  const schedule::Grid mine = schedule::parse_csv(
      "0F0,0F1,,0B0,0B1\n"
      ",1F0,1F1,1B1,1B0\n");
  const schedule::Grid wrong = schedule::parse_csv(
      "0F0,0B0,0F1,0B1\n"
      "1F0,1F1,1B0,1B1\n");
  std::printf("\nThe first by hand: %s\n", schedule::flaw(mine).value_or("it can run").c_str());
  std::printf("The second: %s\n", schedule::flaw(wrong).value_or("it can run").c_str());
}
