#pragma once

#include "baton/lab/experiment.h"

/// One function per experiment. A file holds one, or several that share a measurement.
namespace baton::lab {

Experiment timing();
Experiment strong_scaling();
Experiment comm_vs_compute();
Experiment which_network();
Experiment dp_vs_ddp();
Experiment delay();
Experiment batch_scaling();
Experiment imbalance();
Experiment accumulate();
Experiment first_split();
Experiment split_experiment();
Experiment depth();
Experiment all_devices();
Experiment transfers();
Experiment four_way_split();
Experiment idle();
Experiment matrix_power();
Experiment memory();
Experiment precision();
Experiment profile();

}  // namespace baton::lab
