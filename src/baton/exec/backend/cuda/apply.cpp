#include "baton/exec/backend/cuda/apply.h"

#include <algorithm>
#include <memory>
#include <tuple>

#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/table.h"

namespace baton::exec::cuda {
namespace {

constexpr std::int64_t chunk_elements = 4096;

}  // namespace

Launch apply_sums(DType type, std::span<const Applied> sums, double rate, const Place& place) {
  std::vector<SumChunk> chunks;
  std::vector<void*> sources;
  std::vector<void*> targets;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sources.push_back(sums[i].sum);
    targets.push_back(sums[i].target);
    for (std::int64_t at = 0; at < sums[i].elements; at += chunk_elements) {
      chunks.push_back({at, at, static_cast<std::int32_t>(i), static_cast<std::int32_t>(i),
                        static_cast<std::int32_t>(std::min(chunk_elements, sums[i].elements - at))});
    }
  }
  place.enter();
  const auto chunk_table = std::make_shared<Table<SumChunk>>(std::span<const SumChunk>(chunks));
  const auto source_table = std::make_shared<Table<void*>>(std::span<void* const>(sources));
  const auto target_table = std::make_shared<Table<void*>>(std::span<void* const>(targets));
  const SumTables tables{.chunks = chunk_table->data(),
                         .chunk_count = static_cast<int>(chunks.size()),
                         .sources = source_table->data(),
                         .source_count = static_cast<int>(sums.size()),
                         .members = 1,
                         .targets = target_table->data(),
                         .target_count = static_cast<int>(sums.size()),
                         .target_members = 1,
                         .rate = rate};
  return [=, multiprocessors = place.multiprocessors(), kept = std::tuple(chunk_table, source_table, target_table)](
             cudaStream_t stream) { sum_chunks(type, tables, 0, multiprocessors, stream); };
}

}  // namespace baton::exec::cuda
