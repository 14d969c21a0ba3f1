#include "baton/strategy/step.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::strategy {

namespace {

/// The place of a word in a list of names.
std::size_t index_of(const std::vector<std::string>& names, std::string_view name, std::string_view what) {
  const auto found = std::find(names.begin(), names.end(), canonical(name));
  if (found == names.end()) {
    throw unknown_name(what, name, names);
  }
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

const std::vector<std::string>& loss_names() {
  static const std::vector<std::string> names{"mse", "cross-entropy"};
  return names;
}

Loss loss_by_name(std::string_view name) { return static_cast<Loss>(index_of(loss_names(), name, "loss")); }

std::string_view to_text(Loss loss) { return loss_names()[static_cast<std::size_t>(loss)]; }

const std::vector<std::string>& recompute_names() {
  static const std::vector<std::string> names{"none", "alternate", "all"};
  return names;
}

Recompute recompute_by_name(std::string_view name) {
  return static_cast<Recompute>(index_of(recompute_names(), name, "--recompute"));
}

const std::vector<std::string>& balance_names() {
  static const std::vector<std::string> names{"even", "work", "memory"};
  return names;
}

Balance balance_by_name(std::string_view name) { return static_cast<Balance>(index_of(balance_names(), name, "balance")); }

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names{"fp64", "fp32", "tf32", "bf16", "fp16"};
  return names;
}

Precision precision_by_name(std::string_view name) {
  const std::string wanted = canonical(name);
  for (const auto& [alias, meant] : {std::pair("float64", Precision::fp64),
                                     {"double", Precision::fp64},
                                     {"float32", Precision::fp32},
                                     {"bfloat16", Precision::bf16},
                                     {"float16", Precision::fp16},
                                     {"half", Precision::fp16},
                                     {"mixed", Precision::fp16}}) {
    if (wanted == alias) {
      return meant;
    }
  }
  return static_cast<Precision>(index_of(precision_names(), name, "precision"));
}

std::string_view to_text(Precision precision) { return precision_names()[static_cast<std::size_t>(precision)]; }

bool is_mixed(Precision precision) { return is_narrow(dtype_of(precision)); }

DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return DType::f64;
    case Precision::fp32:
    case Precision::tf32:
      return DType::f32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
  }
  throw BugError("a precision of no kind");
}

DType parameter_type(Precision precision) { return is_mixed(precision) ? DType::f32 : dtype_of(precision); }

}  // namespace baton::strategy
