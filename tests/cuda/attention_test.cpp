#include "baton/cuda/attention.h"

#include <algorithm>

#include "cuda/typed_array.h"

namespace baton::cuda {
namespace {

using test::distance;
using test::TypedArray;

constexpr AttentionWay ways[] = {AttentionWay::plain, AttentionWay::tensor_cores, AttentionWay::warp_groups};

std::string name_of(AttentionWay way) {
  return way == AttentionWay::plain ? "plain" : way == AttentionWay::tensor_cores ? "tensor cores" : "warp groups";
}

struct Case {
  DType type;
  AttentionShape shape;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << to_text(c.type) << (c.shape.tf32 ? " as tf32" : "") << ", " << c.shape.positions << " positions, " << c.shape.samples
       << " samples, " << c.shape.groups << " groups of " << c.shape.heads << " heads of " << c.shape.size
       << (c.shape.causal ? ", causal" : "");
}

std::size_t queries(const AttentionShape& s) { return static_cast<std::size_t>(s.rows() * s.size); }
std::size_t keys(const AttentionShape& s) { return static_cast<std::size_t>(s.positions * s.samples * s.groups * s.size); }
std::size_t rows(const AttentionShape& s) { return static_cast<std::size_t>(s.rows()); }

struct Expected {
  std::vector<double> o, lse, dq, dk, dv;
};

/// By loops over all pairs of positions, in double precision.
Expected expected_of(const AttentionShape& s, const std::vector<double>& q, const std::vector<double>& k,
                     const std::vector<double>& v, const std::vector<double>& dy) {
  Expected e{std::vector<double>(q.size()), std::vector<double>(rows(s)), std::vector<double>(q.size()),
             std::vector<double>(k.size()), std::vector<double>(k.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(s.size));
  const std::int64_t all_heads = s.samples * s.groups * s.heads;
  for (std::int64_t head = 0; head < all_heads; ++head) {
    const auto q_at = [&](std::int64_t t) { return static_cast<std::size_t>((t * all_heads + head) * s.size); };
    const auto k_at = [&](std::int64_t t) {
      return static_cast<std::size_t>((t * s.samples * s.groups + head / s.heads) * s.size);
    };
    const auto size = static_cast<std::size_t>(s.size);
    for (std::int64_t t = 0; t < s.positions; ++t) {
      const std::int64_t seen = s.causal ? t + 1 : s.positions;
      std::vector<double> shares(static_cast<std::size_t>(seen));
      for (std::int64_t j = 0; j < seen; ++j) {
        double score = 0;
        for (std::size_t c = 0; c < size; ++c) {
          score += q[q_at(t) + c] * k[k_at(j) + c];
        }
        shares[static_cast<std::size_t>(j)] = score * scale;
      }
      const double largest = *std::max_element(shares.begin(), shares.end());
      double sum = 0;
      for (const double score : shares) {
        sum += std::exp(score - largest);
      }
      const double lse = largest + std::log(sum);
      e.lse[static_cast<std::size_t>(t * all_heads + head)] = lse;
      double along = 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        double& share = shares[static_cast<std::size_t>(j)];
        share = std::exp(share - lse);
        for (std::size_t c = 0; c < size; ++c) {
          e.o[q_at(t) + c] += share * v[k_at(j) + c];
        }
      }
      for (std::size_t c = 0; c < size; ++c) {
        along += dy[q_at(t) + c] * e.o[q_at(t) + c];
      }
      for (std::int64_t j = 0; j < seen; ++j) {
        const double share = shares[static_cast<std::size_t>(j)];
        double slope = 0;
        for (std::size_t c = 0; c < size; ++c) {
          slope += dy[q_at(t) + c] * v[k_at(j) + c];
        }
        slope = share * (slope - along) * scale;
        for (std::size_t c = 0; c < size; ++c) {
          e.dv[k_at(j) + c] += share * dy[q_at(t) + c];
          e.dk[k_at(j) + c] += slope * q[q_at(t) + c];
          e.dq[q_at(t) + c] += slope * k[k_at(j) + c];
        }
      }
    }
  }
  return e;
}

/// Operands, and what the kernels made of them.
struct Attention {
  TypedArray q, k, v, dy, o, dq, dk, dv, lse, workspace;

