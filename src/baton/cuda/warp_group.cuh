#pragma once

#include <cstdint>

/// Products of Hopper's warp groups: four warps multiply 64 rows by a tile in shared memory, while they do other work. Tiles have
/// rows of 128 bytes, of which the chunks of 16 are permuted by the row's number, as HeadTile has them.
namespace baton::cuda {

constexpr int group_threads = 128;
constexpr int group_rows = 64;
constexpr int line_bytes = 128;       // of a row of a tile
constexpr int tile_alignment = 1024;  // the tensor cores permute the chunks of 8 rows by their addresses

/// A tile as an operand: groups of 8 rows are 1024 bytes apart. If the operand is turned, and more than the 64 elements of a row
/// wide, the next 64 are `next` bytes further.
inline __device__ std::uint64_t described(std::uint32_t address, std::uint32_t next = 16) {
  constexpr std::uint64_t permuted_by_128 = 1;
  return static_cast<std::uint64_t>((address & 0x3ffffU) >> 4) | static_cast<std::uint64_t>(next >> 4) << 16 |
         std::uint64_t{tile_alignment >> 4} << 32 | permuted_by_128 << 62;
}

/// Before products whose registers were written by other instructions.
inline __device__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
inline __device__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Returns when all but the last `Pending` groups of products are done.
template <int Pending>
__device__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// What was copied to shared memory is seen by products after the next barrier.
inline __device__ void show_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace baton::cuda
