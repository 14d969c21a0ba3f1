#include "baton/cost/uniform.h"

namespace baton::cost {

Nanoseconds Uniform::duration(const plan::Plan& plan, TaskId task) const {
  const auto found = times_.find(plan::verb(plan[task]));
  return found == times_.end() ? Nanoseconds(0) : found->second;
}

}  // namespace baton::cost
