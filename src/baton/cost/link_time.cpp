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
  if (collective == nullptr) {
    return link.time(size);
  }
  const std::int64_t n = collective->size;
  if (collective->kind == plan::Collective::Kind::all_reduce) {
    return repeated(link.time(Bytes((size.count + n - 1) / n)), 2 * (n - 1));
  }
  if (collective->kind == plan::Collective::Kind::reduce_scatter || collective->kind == plan::Collective::Kind::all_gather) {
    return repeated(link.time(Bytes((size.count + n - 1) / n)), n - 1);
  }
  return link.time(size * (n - 1));
}

}  // namespace baton::cost
