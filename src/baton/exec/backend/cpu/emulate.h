#pragma once

#include <functional>
#include <memory>
#include <span>

#include "baton/exec/host/host_backend.h"

/// 16-bit tasks on float32 kernels: operands are widened into the workspace, the kernel runs there, and its results
/// are rounded on the way out. What that does to values is counted. It shows what a format does to training,
/// not how fast hardware is that computes in it.
namespace baton::exec::cpu {

/// True if a task has 16-bit operands.
bool has_narrow_operands(std::span<const plan::Buffer> buffers, const plan::Task& task);

/// The workspace of an emulated task whose kernel itself needs `inner`.
Bytes emulation_workspace(std::span<const plan::Buffer> buffers, const plan::Task& task, Bytes inner);

/// `prepare` makes the float32 kernel for the addresses it is given.
std::unique_ptr<Kernel> emulate(const plan::Plan& plan, const plan::Task& task, const Addresses& addresses, Bytes inner,
                                const std::function<std::unique_ptr<Kernel>(const Addresses&)>& prepare);

/// Between float32 and a 16-bit type, either way, or between two 16-bit types.
std::unique_ptr<Kernel> prepare_cast(const plan::Plan& plan, const plan::Task& task, const Addresses& addresses);

}  // namespace baton::exec::cpu
