#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace baton {

/// Philox4x32-10: four random words as a pure function of a key and a counter (Salmon et al., 2011).
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Random numbers as a function of (seed, domain, index, position). Nothing is drawn in sequence, so a value
/// does not depend on which device asks for it, nor on how a batch or a parameter is split.
class RandomStream {
 public:
  enum class Domain : std::uint32_t { parameter = 1, input = 2, target = 3, label = 4, order = 5, augmentation = 6 };

  RandomStream(std::uint64_t seed, Domain domain, std::uint64_t index);

  /// Uniform in [-bound, bound), elements position, position + 1, ... of the stream.
  template <typename Real>
  void uniform(std::span<Real> out, std::uint64_t position, double bound) const;
  /// Standard normal, likewise.
  template <typename Real>
  void normal(std::span<Real> out, std::uint64_t position) const;
  /// The first word of the block that holds `position`.
  std::uint32_t word(std::uint64_t position) const;

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t number) const;

  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> upper_;  // the counter's upper half: which stream
};

}  // namespace baton
