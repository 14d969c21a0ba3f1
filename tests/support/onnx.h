#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

/// Writes small ONNX files, field by field as ONNX defines them, to be read by what is tested.
namespace baton::test {

class Proto {
 public:
  Proto& integer(int field, std::int64_t value) {
    key(field, 0);
    number(static_cast<std::uint64_t>(value));
    return *this;
  }
  Proto& text(int field, const std::string& value) {
    key(field, 2);
    number(value.size());
    bytes_ += value;
    return *this;
  }
  Proto& message(int field, const Proto& value) { return text(field, value.bytes_); }
  Proto& real(int field, float value) {
    key(field, 5);
    char raw[4];
    std::memcpy(raw, &value, 4);
    bytes_.append(raw, 4);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int kind) { number(static_cast<std::uint64_t>(field << 3 | kind)); }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

/// The attributes of a node, by their kinds.
struct OnnxAttributes {
  std::map<std::string, std::vector<std::int64_t>> lists = {};
  std::map<std::string, std::int64_t> integers = {};
  std::map<std::string, float> reals = {};
  std::map<std::string, std::string> texts = {};
};

/// A graph, node by node.
class OnnxWriter {
 public:
  OnnxWriter(std::vector<std::int64_t> input, std::string output) {
    graph_.message(11, value("x", input));
    graph_.message(12, value(output, {0}));
  }

  OnnxWriter& node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
                   const OnnxAttributes& attributes = {}) {
    Proto node;
    for (const std::string& input : inputs) {
      node.text(1, input);
    }
    node.text(2, output).text(3, output + "_node").text(4, op);
    for (const auto& [name, list] : attributes.lists) {
      Proto attribute;
      attribute.text(1, name);
      for (const std::int64_t one : list) {
        attribute.integer(8, one);
      }
      node.message(5, attribute.integer(20, 7));
    }
    for (const auto& [name, one] : attributes.integers) {
      node.message(5, Proto().text(1, name).integer(3, one).integer(20, 2));
    }
    for (const auto& [name, one] : attributes.reals) {
      node.message(5, Proto().text(1, name).real(2, one).integer(20, 1));
    }
    for (const auto& [name, one] : attributes.texts) {
      node.message(5, Proto().text(1, name).text(4, one).integer(20, 3));
    }
    graph_.message(1, node);
    return *this;
  }
  /// A weight whose elements are 0.01, 0.02, ...
  OnnxWriter& weight(const std::string& name, const std::vector<std::int64_t>& shape, bool raw = true) {
    std::int64_t count = 1;
    Proto tensor;
    for (const std::int64_t extent : shape) {
      tensor.integer(1, extent);
      count *= extent;
    }
    std::string bytes;
    for (std::int64_t i = 0; i < count; ++i) {
      const float element = 0.01F * static_cast<float>(i + 1);
      char own[4];
      std::memcpy(own, &element, 4);
      bytes.append(own, 4);
    }
    graph_.message(5, tensor.integer(2, 1).text(8, name).text(raw ? 9 : 4, bytes));
    return *this;
  }
  OnnxWriter& output(const std::string& name) {
    graph_.message(12, value(name, {0}));
    return *this;
  }
  OnnxWriter& tensor(const Proto& tensor) {
    graph_.message(5, tensor);
    return *this;
  }

  std::string file() const {
    return Proto().integer(1, 8).text(2, "test").message(7, graph_).message(8, Proto().text(1, "").integer(2, 17)).bytes();
  }

 private:
  static Proto value(const std::string& name, const std::vector<std::int64_t>& extents) {
    Proto shape;
    for (const std::int64_t extent : extents) {
      shape.message(1, extent == 0 ? Proto().text(2, "batch") : Proto().integer(1, extent));
    }
    return Proto().text(1, name).message(2, Proto().message(1, Proto().integer(1, 1).message(2, shape)));
  }

  Proto graph_;
};

}  // namespace baton::test
