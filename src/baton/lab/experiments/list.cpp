#include "baton/lab/experiments/list.h"

namespace baton::lab {

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> list{
      timing(),         strong_scaling(), comm_vs_compute(), which_network(),    dp_vs_ddp(), delay(),       batch_scaling(),
      imbalance(),      accumulate(),     first_split(),     split_experiment(), depth(),     all_devices(), transfers(),
      four_way_split(), idle(),           memory(),          matrix_power(),     precision(), profile(),
  };
  return list;
}

}  // namespace baton::lab
