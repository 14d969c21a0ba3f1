#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/op/op.h"

namespace baton::op {

/// The type that an op asks of an operand.
///   value     the op's own floating type: the same for all such operands
///   summed    that type, or float32 for all of these if it has 16 bits: gradients and statistics, parameters that the op steps
///   wide      that type, or float32 if it has 16 bits, each by itself: what a residual stream passes through
///   floating  any floating type
///   integer, loss, state   int32, float64, float32
enum class Type : std::uint8_t { value, summed, wide, floating, integer, loss, state };

/// The axes of one operand, outermost first, one letter per axis. `*` is one or more leading axes; a digit is an
/// axis of that extent. `?` is any shape, for operands that are not tensors of the model.
struct Axes {
  std::string letters;
  Type type = Type::value;
};

/// The dimensions of an op's operands, as letters: equal letters are one dimension.
struct Signature {
  std::vector<Axes> reads;
  std::vector<Axes> writes;
  /// Dimensions that are combined by a rule other than a sum, and those that no device may hold a part of.
  std::string merged = {};
  std::string whole = {};
  /// Dimensions that another operand has combined already, so that a part of them is enough.
  std::string combined = {};
  /// Operands that count once, whatever is summed: a bias is added where the sum is complete.
  std::vector<std::size_t> once = {};
  /// True if the terms of a sum may be read in place of the sum: the results are then terms of a sum too.
  bool linear = false;
  /// True if the last operands it reads are those that it writes, without copies.
  bool in_place = false;
  /// True if it reads another term as its last operand, and writes the sum of that and its own result.
  bool adds = false;
  /// The number of the last written operands that are copies, in another type, of as many that it writes before them.
  std::size_t copies = 0;
  /// The dimension whose index numbers affect the result (op::for_part); 0: none.
  char numbered = 0;
  /// True if it reads any number of operands, of any shapes.
  bool any_reads = false;
};

/// The signature of an op with its attributes as they are. It lives as long as the program.
const Signature& signature(const Op& op);

/// The relation between a dimension and one operand that is written:
///   map    every index by itself
///   sum    each result is a sum over it
///   merge  combined by another rule
///   whole  all of it must be there
///   none   the op does not read it
enum class Along : std::uint8_t { map, sum, merge, whole, none };
Along along(const Signature& signature, char letter, std::size_t write);

/// True if the operands' shapes give each letter one extent, and there are as many operands as the signature says.
bool fits(const Signature& signature, std::span<const Operand> reads, std::span<const Operand> writes);

/// The form of an op whose sum is divided over devices: a term on each of them, and what is done to the complete sum.
struct DividedSum {
  Op term;
  std::vector<std::size_t> term_reads;  // operands of the op, by number
  std::optional<Op> finish;             // reads the sum, and after it `finish_reads`
  std::vector<std::size_t> finish_reads;
};
/// The divided form of an op; nullopt if it has none.
std::optional<DividedSum> divided_sum(const Op& op);

}  // namespace baton::op
