// earns: 0 0 0 0
// Everything divided over replicas: activations do not fit everywhere.
#include "exercise.h"

Layout find_layout(const Job& job, const TryOut&) { return {.dp = job.devices, .zero = 3}; }
