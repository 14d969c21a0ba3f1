#include <algorithm>

#include "exercise.h"

std::vector<std::vector<Action>> one_forward_one_backward(int devices, int micro_batches) {
  std::vector<std::vector<Action>> rows(devices);
  for (int d = 0; d < devices; ++d) {
    const int ahead = std::min(devices - d - 1, micro_batches);  // forwards before the first backward can come
    for (int f = 0; f < ahead; ++f) {
      rows[d].push_back({'F', f});
    }
    for (int b = 0; b < micro_batches; ++b) {
      if (b + ahead < micro_batches) {
        rows[d].push_back({'F', b + ahead});
      }
      rows[d].push_back({'B', b});
    }
  }
  return rows;
}
