#pragma once

#include <string>

#include "baton/plan/plan.h"
#include "baton/trace/trace.h"

namespace baton::trace {

/// The trace in Chrome's JSON format, which Perfetto opens: one process per device, one thread per lane, arrows for transfers.
/// Steps follow one another. Two complete events of one thread never overlap.
std::string to_chrome_json(const plan::Plan& plan, const Trace& trace);

}  // namespace baton::trace
