#include "baton/exec/backend/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace baton::exec::cpu {
namespace {

using Floats = std::vector<float>;
using Extents = Attention::Extents;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

Floats random_floats(std::int64_t count, std::uint32_t seed, float bound) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-bound, bound);
  Floats values(at(count));
  for (float& value : values) {
    value = uniform(engine);
  }
  return values;
}

/// Runs a kernel with a team of threads on a workspace of exactly the size asked for, filled with NaN.
template <typename Run>
void run_team(int count, std::int64_t bytes, const Run& run) {
  const auto release = [](std::byte* memory) { ::operator delete[](memory, std::align_val_t{64}); };
  const std::unique_ptr<std::byte[], decltype(release)> workspace(
      static_cast<std::byte*>(::operator new[](at(bytes), std::align_val_t{64})), release);
  std::fill_n(reinterpret_cast<float*>(workspace.get()), at(bytes) / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  threads::Barrier barrier(count);
  std::vector<std::thread> others;
  for (int index = 1; index < count; ++index) {
    others.emplace_back([&, index] { run(workspace.get(), threads::Member{index, count, &barrier}); });
  }
  run(workspace.get(), threads::Member{0, count, &barrier});
  for (std::thread& thread : others) {
    thread.join();
  }
}

/// What the kernels make of one case, and what sums in double precision make of it.
struct Case {
  explicit Case(const Extents& extents)
      : e(extents),
        q_count(e.positions * e.samples * e.groups * e.heads * e.size),
        k_count(e.positions * e.samples * e.groups * e.size),
        q(random_floats(q_count, 1, 2)),
        k(random_floats(k_count, 2, 2)),
        v(random_floats(k_count, 3, 1)),
        dout(random_floats(q_count, 4, 1)) {}

  struct Results {
    Floats o, sums, dq, dk, dv;
  };

  Results run(int team) const {
    const float unset = -7;
    Results results{Floats(at(q_count), unset), Floats(at(q_count / e.size), unset), Floats(at(q_count), unset),
                    Floats(at(k_count), unset), Floats(at(k_count), unset)};
    const Attention attention(e);
    run_team(team, attention.forward_workspace_bytes(team), [&](std::byte* workspace, const threads::Member& member) {
      attention.forward(q.data(), k.data(), v.data(), results.o.data(), results.sums.data(), workspace, member);
    });
    run_team(team, attention.backward_workspace_bytes(team), [&](std::byte* workspace, const threads::Member& member) {
      attention.backward(dout.data(), q.data(), k.data(), v.data(), results.o.data(), results.sums.data(), results.dq.data(),
                         results.dk.data(), results.dv.data(), workspace, member);
    });
    return results;
  }

  struct Expected {
    std::vector<double> o, sums, dq, dk, dv;
  };

  Expected expected() const {
    Expected all{std::vector<double>(at(q_count)), std::vector<double>(at(q_count / e.size)), std::vector<double>(at(q_count)),
                 std::vector<double>(at(k_count)), std::vector<double>(at(k_count))};
    const std::int64_t heads = e.samples * e.groups * e.heads;
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto q_at = [&](std::int64_t t) { return at((t * heads + head) * e.size); };
      const auto k_at = [&](std::int64_t s) { return at((s * e.samples * e.groups + head / e.heads) * e.size); };
      for (std::int64_t t = 0; t < e.positions; ++t) {
        const std::int64_t seen = e.causal ? t + 1 : e.positions;
        std::vector<double> share(at(seen));
        double total = 0;
        for (std::int64_t s = 0; s < seen; ++s) {
          double score = 0;
          for (std::size_t i = 0; i < at(e.size); ++i) {
            score += static_cast<double>(q[q_at(t) + i]) * static_cast<double>(k[k_at(s) + i]);
          }
          share[at(s)] = std::exp(score / std::sqrt(static_cast<double>(e.size)));
          total += share[at(s)];
        }
        all.sums[at(t * heads + head)] = std::log(total);
        double mean = 0;
        std::vector<double> slope(at(seen), 0);
        for (std::int64_t s = 0; s < seen; ++s) {
          share[at(s)] /= total;
          for (std::size_t i = 0; i < at(e.size); ++i) {
            all.o[q_at(t) + i] += share[at(s)] * static_cast<double>(v[k_at(s) + i]);
            slope[at(s)] += static_cast<double>(dout[q_at(t) + i]) * static_cast<double>(v[k_at(s) + i]);
          }
          mean += share[at(s)] * slope[at(s)];
        }
        for (std::int64_t s = 0; s < seen; ++s) {
          const double change = share[at(s)] * (slope[at(s)] - mean) / std::sqrt(static_cast<double>(e.size));
          for (std::size_t i = 0; i < at(e.size); ++i) {
            all.dq[q_at(t) + i] += change * static_cast<double>(k[k_at(s) + i]);
            all.dk[k_at(s) + i] += change * static_cast<double>(q[q_at(t) + i]);
            all.dv[k_at(s) + i] += share[at(s)] * static_cast<double>(dout[q_at(t) + i]);
          }
        }
      }
    }
    return all;
  }

  Extents e;
  std::int64_t q_count;
  std::int64_t k_count;
  Floats q, k, v, dout;
};

