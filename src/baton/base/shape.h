#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "baton/base/inline_vector.h"

namespace baton {

/// The extents of a tensor, outermost first, row-major. Batches come first.
class Shape {
 public:
  using Extents = InlineVector<std::int64_t, 4>;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : extents_(extents) {}
  explicit Shape(Extents extents) : extents_(std::move(extents)) {}
  explicit Shape(const std::vector<std::int64_t>& extents) : extents_(extents.begin(), extents.end()) {}

  std::size_t rank() const { return extents_.size(); }
  std::int64_t operator[](std::size_t axis) const { return extents_[axis]; }
  const Extents& extents() const { return extents_; }
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : extents_) {
      product *= extent;
    }
    return product;
  }
  /// The last extent, and how many runs of it there are.
  std::int64_t last() const { return extents_.back(); }
  std::int64_t rows() const { return elements() / last(); }
  /// This shape for `rows` samples: the batch axis in front.
  Shape batched(std::int64_t rows) const {
    Extents extents{rows};
    for (const std::int64_t extent : extents_) {
      extents.push_back(extent);
    }
    return Shape(std::move(extents));
  }
  bool operator==(const Shape&) const = default;

 private:
  Extents extents_;
};

/// "64x1024".
std::string to_text(const Shape& shape);

}  // namespace baton