  Attention(DType type, const AttentionShape& s, AttentionWay way, const std::vector<double>& q_values,
            const std::vector<double>& k_values, const std::vector<double>& v_values, const std::vector<double>& dy_values)
      : q(type, q_values),
        k(type, k_values),
        v(type, v_values),
        dy(type, dy_values),
        o(type, queries(s)),
        dq(type, queries(s)),
        dk(type, keys(s)),
        dv(type, keys(s)),
        lse(DType::f32, rows(s)),
        workspace(DType::f32, static_cast<std::size_t>(attention_backward_workspace(s) / 4)) {
    attention(type, s, way, q.data(), k.data(), v.data(), o.data(), lse.as<float>(), nullptr);
    attention_backward(type, s, way,
                       {dy.data(), q.data(), k.data(), v.data(), o.data(), lse.as<float>(), dq.data(), dk.data(), dv.data()},
                       workspace.data(), nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
};

struct Operands {
  std::vector<double> q, k, v, dy;
  explicit Operands(const AttentionShape& s, unsigned seed)
      : q(numbers(s, queries(s), seed, 1.5)),
        k(numbers(s, keys(s), seed + 1, 1.5)),
        v(numbers(s, keys(s), seed + 2, 1)),
        dy(numbers(s, queries(s), seed + 3, 1)) {}
  /// With tf32 of few digits, of which the products lose none.
  static std::vector<double> numbers(const AttentionShape& s, std::size_t count, unsigned seed, double size) {
    const std::vector<double> list = test::normal_numbers(count, seed, size);
    return s.tf32 ? TypedArray(DType::bf16, list).values() : list;
  }
  Attention run(DType type, const AttentionShape& s, AttentionWay way) const { return {type, s, way, q, k, v, dy}; }
};

class AttentionTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionTest, IsWhatLoopsOverAllPairsGiveAndHasTheSameBitsEveryTime) {
  BATON_NEEDS_GPU()
  const auto& [type, shape] = GetParam();
  const Operands operands(shape, 7);
  const TypedArray q(type, operands.q);
  const TypedArray k(type, operands.k);
  const TypedArray v(type, operands.v);
  const TypedArray dy(type, operands.dy);
  const Expected expected = expected_of(shape, q.values(), k.values(), v.values(), dy.values());
  EXPECT_TRUE(suits(AttentionWay::plain, type, shape));
  for (const AttentionWay way : ways) {
    if (!suits(way, type, shape)) {
      continue;
    }
    SCOPED_TRACE(name_of(way));
    const Attention first = operands.run(type, shape, way);
    const double share = type == DType::bf16 ? 6e-2 : type == DType::f16 || way != AttentionWay::plain ? 1e-2 : 1e-4;
    EXPECT_LT(distance(expected.lse, first.lse.values()), way == AttentionWay::plain ? 1e-5 : 1e-2);
    EXPECT_LT(distance(expected.o, first.o.values()), share);
    constexpr double least = 0.3;  // with one position the scores have no gradient
    EXPECT_LT(distance(expected.dq, first.dq.values(), least), 2 * share);
    EXPECT_LT(distance(expected.dk, first.dk.values(), least), 2 * share);
    EXPECT_LT(distance(expected.dv, first.dv.values()), share);
    const Attention second = operands.run(type, shape, way);
    for (const auto array : {&Attention::o, &Attention::lse, &Attention::dq, &Attention::dk, &Attention::dv}) {
      EXPECT_EQ((first.*array).bytes(), (second.*array).bytes()) << "bits differ between two runs";
    }
  }
}

/// Sizes on both sides of the tiles' edges, all ways of computing.
std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](DType type, bool tf32, std::int64_t positions, std::int64_t samples, std::int64_t groups, std::int64_t heads,
                       std::int64_t size, bool causal) {
    list.push_back({type, {positions, samples, groups, heads, size, causal, tf32}});
  };
  for (const bool causal : {true, false}) {
    for (const auto& [type, tf32] : {std::pair{DType::bf16, false}, {DType::f16, false}, {DType::f32, true}, {DType::f32, false}}) {
      add(type, tf32, 1, 1, 1, 1, 64, causal);
      add(type, tf32, 64, 1, 1, 1, 64, causal);
      add(type, tf32, 128, 2, 3, 1, 64, causal);
      add(type, tf32, 300, 2, 2, 3, 64, causal);
      add(type, tf32, 257, 1, 2, 1, 128, causal);
      add(type, tf32, 130, 2, 1, 4, 128, causal);
      add(type, tf32, 97, 3, 2, 1, 32, causal);
      add(type, tf32, 65, 1, 1, 2, 80, causal);
      add(type, tf32, 33, 2, 3, 2, 7, causal);
      add(type, tf32, 70, 1, 2, 1, 96, causal);
      add(type, tf32, 45, 1, 1, 2, 200, causal);
      add(type, tf32, 40, 1, 1, 1, 256, causal);
    }
    // More tiles of rows than a GPU has multiprocessors, of which each then takes several.
    add(DType::bf16, false, 129, 40, 2, 2, 32, causal);
    add(DType::bf16, false, 190, 45, 1, 2, 72, causal);
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest, testing::ValuesIn(cases()));

std::vector<std::pair<DType, AttentionWay>> suitable(const AttentionShape& shape) {
  std::vector<std::pair<DType, AttentionWay>> list;
  for (const DType type : test::floating_types) {
    for (const AttentionWay way : ways) {
      if (suits(way, type, shape)) {
        list.emplace_back(type, way);
      }
    }
  }
  return list;
}

TEST(Attention, OfOneSampleHasTheBitsThatItHasAmongOthers) {
  BATON_NEEDS_GPU()
  const AttentionShape both{.positions = 150, .samples = 2, .groups = 2, .heads = 2, .size = 64};
  AttentionShape one = both;
  one.samples = 1;
  const Operands operands(both, 11);
  /// What the second sample has of an array of rows per (position, sample).
  const auto second = [&](const std::vector<double>& all) {
    std::vector<double> part;
    const std::size_t row = all.size() / static_cast<std::size_t>(both.positions * 2);
    for (std::size_t t = 0; t < static_cast<std::size_t>(both.positions); ++t) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>((2 * t + 1) * row);
      part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(row));
    }
    return part;
  };
  for (const auto& [type, way] : suitable(both)) {
    const Attention together = operands.run(type, both, way);
    const Attention alone(type, one, way, second(operands.q), second(operands.k), second(operands.v), second(operands.dy));
    for (const auto array : {&Attention::o, &Attention::lse, &Attention::dq, &Attention::dk, &Attention::dv}) {
      EXPECT_EQ(second((together.*array).values()), (alone.*array).values()) << to_text(type) << ' ' << name_of(way);
    }
  }
}

