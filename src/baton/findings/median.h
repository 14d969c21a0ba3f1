#pragma once

#include <vector>

namespace baton::findings {

/// Of an even number the mean of the two in the middle; 0 of none.
double median(std::vector<double> values);

}  // namespace baton::findings
