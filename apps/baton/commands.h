#pragma once

#include <CLI/CLI.hpp>

#include "baton/ranks/world.h"

namespace baton::app {

/// Each adds its command to the program. A command runs when the line is parsed, throws errors, and sets the exit
/// code if the work was cut short.
void add_bench_command(CLI::App& program, int& exit_code);
void add_devices_command(CLI::App& program);
void add_plan_command(CLI::App& program);
void add_strategies_command(CLI::App& program);
void add_models_command(CLI::App& program);
void add_train_command(CLI::App& program, int& exit_code);
void add_evaluate_command(CLI::App& program, int& exit_code);
/// Makes token files of texts.
void add_tokens_command(CLI::App& program);
/// Continues texts.
void add_sample_command(CLI::App& program, int& exit_code);
void add_export_command(CLI::App& program);
/// Prints PyTorch scripts of the same jobs.
void add_pytorch_command(CLI::App& program);
void add_launch_command(CLI::App& program, int& exit_code);
void add_simulate_command(CLI::App& program);
/// The simulator as a page for a browser.
void add_playground_command(CLI::App& program);
void add_clusters_command(CLI::App& program);
void add_calibrate_command(CLI::App& program);
void add_predict_command(CLI::App& program, int& exit_code);
/// Published tables of measured times.
void add_validate_command(CLI::App& program, int& exit_code);
/// Does a job fit into the memory of a cluster's devices, and in which splits.
void add_fit_command(CLI::App& program);
void add_search_command(CLI::App& program, int& exit_code);
void add_lab_command(CLI::App& program, int& exit_code);
/// A homework sheet answered, as a folder to hand in.
void add_handin_command(CLI::App& program, int& exit_code);
/// Marks exercises.
void add_check_command(CLI::App& program, int& exit_code);
/// Repeats the training of a result.
void add_verify_result_command(CLI::App& program, int& exit_code);
void add_report_command(CLI::App& program, int& exit_code);
void add_compare_command(CLI::App& program, int& exit_code);
/// `man` and `completion`, which describe all the others.
void add_manual_commands(CLI::App& program);

/// The ranks that the program was started as. Rank 0 alone prints.
ranks::World& world();
/// The same, for what keeps them.
const std::shared_ptr<ranks::World>& shared_world();

/// The default number of steps of `train`.
constexpr std::int64_t usual_steps = 30;

/// The exit code of a run that lost a rank: another attempt may succeed.
constexpr int lost_rank_exit_code = 75;

/// The command line as the user wrote it: what reproduces a result.
std::string& command_line();

}  // namespace baton::app
