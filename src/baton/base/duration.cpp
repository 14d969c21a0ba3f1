#include "baton/base/duration.h"

#include <cmath>

#include "baton/base/error.h"

namespace baton {

Nanoseconds to_duration(double nanoseconds) {
  if (!(nanoseconds >= 0 && nanoseconds <= longest_duration)) {
    throw usage_error("a task or a message would take longer than {}: a rate, a bandwidth or a factor is too small for it",
                      to_text(Nanoseconds(static_cast<std::int64_t>(longest_duration))));
  }
  return Nanoseconds(std::llround(nanoseconds));
}

}  // namespace baton
