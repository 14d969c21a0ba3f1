#include "baton/exec/backend/cpu/generated_product.h"

#include <libxsmm.h>

#include <cstdlib>

#include "baton/base/error.h"
#include "baton/base/memory.h"

namespace baton::exec::cpu {

namespace {

/// Calls one of the library's functions that make machine code. A failure if it makes none.
template <typename Dispatch>
auto generate(const ProductLayout& layout, int prefetch, const Dispatch& dispatch) {
  require_memory(Bytes(std::int64_t{32} << 20));
  libxsmm_init();
  const auto extent = [](std::int64_t value) { return static_cast<libxsmm_blasint>(value); };
  const libxsmm_blasint lda = extent(layout.a_stride);
  const libxsmm_blasint ldb = extent(layout.b_stride);
  const libxsmm_blasint ldc = extent(layout.c_stride);
  const float alpha = 1.0F;
  const float beta = layout.add ? 1.0F : 0.0F;
  const int flags = layout.b_rows ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  const auto generated = dispatch(extent(layout.m), extent(layout.n), extent(layout.k), &lda, &ldb, &ldc, &alpha, &beta, &flags,
                                  &prefetch);
  if (generated == nullptr) {
    throw failure(
        "this processor has no vector instructions that products of {}x{} and {}x{} could be made for{}: use --backend reference",
        layout.m, layout.k, layout.k, layout.n,
        std::getenv("LIBXSMM_TARGET") == nullptr ? "" : " (LIBXSMM_TARGET is set: leave it out)");
  }
  return generated;
}

}  // namespace

GeneratedProduct generate_product(const ProductLayout& layout, bool prefetches) {
  return generate(layout, prefetches ? LIBXSMM_GEMM_PREFETCH_BL2_VIA_C : LIBXSMM_GEMM_PREFETCH_NONE, libxsmm_smmdispatch);
}

GeneratedSum generate_sum(const ProductLayout& layout) {
  return generate(layout, LIBXSMM_GEMM_PREFETCH_NONE, libxsmm_smmdispatch_reducebatch_offs);
}

}  // namespace baton::exec::cpu
