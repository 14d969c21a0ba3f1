#include "baton/schedule/schedule.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "baton/base/text.h"
#include "support/usage_sentence.h"

namespace baton::schedule {
namespace {

using test::says;
using test::usage_sentence;

TEST(Schedules, AreFoundByPyTorchsNamesAndWithoutRegardToCase) {
  const std::map<std::string, std::string> cases{{"GPipe", "gpipe"},
                                                 {"1F1B", "1f1b"},
                                                 {"Interleaved1F1B", "interleaved"},
                                                 {"LoopedBFS", "looped-bfs"},
                                                 {"looped_bfs", "looped-bfs"},
                                                 {"InterleavedZeroBubble", "interleaved-zb"},
                                                 {"ZBVZeroBubble", "zb-v"},
                                                 {"zbvzerobubble", "zb-v"},
                                                 {"zero-bubble", "zb-h1"},
                                                 {"ZB_H2", "zb-h2"},
                                                 {"naive", "naive"}};
  for (const auto& [asked, name] : cases) {
    EXPECT_EQ(schedule_by_name(asked).name, name);
  }
}

TEST(Schedules, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Schedule& schedule : schedules()) {
    EXPECT_TRUE(names.insert(schedule.name).second) << schedule.name;
    EXPECT_EQ(schedule.name, canonical(schedule.name));
    for (const std::string& alias : schedule.aliases) {
      EXPECT_TRUE(canonical(alias) == schedule.name || names.insert(canonical(alias)).second) << alias;
    }
  }
}

TEST(Schedules, OneThatIsUnknownIsAnsweredWithThoseThereAre) {
  const std::string sentence = usage_sentence([] { schedule_by_name("dualpipe"); });
  EXPECT_TRUE(says(sentence, "unknown schedule 'dualpipe': choose naive, gpipe"));
  for (const Schedule& schedule : schedules()) {
    EXPECT_TRUE(says(sentence, schedule.name));
  }
}

TEST(Schedules, NoSchedulesOfNothing) {
  for (const Schedule& schedule : schedules()) {
    const std::int64_t chunks = schedule.default_chunks;
    for (const Pipeline& pipeline : {Pipeline{0, chunks, 4}, Pipeline{4, 0, 4}, Pipeline{4, chunks, 0}, Pipeline{-1, chunks, 4}}) {
      EXPECT_TRUE(says(usage_sentence([&] { schedule.grid(pipeline); }), "a pipeline needs a device")) << schedule.name;
    }
  }
}

TEST(Schedules, PipelinesBeyondAnyMemoryAreRefused) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const Schedule& schedule : schedules()) {
    const std::int64_t chunks = schedule.default_chunks;
    for (const Pipeline& pipeline :
         {Pipeline{most, chunks, 1}, Pipeline{1, most, 1}, Pipeline{1, chunks, most}, Pipeline{1 << 12, chunks, 1 << 12}}) {
      EXPECT_TRUE(says(usage_sentence([&] { schedule.grid(pipeline); }), "too many")) << schedule.name;
    }
  }
  EXPECT_TRUE(
      says(usage_sentence([] { schedule_by_name("naive").grid({.devices = 1000, .micro_batches = 1000}); }), "is too large"));
}

TEST(Schedules, StagesOnADeviceAreAsManyAsTheScheduleHas) {
  for (const std::string name : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    EXPECT_TRUE(says(usage_sentence([&] { schedule_by_name(name).grid({.devices = 2, .chunks = 2}); }),
                     name + " has one stage on each device, not 2"));
  }
  for (const std::int64_t chunks : {1, 3}) {
    EXPECT_TRUE(says(usage_sentence([&] { schedule_by_name("zb-v").grid({.devices = 2, .chunks = chunks}); }),
                     "zb-v has two stages on each device"));
  }
}

}  // namespace
}  // namespace baton::schedule
