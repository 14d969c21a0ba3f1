#pragma once

#include <vector>

/// A message of this many bytes took this many seconds.
struct Measurement {
  double bytes = 0;
  double seconds = 0;
};

/// A message of n bytes takes latency + n / bandwidth.
struct Link {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes per second
};

/// The link that the measurements are of. Each is off by some per cent; one in four may be far too long, because something else
/// used the link.
Link fit(const std::vector<Measurement>& measurements);
