#include "baton/op/signature.h"

#include <algorithm>
#include <array>

#include "baton/op/loss_scale.h"

namespace baton::op {
namespace {

static_assert(ScaleState::elements == 4, "a scaler's state has the axes `4` here");

const Axes labels{"*", Type::integer};
const Axes losses{"*", Type::loss};
const Axes all_terms{"?", Type::loss};
const Axes state{"4", Type::state};
const Axes flag{"1", Type::state};

/// One function per op: which of its signatures its attributes choose.
struct Signatures {
  const Signature& operator()(const Linear& o) const {
    static const Signature whole{.reads = {{"*i"}, {"oi"}, {"o"}}, .writes = {{"*o"}}, .once = {2}};
    static const Signature term{.reads = {{"*i"}, {"oi"}}, .writes = {{"*o"}}};
    return o.partial ? term : whole;
  }
  const Signature& operator()(const LinearBackwardInput& o) const {
    static const Signature plain{.reads = {{"*o"}, {"oi"}}, .writes = {{"*i"}}};
    static const Signature masked{.reads = {{"*o"}, {"oi"}, {"*i"}}, .writes = {{"*i"}}};
    return o.mask ? masked : plain;
  }
  const Signature& operator()(const LinearBackwardWeight& o) const {
    static const Signature plain{.reads = {{"*i"}, {"*o"}}, .writes = {{"oi"}, {"o"}}};
    static const Signature added{.reads = {{"*i"}, {"*o"}, {"oi"}, {"o"}}, .writes = {{"oi"}, {"o"}}, .in_place = true};
    static const Signature stepped{.reads = {{"*i"}, {"*o"}, {"oi", Type::stepped}, {"o", Type::stepped}},
                                   .writes = {{"oi", Type::stepped}, {"o", Type::stepped}},
                                   .in_place = true};
    static const Signature plain_term{.reads = {{"*i"}, {"*o"}}, .writes = {{"oi"}}};
    static const Signature added_term{.reads = {{"*i"}, {"*o"}, {"oi"}}, .writes = {{"oi"}}, .in_place = true};
    static const Signature stepped_term{
        .reads = {{"*i"}, {"*o"}, {"oi", Type::stepped}}, .writes = {{"oi", Type::stepped}}, .in_place = true};
    if (o.sgd_rate > 0) {
      return o.partial ? stepped_term : stepped;
    }
    return o.accumulate ? (o.partial ? added_term : added) : (o.partial ? plain_term : plain);
  }
  const Signature& operator()(const Relu&) const {
    static const Signature one{.reads = {{"*"}}, .writes = {{"*"}}};
    return one;
  }
  const Signature& operator()(const ReluBackward&) const {
    static const Signature one{.reads = {{"*"}, {"*"}}, .writes = {{"*"}}};
    return one;
  }
  const Signature& operator()(const Gelu&) const {
    static const Signature one{.reads = {{"*"}}, .writes = {{"*"}}};
    return one;
  }
  const Signature& operator()(const GeluBackward&) const {
    static const Signature one{.reads = {{"*"}, {"*"}}, .writes = {{"*"}}};
    return one;
  }
  const Signature& operator()(const MeanSquaredError& o) const {
    static const Signature plain{.reads = {{"*c"}, {"*c"}}, .writes = {losses, {"*c"}}};
    static const Signature scaled{.reads = {{"*c"}, {"*c"}, state}, .writes = {losses, {"*c"}}};
    return o.scaled ? scaled : plain;
  }
  const Signature& operator()(const CrossEntropy& o) const {
    static const Signature plain{.reads = {{"*v"}, labels}, .writes = {losses, {"*v"}}, .merged = "v", .numbered = 'v'};
    static const Signature scaled{.reads = {{"*v"}, labels, state}, .writes = {losses, {"*v"}}, .merged = "v", .numbered = 'v'};
    static const Signature part{.reads = {{"*v"}, labels, all_terms}, .writes = {losses, {"*v"}}, .combined = "v", .numbered = 'v'};
    static const Signature scaled_part{
        .reads = {{"*v"}, labels, all_terms, state}, .writes = {losses, {"*v"}}, .combined = "v", .numbered = 'v'};
    return o.parts > 0 ? (o.scaled ? scaled_part : part) : (o.scaled ? scaled : plain);
  }
  const Signature& operator()(const CrossEntropyTerms&) const {
    static const Signature one{.reads = {{"*v"}, labels}, .writes = {{"*3", Type::loss}}, .numbered = 'v'};
    return one;
  }
  const Signature& operator()(const Embed&) const {
    static const Signature one{.reads = {labels, {"vc"}}, .writes = {{"*c"}}, .numbered = 'v'};
    return one;
  }
  const Signature& operator()(const EmbedBackward& o) const {
    static const Signature plain{.reads = {labels, {"*c"}}, .writes = {{"vc"}}, .numbered = 'v'};
    static const Signature added{.reads = {labels, {"*c"}, {"vc"}}, .writes = {{"vc"}}, .in_place = true, .numbered = 'v'};
    return o.accumulate ? added : plain;
  }
  const Signature& operator()(const MatrixProduct&) const {
    static const Signature one{.reads = {{"mk"}, {"kn"}}, .writes = {{"mn"}}};
    return one;
  }
  const Signature& operator()(const Add&) const {
    static const Signature one{.reads = {{"*"}, {"*"}}, .writes = {{"*"}}, .linear = true};
    return one;
  }
  const Signature& operator()(const AddBias&) const {
    static const Signature one{.reads = {{"*o"}, {"o"}}, .writes = {{"*o"}}, .once = {1}};
    return one;
  }
  const Signature& operator()(const AddBiasBackward& o) const {
    static const Signature plain{.reads = {{"*o"}}, .writes = {{"o"}}};
    static const Signature added{.reads = {{"*o"}, {"o"}}, .writes = {{"o"}}, .in_place = true};
    return o.accumulate ? added : plain;
  }
  const Signature& operator()(const LayerNorm&) const {
    static const Signature one{.reads = {{"*c"}, {"c"}, {"c"}}, .writes = {{"*c"}}, .whole = "c"};
    return one;
  }
  const Signature& operator()(const LayerNormBackwardInput&) const {
    static const Signature one{.reads = {{"*c"}, {"*c"}, {"c"}}, .writes = {{"*c"}}, .whole = "c"};
    return one;
  }
  const Signature& operator()(const LayerNormBackwardWeight& o) const {
    static const Signature plain{.reads = {{"*c"}, {"*c"}}, .writes = {{"c"}, {"c"}}, .whole = "c"};
    static const Signature added{.reads = {{"*c"}, {"*c"}, {"c"}, {"c"}}, .writes = {{"c"}, {"c"}}, .whole = "c", .in_place = true};
    return o.accumulate ? added : plain;
  }
  const Signature& operator()(const Cast&) const {
    static const Signature one{.reads = {{"*", Type::floating}}, .writes = {{"*", Type::floating}}, .linear = true};
    return one;
  }
  const Signature& operator()(const CheckFinite&) const {
    static const Signature one{.writes = {flag}, .any_reads = true};
    return one;
  }
  const Signature& operator()(const AdjustScale&) const {
    static const Signature one{.reads = {flag, state}, .writes = {state}, .in_place = true};
    return one;
  }
};

/// The extents that letters have been given so far.
class Extents {
 public:
  Extents() { by_letter_.fill(-1); }

