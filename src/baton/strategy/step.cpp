#include "baton/strategy/step.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::strategy {

const std::vector<std::string>& loss_names() {
  static const std::vector<std::string> names{"mse", "cross-entropy"};
  return names;
}

Loss loss_by_name(std::string_view name) { return static_cast<Loss>(index_of_name(loss_names(), name, "loss")); }

std::string_view to_text(Loss loss) { return loss_names()[static_cast<std::size_t>(loss)]; }

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
  return static_cast<Precision>(index_of_name(precision_names(), name, "precision"));
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
