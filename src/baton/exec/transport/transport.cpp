#include "baton/exec/transport/transport.h"

#include <algorithm>

namespace baton::exec {

bool TransportContext::is_local(MeetingId meeting) const {
  const std::span<const TaskId> members = plan.members(meeting);
  return !members.empty() && std::all_of(members.begin(), members.end(),
                                         [&](TaskId member) { return doorbells[plan[member].device.index()] != nullptr; });
}

}  // namespace baton::exec
