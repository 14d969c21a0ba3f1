#pragma once

namespace baton::lab {

/// How fast one core multiplies and adds right now, over a millisecond: the same work every time, so its spread over a run
/// says how noisy the machine was.
double pulse_gflops();

}  // namespace baton::lab
