#include "arrays.h"

#include <cstring>

#include "baton/base/error.h"

namespace baton::python {
namespace {

/// Types that NumPy has, by kind and size.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> numpy_types{{{"F32", "f4"},
                                                                                     {"F64", "f8"},
                                                                                     {"F16", "f2"},
                                                                                     {"I32", "i4"},
                                                                                     {"I64", "i8"},
                                                                                     {"I16", "i2"},
                                                                                     {"I8", "i1"},
                                                                                     {"U8", "u1"},
                                                                                     {"U16", "u2"},
                                                                                     {"U32", "u4"},
                                                                                     {"U64", "u8"},
                                                                                     {"BOOL", "b1"}}};

/// An array that C++ may hold and drop without the GIL, with its bytes in order.
class HeldArray {
 public:
  explicit HeldArray(const py::array& array) {
    const py::array ordered = py::array::ensure(array, py::array::c_style);
    if (!ordered) {
      throw py::error_already_set();
    }
    bytes_ = std::span(static_cast<const std::byte*>(ordered.data()), static_cast<std::size_t>(ordered.nbytes()));
    held_ = shared(ordered);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::shared_ptr<py::object> held_;
  std::span<const std::byte> bytes_;
};

class ArrayBlob final : public data::Blob {
 public:
  explicit ArrayBlob(const py::array& array) : array_(array) {}
  std::uint64_t size() const override { return array_.bytes().size(); }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    std::memcpy(into.data(), array_.bytes().data() + offset, into.size());
  }

 private:
  HeldArray array_;
};

class ArraySource final : public archive::TensorReader {
 public:
  explicit ArraySource(const std::map<std::string, py::array>& arrays) {
    for (const auto& [name, array] : arrays) {
      const std::vector<std::int64_t> shape(array.shape(), array.shape() + array.ndim());
      tensors_.emplace(name, archive::TensorInfo{element_type(array), Shape(shape)});
      held_.emplace(name, HeldArray(array));
    }
  }
  const archive::Tensors& tensors() const override { return tensors_; }
  const archive::Metadata& metadata() const override { return metadata_; }
  void read(const std::string& name, std::span<std::byte> into) const override {
    std::memcpy(into.data(), held_.at(name).bytes().data(), into.size());
  }

 private:
  archive::Tensors tensors_;
  archive::Metadata metadata_;
  std::map<std::string, HeldArray> held_;
};

}  // namespace

archive::ElementType element_type(const py::array& array) {
  const py::dtype type = array.dtype();
  const std::string code = std::string(1, type.kind()) + std::to_string(type.itemsize());
  const char order = type.attr("byteorder").cast<std::string>()[0];
  for (const auto& [name, numpy] : numpy_types) {
    if (code == numpy && order != '>') {
      return archive::ElementType::by_name(name).value();
    }
  }
  throw usage_error("arrays of {} cannot be used: give float32, float64, int32, int64 or another plain type",
                    std::string(py::str(static_cast<const py::handle&>(type))));
}

py::array empty_array(const archive::TensorInfo& info) {
  for (const auto& [name, numpy] : numpy_types) {
    if (info.dtype.name() == name) {
      return py::array(py::dtype(std::string(numpy)),
                       std::vector<py::ssize_t>(info.shape.extents().begin(), info.shape.extents().end()));
    }
  }
  throw usage_error("NumPy has no type for {}", to_text(info.dtype));
}

data::Array to_tensor(const std::string& name, const py::array& array) {
  return {.name = name,
          .bytes = std::make_shared<ArrayBlob>(array),
          .begin = 0,
          .type = element_type(array),
          .shape = std::vector<std::int64_t>(array.shape(), array.shape() + array.ndim())};
}

std::shared_ptr<const archive::TensorReader> to_source(const std::map<std::string, py::array>& arrays) {
  return std::make_shared<ArraySource>(arrays);
}

}  // namespace baton::python
