#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "baton/model/model.h"
#include "baton/model/onnx_tensor.h"

namespace baton::model {

/// A network from an ONNX file and where its weights lie. It may be a chain or have residual connections, of Gemm, MatMul with a
/// weight, Conv, BatchNormalization, Relu, MaxPool, GlobalAveragePool, Add, Flatten, LayerNormalization and Gelu. A block begins
/// where one value passes and the block before has a product.
struct OnnxModel {
  struct Weight {
    std::string name;  // the name of the tensor in the file
    OnnxTensor tensor;
    std::int64_t outputs = 1;
    std::int64_t inputs = 1;
    bool transposed = false;  // there it is [inputs, outputs]

    /// The place in the tensor of an element of the parameter, which is counted row-major.
    std::int64_t place(std::int64_t element) const { return transposed ? element % inputs * outputs + element / inputs : element; }
  };
  Model model;
  std::map<std::string, Weight> weights;    // by parameter; one that is not there begins at zero
  std::shared_ptr<const std::string> file;  // what the tensors refer to
};

/// `what` names the file in errors, and is the model's name. A usage error names the first op, or attribute of one, that Baton does
/// not have, or what is wrong with the file.
OnnxModel parse_onnx(std::shared_ptr<const std::string> file, const std::string& what);
OnnxModel open_onnx(const std::filesystem::path& path);
/// The model alone.
Model read_onnx(const std::filesystem::path& path);

}  // namespace baton::model