  bool take(const Axes& axes, const Shape& shape) {
    if (axes.letters == "?") {
      return true;
    }
    const bool leading = axes.letters.starts_with('*');
    const std::size_t own = axes.letters.size() - (leading ? 1 : 0);
    if (leading ? shape.rank() <= own : shape.rank() != own) {
      return false;
    }
    const std::size_t first = shape.rank() - own;
    if (leading && !take_leading(std::span(shape.extents()).first(first))) {
      return false;
    }
    for (std::size_t i = 0; i < own; ++i) {
      if (!take_letter(axes.letters[axes.letters.size() - own + i], shape[first + i])) {
        return false;
      }
    }
    return true;
  }

 private:
  bool take_leading(std::span<const std::int64_t> extents) {
    if (leading_.empty()) {
      leading_ = extents;
      return true;
    }
    return std::equal(leading_.begin(), leading_.end(), extents.begin(), extents.end());
  }
  bool take_letter(char letter, std::int64_t extent) {
    if (letter >= '0' && letter <= '9') {
      return extent == letter - '0';
    }
    std::int64_t& known = by_letter_[static_cast<std::size_t>(letter - 'a')];
    if (known < 0) {
      known = extent;
    }
    return known == extent;
  }

  std::array<std::int64_t, 26> by_letter_;
  std::span<const std::int64_t> leading_;
};

}  // namespace

const Signature& signature(const Op& op) { return std::visit(Signatures{}, op); }

Along along(const Signature& signature, char letter, std::size_t write) {
  const auto has = [letter](const Axes& axes) { return axes.letters.find(letter) != std::string::npos; };
  if (std::none_of(signature.reads.begin(), signature.reads.end(), has)) {
    return Along::none;
  }
  if (signature.whole.find(letter) != std::string::npos) {
    return Along::whole;
  }
  if (signature.merged.find(letter) != std::string::npos) {
    return Along::merge;
  }
  return has(signature.writes[write]) || signature.combined.find(letter) != std::string::npos ? Along::map : Along::sum;
}

bool fits(const Signature& signature, std::span<const Operand> reads, std::span<const Operand> writes) {
  if ((reads.size() != signature.reads.size() && !signature.any_reads) || writes.size() != signature.writes.size()) {
    return false;
  }
  Extents extents;
  for (std::size_t i = 0; i < signature.reads.size(); ++i) {
    if (!extents.take(signature.reads[i], reads[i].shape)) {
      return false;
    }
  }
  for (std::size_t i = 0; i < writes.size(); ++i) {
    if (!extents.take(signature.writes[i], writes[i].shape)) {
      return false;
    }
  }
  return true;
}

std::optional<DividedSum> divided_sum(const Op& op) {
  if (const auto* linear = std::get_if<Linear>(&op); linear != nullptr && !linear->partial) {
    Linear term = *linear;
    term.partial = true;
    return DividedSum{.term = term, .term_reads = {0, 1}, .finish = AddBias{}, .finish_reads = {2}};
  }
  return std::nullopt;
}

}  // namespace baton::op
