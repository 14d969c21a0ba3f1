#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "baton/plan/plan.h"
#include "baton/ranks/world.h"
#include "baton/trace/trace.h"

namespace baton::test {

/// The ranks that this test was started as.
ranks::World& world();
/// The same, for what keeps them.
const std::shared_ptr<ranks::World>& shared_world();

/// Every task of a traced step has its time, within the step.
inline void expect_times_within(const trace::StepTrace& step, const plan::Plan& plan) {
  for (std::size_t t = 0; t < step.events.size(); ++t) {
    const trace::Event& event = step.events[t];
    EXPECT_GE(event.start.count, 0);
    EXPECT_GE(event.end, event.start);
    EXPECT_LE(event.end, step.duration) << plan.describe(TaskId(t));
    EXPECT_GT(event.end.count, 0) << plan.describe(TaskId(t));
  }
}

}  // namespace baton::test
