#include "baton/job/reserved.h"

#include <gtest/gtest.h>

#include <numeric>

#include "baton/job/fit.h"
#include "baton/job/reserved_graph.h"
#include "baton/model/parse.h"

namespace baton::job {
namespace {

constexpr const char* small_llama = "llama:depth=4,heads=8,kv-heads=4,dim=512,hidden=1024,context=256,vocab=4096";

JobSpec torchtitan(std::int64_t devices) {
  JobSpec spec;
  spec.model = small_llama;
  spec.cluster = "h100-96gb";
  spec.software = "torchtitan";
  spec.precision = strategy::Precision::bf16;
  spec.devices = devices;
  spec.dp = devices;
  spec.batch = 16 * devices;
  spec.micro_batches = 1;
  spec.zero = 3;
  return spec;
}

Bytes reserved_of(const JobSpec& spec) { return fit(spec).reserved.at(0).total; }

std::int64_t cause(const Reserved& reserved, const std::string& name) {
  for (const auto& [cause, bytes] : reserved.causes) {
    if (cause == name) {
      return bytes.count;
    }
  }
  return -1;
}

LayerGraph layer(KeptActivations keeping, bool unread, Shares shares = {.rows = 2, .tp = 1, .sp = false}) {
  return layer_graph(model::parse_model(small_llama), 1, 3, shares, keeping, unread);
}
std::int64_t kept_bytes(const LayerGraph& graph) {
  return std::accumulate(graph.values.begin(), graph.values.end(), std::int64_t{0},
                         [](std::int64_t sum, const LayerGraph::Value& one) { return sum + (one.kept ? one.bytes : 0); });
}

// Bytes of 512 positions of 512 features in 16 bits.
constexpr std::int64_t stream = 512 * 512 * 2;

TEST(Reserved, OfALayerThatIsRecomputedItsInputIsKept) { EXPECT_EQ(kept_bytes(layer(KeptActivations::input, false)), stream); }

TEST(Reserved, SelectiveCheckpointingKeepsEverySecondProductAndAttention) {
  // The input, queries, values (half as wide), attention with its sums in float32, and the first product of the gate.
  const std::int64_t read = stream + stream + stream / 2 + stream + 512 * 8 * 4 + 2 * stream;
  EXPECT_EQ(kept_bytes(layer(KeptActivations::selected, false)), read);
  EXPECT_EQ(kept_bytes(layer(KeptActivations::selected, true)), read + stream) << "and the last product, which no gradient reads";
}

TEST(Reserved, TensorRanksKeepTheirPartOfALayer) {
  const std::int64_t alone = kept_bytes(layer(KeptActivations::selected, false));
  const LayerGraph divided = layer(KeptActivations::selected, false, {.rows = 2, .tp = 4, .sp = true});
  EXPECT_EQ(layer(KeptActivations::input, false, {.rows = 2, .tp = 4, .sp = true}).elements() * 4,
            layer(KeptActivations::input, false).elements() + 3 * 2 * 512)
      << "gains of norms are whole";
  // Each half is followed by its part of a scattered sum; nothing reads that of the second.
  EXPECT_EQ(kept_bytes(divided), alone / 4 + stream / 4);
}

TEST(Reserved, CausesAddUpAndMoreReplicasHoldLessOfTheStates) {
  const Fit eight = fit(torchtitan(8));
  const Fit many = fit(torchtitan(64));
  ASSERT_EQ(eight.reserved.size(), 1U);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : eight.reserved[0].causes) {
    EXPECT_GE(bytes.count, 0) << name;
    sum += bytes.count;
  }
  EXPECT_EQ(sum, eight.reserved[0].total.count);
  EXPECT_EQ(eight.needed(), eight.reserved[0].total);
  EXPECT_LT(many.reserved[0].total, eight.reserved[0].total);
  EXPECT_NEAR(static_cast<double>(cause(eight.reserved[0], "optimizer states")),
              8.0 * static_cast<double>(cause(many.reserved[0], "optimizer states")), 1e5);
}

TEST(Reserved, RecomputationAndSmallerMicroBatchesReserveLess) {
  JobSpec spec = torchtitan(8);
  const Bytes selective = reserved_of(spec);
  spec.software = "torchtitan+keep";
  const Bytes all = reserved_of(spec);
  spec.recompute = strategy::Recompute::full;
  const Bytes none = reserved_of(spec);
  EXPECT_LT(none, selective);
  EXPECT_LT(selective, all);
  spec.batch = 64;
  EXPECT_LT(reserved_of(spec), none);
}

TEST(Reserved, APipelineHoldsMoreInItsFirstStagesUnder1F1BAndIsReportedOfItsLast) {
  JobSpec spec = torchtitan(8);
  spec.dp = 2;
  spec.pp = 4;
  spec.schedule = "1f1b";
  spec.micro_batches = 8;
  spec.zero = 2;
  const Fit found = fit(spec);
  ASSERT_EQ(found.reserved.size(), 4U);
  EXPECT_GT(cause(found.reserved[1], "kept activations"), cause(found.reserved[2], "kept activations"));
  EXPECT_EQ(cause(found.reserved[0], "messages between stages"), cause(found.reserved[3], "messages between stages"))
      << "the first receives gradients, the last activations, of the same size";
  EXPECT_EQ(cause(found.reserved[1], "messages between stages"), 2 * cause(found.reserved[0], "messages between stages"));
  EXPECT_EQ(&reported(found.reserved, cost::software_by_name("torchtitan")), &found.reserved.back());
}

TEST(Reserved, OfOtherProgramsAndSplitsIsNotSaid) {
  JobSpec spec = torchtitan(8);
  spec.software = "megatron-core";
  EXPECT_TRUE(fit(spec).reserved.empty());
  spec = torchtitan(8);
  spec.zero = 1;
  EXPECT_TRUE(fit(spec).reserved.empty());
}

}  // namespace
}  // namespace baton::job
