#include "baton/measure/isolate.h"

#include "baton/plan/verify.h"
#include "support/machine.h"
#include "support/usage_sentence.h"
#include "unit/training/simulated.h"

namespace baton::measure {
namespace {

using baton::test::small_machine;
using training::test::spec_on;

/// The first operand in three turns, the others in one.
measure::Turns three_then_one(const plan::Plan& plan) {
  return [&plan](TaskId task) {
    std::vector<std::int64_t> turns(plan[task].reads.size() + plan[task].writes.size(), 1);
    turns[0] = 3;
    return turns;
  };
}

TEST(Isolated, ATaskIsCopiedOntoBuffersOfItsOwnAndThePlanHolds) {
  const training::Job job(spec_on("ideal", "dp", "3"), small_machine());
  const plan::Plan plan = job.compile();
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (plan::meeting_of(plan.tasks()[t]).valid()) {
      continue;
    }
    const plan::Plan alone = measure::isolate_task(plan, TaskId(t), {DeviceId(0), DeviceId(2)}, 3, three_then_one(plan));
    ASSERT_EQ(alone.tasks().size(), 6U);
    const auto operand = [&](std::size_t copy, std::size_t which) {
      const plan::Task& task = alone[alone.lane(DeviceId(2), plan.tasks()[t].lane)[copy]];
      return which < task.reads.size() ? task.reads[which] : task.writes[which - task.reads.size()];
    };
    EXPECT_NE(operand(0, 0), operand(1, 0)) << "in turns";
    EXPECT_NE(operand(1, 0), operand(2, 0)) << "in turns";
    if (plan.tasks()[t].reads.size() > 1 && plan.tasks()[t].reads[1] != plan.tasks()[t].reads[0]) {
      EXPECT_EQ(operand(0, 1), operand(2, 1)) << "always the same";
    }
    EXPECT_EQ(alone.lane(DeviceId(0), plan.tasks()[t].lane).size(), 3U);
    EXPECT_EQ(alone.lane(DeviceId(2), plan.tasks()[t].lane).size(), 3U);
    const plan::Verdict verdict = plan::verify(alone, {.unread = true});
    EXPECT_TRUE(verdict.holds()) << verdict.violations[0].text;
  }
  std::size_t first = 0;
  while (!std::holds_alternative<plan::Compute>(plan.tasks()[first].action)) {
    ++first;
  }
  const plan::Plan rested = isolate_after_delay(plan, TaskId(first), Nanoseconds(5000), 3);
  ASSERT_EQ(rested.tasks().size(), 4U);
  EXPECT_TRUE(std::holds_alternative<plan::Delay>(rested.tasks()[0].action));
  const plan::Verdict rests = plan::verify(rested);
  EXPECT_TRUE(rests.holds()) << rests.violations[0].text;
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const plan::Plan alone = measure::isolate_meeting(plan, MeetingId(m), 2, three_then_one(plan));
    EXPECT_EQ(alone.tasks().size(), 2 * plan.members(MeetingId(m)).size());
    const plan::Verdict verdict = plan::verify(alone, {.unread = true});
    EXPECT_TRUE(verdict.holds()) << verdict.violations[0].text;
  }
}

}  // namespace
}  // namespace baton::measure
