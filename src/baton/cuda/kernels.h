#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "baton/base/dtype.h"
#include "baton/op/dropout.h"
#include "baton/op/rate.h"

/// The kernels of our own that work element by element, as functions that enqueue them (C++17, as nvcc compiles it). `type` is
/// that of the elements: f32, bf16 or f16; what has 16 bits is computed in float32 and rounded once. Pointers are the device's.
namespace baton::cuda {

void relu(DType type, const void* x, void* y, std::int64_t count, cudaStream_t stream);
/// dx = dy if y > 0, else 0; dx and dy may be the same.
void relu_backward(DType type, const void* dy, const void* y, void* dx, std::int64_t count, cudaStream_t stream);
/// a or b may have 16 bits while the other and c are float32.
void add(DType a_type, const void* a, DType b_type, const void* b, DType c_type, void* c, std::int64_t count, cudaStream_t stream);
/// y = x + b, the same b in each row.
void add_bias(DType type, const void* x, const void* b, void* y, std::int64_t rows, std::int64_t width, cudaStream_t stream);
/// GELU; with `tanh` by its approximation 0.5 x (1 + tanh(√(2 / π) (x + 0.044715 x³))).
void gelu(DType type, const void* x, void* y, std::int64_t count, bool tanh, cudaStream_t stream);
void gelu_backward(DType type, const void* dy, const void* x, void* dx, std::int64_t count, bool tanh, cudaStream_t stream);
/// y = a · sigmoid(a) · b.
void silu_gate(DType type, const void* a, const void* b, void* y, std::int64_t count, cudaStream_t stream);
void silu_gate_backward(DType type, const void* dy, const void* a, const void* b, void* da, void* db, std::int64_t count,
                        cudaStream_t stream);
/// The rows that a norm reads, of the stream's type: x, or the sum of x and a term, which the norm also writes. One of the two may
/// have the type of the norm's result if the sum is float32.
struct NormInput {
  const void* x;
  DType type;
  const void* term = nullptr;
  DType term_type = DType::f32;
  void* sum = nullptr;
  DType sum_type = DType::f32;
};
/// Norms of rows of `width` elements. x and dx are of the stream's type, which may be float32 if the others have 16 bits.
void layer_norm(DType type, const NormInput& x, const void* gain, const void* bias, void* y, std::int64_t rows, std::int64_t width,
                float epsilon, cudaStream_t stream);
/// The destinations of the gradient of a norm's x: `dx`, with `term`, of the stream's type, added to it if there is one;
/// `copy`, in the type of dy, if there is one; and `sums`, from which the gradients of the weights are made, if they are wanted,
/// which takes rows of at most `most_summed_width` elements in whole groups of 16 bytes.
constexpr std::int64_t most_summed_width = 1024;
struct NormGradient {
  void* dx;
  const void* term = nullptr;
  void* copy = nullptr;
  float* sums = nullptr;
};
void layer_norm_backward_input(DType type, DType stream_type, const void* dy, const void* x, const void* gain,
                               const NormGradient& result, std::int64_t rows, std::int64_t width, float epsilon,
                               cudaStream_t stream);
/// Bytes of workspace for the gradients of a norm's weights, and of its sums alone.
std::int64_t norm_weight_workspace(std::int64_t rows, std::int64_t width);
std::int64_t norm_sums_bytes(std::int64_t rows, std::int64_t width);
/// x and the gradients of the weights may be float32 if dy has 16 bits.
struct NormWeightTypes {
  DType x;
  DType dy;
  DType gradient;
};
/// The destinations of the gradients of a norm's weights, which they are added to or not; and the sums that they are made from, if
/// the gradient of x has left them. They have the same bits with and without these.
struct NormWeightGradient {
  void* dgain;
  void* dbias = nullptr;
  bool accumulate = false;
  const float* sums = nullptr;
};
void layer_norm_backward_weight(const NormWeightTypes& types, const void* x, const void* dy, const NormWeightGradient& result,
                                std::int64_t rows, std::int64_t width, float epsilon, float* workspace, cudaStream_t stream);
/// y = x / √(mean of x² + epsilon) · gain.
void rms_norm(DType type, const NormInput& x, const void* gain, void* y, std::int64_t rows, std::int64_t width, float epsilon,
              cudaStream_t stream);
void rms_norm_backward_input(DType type, DType stream_type, const void* dy, const void* x, const void* gain,
                             const NormGradient& result, std::int64_t rows, std::int64_t width, float epsilon, cudaStream_t stream);
void rms_norm_backward_weight(const NormWeightTypes& types, const void* x, const void* dy, const NormWeightGradient& result,
                              std::int64_t rows, std::int64_t width, float epsilon, float* workspace, cudaStream_t stream);

/// Turns the pairs (i, i + head / 2) of each head by (first + position) · base^(−2 i / head); back with `backward`. x and y are
/// [positions, width], a width of several heads; y may be x.
void rotary(DType type, const void* x, void* y, std::int64_t positions, std::int64_t width, std::int64_t head, double base,
            std::int64_t first, bool backward, cudaStream_t stream);
/// y = x + W[first + position], of x [positions, samples, width]. x and y are of the stream's type, which may be float32 if W
/// has 16 bits.
void add_positions(DType type, DType stream_type, const void* x, const void* w, void* y, std::int64_t positions,
                   std::int64_t samples, std::int64_t width, std::int64_t first, cudaStream_t stream);
/// dW has `held` rows; those of other positions become zero, or are left as they are with `accumulate`. One of dy and dW may be
/// float32 if the other has 16 bits.
void add_positions_backward(DType type, const void* dy, DType gradient, void* dw, std::int64_t positions, std::int64_t samples,
                            std::int64_t width, std::int64_t first, std::int64_t held, bool accumulate, cudaStream_t stream);
void cast(DType from, const void* x, DType to, void* y, std::int64_t count, cudaStream_t stream);

/// y = xᵀ of each of some matrices, all row-major; those of x are rows × columns.
void transpose(DType from, DType to, const void* x, void* y, std::int64_t matrices, std::int64_t rows, std::int64_t columns,
               cudaStream_t stream);

/// Images as sequences, after a learned vector; of the sequence, this many `positions` from `first` on are held.
struct SequenceShape {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t places = 0;  // places of an image
  std::int64_t first = 0;
  std::int64_t positions = 0;
};
/// y and dy are of the stream's type, which may be float32 if the others have 16 bits.
void image_to_sequence(DType type, DType stream_type, const SequenceShape& shape, const void* x, const void* token, void* y,
                       cudaStream_t stream);
/// 0 at places whose positions dy does not hold.
void image_to_sequence_backward_input(DType type, DType stream_type, const SequenceShape& shape, const void* dy, void* dx,
                                      cudaStream_t stream);
void image_to_sequence_backward_weight(DType type, const SequenceShape& shape, const void* dy, DType gradient, void* dtoken,
                                       bool accumulate, cudaStream_t stream);
/// The first `copied` elements of x, and zeros after them.
void copy_front(DType type, const void* x, void* y, std::int64_t copied, std::int64_t count, cudaStream_t stream);

/// One block per row; the sums of a row are added up in double precision, in a fixed order. dy is multiplied by `scale` (one float)
/// if there is one.
void mean_squared_error(DType type, const void* y, const void* target, const float* scale, double* loss, void* dy,
                        std::int64_t rows, std::int64_t width, double elements, cudaStream_t stream);
/// If scores are divided into `parts`, these are those from `first` on, and `terms` has what every part contributes. The label's
/// share is 1 − smoothing, and `each` score's own share is as given.
struct ScorePart {
  std::int64_t first = 0;
  std::int64_t parts = 0;
  const double* terms = nullptr;
  double smoothing = 0;
  double each = 0;
};
void cross_entropy(DType type, const void* y, const std::int32_t* labels, const float* scale, double* loss, void* dy,
                   std::int64_t rows, std::int64_t classes, double total_rows, const ScorePart& part, cudaStream_t stream);
void cross_entropy_terms(DType type, const void* y, const std::int32_t* labels, double* terms, std::int64_t rows,
                         std::int64_t classes, const ScorePart& part, cudaStream_t stream);
/// Looks rows up in a part of a weight: the part has `held` rows and begins with row `first`. y may be float32 if the weight has 16
/// bits.
void embed(DType type, const std::int32_t* ids, const void* weight, DType y_type, void* y, std::int64_t rows, std::int64_t held,
           std::int64_t width, std::int64_t first, cudaStream_t stream);
/// Bytes of workspace for the backward.
std::int64_t embed_backward_workspace(std::int64_t rows);
/// Each row of dW is the sum of dy over the ids that name it, in their order. One of dy and dW may be float32 if the other has
/// 16 bits.
void embed_backward(DType type, const std::int32_t* ids, const void* dy, DType gradient, void* dw, std::int64_t rows,
                    std::int64_t held, std::int64_t width, std::int64_t first, bool accumulate, void* workspace,
                    cudaStream_t stream);

/// db = keep · db + factor · Σ dy over the rows; db is of `result`'s type.
void bias_gradient(DType type, const void* dy, DType result, void* db, std::int64_t rows, std::int64_t width, float keep,
                   float factor, cudaStream_t stream);

/// A float32 parameter and what an optimizer needs in addition; the states are null if it keeps none, and so is the 16-bit copy
/// that is written too.
struct UpdatedTensor {
  const void* gradient;
  float* weight;
  float* first;
  float* second;
  std::int64_t count;
  bool decays;
  void* copy;
};
/// A loss scale: nothing is done if `flag` is not zero, gradients are divided by the first of the four floats
/// of `state` (op/loss_scale.h), and steps are counted by it. Both null without one. If there are `squares`, gradients are clipped:
/// multiplied by op::clip_factor.
struct Scaling {
  const float* flag = nullptr;
  const float* state = nullptr;
  const double* squares = nullptr;
  double clip = 0;
};
struct SgdSettings {
  double rate;
  float momentum;
  float weight_decay;
  op::RateSchedule schedule;
};
struct AdamSettings {
  double beta1;
  double beta2;
  double rate;
  float epsilon;
  float weight_decay;
  bool decoupled;
  op::RateSchedule schedule;
};
/// All tensors in one launch (of at most `most_tensors` each). `type` is the gradients', `copies` that of copies. `step` is the
/// number of the step, from 1, kept on the device since the launch is replayed; `sgd` reads it only if its rate has a schedule.
void sgd(DType type, DType copies, const SgdSettings& settings, const UpdatedTensor* tensors, std::size_t count,
         const Scaling& scaling, const std::int64_t* step, cudaStream_t stream);
void adam(DType type, DType copies, const AdamSettings& settings, const UpdatedTensor* tensors, std::size_t count,
          const Scaling& scaling, const std::int64_t* step, cudaStream_t stream);
void count_step(std::int64_t* step, cudaStream_t stream);

struct CheckedTensor {
  const void* data;
  std::int64_t count;
  DType type;
};
constexpr std::size_t most_tensors = 64;
/// Writes how many of the tensors hold an infinity or a NaN. `marks` is workspace, one word per tensor.
void check_finite(const CheckedTensor* tensors, std::size_t count, std::uint32_t* marks, float* result, cudaStream_t stream);
/// Doubles of workspace for the sum of the squares of these tensors.
std::int64_t squared_sum_workspace(const CheckedTensor* tensors, std::size_t count);
/// Writes the sum of the squares of all elements, added up in double precision and always in the same order.
void squared_sum(const CheckedTensor* tensors, std::size_t count, double* workspace, double* result, cudaStream_t stream);

/// y = x · factor if the mask of op/dropout.h keeps it, else 0. `step` is the number of the step, on the device.
struct DropoutSettings {
  double rate;
  std::int64_t layer;
  std::int64_t seed;
  op::ElementPlaces places;
};
void dropout(DType type, const DropoutSettings& settings, const void* x, void* y, std::int64_t count, const std::int64_t* step,
             cudaStream_t stream);
/// A loss scaler's state after a step, by the rules of op/loss_scale.h.
void adjust_scale(const float* flag, float* state, std::int64_t growth_interval, cudaStream_t stream);

/// Occupies the stream for this long.
void delay(std::int64_t nanoseconds, cudaStream_t stream);

/// Writes the time of the GPU's clock; and occupies the stream until `duration` nanoseconds have passed since then.
void mark_time(std::int64_t* time, cudaStream_t stream);
void hold_since(const std::int64_t* time, std::int64_t duration, cudaStream_t stream);

/// A run of bytes to be moved: sixteen at a time if both addresses are multiples of 16, four if they are multiples of 4, else one.
struct CopyRun {
  const std::byte* from;
  std::byte* to;
  std::int64_t bytes;
};
/// Moves the runs of a table on the device; takes `min_duration` nanoseconds at least.
void copy_runs(const CopyRun* runs, int count, std::int64_t min_duration, int multiprocessors, cudaStream_t stream);

/// A run of elements to be summed over members: `count` elements of source `source` from `begin` on, into target `target` from
/// `target_begin` on.
struct SumRun {
  std::int64_t begin;
  std::int64_t target_begin;
  std::int32_t source;
  std::int32_t target;
  std::int32_t count;
};
/// Tables on the device. `sources[rank · source_count + i]` is a member's i-th buffer; targets likewise.
struct SumTables {
  const SumRun* runs;
  int run_count;
  void* const* sources;
  int source_count;
  int members;
  void* const* targets;
  int target_count;
  int target_members;  // how many members' targets are written
  double rate;         // not zero: targets −= rate · sum
};
/// Sums in order of rank, so that every run gives the same bits; `type` may be f64 too.
void sum_runs(DType type, const SumTables& tables, std::int64_t min_duration, int multiprocessors, cudaStream_t stream);

/// Small random numbers of the type, the same ones each time: what is timed or compared on them is finite.
void noise(DType type, void* memory, std::int64_t count, cudaStream_t stream);
/// An operand of a product, of `count` lines by `depth`, such that the sums over the depth cancel: what is left of them is the
/// rounding on the way, and so says in which order they were taken. `depth_first`: neighbours in memory are neighbours in depth. Of
/// the two operands one has `signs`.
struct Cancelling {
  std::int64_t count;
  std::int64_t depth;
  bool depth_first;
  bool signs;
};
void cancelling_noise(DType type, void* memory, const Cancelling& operand, cudaStream_t stream);
/// Adds a digest of the bytes to `digest`: equal bits give equal digests.
void digest(const void* memory, std::int64_t bytes, std::uint64_t* digest, cudaStream_t stream);

}  // namespace baton::cuda
