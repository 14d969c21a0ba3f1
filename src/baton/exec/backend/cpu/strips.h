#pragma once

#include <concepts>
#include <cstdint>
#include <memory>

#include "baton/exec/host/host_backend.h"
#include "baton/op/op.h"

/// Ops that work element by element. A member takes its elements a strip at a time, so that 16-bit operands are widened and
/// results rounded while they lie in the first-level cache.
namespace baton::exec::cpu {

/// `count` elements of each operand, in float32.
using StripFunction = void (*)(const float* const* reads, float* const* writes, std::int64_t count);

template <typename AnyOp>
concept InStrips = std::same_as<AnyOp, op::Add> || std::same_as<AnyOp, op::Gelu> || std::same_as<AnyOp, op::GeluBackward> ||
    std::same_as<AnyOp, op::SiluGate> || std::same_as<AnyOp, op::SiluGateBackward>;

StripFunction strip_function(const op::Add& op);
StripFunction strip_function(const op::Gelu& op);
StripFunction strip_function(const op::GeluBackward& op);
StripFunction strip_function(const op::SiluGate& op);
StripFunction strip_function(const op::SiluGateBackward& op);

/// Operands may be float32 or 16 bits wide, each by itself.
std::unique_ptr<Kernel> prepare_strips(const plan::Plan& plan, const plan::Task& task, const Addresses& addresses,
                                       StripFunction function);

}  // namespace baton::exec::cpu
