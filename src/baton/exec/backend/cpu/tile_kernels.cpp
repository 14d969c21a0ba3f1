#include "baton/exec/backend/cpu/tile_kernels.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "baton/base/error.h"
#include "baton/exec/backend/cpu/extents.h"
#include "baton/exec/backend/cpu/linear_bf16.h"
#include "baton/exec/rounding.h"

namespace baton::exec::cpu {
namespace {

using plan::Task;

LinearForwardBf16 product(TileUnit unit, const op::Linear& o, const op::ProductExtents& e) {
  return {unit, e.rows, e.in, e.out, o.relu};
}
LinearBackwardInputBf16 product(TileUnit unit, const op::LinearBackwardInput&, const op::ProductExtents& e) {
  return {unit, e.rows, e.in, e.out};
}
LinearBackwardWeightBf16 product(TileUnit unit, const op::LinearBackwardWeight& o, const op::ProductExtents& e) {
  const bool fused = o.sgd_rate > 0;
  return {unit, e.rows, e.in, e.out, fused ? static_cast<float>(-o.sgd_rate) : 1.0F, fused || o.accumulate};
}
MatrixProductBf16 product(TileUnit unit, const op::MatrixProduct&, const op::ProductExtents& e) {
  return {unit, e.rows, e.in, e.out};
}

/// The addresses and types of a kernel's operands.
struct Operands {
  Addresses at;
  std::vector<DType> read_types;
  std::vector<DType> write_types;

  const std::uint16_t* bits(std::size_t i) const { return reinterpret_cast<const std::uint16_t*>(at.reads[i]); }
  ConstValues in(std::size_t i) const { return {at.reads[i], read_types[i]}; }
  Values out(std::size_t i) const { return {at.writes[i], write_types[i]}; }
};

Rounding run(const LinearForwardBf16& p, const op::Linear& o, const Operands& a, const threads::Member& m) {
  const bool biased = !o.partial && !o.no_bias;
  return p.run(a.bits(0), a.bits(1), biased ? a.in(2) : ConstValues{}, a.out(0), a.at.workspace, m);
}
Rounding run(const LinearBackwardInputBf16& p, const op::LinearBackwardInput& o, const Operands& a, const threads::Member& m) {
  return p.run(a.bits(0), a.bits(1), o.mask ? a.in(2) : ConstValues{}, a.out(0), a.at.workspace, m);
}
Rounding run(const LinearBackwardWeightBf16& p, const op::LinearBackwardWeight& o, const Operands& a, const threads::Member& m) {
  return p.run(a.bits(0), a.bits(1), a.out(0), o.partial ? Values{} : a.out(1), a.at.workspace, m);
}
Rounding run(const MatrixProductBf16& p, const op::MatrixProduct&, const Operands& a, const threads::Member& m) {
  return p.run(a.bits(0), a.bits(1), a.out(0), a.at.workspace, m);
}

template <typename AnyOp, typename AnyProduct>
class TileKernel final : public Kernel {
 public:
  TileKernel(AnyOp o, AnyProduct product, Operands operands)
      : op_(std::move(o)), product_(std::move(product)), operands_(std::move(operands)) {}
  void run(const threads::Member& member, std::int64_t) override { rounding_.add(cpu::run(product_, op_, operands_, member)); }
  Rounding rounding() const override { return rounding_.total(); }

 private:
  AnyOp op_;
  AnyProduct product_;
  Operands operands_;
  SharedRounding rounding_;
};

std::vector<DType> types_of(std::span<const plan::Buffer> buffers, const std::vector<BufferId>& ids) {
  std::vector<DType> types;
  for (const BufferId id : ids) {
    types.push_back(buffers[id.index()].dtype);
  }
  return types;
}

}  // namespace

bool multiplies_in_tiles(TileUnit unit, std::span<const plan::Buffer> buffers, const Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  if (unit == TileUnit::none || compute == nullptr) {
    return false;
  }
  const auto is_bf16 = [&](BufferId id) { return buffers[id.index()].dtype == DType::bf16; };
  const auto is_known = [&](BufferId id) { return is_bf16(id) || buffers[id.index()].dtype == DType::f32; };
  return std::visit([]<typename AnyOp>(const AnyOp&) { return ProductOp<AnyOp>; }, compute->op) && is_bf16(task.reads[0]) &&
         is_bf16(task.reads[1]) && std::all_of(task.reads.begin(), task.reads.end(), is_known) &&
         std::all_of(task.writes.begin(), task.writes.end(), is_known);
}

Bytes tile_workspace(TileUnit unit, std::span<const plan::Buffer> buffers, const Task& task, int team) {
  return std::visit(
      [&]<typename AnyOp>(const AnyOp& o) {
        if constexpr (ProductOp<AnyOp>) {
          return Bytes(product(unit, o, extents_of(buffers, task)).workspace_bytes(team));
        } else {
          return Bytes(0);
        }
      },
      std::get<plan::Compute>(task.action).op);
}

std::unique_ptr<Kernel> prepare_in_tiles(TileUnit unit, const plan::Plan& plan, const Task& task, const Addresses& addresses) {
  return std::visit(
      [&]<typename AnyOp>(const AnyOp& o) -> std::unique_ptr<Kernel> {
        if constexpr (ProductOp<AnyOp>) {
          auto made = product(unit, o, extents_of(plan.buffers(), task));
          return std::make_unique<TileKernel<AnyOp, decltype(made)>>(
              o, std::move(made), Operands{addresses, types_of(plan.buffers(), task.reads), types_of(plan.buffers(), task.writes)});
        } else {
          check(false, "{} is not a matrix product", plan::verb(task));
          return nullptr;
        }
      },
      std::get<plan::Compute>(task.action).op);
}

}  // namespace baton::exec::cpu
