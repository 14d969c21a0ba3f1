#include "baton/exec/backend/cpu/amx.h"

#include <cstdlib>

#include "baton/base/error.h"
#include "baton/exec/backend.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace baton::exec::cpu {
namespace {

#if defined(__x86_64__) && defined(__linux__)
bool processor_has_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned saves_by_system = 1U << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & saves_by_system) == 0) {
    return false;
  }
  constexpr unsigned bf16 = 1U << 22;
  constexpr unsigned tile = 1U << 24;
  // Leaves 0x1D and 0x1E, which describe tiles, are not asked: some virtual machines leave them empty. Palette 1 is the same on
  // every processor so far.
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bf16) != 0 && (d & tile) != 0;
}

/// True if the operating system saves the tiles with the other registers.
bool system_saves_tiles() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr std::uint32_t configuration_and_data = 3U << 17;
  return (low & configuration_and_data) == configuration_and_data;
}

/// Tiles are 8 KiB of state that a process gets only after it has asked.
bool system_grants_tiles() {
  constexpr int request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

}  // namespace

bool has_amx() {
#if defined(__x86_64__) && defined(__linux__)
  static const bool has = processor_has_amx() && system_saves_tiles() && system_grants_tiles();
  return has;
#else
  return false;
#endif
}

TileUnit tile_unit() {
  const char* word = std::getenv("BATON_AMX");
  const std::string_view wanted = word == nullptr ? "" : word;
  if (wanted == "off") {
    return TileUnit::none;
  }
  if (wanted == "portable") {
    return TileUnit::portable;
  }
  if (!wanted.empty()) {
    throw usage_error("BATON_AMX is '{}': choose off or portable, or do not set it", wanted);
  }
  return has_amx() ? TileUnit::amx : TileUnit::none;
}

std::string_view to_text(TileUnit unit) {
  switch (unit) {
    case TileUnit::amx:
      return bf16_by_amx;
    case TileUnit::portable:
      return bf16_by_portable;
    case TileUnit::none:
      break;
  }
  return bf16_by_emulation;
}

}  // namespace baton::exec::cpu
