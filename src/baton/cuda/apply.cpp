#include "baton/cuda/apply.h"

#include <algorithm>
#include <memory>
#include <tuple>

#include "baton/cuda/table.h"

namespace baton::cuda {

Launch launch_sums(DType type, std::span<const SumRun> runs, std::span<void* const> sources, std::span<void* const> targets,
                   SumTables tables, std::int64_t min_duration, const GpuPlace& place) {
  place.enter();
  const auto run_table = std::make_shared<Table<SumRun>>(runs);
  const auto source_table = std::make_shared<Table<void*>>(sources);
  const auto target_table = std::make_shared<Table<void*>>(targets);
  tables.runs = run_table->data();
  tables.run_count = static_cast<int>(runs.size());
  tables.sources = source_table->data();
  tables.targets = target_table->data();
  return [=, multiprocessors = place.multiprocessors(), kept = std::tuple(run_table, source_table, target_table)](
             cudaStream_t stream) { sum_runs(type, tables, min_duration, multiprocessors, stream); };
}

Launch apply_sums(DType type, std::span<const Applied> sums, double rate, const GpuPlace& place) {
  std::vector<SumRun> runs;
  std::vector<void*> sources;
  std::vector<void*> targets;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sources.push_back(sums[i].sum);
    targets.push_back(sums[i].target);
    for (std::int64_t at = 0; at < sums[i].elements; at += sum_elements) {
      runs.push_back({at, at, static_cast<std::int32_t>(i), static_cast<std::int32_t>(i),
                      static_cast<std::int32_t>(std::min(sum_elements, sums[i].elements - at))});
    }
  }
  return launch_sums(type, runs, sources, targets,
                     {.source_count = static_cast<int>(sums.size()),
                      .members = 1,
                      .target_count = static_cast<int>(sums.size()),
                      .target_members = 1,
                      .rate = rate},
                     0, place);
}

}  // namespace baton::cuda
