#pragma once

#include <string_view>

#include "baton/base/dtype.h"
#include "baton/base/shape.h"

namespace baton::model {

/// A tensor of an ONNX file. Its elements are little-endian, row-major.
struct OnnxTensor {
  Shape shape;
  DType dtype = DType::f32;
  std::string_view bytes;
};

}  // namespace baton::model
