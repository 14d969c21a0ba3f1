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
const Axes squares{"1", Type::loss};

/// One function per op: which of its signatures its attributes choose.
struct Signatures {
  const Signature& operator()(const Linear& o) const {
    static const Signature plain{.reads = {{"*i"}, {"oi"}, {"o"}}, .writes = {{"*o"}}, .once = {2}};
    static const Signature out_heads{.reads = {{"*i"}, {"opi"}, {"op"}}, .writes = {{"*op"}}, .once = {2}};
    static const Signature in_heads{.reads = {{"*ij"}, {"oij"}, {"o"}}, .writes = {{"*o"}}, .once = {2}};
    static const Signature term{.reads = {{"*i"}, {"oi"}}, .writes = {{"*o"}}};
    static const Signature out_heads_term{.reads = {{"*i"}, {"opi"}}, .writes = {{"*op"}}};
    static const Signature in_heads_term{.reads = {{"*ij"}, {"oij"}}, .writes = {{"*o"}}};
    if (o.partial || o.no_bias) {
      return o.out_heads ? out_heads_term : o.in_heads ? in_heads_term : term;
    }
    return o.out_heads ? out_heads : o.in_heads ? in_heads : plain;
  }
  const Signature& operator()(const LinearBackwardInput& o) const {
    static const Signature plain{.reads = {{"*o"}, {"oi"}}, .writes = {{"*i"}}};
    static const Signature masked{.reads = {{"*o"}, {"oi"}, {"*i"}}, .writes = {{"*i"}}};
    static const Signature out_heads{.reads = {{"*op"}, {"opi"}}, .writes = {{"*i"}}};
    static const Signature in_heads{.reads = {{"*o"}, {"oij"}}, .writes = {{"*ij"}}};
    static const Signature plain_added = with_term(plain);
    static const Signature out_heads_added = with_term(out_heads);
    static const Signature in_heads_added = with_term(in_heads);
    if (o.adds) {
      return o.out_heads ? out_heads_added : o.in_heads ? in_heads_added : plain_added;
    }
    return o.out_heads ? out_heads : o.in_heads ? in_heads : o.mask || o.gelu ? masked : plain;
  }
  /// The form that reads another term of the sum as well.
  static Signature with_term(Signature one) {
    one.reads.push_back(one.writes[0]);
    one.adds = true;
    return one;
  }
  /// The form that writes a copy of each result as well.
  static Signature with_copies(Signature one) {
    one.copies = one.writes.size();
    for (std::size_t i = 0; i < one.copies; ++i) {
      one.writes.push_back({one.writes[i].letters});
    }
    return one;
  }
  /// The two forms of the gradient of parameters: set, and added to what is there or taken as a step. A step may write copies.
  struct WeightGradient {
    Signature set;
    Signature added;
    Signature copied;
    const Signature& form(bool in_place, bool copies = false) const { return copies ? copied : in_place ? added : set; }
  };
  static WeightGradient weight_gradient(std::vector<Axes> reads, const std::vector<std::string>& parameters, std::string whole = {},
                                        char numbered = 0) {
    Signature set{.reads = std::move(reads), .writes = {}, .whole = std::move(whole), .numbered = numbered};
    for (const std::string& letters : parameters) {
      set.writes.push_back({letters, Type::summed});
    }
    Signature added = set;
    added.reads.insert(added.reads.end(), set.writes.begin(), set.writes.end());
    added.in_place = true;
    return {set, added, with_copies(added)};
  }
  const Signature& operator()(const LinearBackwardWeight& o) const {
    static const WeightGradient plain = weight_gradient({{"*i"}, {"*o"}}, {"oi", "o"});
    static const WeightGradient out_heads = weight_gradient({{"*i"}, {"*op"}}, {"opi", "op"});
    static const WeightGradient in_heads = weight_gradient({{"*ij"}, {"*o"}}, {"oij", "o"});
    static const WeightGradient term = weight_gradient({{"*i"}, {"*o"}}, {"oi"});
    static const WeightGradient out_heads_term = weight_gradient({{"*i"}, {"*op"}}, {"opi"});
    static const WeightGradient in_heads_term = weight_gradient({{"*ij"}, {"*o"}}, {"oij"});
    const WeightGradient& form = o.partial ? (o.out_heads  ? out_heads_term
                                              : o.in_heads ? in_heads_term
                                                           : term)
                                           : (o.out_heads  ? out_heads
                                              : o.in_heads ? in_heads
                                                           : plain);
    return form.form(o.sgd_rate > 0 || o.accumulate, o.copies);
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
    static const Signature one{.reads = {labels, {"vc"}}, .writes = {{"*c", Type::wide}}, .numbered = 'v'};
    return one;
  }
  const Signature& operator()(const EmbedBackward& o) const {
    static const WeightGradient both = weight_gradient({labels, {"*c", Type::wide}}, {"vc"}, "", 'v');
    return both.form(o.accumulate);
  }
  const Signature& operator()(const MatrixProduct&) const {
    static const Signature one{.reads = {{"mk"}, {"kn"}}, .writes = {{"mn"}}};
    return one;
  }
  const Signature& operator()(const Add&) const {
    static const Signature one{.reads = {{"*", Type::wide}, {"*", Type::wide}}, .writes = {{"*", Type::wide}}, .linear = true};
    return one;
  }
  const Signature& operator()(const AddBias&) const {
    static const Signature one{.reads = {{"*o"}, {"o"}}, .writes = {{"*o"}}, .once = {1}};
    return one;
  }
  const Signature& operator()(const AddBiasBackward& o) const {
    static const WeightGradient both = weight_gradient({{"*o"}}, {"o"});
    return both.form(o.accumulate);
  }
  const Signature& operator()(const LayerNorm& o) const {
    static const Signature plain{.reads = {{"*c", Type::wide}, {"c"}, {"c"}}, .writes = {{"*c"}}, .whole = "c"};
    static const Signature of_sum = of_two_terms(plain);
    return o.sums ? of_sum : plain;
  }
  /// The form of a norm that reads x as two terms and writes their sum.
  static Signature of_two_terms(Signature norm) {
    const Axes term = norm.reads[0];
    norm.reads.insert(norm.reads.begin(), term);
    norm.writes.push_back(term);
    return norm;
  }
  /// The forms of a norm's gradient, as it adds a term and writes a copy or not.
  struct NormGradient {
    Signature plain{.reads = {{"*c"}, {"*c", Type::wide}, {"c"}}, .writes = {{"*c", Type::wide}}, .whole = "c"};
    Signature added = with_term(plain);
    Signature copied = with_copies(plain);
    Signature added_and_copied = with_copies(added);
  };
  static const Signature& norm_gradient(bool adds, bool copies) {
    static const NormGradient forms;
    return adds ? (copies ? forms.added_and_copied : forms.added) : (copies ? forms.copied : forms.plain);
  }
  const Signature& operator()(const LayerNormBackwardInput& o) const { return norm_gradient(o.adds, o.copies); }
  const Signature& operator()(const LayerNormBackwardWeight& o) const {
    static const WeightGradient both = weight_gradient({{"*c", Type::wide}, {"*c"}}, {"c", "c"}, "c");
    return both.form(o.accumulate);
  }
  const Signature& operator()(const RmsNorm& o) const {
    static const Signature plain{.reads = {{"*c", Type::wide}, {"c"}}, .writes = {{"*c"}}, .whole = "c"};
    static const Signature of_sum = of_two_terms(plain);
    return o.sums ? of_sum : plain;
  }
  const Signature& operator()(const RmsNormBackwardInput& o) const { return norm_gradient(o.adds, o.copies); }
  const Signature& operator()(const RmsNormBackwardWeight& o) const {
    static const WeightGradient both = weight_gradient({{"*c", Type::wide}, {"*c"}}, {"c"}, "c");
    return both.form(o.accumulate);
  }
  const Signature& operator()(const SiluGate&) const {
    static const Signature one{.reads = {{"*"}, {"*"}}, .writes = {{"*"}}};
    return one;
  }
  const Signature& operator()(const SiluGateBackward&) const {
    static const Signature one{.reads = {{"*"}, {"*"}, {"*"}}, .writes = {{"*"}, {"*"}}};
    return one;
  }
  const Signature& operator()(const AddPositions&) const {
    static const Signature one{
        .reads = {{"tbc", Type::wide}, {"pc"}}, .writes = {{"tbc", Type::wide}}, .whole = "p", .numbered = 't'};
    return one;
  }
  const Signature& operator()(const AddPositionsBackward& o) const {
    static const WeightGradient both = weight_gradient({{"tbc", Type::wide}}, {"pc"}, "p", 't');
    return both.form(o.accumulate);
  }
  const Signature& operator()(const Rotary&) const {
    static const Signature one{.reads = {{"tbhq"}}, .writes = {{"tbhq"}}, .whole = "q", .numbered = 't'};
    return one;
  }
  const Signature& operator()(const Attention&) const {
    static const Signature one{
        .reads = {{"tbhq"}, {"tbhd"}, {"tbhd"}}, .writes = {{"tbhq"}, {"tbhr", Type::state}}, .whole = "tqdr"};
    return one;
  }
  const Signature& operator()(const AttentionBackward&) const {
    static const Signature one{.reads = {{"tbhq"}, {"tbhq"}, {"tbhd"}, {"tbhd"}, {"tbhq"}, {"tbhr", Type::state}},
                               .writes = {{"tbhq"}, {"tbhd"}, {"tbhd"}},
                               .whole = "tqdr"};
    return one;
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
  const Signature& operator()(const SquaredSum&) const {
    static const Signature one{.writes = {squares}, .any_reads = true};
    return one;
  }
  const Signature& operator()(const Dropout&) const {
    static const Signature one{.reads = {{"*"}}, .writes = {{"*"}}};
    return one;
  }

  // `p` and `q` are the rows and columns of the image that a window of `k` by `l` makes of one with rows `y` and columns `x`.
  const Signature& operator()(const Conv2d& o) const {
    static const Signature biased{.reads = {{"biyx"}, {"oikl"}, {"o"}}, .writes = {{"bopq"}}, .whole = "yxklpq", .once = {2}};
    static const Signature plain{.reads = {{"biyx"}, {"oikl"}}, .writes = {{"bopq"}}, .whole = "yxklpq"};
    return o.no_bias ? plain : biased;
  }
  const Signature& operator()(const Conv2dBackwardInput&) const {
    static const Signature one{.reads = {{"bopq"}, {"oikl"}}, .writes = {{"biyx"}}, .whole = "yxklpq"};
    return one;
  }
  const Signature& operator()(const Conv2dBackwardWeight& o) const {
    static const WeightGradient biased = weight_gradient({{"biyx"}, {"bopq"}}, {"oikl", "o"}, "yxklpq");
    static const WeightGradient plain = weight_gradient({{"biyx"}, {"bopq"}}, {"oikl"}, "yxklpq");
    return (o.no_bias ? plain : biased).form(o.accumulate);
  }
  const Signature& operator()(const BatchNorm& o) const {
    static const Signature one{.reads = {{"bcyx"}, {"c"}, {"c"}}, .writes = {{"bcyx"}}, .whole = "yx"};
    static const Signature running{
        .reads = {{"bcyx"}, {"c"}, {"c"}, {"c", Type::summed}, {"c", Type::summed}}, .writes = {{"bcyx"}}, .whole = "yx"};
    return o.running ? running : one;
  }
  const Signature& operator()(const TrackMoments&) const {
    static const Axes kept{"c", Type::summed};
    static const Axes groups{"1", Type::integer};
    static const Signature one{
        .reads = {{"bcyx"}, kept, kept, groups}, .writes = {kept, kept, groups}, .whole = "yx", .in_place = true};
    return one;
  }
  const Signature& operator()(const BatchNormBackwardInput&) const {
    static const Signature one{.reads = {{"bcyx"}, {"bcyx"}, {"c"}}, .writes = {{"bcyx"}}, .whole = "yx"};
    return one;
  }
  const Signature& operator()(const BatchNormBackwardWeight& o) const {
    static const WeightGradient both = weight_gradient({{"bcyx"}, {"bcyx"}}, {"c", "c"}, "yx");
    return both.form(o.accumulate);
  }
  const Signature& operator()(const MaxPool&) const {
    static const Signature one{.reads = {{"bcyx"}}, .writes = {{"bcpq"}}, .whole = "yxpq"};
    return one;
  }
  const Signature& operator()(const MaxPoolBackward&) const {
    static const Signature one{.reads = {{"bcpq"}, {"bcyx"}}, .writes = {{"bcyx"}}, .whole = "yxpq"};
    return one;
  }
  const Signature& operator()(const AveragePool& o) const {
    static const Signature image{.reads = {{"bcyx"}}, .writes = {{"bc"}}, .whole = "yx"};
    static const Signature places{.reads = {{"bcp"}}, .writes = {{"bc"}}, .whole = "p"};
    return o.places ? places : image;
  }
  const Signature& operator()(const AveragePoolBackward& o) const {
    static const Signature image{.reads = {{"bc"}}, .writes = {{"bcyx"}}, .whole = "yx"};
    static const Signature places{.reads = {{"bc"}}, .writes = {{"bcp"}}, .whole = "p"};
    return o.places ? places : image;
  }
  const Signature& operator()(const Flatten&) const {
    static const Signature one{.reads = {{"bcyx"}}, .writes = {{"bf"}}, .whole = "cyxf"};
    return one;
  }
  const Signature& operator()(const FlattenBackward&) const {
    static const Signature one{.reads = {{"bf"}}, .writes = {{"bcyx"}}, .whole = "cyxf"};
    return one;
  }
  const Signature& operator()(const ImageToSequence&) const {
    static const Signature one{.reads = {{"bcyx"}, {"c"}}, .writes = {{"tbc", Type::wide}}, .whole = "yx", .numbered = 't'};
    return one;
  }
  const Signature& operator()(const ImageToSequenceBackwardInput&) const {
    static const Signature one{.reads = {{"tbc", Type::wide}}, .writes = {{"bcyx", Type::wide}}, .whole = "yx", .numbered = 't'};
    return one;
  }
  const Signature& operator()(const ImageToSequenceBackwardWeight& o) const {
    static const WeightGradient both = weight_gradient({{"tbc", Type::wide}}, {"c"}, {}, 't');
    return both.form(o.accumulate);
  }
  const Signature& operator()(const FirstPosition&) const {
    static const Signature one{.reads = {{"tbc"}}, .writes = {{"bc"}}, .numbered = 't'};
    return one;
  }
  const Signature& operator()(const FirstPositionBackward&) const {
    static const Signature one{.reads = {{"bc"}}, .writes = {{"tbc"}}, .numbered = 't'};
    return one;
  }
  const Signature& operator()(const Transpose& o) const {
    static const Signature plain{.reads = {{"bij"}}, .writes = {{"bji"}}};
    static const Signature from_image{.reads = {{"bcyx"}}, .writes = {{"bpc", Type::wide}}, .whole = "yxp"};
    static const Signature to_image{.reads = {{"bpc", Type::wide}}, .writes = {{"bcyx", Type::wide}}, .whole = "yxp"};
    return o.from_image ? from_image : o.to_image ? to_image : plain;
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
  if (signature.whole.find(letter) != std::string::npos) {
    return Along::whole;
  }
  if (std::none_of(signature.reads.begin(), signature.reads.end(), has)) {
    return Along::none;
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
  // Without a bias a Linear is its own term, and after heads nothing adds one to the sum.
  if (const auto* linear = std::get_if<Linear>(&op);
      linear != nullptr && !linear->partial && !linear->no_bias && !linear->out_heads) {
    Linear term = *linear;
    term.partial = true;
    return DividedSum{.term = term, .term_reads = {0, 1}, .finish = AddBias{}, .finish_reads = {2}};
  }
  return std::nullopt;
}

}  // namespace baton::op
