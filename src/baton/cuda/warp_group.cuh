#pragma once

#include <cuda.h>

#include <cstdint>

/// Products of Hopper's warp groups: four warps multiply 64 rows by a tile in shared memory, while they do other work. Tiles have
/// rows of 128 bytes, of which the chunks of 16 are permuted by the row's number, as in HeadTile.
namespace baton::cuda {

constexpr int group_threads = 128;
constexpr int group_rows = 64;
constexpr int line_bytes = 128;       // bytes per row of a tile
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
/// Makes copies to shared memory visible to products after the next barrier.
inline __device__ void show_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// A thread that needs few registers leaves the others of its block more, and takes them. Whole warp groups call these.
template <int Registers>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Barriers in shared memory. A phase ends when `arrivals` threads have arrived and all bytes that were announced have been copied;
/// a thread that waits names the parity of the phase, which is 0 at first.
constexpr int barrier_bytes = 8;
inline __device__ void create_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// After all were created, by the thread that did; the block meets then.
inline __device__ void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
inline __device__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
inline __device__ void arrive_and_announce(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
inline __device__ void await_phase(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Copies a box of a tensor to a tile, by hardware: rows of 128 bytes, whose chunks are permuted. Elements outside of the tensor
/// become zero. All its bytes count at the barrier.
inline __device__ void copy_box(std::uint32_t tile, const CUtensorMap& tensor, int column, int head, int position,
                                std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          tile),
      "l"(&tensor), "r"(column), "r"(head), "r"(position), "r"(barrier)
      : "memory");
}
/// Copies consecutive bytes, a multiple of 16 at an address that is one.
inline __device__ void copy_line(std::uint32_t shared, const void* global, int bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared), "l"(global),
               "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace baton::cuda
