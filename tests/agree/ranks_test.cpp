#include <mutex>

#include "agree/thread_world.h"
#include "agree/training.h"
#include "baton/base/error.h"

/// Ranks that are threads of this process: the transport between ranks without MPI. tests/ranks has the same
/// over MPI.
namespace baton::test {
namespace {

using strategy::Precision;

Case small(std::string strategy, std::size_t devices) {
  return {.model = "mlp:9-130-70-65-64-20-17-30-66-12-8-9",
          .strategy = std::move(strategy),
          .backend = "cpu",
          .devices = devices,
          .step = {.global_batch = 13, .loss = strategy::Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.1}}};
}

/// What each rank has in the end, which is to be the same; nothing if the case is refused.
std::optional<Outcome> train_as_ranks(Case one, int ranks, std::int64_t steps = 3) {
  std::vector<std::optional<Outcome>> outcomes(static_cast<std::size_t>(ranks));
  run_as_ranks(ranks, [&](const std::shared_ptr<ranks::World>& world) {
    Case mine = one;
    mine.world = world;
    try {
      outcomes[static_cast<std::size_t>(world->rank())] = train(mine, steps);
    } catch (const Error&) {  // on all of them
    }
  });
  for (const std::optional<Outcome>& outcome : outcomes) {
    EXPECT_EQ(outcome.has_value(), outcomes[0].has_value());
    EXPECT_TRUE(!outcome || same_bits(*outcomes[0], *outcome)) << "ranks differ";
  }
  return outcomes[0];
}

TEST(RankThreads, EveryStrategyLeavesTheBitsOfOneMemory) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    int compared = 0;
    for (const auto& [devices, ranks] : {std::pair{2U, 2}, {4U, 2}, {5U, 3}}) {
      const Case one = small(strategy.name(), devices);
      if (const std::optional<Outcome> outcome = train_as_ranks(one, ranks)) {
        EXPECT_TRUE(same_bits(train(one, 3), *outcome)) << to_text(one) << " on " << ranks << " ranks";
        ++compared;
      }
    }
    EXPECT_GE(compared, 1) << strategy.name();
  }
}

TEST(RankThreads, TeamsOfSeveralThreads16BitsAndStateChangeNothing) {
  for (const std::string strategy : {"ddp", "zero-2", "zero-3", "dp", "1f1b"}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      Case one = small(strategy, 3);
      one.cores_per_device = 2;
      one.step.precision = precision;
      one.step.optimizer = op::Adam{};
      one.layout.micro_batches = 2;
      const std::optional<Outcome> outcome = train_as_ranks(one, 2);
      ASSERT_TRUE(outcome.has_value()) << to_text(one);
      EXPECT_TRUE(same_bits(train(one, 3), *outcome)) << to_text(one);
    }
  }
}

TEST(RankThreads, PartsOfASequenceOfUnevenLengthCrossAsInOneMemory) {
  for (const auto& [tp, ranks] : {std::pair{2U, 2}, {3U, 2}, {4U, 3}}) {
    Case one = small("tensor", tp);
    one.model = "residual:dim=6,hidden=10,depth=2,sequence=9";
    one.layout.sp = true;
    EXPECT_TRUE(same_bits(train(one, 3), train_as_ranks(one, ranks).value())) << to_text(one) << " on " << ranks << " ranks";
  }
}

TEST(RankThreads, ASumThatIsAppliedComesInManyMessages) {
  Case one = small("ddp", 3);
  one.model = "mlp:512-500-512-40";
  one.layout.bucket = one.layout.first_bucket = Bytes(1 << 30);
  for (const int ranks : {2, 3}) {
    EXPECT_TRUE(same_bits(train(one, 3), train_as_ranks(one, ranks).value())) << ranks;
  }
}

}  // namespace
}  // namespace baton::test
