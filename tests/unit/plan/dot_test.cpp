#include "baton/plan/dot.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "unit/plan/sample_plans.h"

namespace baton::plan {
namespace {

using test::sample_plans;

TEST(PlanDot, MentionsEveryTaskDeviceAndEdge) {
  for (const test::Sample& sample : {sample_plans().front(), sample_plans().back()}) {
    const Plan& plan = sample.plan;
    const std::string dot = to_dot(plan);
    EXPECT_EQ(dot.rfind("digraph plan {", 0), 0U);
    EXPECT_EQ(dot.substr(dot.size() - 2), "}\n");
    for (const std::string& device : plan.devices()) {
      EXPECT_NE(dot.find(fmt::format("label=\"{}\"", device)), std::string::npos);
    }
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      EXPECT_NE(dot.find(fmt::format("    t{} [label=\"t{} {}", t, t, verb(plan.tasks()[t]))), std::string::npos) << t;
      for (const TaskId before : plan.tasks()[t].after) {
        EXPECT_NE(dot.find(fmt::format("  t{} -> t{};\n", before.value, t)), std::string::npos);
      }
    }
    for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
      const auto members = plan.members(MeetingId(m));
      EXPECT_NE(dot.find(fmt::format("  t{} -> t{} [dir=none", members[0].value, members[1].value)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace baton::plan
