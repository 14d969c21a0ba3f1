#include "baton/job/choice.h"

#include <gtest/gtest.h>

#include <set>

#include "baton/job/scenario.h"
#include "baton/model/parse.h"
#include "baton/schedule/schedule.h"

namespace baton::job {
namespace {

TEST(Choices, OfFewDevicesAreAllWaysToDivideThemAndFewer) {
  const model::Model model = model::parse_model("mlp:dim=8,depth=5");
  std::set<Group> found;
  for (const Group& group : groups_of(model, 12, 8)) {
    EXPECT_LE(group.devices(), 8);
    found.insert(group);
  }
  for (std::int64_t dp = 1; dp <= 8; ++dp) {
    for (std::int64_t pp = 1; pp * dp <= 8; ++pp) {
      for (std::int64_t tp = 1; tp * pp * dp <= 8; ++tp) {
        EXPECT_EQ(found.contains({dp, pp, tp, false}), pp <= 5) << dp << " " << pp << " " << tp;
        EXPECT_EQ(found.contains({dp, pp, tp, true}), pp <= 5 && tp > 1) << dp << " " << pp << " " << tp;
      }
    }
  }
}

TEST(Choices, OfManyDevicesGrowFarSlowerThanTheDevices) {
  const model::Model model = model::parse_model("gpt:depth=96,heads=96,dim=12288,context=8,vocab=64");
  const std::vector<Group> groups = groups_of(model, 1536, 16384);
  EXPECT_LT(groups.size(), 20000U);
  const auto all = [](const Group& group) { return group.devices() == 16384; };
  EXPECT_GT(std::count_if(groups.begin(), groups.end(), all), 20);
}

TEST(Choices, OfAGroupDifferAndHaveEveryAxis) {
  const model::Model model = model::parse_model("mlp:dim=8,depth=24");
  std::vector<Choice> list;
  std::set<std::int64_t> zero;
  std::set<std::int64_t> schedule;
  std::set<std::int64_t> chunks;
  std::set<std::int64_t> micro_batches;
  std::set<strategy::Recompute> recompute;
  for_each_choice({2, 2, 1, false}, model, 24, [&](const Choice& choice) {
    EXPECT_EQ(std::count(list.begin(), list.end(), choice), 0);
    list.push_back(choice);
    zero.insert(choice.zero);
    schedule.insert(choice.schedule);
    chunks.insert(choice.chunks);
    micro_batches.insert(choice.micro_batches);
    recompute.insert(choice.recompute);
  });
  EXPECT_EQ(zero.size(), 4U);
  EXPECT_EQ(schedule.size(), schedule::schedules().size());
  EXPECT_EQ(chunks, (std::set<std::int64_t>{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(micro_batches, (std::set<std::int64_t>{1, 2, 3, 4, 6, 8, 12}));
  EXPECT_EQ(recompute.size(), 4U);
}

TEST(Choices, OfRecomputationAreThoseThatTheModelHasAndOfProgramsThoseThatTheseHave) {
  const auto recomputations = [](const std::string& model, bool of_programs) {
    std::set<strategy::Recompute> list;
    const auto note = [&](const Choice& choice) { list.insert(choice.recompute); };
    for_each_choice({1, 1, 1, false}, model::parse_model(model), 8, note, of_programs);
    return list;
  };
  using strategy::Recompute;
  const std::set<Recompute> all{Recompute::none, Recompute::light, Recompute::alternate, Recompute::all, Recompute::full};
  const std::set<Recompute> without_light{Recompute::none, Recompute::alternate, Recompute::all, Recompute::full};
  const std::string gpt = "gpt:depth=4,heads=2,dim=8,context=4,vocab=8";
  EXPECT_EQ(recomputations(gpt, false), all);
  EXPECT_EQ(recomputations("mlp:dim=8,depth=8", false), without_light);
  EXPECT_EQ(recomputations(gpt, true), (std::set<Recompute>{Recompute::none, Recompute::full}));
}

TEST(Choices, AsWordsAreThePlanTheyDescribe) {
  JobSpec shared;
  shared.model = "mlp:dim=16,depth=12";
  shared.cluster = "pcie-4";
  shared.batch = 16;
  const Choice choice{.dp = 2,
                      .pp = 2,
                      .tp = 1,
                      .sp = false,
                      .zero = 1,
                      .schedule = 3,
                      .chunks = 3,
                      .micro_batches = 4,
                      .recompute = strategy::Recompute::full};
  const Scenario scenario(spec_of(choice, shared));
  EXPECT_EQ(scenario.cluster().size(), 4U);
  EXPECT_EQ(scenario.request().layout.chunks, 3);
  EXPECT_EQ(strategy::describe(scenario.request()), "dp 2 × pp 2, zero 1, interleaved, 4 micro-batches");
}

}  // namespace
}  // namespace baton::job
