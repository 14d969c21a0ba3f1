#pragma once

#include <cstdint>

namespace baton::exec::cpu {

/// Extents of a product of column-major matrices, c = [c +] a b with a of m × k and b of k × n, and how far apart their columns
/// are.
struct ProductLayout {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
  bool add = false;
  bool b_rows = false;  // b is row-major instead, and its stride that of its rows
};

/// With `prefetches` it takes three further arguments, of which the second is memory to bring nearer while c is stored, unless
/// b is row-major.
using GeneratedProduct = void (*)(const float* a, const float* b, float* c, ...);

/// Machine code for a product; it may be asked for from any thread. A failure if this processor has no vector instructions for
/// it.
GeneratedProduct generate_product(const ProductLayout& layout, bool prefetches = false);

/// A number of products, or of bytes, in the library's type.
using LibraryCount = unsigned long long;
/// Adds up the products of `count` pairs of one layout. Pair i begins `a_offsets[i]` and `b_offsets[i]` bytes after a and
/// b.
using GeneratedSum = void (*)(const float* a, const float* b, float* c, const LibraryCount* count, const LibraryCount* a_offsets,
                              const LibraryCount* b_offsets, ...);

/// Machine code for a sum of products, as above.
GeneratedSum generate_sum(const ProductLayout& layout);

}  // namespace baton::exec::cpu
