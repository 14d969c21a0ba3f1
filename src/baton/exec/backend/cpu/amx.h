#pragma once

#include <string_view>

namespace baton::exec::cpu {

/// The unit that multiplies bf16 matrices.
enum class TileUnit {
  none,      // float32 kernels whose operands and results are rounded (emulate.h)
  amx,       // the processor's tiles
  portable,  // a model of those tiles in plain C++: the same bits, slowly
};

/// The unit that the backend `cpu` uses: `amx` if the processor has AMX with bf16 and the operating system grants it,
/// `none` if not. BATON_AMX=off chooses `none` and BATON_AMX=portable chooses `portable`; a usage error if it is another
/// word.
TileUnit tile_unit();

/// "emulation", "amx", "portable", for `Backend::arithmetic`.
std::string_view to_text(TileUnit unit);

/// True if the processor has AMX with bf16 and the operating system grants it. Asks the operating system for it.
bool has_amx();

}  // namespace baton::exec::cpu