TEST(Attention, HasTheSameBitsEveryTimeWhereBlocksTakeManyTilesAfterEachOther) {
  BATON_NEEDS_GPU()
  for (const std::int64_t size : {64, 128}) {
    const AttentionShape shape{.positions = 1024, .samples = 16, .groups = 6, .heads = 1, .size = size};
    if (!suits(AttentionWay::warp_groups, DType::bf16, shape)) {
      continue;
    }
    const Operands operands(shape, 17);
    const Attention first = operands.run(DType::bf16, shape, AttentionWay::warp_groups);
    for (int run = 0; run < 5; ++run) {
      const Attention again = operands.run(DType::bf16, shape, AttentionWay::warp_groups);
      for (const auto array : {&Attention::o, &Attention::lse, &Attention::dq, &Attention::dk, &Attention::dv}) {
        ASSERT_EQ((first.*array).bytes(), (again.*array).bytes()) << "head size " << size << ", run " << run;
      }
    }
  }
}

TEST(Attention, StaysFiniteWithLargeScores) {
  BATON_NEEDS_GPU()
  const AttentionShape shape{.positions = 200, .samples = 1, .groups = 1, .heads = 1, .size = 64};
  Operands operands(shape, 13);
  for (double& value : operands.q) {
    value *= 40;
  }
  for (const auto& [type, way] : suitable(shape)) {
    const Attention result = operands.run(type, shape, way);
    for (const auto array : {&Attention::o, &Attention::lse, &Attention::dq, &Attention::dk, &Attention::dv}) {
      for (const double value : (result.*array).values()) {
        ASSERT_TRUE(std::isfinite(value)) << to_text(type) << ' ' << name_of(way);
      }
    }
  }
}

}  // namespace
}  // namespace baton::cuda
