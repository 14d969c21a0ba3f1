#include "baton/exec/transport/operation.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace baton::exec {
namespace {

constexpr std::int64_t strip = 512;

template <typename Real>
void sum_two_into_both(Real* __restrict first, Real* __restrict second, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Real total = first[i] + second[i];
    first[i] = total;
    second[i] = total;
  }
}

template <typename Real>
void add_second(Real* __restrict first, const Real* __restrict second, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    first[i] += second[i];
  }
}

template <typename Real>
void apply_two(const Real* __restrict first, const Real* __restrict second, Real* __restrict weight_0, Real* __restrict weight_1,
               Real rate, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Real step = rate * (first[i] + second[i]);
    weight_0[i] -= step;
    weight_1[i] -= step;
  }
}

/// The sums that devices of two come to most often, without a place between.
template <typename Real>
bool run_two(const Operation& operation) {
  const auto at = [](std::byte* memory) { return reinterpret_cast<Real*>(memory); };
  const std::vector<std::byte*>& from = operation.from;
  const std::vector<std::byte*>& to = operation.to;
  if (from.size() != 2) {
    return false;
  }
  if (operation.kind == Operation::Function::sum && from == to) {
    sum_two_into_both(at(from[0]), at(from[1]), operation.count);
  } else if (operation.kind == Operation::Function::sum && to.size() == 1 && to[0] == from[0]) {
    add_second(at(from[0]), at(from[1]), operation.count);
  } else if (operation.kind == Operation::Function::apply && to.size() == 2) {
    apply_two(at(from[0]), at(from[1]), at(to[0]), at(to[1]), static_cast<Real>(operation.rate), operation.count);
  } else {
    return false;
  }
  return true;
}

template <typename Real>
void run_wide(const Operation& operation) {
  if (run_two<Real>(operation)) {
    return;
  }
  const auto rate = static_cast<Real>(operation.rate);
  std::array<Real, strip> total;
  for (std::int64_t begin = 0; begin < operation.count; begin += strip) {
    const std::int64_t count = std::min(strip, operation.count - begin);
    const auto at = [&](std::byte* memory) { return reinterpret_cast<Real*>(memory) + begin; };
    std::copy_n(at(operation.from[0]), count, total.begin());
    for (std::size_t rank = 1; rank < operation.from.size(); ++rank) {
      const Real* other = at(operation.from[rank]);
      for (std::int64_t i = 0; i < count; ++i) {
        total[static_cast<std::size_t>(i)] += other[i];
      }
    }
    for (std::byte* place : operation.to) {
      Real* const to = at(place);
      switch (operation.kind) {
        case Operation::Function::copy:
        case Operation::Function::sum:
          std::copy_n(total.begin(), count, to);
          break;
        case Operation::Function::add:
          for (std::int64_t i = 0; i < count; ++i) {
            to[i] += total[static_cast<std::size_t>(i)];
          }
          break;
        case Operation::Function::apply:
          for (std::int64_t i = 0; i < count; ++i) {
            to[i] -= rate * total[static_cast<std::size_t>(i)];
          }
          break;
      }
    }
  }
}

Rounding run_narrow(const Operation& operation) {
  const std::int64_t width = size_of(operation.type);
  std::array<float, strip> total;
  std::array<float, strip> other;
  Rounding done;
  for (std::int64_t begin = 0; begin < operation.count; begin += strip) {
    const std::int64_t count = std::min(strip, operation.count - begin);
    const auto at = [&](std::byte* memory) { return memory + begin * width; };
    const auto add = [&](std::byte* memory) {
      widen(operation.type, at(memory), other.data(), count);
      for (std::int64_t i = 0; i < count; ++i) {
        total[static_cast<std::size_t>(i)] += other[static_cast<std::size_t>(i)];
      }
    };
    widen(operation.type, at(operation.from[0]), total.data(), count);
    std::for_each(operation.from.begin() + 1, operation.from.end(), add);
    if (operation.kind == Operation::Function::add) {
      add(operation.to[0]);
    }
    std::byte* const first = at(operation.to[0]);
    done += narrow(operation.type, total.data(), first, count);
    for (std::size_t i = 1; i < operation.to.size(); ++i) {
      std::memcpy(at(operation.to[i]), first, static_cast<std::size_t>(count * width));
    }
  }
  return done;
}

}  // namespace

Rounding Operation::run() const {
  if (kind == Function::copy) {
    for (std::byte* place : to) {
      std::memcpy(place, from[0], static_cast<std::size_t>(count * size_of(type)));
    }
    return {};
  }
  if (is_narrow(type)) {
    return run_narrow(*this);
  }
  type == DType::f32 ? run_wide<float>(*this) : run_wide<double>(*this);
  return {};
}

}  // namespace baton::exec
