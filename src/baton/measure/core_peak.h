#pragma once

namespace baton::measure {

/// One burst of fused multiply-adds in registers, some tens of microseconds of it: how many flops that was.
double fma_burst();

/// The rate of fused multiply-adds in registers on the calling thread right now, over about that long: the peak that
/// products are compared with. It is the same work every time, so its spread over a run says how noisy the machine was.
double core_peak_gflops(double seconds = 0.001);

}  // namespace baton::measure
