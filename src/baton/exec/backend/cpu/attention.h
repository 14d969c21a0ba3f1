#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/threads/member.h"

/// Softmax attention in float32, tile by tile: no more than a tile of scores is ever kept. Each of its functions is run by all
/// threads of a team together. The bits of a result do not depend on the size of the team.
namespace baton::exec::cpu {

class Attention {
 public:
  struct Extents {
    std::int64_t positions = 1;
    std::int64_t samples = 1;
    std::int64_t groups = 1;  // groups of heads that share keys and values
    std::int64_t heads = 1;   // heads per group
    std::int64_t size = 1;    // features per head
    bool causal = false;
  };
  explicit Attention(const Extents& extents) : at_(extents) {}

  /// Sizes of the workspaces, which are to be aligned to 64 bytes.
  std::int64_t forward_workspace_bytes(int team) const;
  std::int64_t backward_workspace_bytes(int team) const;

  /// `sums` are the logarithms of the sums of exponentials. Members share the work by sample, head and tile of positions.
  void forward(const float* q, const float* k, const float* v, float* o, float* sums, std::byte* workspace,
               const threads::Member& member) const;
  /// One member writes all results of a sample and group.
  void backward(const float* dout, const float* q, const float* k, const float* v, const float* o, const float* sums, float* dq,
                float* dk, float* dv, std::byte* workspace, const threads::Member& member) const;

 private:
  struct Scratch;
  void forward_tile(const float* q, const float* k, const float* v, float* o, float* sums, std::int64_t first,
                    const Scratch& scratch) const;
  /// The number of positions that position `t` sees, of the `columns` positions from `key` on.
  std::int64_t seen(std::int64_t t, std::int64_t key, std::int64_t columns) const;
  std::int64_t tiles() const;
  std::int64_t width() const;
  std::int64_t q_step() const { return at_.samples * at_.groups * at_.heads * at_.size; }
  std::int64_t k_step() const { return at_.samples * at_.groups * at_.size; }

  Extents at_;
};

}  // namespace baton::exec::cpu
