#include "baton/cost/link_time.h"

#include "baton/base/duration.h"

namespace baton::cost {
namespace {

Nanoseconds repeated(Nanoseconds time, std::int64_t count) {
  return to_duration(static_cast<double>(time.count) * static_cast<double>(count));
}

}  // namespace

Nanoseconds link_time(const plan::Plan& plan, MeetingId meeting, const cluster::Link& link) {
  const plan::Task& first = plan[plan.members(meeting)[0]];
  const Bytes size = plan::bytes_of(plan, plan::payload(first));
  const auto* collective = std::get_if<plan::Collective>(&first.action);
  const std::int64_t n = collective == nullptr ? 2 : collective->size;
  const std::int64_t turns = plan::ring_turns(plan::move_of(first));
  return turns == 0 ? link.time(size * (n - 1)) : repeated(link.time(Bytes((size.count + n - 1) / n)), turns * (n - 1));
}

}  // namespace baton::cost
