#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/exercise/session.h"

namespace baton::exercise {

/// A task for students: a folder of exercises/ with its text, a file to fill and the check.
struct Exercise {
  std::string name;   // the name of its folder: 03-ring-all-reduce
  std::string title;  // what is to be done, in a line
  bool uses_baton;    // whether the file to fill may use Baton's library up to the simulator
  std::function<void(Session& session)> check;
};

/// All, in order.
const std::vector<Exercise>& exercises();
/// Finds an exercise by name, by number (`3`, `03`) or by the part after the number; nullptr if there is none.
const Exercise* find_exercise(std::string_view name);
/// Finds an exercise like `find_exercise`; if there is none, a usage error lists all.
const Exercise& exercise_by_name(std::string_view name);

/// The file that a student fills, in the folder of an exercise.
constexpr const char* answer_file = "answer.cpp";

/// The program around the answer as it was when this was built: path below exercises/ and text.
std::span<const std::pair<std::string_view, std::string_view>> harness_texts();

// Each in check.cpp of its folder.
void check_spread_layers(Session& session);
void check_count_transfers(Session& session);
void check_ring_all_reduce(Session& session);
void check_ddp_out_of_passes(Session& session);
void check_loss_scaler(Session& session);
void check_one_forward_one_backward(Session& session);
void check_beat_the_schedule(Session& session);
void check_link_cost(Session& session);
void check_tensor_parallel_linear(Session& session);
void check_find_the_layout(Session& session);

}  // namespace baton::exercise
