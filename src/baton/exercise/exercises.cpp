#include "baton/exercise/exercises.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::exercise {

const std::vector<Exercise>& exercises() {
  static const std::vector<Exercise> list{
      {"01-spread-layers", "spread layers over all devices", false, check_spread_layers},
      {"02-count-transfers", "count the transfers of a plan", true, check_count_transfers},
      {"03-ring-all-reduce", "all-reduce as a ring of sends and receives", false, check_ring_all_reduce},
      {"04-ddp-out-of-passes", "DDP out of passes", true, check_ddp_out_of_passes},
      {"05-loss-scaler", "a dynamic loss scaler", false, check_loss_scaler},
      {"06-1f1b", "1F1B as a grid", false, check_one_forward_one_backward},
      {"07-beat-the-schedule", "a schedule within a memory limit, shorter than Baton's", false, check_beat_the_schedule},
      {"08-link-cost", "a cost model for a link from measurements", false, check_link_cost},
      {"09-tensor-parallel-linear", "column- and row-parallel Linear layers", false, check_tensor_parallel_linear},
      {"10-find-the-layout", "the fastest layout of a job, in few tries", false, check_find_the_layout},
  };
  return list;
}

const Exercise* find_exercise(std::string_view name) {
  const auto matches = [&](const Exercise& one) {
    const std::string_view number = std::string_view(one.name).substr(0, 2);
    return name == one.name || name == number || name == std::string_view(one.name).substr(3) ||
           (number[0] == '0' && name == number.substr(1));
  };
  const auto found = std::find_if(exercises().begin(), exercises().end(), matches);
  return found == exercises().end() ? nullptr : &*found;
}

const Exercise& exercise_by_name(std::string_view name) {
  if (const Exercise* found = find_exercise(name)) {
    return *found;
  }
  std::vector<std::string> names;
  for (const Exercise& one : exercises()) {
    names.push_back(one.name);
  }
  throw unknown_name("exercise", name, names);
}

}  // namespace baton::exercise
