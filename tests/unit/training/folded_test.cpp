/// Jobs drawn at random: with replicas and divided tensors folded and with all of them written out, the same time, bytes and memory
/// come out.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "baton/base/error.h"
#include "baton/training/training.h"
#include "support/draw.h"

namespace baton::training {
namespace {

using baton::test::Draw;

JobSpec draw_job(Draw& draw) {
  JobSpec spec;
  spec.cluster = draw.of({"pcie-4", "pcie-5", "pcie-8", "dgx-a100", "dgx-h100", "ideal"});
  const bool nodes = spec.cluster.starts_with("dgx");
  const std::int64_t tp = draw.from(0, 2) == 0 ? (nodes ? std::int64_t{1} << draw.from(1, 3) : draw.from(2, 4)) : 1;
  const std::int64_t pp = draw.from(0, 3) == 0 ? draw.from(2, 3) : 1;
  std::int64_t dp = !nodes ? draw.from(1, 8) : tp < 4 ? draw.from(3, 24) : draw.from(1, 4) * (8 / tp);
  if (!nodes && spec.cluster != "ideal") {
    const std::int64_t there = spec.cluster == "pcie-4" ? 4 : spec.cluster == "pcie-5" ? 5 : 8;
    dp = std::max<std::int64_t>(1, std::min(dp, there / (tp * pp)));
  }
  spec.devices = dp * tp * pp;
  spec.strategy = "product";
  spec.dp = dp;
  spec.tp = tp;
  spec.pp = pp;
  spec.zero = draw.from(0, 3);
  if (pp > 1) {
    spec.schedule = draw.of({"naive", "gpipe", "1f1b", "zb-h1"});
  }
  const std::int64_t micro_batches = spec.schedule == "naive" ? 1 : draw.from(1, 4);
  spec.micro_batches = micro_batches;
  spec.batch = dp * micro_batches * draw.from(1, 3);
  spec.optimizer = draw.of({"sgd", "adam", "adamw"});
  set_field(spec, "precision", draw.of({"fp32", "fp32", "bf16", "fp16"}));
  set_field(spec, "recompute", draw.of({"none", "all"}));
  std::string widths;
  const std::int64_t unit = draw.from(0, 2) == 0 ? 1 : tp;  // what divides evenly over the parts folds
  for (std::int64_t i = draw.from(2, 6) + pp; i >= 0; --i) {
    // Some parameters have fewer elements than there are replicas, and few divide evenly.
    widths += (widths.empty() ? "" : "-") +
              std::to_string(unit * (draw.from(0, 2) == 0 ? draw.from(1, 9) : draw.from(10, 200 / unit)));
  }
  spec.model = "mlp:" + widths;
  if (draw.from(0, 2) == 0) {  // heads, a vocabulary and a sequence to divide
    const std::int64_t heads = unit * draw.from(1, 2);
    spec.model = "gpt:depth=" + std::to_string(draw.from(1, 2) + pp) + ",heads=" + std::to_string(heads) +
                 ",dim=" + std::to_string(heads * draw.from(2, 5) * 2) + ",context=" + std::to_string(8 * draw.from(1, 3)) +
                 ",vocab=" + std::to_string(unit * draw.from(5, 15));
    set_field(spec, "sp", tp > 1 ? draw.of({"off", "on"}) : "off");
    set_field(spec, "clip", draw.of({"", "", "1"}));
  }
  return spec;
}

struct Outcome {
  std::string refused;
  std::optional<Training> run;
};

Outcome simulate(JobSpec spec, job::Fold fold) {
  Outcome outcome;
  spec.fold = fold;
  try {
    outcome.run.emplace(spec, cluster::probe());
    outcome.run->run(1, 0);
  } catch (const Error& error) {
    outcome.refused = error.what();
  }
  return outcome;
}

TEST(Folded, AgreesWithAllReplicasWrittenOutInTimeBytesAndMemory) {
  Draw draw(20);
  int agreed = 0;
  int folded = 0;
  int parts_folded = 0;
  for (int drawn = 0; agreed < 500; ++drawn) {
    ASSERT_LT(drawn, 3000) << "too many are refused";
    const JobSpec spec = draw_job(draw);
    const Outcome one = simulate(spec, job::Fold::always);
    const Outcome all = simulate(spec, job::Fold::never);
    const std::string name = job::flags_of(spec);
    ASSERT_EQ(one.refused.empty(), all.refused.empty()) << name << ": " << one.refused << all.refused;
    if (!one.run) {
      continue;
    }
    ++agreed;
    folded += one.run->copies() > 1 ? 1 : 0;
    parts_folded += spec.tp != 1 && static_cast<std::int64_t>(one.run->plan().devices().size()) == spec.pp ? 1 : 0;
    ASSERT_EQ(one.run->timed(), all.run->timed()) << name;
    ASSERT_EQ(one.run->totals(), all.run->totals()) << name;
    ASSERT_EQ(*std::max_element(one.run->peak().begin(), one.run->peak().end()),
              *std::max_element(all.run->peak().begin(), all.run->peak().end()))
        << name;
  }
  EXPECT_GT(folded, 250);
  EXPECT_GT(parts_folded, 15);
}

TEST(Folded, ATrainingOf16384DevicesIsSimulatedAsOneReplicaAndOnePart) {
  JobSpec spec;
  spec.model = "llama3-405b";
  spec.cluster = "dgx-h100";
  spec.devices = "16384";
  spec.dp = 128;
  spec.pp = 16;
  spec.tp = 8;
  spec.schedule = "1f1b";
  spec.micro_batches = 16;
  spec.batch = 2048;
  spec.precision = strategy::Precision::bf16;
  spec.optimizer = "adam";
  spec.zero = 1;
  spec.memory = job::ample_memory;
  Training run(spec, cluster::probe());
  run.run(1, 0);
  EXPECT_EQ(run.plan().devices().size(), 16U);
  EXPECT_EQ(run.copies(), 1024);
  // 6 per token and weight but those of the embedding, and 6 per token, feature and position before it in each of 126 layers.
  const double products = 2048.0 * 8192 * 6 * ((405'853'388'800.0 - 128'256 * 16'384.0) + 8192 * 16'384 * 126.0);
  EXPECT_NEAR(run.flops() / products, 1, 0.02);
}

}  // namespace
}  // namespace baton::training
