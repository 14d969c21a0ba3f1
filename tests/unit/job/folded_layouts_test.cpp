/// Replicas × parts × stages drawn at random: all replicas and all even parts are folded, and what comes out is that of all devices
/// written out.

#include <gtest/gtest.h>

#include <algorithm>

#include "baton/job/scenario.h"
#include "baton/job/spec.h"
#include "support/draw.h"

namespace baton::job {
namespace {

using baton::test::Draw;

struct Drawn {
  JobSpec spec;
  bool even = true;  // parts
};

/// Nodes have eight devices, which whole groups of parts fill.
Drawn draw_layout(Draw& draw) {
  Drawn drawn;
  JobSpec& spec = drawn.spec;
  spec.cluster = draw.of({"dgx-a100", "dgx-h100", "dgx-v100", "dgx-h200"});
  const bool mesh = spec.cluster == "dgx-v100";  // there, parts that do not fill a node are not alike
  const std::int64_t tp = mesh ? 8 : std::int64_t{1} << draw.from(1, 3);
  const std::int64_t pp = draw.one_of(3) ? draw.from(2, 3) : 1;
  const std::int64_t dp = 8 / tp * draw.from(1, 3);
  spec.devices = dp * tp * pp;
  spec.strategy = "product";
  spec.dp = dp;
  spec.tp = tp;
  spec.pp = pp;
  spec.zero = dp > 1 ? draw.from(0, 3) : 0;
  if (pp > 1) {
    spec.schedule = draw.of({"naive", "gpipe", "1f1b", "zb-h1"});
  }
  const std::int64_t micro_batches = spec.schedule == "naive" ? 1 : draw.from(1, 4);
  spec.micro_batches = micro_batches;
  spec.batch = dp * micro_batches * draw.from(1, 2);
  spec.optimizer = draw.of({"sgd", "adam"});
  set_field(spec, "precision", draw.of({"fp32", "bf16", "fp16"}));
  if (spec.cluster == "dgx-v100" && spec.precision != strategy::Precision::fp16) {
    set_field(spec, "precision", "fp32");
  }
  set_field(spec, "recompute", draw.of({"none", "all", "full"}));
  set_field(spec, "clip", draw.one_of(2) ? "1" : "");
  drawn.even = !draw.one_of(3);
  if (draw.one_of(4)) {
    std::vector<std::int64_t> widths{draw.from(20, 90)};
    for (std::int64_t i = draw.from(2, 5) + pp; i > 0; --i) {
      widths.push_back(drawn.even ? tp * draw.from(4, 20) : tp * draw.from(4, 20) + 1);
    }
    spec.model = {"mlp", model::ModelSettings().add(widths)};
  } else {
    const std::int64_t heads = tp * draw.from(1, 2);
    spec.model = "gpt:depth=" + std::to_string(draw.from(1, 2) + pp) + ",heads=" + std::to_string(heads) +
                 ",dim=" + std::to_string(heads * draw.from(2, 5) * 2) + ",context=" + std::to_string(8 * draw.from(1, 3)) +
                 ",vocab=" + std::to_string(tp * draw.from(5, 15) + (drawn.even ? 0 : 1));
    set_field(spec, "sp", draw.of({"off", "on"}));
  }
  if (draw.one_of(3)) {
    spec.software = draw.of({"megatron-2021", "megatron-core", "torchtitan"});
  }
  spec.memory = ample_memory;
  return drawn;
}

Scenario simulated(JobSpec spec, Fold fold) {
  spec.fold = fold;
  return Scenario(spec);
}

TEST(FoldedLayouts, GiveTheTimeBytesAndMemoryOfAllDevices) {
  Draw draw(6);
  int with_dp_and_uneven_parts = 0;
  int with_zero_and_sp = 0;
  int with_clip = 0;
  for (int i = 0; i < 200; ++i) {
    const auto [spec, even] = draw_layout(draw);
    const std::string name = flags_of(spec);
    const Scenario one = simulated(spec, Fold::always);
    const Scenario all = simulated(spec, Fold::never);
    ASSERT_EQ(one.step().duration, all.step().duration) << name;
    ASSERT_EQ(one.laid().totals, all.laid().totals) << name;
    ASSERT_EQ(*std::max_element(one.laid().peak.begin(), one.laid().peak.end()),
              *std::max_element(all.laid().peak.begin(), all.laid().peak.end()))
        << name;
    const std::int64_t replicas = *spec.dp > 2 ? *spec.dp : 1;
    const std::int64_t parts = *spec.tp > 2 && even ? *spec.tp : 1;
    ASSERT_EQ(one.laid().copies(), replicas * parts) << name;
    with_dp_and_uneven_parts += replicas > 1 && parts == 1 ? 1 : 0;
    with_zero_and_sp += replicas * parts > 1 && *spec.zero >= 2 && spec.sp ? 1 : 0;
    with_clip += parts > 1 && spec.clip ? 1 : 0;
  }
  EXPECT_GT(with_dp_and_uneven_parts, 20);
  EXPECT_GT(with_zero_and_sp, 10);
  EXPECT_GT(with_clip, 15);
}

TEST(Sensitivities, AreThoseOfJobsSimulatedAnewWithTheChange) {
  Draw draw(29);
  for (int trial = 0; trial < 40; ++trial) {
    const JobSpec spec = draw_layout(draw).spec;
    SCOPED_TRACE(spec.model.text() + " on " + spec.cluster);
    for (const Sensitivity& one : Scenario(spec).sensitivities()) {
      JobSpec other = spec;
      if (one.knob == "compute twice as fast") {
        other.what_if.compute = 2;
      } else if (one.knob == "twice the bandwidth of links") {
        other.what_if.link = 2;
      } else {
        ASSERT_EQ(one.knob, "half the latency of links");
        other.what_if.latency = 0.5;
      }
      EXPECT_EQ(one.step, Scenario(other).step().duration) << one.knob;
    }
  }
}

}  // namespace
}  // namespace baton::job