void expect_near(const std::vector<double>& expected, const Floats& actual, const char* what) {
  double largest = 0;
  for (const double value : expected) {
    largest = std::max(largest, std::abs(value));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], 3e-6 * largest + 1e-7) << what << '[' << i << ']';
  }
}

std::vector<Extents> all_extents() {
  std::vector<Extents> list;
  for (const bool causal : {false, true}) {
    list.push_back({1, 1, 1, 1, 1, causal});
    list.push_back({5, 2, 3, 1, 8, causal});
    list.push_back({63, 1, 2, 2, 16, causal});
    list.push_back({64, 2, 1, 3, 20, causal});
    list.push_back({65, 1, 2, 1, 64, causal});
    list.push_back({130, 2, 1, 2, 80, causal});
    list.push_back({128, 1, 2, 1, 32, causal});
    list.push_back({192, 1, 1, 2, 128, causal});
    list.push_back({200, 1, 1, 1, 33, causal});
  }
  return list;
}

TEST(CpuAttention, IsThatOfSumsInDoublePrecision) {
  for (const Extents& extents : all_extents()) {
    SCOPED_TRACE(testing::Message() << extents.positions << " positions, " << extents.heads << " heads of " << extents.size
                                    << (extents.causal ? ", causal" : ""));
    const Case one(extents);
    const Case::Results results = one.run(1);
    const Case::Expected expected = one.expected();
    expect_near(expected.o, results.o, "o");
    expect_near(expected.sums, results.sums, "sums");
    expect_near(expected.dq, results.dq, "dq");
    expect_near(expected.dk, results.dk, "dk");
    expect_near(expected.dv, results.dv, "dv");
  }
}

TEST(CpuAttention, HasTheSameBitsForTeamsOfAnySize) {
  for (const Extents& extents : all_extents()) {
    const Case one(extents);
    const Case::Results alone = one.run(1);
    for (const int team : {2, 3, 5}) {
      const Case::Results together = one.run(team);
      for (const auto& [a, b] :
           {std::pair(&alone.o, &together.o), std::pair(&alone.sums, &together.sums), std::pair(&alone.dq, &together.dq),
            std::pair(&alone.dk, &together.dk), std::pair(&alone.dv, &together.dv)}) {
        ASSERT_EQ(std::memcmp(a->data(), b->data(), a->size() * sizeof(float)), 0) << team << " members";
      }
    }
  }
}

TEST(CpuAttention, ScoresThatAreLargeDoNotOverflow) {
  Case one({130, 1, 1, 1, 4, true});
  for (float& value : one.q) {
    value *= 60;
  }
  for (float& value : one.k) {
    value *= 60;
  }
  const Case::Results results = one.run(1);
  for (const float value : results.o) {
    ASSERT_TRUE(std::isfinite(value));
    ASSERT_LE(std::abs(value), 1.0001F) << "a mean of values";
  }
}

}  // namespace
}  // namespace baton::exec::cpu
