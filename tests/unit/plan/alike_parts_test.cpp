/// Plans that have the first two of more parts of divided tensors: that all parts compute the model is judged of the two.

#include <gtest/gtest.h>

#include <map>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "baton/plan/verify.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"
#include "unit/plan/mutate_split.h"

namespace baton::plan {
namespace {

using test::SplitMutation;

struct TwoOfMore {
  std::string name;
  std::int64_t parts;
  Plan plan;
};

/// Every model that can be divided into 4 and 8 equal parts, alone and together with replicas, stages and a divided sequence.
const std::vector<TwoOfMore>& plans() {
  static const std::vector<TwoOfMore> list = [] {
    std::vector<TwoOfMore> all;
    for (const std::string text :
         {"mlp:8-16-8-16-8", "residual:dim=8,hidden=16,depth=3,sequence=8",
          "tokens:vocabulary=24,dim=8,hidden=16,depth=2,sequence=8", "gpt:depth=2,heads=8,dim=16,context=8,vocab=24",
          "llama:depth=2,heads=8,kv-heads=8,dim=32,hidden=16,context=8,vocab=24",
          "vit:depth=2,heads=8,dim=16,patch=2,image=4,classes=5"}) {
      const model::Model model = model::parse_model(text);
      for (const std::int64_t parts : {4, 8}) {
        for (int variant = 0; variant < 16; ++variant) {
          const bool replicas = (variant & 1) != 0;
          const bool stages = (variant & 2) != 0;
          const bool sequence = (variant & 4) != 0;
          const bool other = (variant & 8) != 0;
          const std::size_t devices = std::size_t{2} * (replicas ? 2 : 1) * (stages ? 2 : 1);
          const cluster::Cluster cluster(baton::test::cpus(devices, devices));
          const bool scores = text.find("vocab") != std::string::npos;
          strategy::Request request{.model = model,
                                    .cluster = cluster,
                                    .strategy = "product",
                                    .step = {.global_batch = 8,
                                             .loss = scores ? strategy::Loss::cross_entropy : strategy::Loss::mean_squared_error,
                                             .optimizer = other ? op::optimizer_by_name("adamw") : op::Optimizer(op::Sgd{}),
                                             .precision = other ? strategy::Precision::bf16 : strategy::Precision::fp32},
                                    .layout = {.dp = replicas ? 2 : 1,
                                               .pp = stages ? 2 : 1,
                                               .tp = parts,
                                               .sp = sequence,
                                               .zero = other && replicas && !sequence ? 2 : 0,
                                               .schedule = stages ? "1f1b" : "",
                                               .recompute = other ? strategy::Recompute::all : strategy::Recompute::none,
                                               .micro_batches = 2},
                                    .written_parts = 2};
          try {
            all.push_back({text + ", variant " + std::to_string(variant), parts, strategy::compile(request)});
          } catch (const Error& error) {
            EXPECT_EQ(error.kind(), Error::Kind::usage) << text << ": " << error.what();  // a stream without positions, say
          }
        }
      }
    }
    return all;
  }();
  return list;
}

TEST(AlikeParts, ComputeTheModelTogether) {
  EXPECT_GT(plans().size(), 120U);
  for (const TwoOfMore& one : plans()) {
    const Verdict verdict = verify(one.plan, {.alike_parts = one.parts});
    EXPECT_TRUE(verdict.holds()) << one.name << " of " << one.parts << ": " << verdict.violations[0].text;
  }
}

TEST(AlikeParts, OfAnotherNumberDoNot) {
  for (const TwoOfMore& one : plans()) {
    for (const std::int64_t wrong : {one.parts - 1, one.parts + 1, 2 * one.parts}) {
      EXPECT_FALSE(verify(one.plan, {.alike_parts = wrong}).holds()) << one.name << " of " << one.parts << " taken for " << wrong;
    }
  }
}

TEST(AlikeParts, ThatWereSpoiltAreCaughtByName) {
  std::mt19937 random(23);
  std::map<SplitMutation, int> caught;
  for (const TwoOfMore& one : plans()) {
    // Every mutant of these kinds changes what is computed.
    for (const SplitMutation mutation :
         {SplitMutation::missing_sum, SplitMutation::doubled_sum, SplitMutation::bias_twice, SplitMutation::missing_update,
          SplitMutation::wrong_number, SplitMutation::missing_merge, SplitMutation::missing_addition}) {
      for (int turn = 0; turn < 3; ++turn) {
        const std::optional<Plan> mutant = test::mutate_split(one.plan, mutation, random);
        if (!mutant) {
          break;
        }
        if (*mutant == one.plan) {
          continue;  // the number that it had
        }
        const Verdict verdict = verify(*mutant, {.alike_parts = one.parts});
        EXPECT_FALSE(verdict.holds()) << one.name << " of " << one.parts << ", " << test::to_text(mutation);
        caught[mutation] += verdict.holds() ? 0 : 1;
      }
    }
  }
  for (const auto& [mutation, count] : caught) {
    EXPECT_GT(count, 10) << test::to_text(mutation);
  }
  EXPECT_GE(caught.size(), 7U);
}

}  // namespace
}  // namespace baton::plan
