#pragma once

#include <memory>
#include <span>

#include "baton/exec/backend/cpu/amx.h"
#include "baton/exec/host/host_backend.h"

/// Tasks whose products are computed in bf16 by tiles (linear_bf16.h), on the operands as they lie in memory.
namespace baton::exec::cpu {

/// True if the unit does a task: a product of two bf16 operands. False if there is no unit.
bool multiplies_in_tiles(TileUnit unit, std::span<const plan::Buffer> buffers, const plan::Task& task);

/// The workspace of such a task on `team` cores.
Bytes tile_workspace(TileUnit unit, std::span<const plan::Buffer> buffers, const plan::Task& task, int team);

std::unique_ptr<Kernel> prepare_in_tiles(TileUnit unit, const plan::Plan& plan, const plan::Task& task, const Addresses& addresses);

/// The backend `cpu` with this unit, whatever BATON_AMX says.
std::unique_ptr<HostBackend> make_backend(TileUnit unit);

}  // namespace baton::exec::cpu
