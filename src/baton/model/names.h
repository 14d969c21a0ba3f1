#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "baton/base/shape.h"

/// The names and layouts of parameters in files: those of Hugging Face's transformers, torchvision and timm, so that these
/// read what Baton writes, and the other way round. This is the only such table.
namespace baton::model {

/// A tensor of a file, made of one parameter or of several: matrices of outputs × inputs, joined along the outputs.
struct StoredTensor {
  struct JoinedParameter {
    std::string parameter;
    std::int64_t first;  // the first of its outputs
  };

  std::string name;
  Shape shape;
  std::vector<JoinedParameter> parts;
  std::int64_t outputs = 1;
  std::int64_t inputs = 1;
  bool transposed = false;  // inputs first, as in GPT-2

  /// The place in the tensor of an element of a part, which is counted row-major in the parameter.
  std::int64_t place(std::size_t part, std::int64_t element) const {
    const std::int64_t first = parts[part].first;
    return transposed ? element % inputs * outputs + first + element / inputs : first * inputs + element;
  }
};

/// The tensors that hold parameters of these names and shapes, in the order of their names. Names that no table here knows stay as
/// they are.
///   transformer.h.0.attn.c_attn.{q,k,v}.weight [heads, features, inputs] → transformer.h.0.attn.c_attn.weight [inputs, 3 ·
///   outputs] transformer.h.0.mlp.c_fc.weight [outputs, inputs]                    → the same name, [inputs, outputs]
///   model.layers.0.self_attn.q_proj.weight [groups, features, inputs]    → the same name, [outputs, inputs]
///   vit.embeddings.cls_token [features]                                  → the same name, [1, 1, features]
///   bn1.num_batches_tracked [1]                                          → the same name, no axes
std::vector<StoredTensor> stored_tensors(const std::map<std::string, Shape>& parameters);

}  // namespace baton::model
