/// Jobs drawn at random: with replicas and divided tensors folded and with all of them written out, the same time, bytes and memory
/// come out.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "baton/base/error.h"
#include "baton/lab/training.h"

namespace baton::lab {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}

  std::int64_t from(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  const char* of(const std::vector<const char*>& list) {
    return list[static_cast<std::size_t>(from(0, static_cast<std::int64_t>(list.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

JobWords draw_job(Draw& draw) {
  JobWords words;
  words.cluster = draw.of({"pcie-4", "pcie-5", "pcie-8", "dgx-a100", "dgx-h100", "ideal"});
  const bool nodes = words.cluster.starts_with("dgx");
  const std::int64_t tp = draw.from(0, 2) == 0 ? (nodes ? std::int64_t{1} << draw.from(1, 3) : draw.from(2, 4)) : 1;
  const std::int64_t pp = draw.from(0, 3) == 0 ? draw.from(2, 3) : 1;
  std::int64_t dp = !nodes ? draw.from(1, 8) : tp < 4 ? draw.from(3, 24) : draw.from(1, 4) * (8 / tp);
  if (!nodes && words.cluster != "ideal") {
    const std::int64_t there = words.cluster == "pcie-4" ? 4 : words.cluster == "pcie-5" ? 5 : 8;
    dp = std::max<std::int64_t>(1, std::min(dp, there / (tp * pp)));
  }
  words.devices = std::to_string(dp * tp * pp);
  words.strategy = "product";
  words.dp = std::to_string(dp);
  words.tp = std::to_string(tp);
  words.pp = std::to_string(pp);
  words.zero = std::to_string(draw.from(0, 3));
  if (pp > 1) {
    words.schedule = draw.of({"naive", "gpipe", "1f1b", "zb-h1"});
  }
  const std::int64_t micro_batches = words.schedule == "naive" ? 1 : draw.from(1, 4);
  words.micro_batches = std::to_string(micro_batches);
  words.batch = std::to_string(dp * micro_batches * draw.from(1, 3));
  words.optimizer = draw.of({"sgd", "adam", "adamw"});
  words.precision = draw.of({"fp32", "fp32", "bf16", "fp16"});
  words.recompute = draw.of({"none", "all"});
  std::string widths;
  const std::int64_t unit = draw.from(0, 2) == 0 ? 1 : tp;  // what divides evenly over the parts folds
  for (std::int64_t i = draw.from(2, 6) + pp; i >= 0; --i) {
    // Some parameters have fewer elements than there are replicas, and few divide evenly.
    widths += (widths.empty() ? "" : "-") +
              std::to_string(unit * (draw.from(0, 2) == 0 ? draw.from(1, 9) : draw.from(10, 200 / unit)));
  }
  words.model = "mlp:" + widths;
  if (draw.from(0, 2) == 0) {  // heads, a vocabulary and a sequence to divide
    const std::int64_t heads = unit * draw.from(1, 2);
    words.model = "gpt:depth=" + std::to_string(draw.from(1, 2) + pp) + ",heads=" + std::to_string(heads) +
                  ",dim=" + std::to_string(heads * draw.from(2, 5) * 2) + ",context=" + std::to_string(8 * draw.from(1, 3)) +
                  ",vocab=" + std::to_string(unit * draw.from(5, 15));
    words.sp = tp > 1 ? draw.of({"off", "on"}) : "off";
    words.clip = draw.of({"", "", "1"});
  }
  return words;
}

struct Outcome {
  std::string refused;
  std::optional<Training> run;
};

Outcome simulate(JobWords words, const std::string& fold) {
  Outcome outcome;
  words.fold = fold;
  try {
    outcome.run.emplace(words, cluster::probe());
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
    const JobWords words = draw_job(draw);
    const Outcome one = simulate(words, "always");
    const Outcome all = simulate(words, "never");
    const std::string name = words.model + " on " + words.devices + " of " + words.cluster + ", dp " + words.dp + " pp " +
                             words.pp + " tp " + words.tp + " zero " + words.zero + " " + words.schedule + " micro-batches " +
                             words.micro_batches + " " + words.precision + " " + words.optimizer + " recompute " + words.recompute +
                             " sp " + words.sp + " clip " + words.clip + " batch " + words.batch;
    ASSERT_EQ(one.refused.empty(), all.refused.empty()) << name << ": " << one.refused << all.refused;
    if (!one.run) {
      continue;
    }
    ++agreed;
    folded += one.run->copies() > 1 ? 1 : 0;
    parts_folded += words.tp != "1" && one.run->plan().devices().size() == std::stoul(words.pp) ? 1 : 0;
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
  JobWords words;
  words.model = "llama3-405b";
  words.cluster = "dgx-h100";
  words.devices = "16384";
  words.dp = "128";
  words.pp = "16";
  words.tp = "8";
  words.schedule = "1f1b";
  words.micro_batches = "16";
  words.batch = "2048";
  words.precision = "bf16";
  words.optimizer = "adam";
  words.zero = "1";
  words.memory = "1024T";
  Training run(words, cluster::probe());
  run.run(1, 0);
  EXPECT_EQ(run.plan().devices().size(), 16U);
  EXPECT_EQ(run.copies(), 1024);
  // 6 per token and weight but those of the embedding, and 6 per token, feature and position before it in each of 126 layers.
  const double products = 2048.0 * 8192 * 6 * ((405'853'388'800.0 - 128'256 * 16'384.0) + 8192 * 16'384 * 126.0);
  EXPECT_NEAR(run.flops() / products, 1, 0.02);
}

}  // namespace
}  // namespace baton::lab
