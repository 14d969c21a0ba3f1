#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/base/dtype.h"
#include "baton/op/dropout.h"
#include "baton/op/optimizer.h"

/// The parts of a step that are not matrix products, on a run of elements or rows. Each element's result depends on that
/// element alone, so a team may divide the run as it likes.
namespace baton::exec::cpu {

void relu(const float* x, float* y, std::int64_t count);
/// c may be a.
void add(const float* a, const float* b, float* c, std::int64_t count);
/// Rows of `width` elements; y may be x.
void add_bias(const float* x, const float* bias, float* y, std::int64_t rows, std::int64_t width);
/// Columns [begin, end).
void add_bias_backward(const float* dy, float* db, std::int64_t rows, std::int64_t width, std::int64_t begin, std::int64_t end,
                       bool accumulate);
/// Rows [begin, end) of `width` elements; sums run in double precision.
void layer_norm(const float* x, const float* gain, const float* bias, float* y, std::int64_t begin, std::int64_t end,
                std::int64_t width, double epsilon);
void layer_norm_backward_input(const float* dy, const float* x, const float* gain, float* dx, std::int64_t begin, std::int64_t end,
                               std::int64_t width, double epsilon);
/// Columns [begin, end).
void layer_norm_backward_weight(const float* x, const float* dy, const float* of_rows, float* dgain, float* dbias,
                                std::int64_t rows, std::int64_t width, std::int64_t begin, std::int64_t end, bool accumulate);
/// Writes the operand that the norm reads as `of_rows`: the mean of each row and 1 / √(variance + epsilon), for rows from
/// `begin` to `end`.
void layer_norm_moments(const float* x, float* of_rows, std::int64_t begin, std::int64_t end, std::int64_t width, double epsilon);
/// Rows [begin, end) of `width` elements.
void rms_norm(const float* x, const float* gain, float* y, std::int64_t begin, std::int64_t end, std::int64_t width,
              double epsilon);
void rms_norm_backward_input(const float* dy, const float* x, const float* gain, float* dx, std::int64_t begin, std::int64_t end,
                             std::int64_t width, double epsilon);
/// Columns [begin, end).
void rms_norm_backward_weight(const float* x, const float* dy, float* dgain, std::int64_t rows, std::int64_t width,
                              std::int64_t begin, std::int64_t end, double epsilon, bool accumulate);
void gelu(const float* x, float* y, std::int64_t count);
void gelu_backward(const float* dy, const float* x, float* dx, std::int64_t count);
/// GELU by the formula with tanh.
void gelu_tanh(const float* x, float* y, std::int64_t count);
void gelu_tanh_backward(const float* dy, const float* x, float* dx, std::int64_t count);
void silu_gate(const float* a, const float* b, float* y, std::int64_t count);
void silu_gate_backward(const float* dy, const float* a, const float* b, float* da, float* db, std::int64_t count);

/// Positions [begin, end) of a sequence whose first has the number `first`: `samples` rows of `width` at each.
void add_positions(const float* x, const float* table, float* y, std::int64_t begin, std::int64_t end, std::int64_t samples,
                   std::int64_t width, std::int64_t first);
/// Rows [begin, end) of the table; `held` positions from number `first` on have a gradient.
void add_positions_backward(const float* dy, float* dtable, std::int64_t begin, std::int64_t end, std::int64_t samples,
                            std::int64_t width, std::int64_t first, std::int64_t held, bool accumulate);
/// Samples [begin, end) of images of `channels` × `places`, and a sequence of a position for each place after one for the token.
struct SequenceOfImages {
  std::int64_t samples;
  std::int64_t channels;
  std::int64_t places;
  std::int64_t first;      // first position that is held
  std::int64_t positions;  // number of positions that are held
};
void image_to_sequence(const SequenceOfImages& extents, const float* x, const float* token, float* y, std::int64_t begin,
                       std::int64_t end);
void image_to_sequence_backward_input(const SequenceOfImages& extents, const float* dy, float* dx, std::int64_t begin,
                                      std::int64_t end);

/// Matrices [begin, end) of this many rows and columns, each transposed.
void transpose(const float* x, float* y, std::int64_t rows, std::int64_t columns, std::int64_t begin, std::int64_t end);

/// Positions [begin, end): `heads` of this many features at each, turned by their angles, or back.
struct Rotation {
  std::int64_t heads;
  std::int64_t size;
  double base;
  std::int64_t first;
  bool back;
};
void rotate(const Rotation& rotation, const float* x, float* y, std::int64_t begin, std::int64_t end);
void relu_backward(const float* dy, const float* y, float* dx, std::int64_t count);

/// ReLU and its backward on the bits of a 16-bit type: an element is copied or becomes zero, so nothing is rounded.
void relu(DType type, const std::uint16_t* x, std::uint16_t* y, std::int64_t count);
void relu_backward(DType type, const std::uint16_t* dy, const std::uint16_t* y, std::uint16_t* dx, std::int64_t count);

/// True if all elements, of any floating type but f64, are numbers and not infinite.
bool all_finite(DType type, const std::byte* values, std::int64_t count);

/// The sum of the squares of all elements, of the same types, in double precision.
double squared_sum(DType type, const std::byte* values, std::int64_t count);

/// Elements [begin, end) of x: 0 where the mask drops them, `factor` times what they are elsewhere.
void dropout(const op::DropoutMask& mask, const op::ElementPlaces& places, float factor, const float* x, float* y,
             std::int64_t begin, std::int64_t end);

/// Rows [begin, end) of `width` elements; one partial loss per row. `scale` multiplies dy and not the loss.
void mean_squared_error(const float* y, const float* target, double* loss, float* dy, std::int64_t begin, std::int64_t end,
                        std::int64_t width, double elements, double scale);
/// `all_rows` counts the rows of the whole operand. If scores are divided into `parts`, these are those from `first` on, and
/// `terms` has what every part contributes. The label's share is 1 − smoothing, and `each` score's own share is as given.
struct ScorePart {
  std::int64_t first = 0;
  std::int64_t parts = 0;
  std::int64_t all_rows = 0;
  const double* terms = nullptr;
  double smoothing = 0;
  double each = 0;
};
void cross_entropy(const float* y, const std::int32_t* labels, double* loss, float* dy, std::int64_t begin, std::int64_t end,
                   std::int64_t classes, double rows, double scale, const ScorePart& part);
void cross_entropy_terms(const float* y, const std::int32_t* labels, double* terms, std::int64_t begin, std::int64_t end,
                         std::int64_t classes, const ScorePart& part);

/// Rows [begin, end) of the ids; the weight is tiled, of `held` rows.
void embed(const std::int32_t* ids, const float* weight, float* y, std::int64_t begin, std::int64_t end, std::int64_t held,
           std::int64_t width, std::int64_t first);
/// Columns [begin, end).
void embed_backward(const std::int32_t* ids, const float* dy, float* dw, std::int64_t rows, std::int64_t held, std::int64_t width,
                    std::int64_t begin, std::int64_t end, std::int64_t first, bool accumulate);

/// `velocity` is null without momentum.
void sgd(const op::Sgd& settings, const float* gradient, float* weight, float* velocity, std::int64_t count);
void adam(const op::Adam& settings, const float* gradient, float* weight, float* first, float* second, std::int64_t count,
          std::int64_t step);

}  // namespace baton::exec::cpu
