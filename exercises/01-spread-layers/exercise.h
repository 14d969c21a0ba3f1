#pragma once

#include <vector>

/// The device of each layer, 0 to devices - 1. `times[l]` is how long layer l takes for a forward and a backward.
///
/// A layer's device is never lower than that of the layer before, so that each activation crosses as few links as possible. As many
/// devices are used as there are layers for: 0, 1, … without a gap. The device with the most work has as little as possible:
/// until it is done no device can begin the next step.
std::vector<int> spread(const std::vector<double>& times, int devices);
