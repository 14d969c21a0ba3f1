#include "baton/exec/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "agree/thread_world.h"
#include "support/usage_sentence.h"

namespace baton::exec {
namespace {

plan::Plan late(std::int64_t nanoseconds) {
  plan::Draft draft{.title = "", .devices = {"cpu:0"}, .buffers = {}, .tasks = {}};
  draft.tasks.push_back({.action = plan::Delay{Nanoseconds(nanoseconds)}, .device = DeviceId(0)});
  return plan::finish(std::move(draft));
}

/// What each of three ranks is told, which is to be the same.
std::string told(const std::function<void(ranks::World&)>& ask) {
  std::vector<std::string> sentences(3);
  baton::test::run_as_ranks(3, [&](ranks::World& world) {
    sentences[static_cast<std::size_t>(world.rank())] = baton::test::usage_sentence([&] { ask(world); });
  });
  EXPECT_EQ(sentences[1], sentences[0]);
  EXPECT_EQ(sentences[2], sentences[0]);
  return sentences[0];
}

TEST(Fingerprint, IsOfThePlanTheDataAndTheProgram) {
  const Fingerprint one = fingerprint(late(1), {.seed = 3, .samples = 5});
  const Fingerprint again = fingerprint(late(1), {.seed = 3, .samples = 5});
  EXPECT_EQ(one.plan, again.plan);
  EXPECT_EQ(one.data, again.data);
  EXPECT_EQ(one.program, again.program);
  EXPECT_FALSE(one.version.empty());
  EXPECT_NE(fingerprint(late(2), {}).plan, one.plan);
  EXPECT_NE(fingerprint(late(1), {.seed = 4, .samples = 5}).data, one.data);
  EXPECT_NE(fingerprint(late(1), {.seed = 3, .samples = 6}).data, one.data);
}

TEST(Fingerprint, RanksThatAgreeGoOn) {
  baton::test::run_as_ranks(3, [](ranks::World& world) {
    EXPECT_NO_THROW(require_agreement(world, {.plan = 1, .data = 2, .version = "1", .program = 3}));
    EXPECT_NO_THROW(require_same(world, {{"--steps", "30"}, {"--every", ""}}));
  });
}

TEST(Fingerprint, NamesTheRanksThatDifferAndInWhatTheCauseFirst) {
  EXPECT_EQ(told([](ranks::World& world) { require_agreement(world, {.plan = world.rank() == 2 ? 7U : 1U}); }),
            "rank 2 has another plan than rank 0: start all ranks with the same command");
  EXPECT_EQ(told([](ranks::World& world) { require_agreement(world, {.data = world.rank() == 0 ? 7U : 1U}); }),
            "ranks 1 and 2 have other data than rank 0: start all ranks with the same --seed, --samples and --data");
  EXPECT_EQ(told([](ranks::World& world) {
              const std::uint64_t one = world.rank() == 1 ? 1U : 0U;
              require_agreement(world, {.plan = one, .data = one, .version = one == 1 ? "2" : "1", .program = one});
            }),
            "rank 1 has another version of baton than rank 0: install the same version everywhere");
}

TEST(Fingerprint, UnitsOfBf16MustGiveTheSameBits) {
  const auto with = [](const std::vector<std::string>& units) {
    return [units](ranks::World& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      require_agreement(world, {.plan = units[rank] == "emulation" ? 1U : 2U, .arithmetic = units[rank]});
    };
  };
  EXPECT_EQ(
      told(with({"emulation", "emulation", "amx"})),
      "rank 2 multiplies bf16 by amx and rank 0 by emulation: set BATON_AMX to the same word, off or portable, for all ranks");
  EXPECT_EQ(told(with({"portable", "emulation", "emulation"})),
            "ranks 1 and 2 multiply bf16 by emulation and rank 0 by portable: set BATON_AMX to the same word, off or portable, for "
            "all ranks");
  EXPECT_EQ(
      told(with({"emulation", "amx", "portable"})),
      "rank 1 multiplies bf16 by amx and rank 0 by emulation: set BATON_AMX to the same word, off or portable, for all ranks");
  baton::test::run_as_ranks(3, [](ranks::World& world) {
    EXPECT_NO_THROW(require_agreement(world, {.arithmetic = world.rank() == 1 ? "amx" : "portable"}));
  });
  EXPECT_EQ(told([](ranks::World& world) {
              require_agreement(world, {.plan = world.rank() == 1 ? 7U : 1U, .arithmetic = world.rank() == 1 ? "amx" : ""});
            }),
            "rank 1 has another plan than rank 0: start all ranks with the same command")
      << "one without bf16";
}

TEST(Fingerprint, NamesTheRanksThatWereToldSomethingElseAndByWhichFlag) {
  EXPECT_EQ(told([](ranks::World& world) {
              require_same(world, {{"--warmup", "5"}, {"--steps", world.rank() == 1 ? "20" : "30"}, {"--every", ""}});
            }),
            "rank 1 has another --steps than rank 0: start all ranks with the same command");
  EXPECT_EQ(told([](ranks::World& world) {
              require_same(world, {{"--resume", world.rank() == 0 ? "yes" : "no"}});
            }),
            "ranks 1 and 2 have another --resume than rank 0: start all ranks with the same command");
}

}  // namespace
}  // namespace baton::exec
