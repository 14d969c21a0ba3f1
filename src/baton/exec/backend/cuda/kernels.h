#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// The kernels of our own, as functions that enqueue them (C++17, as nvcc compiles it). All are float32 unless said otherwise; pointers are the device's.
namespace baton::exec::cuda {

void relu(const float* x, float* y, std::int64_t count, cudaStream_t stream);
/// dx = dy where y > 0, else 0; dx and dy may be the same.
void relu_backward(const float* dy, const float* y, float* dx, std::int64_t count, cudaStream_t stream);
void add(const float* a, const float* b, float* c, std::int64_t count, cudaStream_t stream);

/// y = x + b, the same b in each row.
void add_bias(const float* x, const float* b, float* y, std::int64_t rows, std::int64_t width, cudaStream_t stream);

/// One block a row; sums of a row in double precision, in an order of their own that never changes.
void mean_squared_error(const float* y, const float* target, double* loss, float* dy, std::int64_t rows,
                        std::int64_t width, double elements, cudaStream_t stream);
void cross_entropy(const float* y, const std::int32_t* labels, double* loss, float* dy, std::int64_t rows,
                   std::int64_t classes, double total_rows, cudaStream_t stream);

/// db = keep · db + factor · Σ dy over the rows.
void bias_gradient(const float* dy, float* db, std::int64_t rows, std::int64_t width, float keep, float factor,
                   cudaStream_t stream);

/// A parameter and what an optimizer needs beside it; the states are null where it keeps none.
struct UpdatedTensor {
  const float* gradient;
  float* weight;
  float* first;
  float* second;
  std::int64_t count;
};
struct SgdSettings {
  float rate;
  float momentum;
  float weight_decay;
};
struct AdamSettings {
  double beta1;
  double beta2;
  double rate;
  float epsilon;
  float weight_decay;
  bool decoupled;
};
/// All tensors in one launch (of at most `most_tensors` each).
void sgd(const SgdSettings& settings, const UpdatedTensor* tensors, std::size_t count, cudaStream_t stream);
/// `step` is the number of the step, from 1, kept on the device since the launch is replayed.
void adam(const AdamSettings& settings, const UpdatedTensor* tensors, std::size_t count, const std::int64_t* step,
          cudaStream_t stream);
void count_step(std::int64_t* step, cudaStream_t stream);

/// Holds the stream for so long.
void delay(std::int64_t nanoseconds, cudaStream_t stream);

/// A run of bytes to be moved; addresses are multiples of 16, or the bytes few.
struct CopyChunk {
  const std::byte* from;
  std::byte* to;
  std::int64_t bytes;
};
/// Moves the chunks of a table on the device; takes `least` nanoseconds at least.
void copy_chunks(const CopyChunk* chunks, int count, std::int64_t least, int multiprocessors, cudaStream_t stream);

/// A run of elements to be summed over members: of source `source`, `count` from `begin` on, into target `target` from
/// `target_begin` on.
struct SumChunk {
  std::int64_t begin;
  std::int64_t target_begin;
  std::int32_t source;
  std::int32_t target;
  std::int32_t count;
};
/// Tables on the device. `sources[rank · source_count + i]` is a member's i-th buffer; targets likewise.
struct SumTables {
  const SumChunk* chunks;
  int chunk_count;
  void* const* sources;
  int source_count;
  int members;
  void* const* targets;
  int target_count;
  int target_members;  // how many members' targets are written
  double rate;         // not zero: targets −= rate · sum
};
/// Sums in order of rank, so that every run gives the same bits.
void sum_chunks(const SumTables& tables, bool double_precision, std::int64_t least, int multiprocessors,
                cudaStream_t stream);

/// Small random numbers, for timing.
void noise(float* memory, std::int64_t count, cudaStream_t stream);
/// Adds a digest of the bytes to `digest`: equal bits give equal digests.
void digest(const void* memory, std::int64_t bytes, std::uint64_t* digest, cudaStream_t stream);

}  // namespace baton::exec::cuda
