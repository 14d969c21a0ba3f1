#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "baton/base/divide.h"
#include "baton/base/dtype.h"
#include "baton/base/ids.h"
#include "baton/base/inline_vector.h"
#include "baton/base/shape.h"
#include "baton/base/units.h"
#include "baton/plan/graph.h"

namespace baton::plan {

/// A statistic is kept over the batches for evaluation; each replica keeps its own.
enum class Role : std::uint8_t { input, target, activation, parameter, gradient, optimizer_state, communication, loss, statistic };

std::string_view to_text(Role role);

/// Rows [begin, end) of the inputs, targets or losses of the global batch. They lie along `axis`; if that is 1, axis 0
/// is the sequence, and the buffer holds its positions from `first` on.
struct BatchRows {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t axis = 0;
  std::int64_t first = 0;
  ValueId value = {};  // the value of the plan's graph that it holds, if there is a graph
  bool operator==(const BatchRows&) const = default;
};

/// Indices of each dimension of a tensor.
using Ranges = InlineVector<Range, 4>;

/// Part of a value of the plan's graph, or of its gradient: these indices of each dimension.
struct ValuePart {
  ValueId value;
  bool gradient = false;
  /// The op's sum without operands that count once, such as a bias, which are added later.
  bool unfinished = false;
  Ranges at;  // by dimension
  /// The first task that writes it leaves one of this many terms of a sum over devices, which a collective adds up.
  std::uint32_t term = 0;
  std::uint32_t terms = 1;
  bool operator==(const ValuePart&) const = default;
};

/// Part of a parameter, of its gradient or of one slot of its optimizer state, or a statistic: indices [begin, end) of `axis`.
/// The whole of it is axis 0 from 0 to its extent. If `piece_end` is not zero, the buffer holds only the elements
/// [piece_begin, piece_end) of that part, contiguous, in the memory order of the part.
struct ParameterPart {
  std::string name;
  std::uint32_t ordinal = 0;  // the parameter's number in the model
  std::int64_t fan_in = 1;    // its first values are uniform in ±1/√fan_in; 0: they are ones; -1: zeros
  Shape whole;
  std::uint32_t axis = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t slot = 0;  // the number of the optimizer state
  std::int64_t piece_begin = 0;
  std::int64_t piece_end = 0;
  bool operator==(const ParameterPart&) const = default;

  /// The part's shape, of which a buffer may hold a piece.
  Shape shape() const {
    Shape::Extents extents = whole.extents();
    extents[axis] = end - begin;
    return Shape(std::move(extents));
  }
};

/// The state of a loss scaler (op/loss_scale.h), whose scale is `initial` before the first step. Every device that has one
/// has the same.
struct LossScaler {
  double initial = 65536;
  bool operator==(const LossScaler&) const = default;
};

/// The number of gradients of its device that are not finite, and of all devices once these are summed.
struct NonFiniteCount {
  bool operator==(const NonFiniteCount&) const = default;
};

/// The sum of the squares of some gradients of parameters, and of all once every part of them is counted: the square of their norm.
struct SquaredNorm {
  bool operator==(const SquaredNorm&) const = default;
};

/// The contributions of parts of the scores to a loss over all of them (op::merged): some numbers for each of these indices of the
/// loss, for this many parts one after the other.
struct LossTerms {
  ValueId loss;
  Ranges at;  // by dimension of the loss
  std::int64_t parts = 1;
  bool operator==(const LossTerms&) const = default;
};

/// The content of a buffer, independent of the device that holds it: used to fill it and to read it back.
using Content =
    std::variant<std::monostate, BatchRows, ParameterPart, LossScaler, ValuePart, NonFiniteCount, LossTerms, SquaredNorm>;

/// True if a memory layout may have this name: lower-case letters, digits and underscores after a letter, and not `persistent`, so
/// that it is one word of a plan's text.
bool is_layout_name(std::string_view name);

/// A piece of one device's memory.
struct Buffer {
  DeviceId device;
  Role role = Role::activation;
  DType dtype = DType::f32;
  /// The order of its elements in memory, by the name that the backend has for it; empty: row-major. All take as many bytes, so
  /// that element-wise work (sums, updates, copies) is the same for all.
  std::string layout = {};
  bool persistent = false;  // keeps its contents from step to step, and has contents before the first
  Shape shape;
  Content content;
  std::string label;  // for people

  Bytes size() const { return Bytes(shape.elements() * size_of(dtype)); }
  bool operator==(const Buffer&) const = default;
};

/// True if it is a 16-bit copy of a parameter that lives on with it from step to step: whatever changes the parameter writes the
/// copy too.
inline bool is_kept_copy(const Buffer& buffer) {
  return buffer.persistent && buffer.role == Role::parameter && is_narrow(buffer.dtype);
}

/// The number of axes of the whole parameter that the buffer is a part of; for any other buffer, its own.
inline std::size_t axes_of_whole(const Buffer& buffer) {
  const auto* part = std::get_if<ParameterPart>(&buffer.content);
  return part == nullptr ? buffer.shape.rank() : part->whole.rank();
}

}  // namespace baton::plan
