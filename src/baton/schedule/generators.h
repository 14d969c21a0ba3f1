#pragma once

#include "baton/schedule/grid.h"

/// The built-in schedules. Each is a pure function of the pipeline and returns a grid without flaws, or refuses.
/// Below: p devices, m micro-batches, v chunks; F, I and W take one unit of time, B takes two.
namespace baton::schedule {

/// One micro-batch at a time: all its forwards, then all its backwards.
Grid naive(const Pipeline& pipeline);
/// All forwards, then all backwards (Huang et al. 2019). Waits 3(p-1); keeps m activations.
Grid gpipe(const Pipeline& pipeline);
/// One forward, one backward by turns (Narayanan et al. 2019). Waits 3(p-1); stage s keeps p-s activations.
Grid one_forward_one_backward(const Pipeline& pipeline);
/// 1f1b with v stages on each device (Narayanan et al. 2021). Waits 3(p-1) of chunks that are v times as small. Any m:
/// micro-batches go in groups of p or a few more, as even as possible; with m < p it waits 3(v-1)(p-m) longer.
Grid interleaved(const Pipeline& pipeline);
/// All forwards of a stage, then of the device's next; then the backwards (Lamy-Poirier 2022). In order of
/// the micro-batches also in the backward, where PyTorch goes down, so that gradients add up in one order in
/// all schedules.
Grid looped_bfs(const Pipeline& pipeline);
/// Qi et al. 2023: 1f1b with the weight gradients delayed as far as the memory of 1f1b's device 0 allows. Waits
/// p-1.
Grid zero_bubble_h1(const Pipeline& pipeline);
/// zb-h1 with twice as many forwards ahead: keeps 2p-1 activations, and never waits once it has started.
Grid zero_bubble_h2(const Pipeline& pipeline);
/// Two stages per device, placed in a V: stage s on device s, then 2p-1-s. Keeps 2p activations of half the
/// size, as much as 1f1b's device 0; never waits once it has started.
Grid zero_bubble_v(const Pipeline& pipeline);
/// Interleaved, with backwards split as in zb-h1.
Grid interleaved_zero_bubble(const Pipeline& pipeline);

}  // namespace baton::schedule
