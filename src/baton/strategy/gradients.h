#pragma once

#include <vector>

#include "baton/plan/plan.h"

namespace baton::strategy {

/// The gradients of one parameter in a draft.
struct Gradients {
  /// The gradient on one device.
  struct Copy {
    DeviceId device;
    BufferId id;
    std::size_t end_of_writes;  // one more than the place of the task that writes it last
  };
  std::size_t first_writer = 0;  // the first task that writes one, on any device
  std::vector<Copy> copies;      // in order of devices: the buffer that each writes last

  /// The copy on a device, or null if it has none.
  const Copy* of(DeviceId device) const;
};

/// The gradients of each parameter, by its ordinal; without copies if the draft has no gradient of it.
std::vector<Gradients> gradients_of_parameters(const plan::Draft& draft);

}  // namespace baton::strategy
