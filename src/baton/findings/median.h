#pragma once

#include <vector>

namespace baton::findings {

/// The median of the values; of an even number of them, the mean of the two in the middle. 0 if there are none.
double median(std::vector<double> values);

}  // namespace baton::findings
