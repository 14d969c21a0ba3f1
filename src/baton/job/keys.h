#pragma once

#include "baton/job/record.h"

/// All keys of records. The name of a key is the one in files and includes its unit. training/training_json.h and
/// docs/measuring.md say what the keys of a training mean; the file of an experiment makes and shows its own. At the end are
/// objects inside records, whose names may mean something else there: each has its keys in a struct.
namespace baton::job::key {

using Text = Key<std::string>;
using Whole = Key<std::int64_t>;
using Real = Key<double>;
using Time = Key<Nanoseconds>;
using Size = Key<Bytes>;
using Flag = Key<bool>;
using Maybe = Key<std::optional<double>>;  // null if it is not known
using MaybeWhole = Key<std::optional<std::int64_t>>;
using Numbers = Key<std::vector<double>>;
using Wholes = Key<std::vector<std::int64_t>>;
using Texts = Key<std::vector<std::string>>;
using Object = Key<Record>;
using Objects = Key<std::vector<Record>>;
using Any = Key<Json>;  // what is passed on as it is

// Axes: values of a point, which its row repeats. A sweep may also name `devices`, as cpu:4: `devices_of` (lab/rows.h) reads both.
inline constexpr Text model{"model"};
inline constexpr Text strategy{"strategy"};
inline constexpr Text schedule{"schedule"};
inline constexpr Text precision{"precision"};
inline constexpr Text optimizer{"optimizer"};
inline constexpr Text case_{"case"};
inline constexpr Text network{"network"};
inline constexpr Text run{"run"};
inline constexpr Whole devices{"devices"};
inline constexpr Whole batch{"batch"};
inline constexpr Whole micro_batches{"micro_batches"};
inline constexpr Whole dim{"dim"};
inline constexpr Whole depth{"depth"};
inline constexpr Whole size{"size"};
inline constexpr Whole power{"power"};
inline constexpr Real delay_ms{"delay_ms"};
inline constexpr Real lr{"lr"};

// The time of a step, over steps or over instances.
inline constexpr Time time_per_step_ns{"time_per_step_ns"};
inline constexpr Time time_low_ns{"time_low_ns"};
inline constexpr Time time_high_ns{"time_high_ns"};
inline constexpr Maybe interval_level{"interval_level"};
inline constexpr Whole instances{"instances"};
inline constexpr Any instance_times_ns{"instance_times_ns"};
inline constexpr Maybe smallest_difference{"smallest_difference"};
inline constexpr Time mean_ns{"mean_ns"};
inline constexpr Time std_ns{"std_ns"};
inline constexpr Time p5_ns{"p5_ns"};
inline constexpr Time p95_ns{"p95_ns"};
inline constexpr Time min_ns{"min_ns"};
inline constexpr Time max_ns{"max_ns"};
inline constexpr Wholes quantiles_ns{"quantiles_ns"};
inline constexpr Wholes first_step_times_ns{"first_step_times_ns"};
inline constexpr Wholes step_times_ns{"step_times_ns"};
inline constexpr Real samples_per_s{"samples_per_s"};
inline constexpr Whole warmup{"warmup"};
inline constexpr Whole steps_timed{"steps_timed"};

// The parts of a step: the mean over devices.
inline constexpr Time compute_ns{"compute_ns"};
inline constexpr Time communication_ns{"communication_ns"};
inline constexpr Time exposed_ns{"exposed_ns"};
inline constexpr Time waiting_ns{"waiting_ns"};
inline constexpr Time delayed_ns{"delayed_ns"};
inline constexpr Time rest_ns{"rest_ns"};
inline constexpr Any critical_path{"critical_path"};
inline constexpr Any timeline{"timeline"};
inline constexpr Any playground{"playground"};

// The work of a step on all devices, and the fullest device's memory.
inline constexpr Whole transfers{"transfers"};
inline constexpr Whole transfers_forward{"transfers_forward"};
inline constexpr Size sent_bytes{"sent_bytes"};
inline constexpr Whole flops{"flops"};
inline constexpr Size peak_bytes{"peak_bytes"};
inline constexpr Size buffer_bytes{"buffer_bytes"};
inline constexpr Whole global_batch{"global_batch"};

// Losses and roundings.
inline constexpr Numbers losses{"losses"};
inline constexpr Maybe loss_final{"loss_final"};
inline constexpr Whole loss_steps{"loss_steps"};
inline constexpr Text losses_checksum{"losses_checksum"};
inline constexpr Flag emulated{"emulated"};
inline constexpr Text emulated_products{"emulated_products"};
inline constexpr Text arithmetic{"arithmetic"};
inline constexpr Whole underflows{"underflows"};
inline constexpr Whole overflows{"overflows"};
inline constexpr Whole skipped_steps{"skipped_steps"};
inline constexpr Maybe final_scale{"final_scale"};
inline constexpr Numbers gradients_left{"gradients_left"};
inline constexpr Any roundings{"roundings"};

// The conditions of the measurement.
inline constexpr Text origin{"origin"};
inline constexpr Text cluster{"cluster"};
inline constexpr Flag oversubscribed{"oversubscribed"};
inline constexpr Text reason{"reason"};
inline constexpr Text stopped{"stopped"};
inline constexpr Text batch_name{"batch_name"};
inline constexpr Real drift{"drift"};
inline constexpr Real core_peak_gflops{"core_peak_gflops"};
inline constexpr Real others_share{"others_share"};

// The job that was trained (`trained`, and the result of train).
inline constexpr Object trained{"trained"};
inline constexpr Whole parameters{"parameters"};
inline constexpr Whole parameter_bytes{"parameter_bytes"};
inline constexpr Text loss{"loss"};
inline constexpr Key<std::uint64_t> seed{"seed"};
inline constexpr Text command{"command"};
inline constexpr Text backend{"backend"};
inline constexpr Any settings{"settings"};
inline constexpr Whole steps{"steps"};
inline constexpr Whole steps_before{"steps_before"};
inline constexpr Any gpu{"gpu"};
inline constexpr Any costs{"costs"};
inline constexpr Any ranks{"ranks"};
inline constexpr Any environment{"environment"};
inline constexpr Wholes eval_step{"eval_step"};
inline constexpr Numbers eval_loss{"eval_loss"};
inline constexpr Any eval_accuracy{"eval_accuracy"};
inline constexpr Any eval_perplexity{"eval_perplexity"};
inline constexpr Text data{"data"};
inline constexpr Whole data_samples{"data_samples"};
inline constexpr Whole steps_per_epoch{"steps_per_epoch"};
inline constexpr Time data_wait_ns{"data_wait_ns"};

// A device of `device_list`: shares of the step, and bytes.
inline constexpr Objects device_list{"device_list"};
inline constexpr Text name{"name"};
inline constexpr Whole stands_for{"stands_for"};
inline constexpr Any cores{"cores"};  // which, or of a kind of task how many
inline constexpr Whole rank{"rank"};
inline constexpr Real busy{"busy"};
inline constexpr Real idle{"idle"};
inline constexpr Real waiting{"waiting"};
inline constexpr Real exposed{"exposed"};
inline constexpr Real overlapped{"overlapped"};
inline constexpr Real delayed{"delayed"};
inline constexpr Real loading{"loading"};
inline constexpr Real rest{"rest"};
inline constexpr Whole tasks{"tasks"};
inline constexpr Size received_bytes{"received_bytes"};

// A message, a kind of task, and an arrival at collectives.
inline constexpr Objects messages{"messages"};
inline constexpr Objects kinds{"kinds"};
inline constexpr Objects arrivals{"arrivals"};
inline constexpr Text kind{"kind"};
inline constexpr Size bytes{"bytes"};
inline constexpr Time time_ns{"time_ns"};
inline constexpr Text device{"device"};
inline constexpr Real share{"share"};
inline constexpr Real path_share{"path_share"};
inline constexpr Real data_sheet_gflops{"data_sheet_gflops"};
inline constexpr Any without{"without"};  // the step without a family of tasks; of a record by family
inline constexpr Real last{"last"};
inline constexpr Time held_up_ns{"held_up_ns"};
inline constexpr Text phase{"phase"};
inline constexpr Time excess_ns{"excess_ns"};
inline constexpr Whole latest_in{"latest_in"};

// GPUs: what their drivers said, and parts of one that slow each other down (`beside`).
inline constexpr Any gpus{"gpus"};
inline constexpr Real gpu_utilization_0{"gpu_utilization_0"};
inline constexpr Real gpu_utilization_others{"gpu_utilization_others"};
inline constexpr Size gpu_memory_bytes{"gpu_memory_bytes"};
inline constexpr Size memory_bytes{"memory_bytes"};
inline constexpr Real gpu_watts{"gpu_watts"};
inline constexpr Whole gpu_clock_mhz{"gpu_clock_mhz"};
inline constexpr Object beside{"beside"};
inline constexpr Whole parts{"parts"};
inline constexpr Whole multiprocessors{"multiprocessors"};
inline constexpr Time alone_ns{"alone_ns"};
inline constexpr Time beside_ns{"beside_ns"};
inline constexpr Time separate_ns{"separate_ns"};

// Keys of experiments in addition to those.
inline constexpr Real theory{"theory"};
inline constexpr Whole stages{"stages"};
inline constexpr Whole used{"used"};
inline constexpr Size parameters_bytes{"parameters_bytes"};
inline constexpr Size gradients_bytes{"gradients_bytes"};
inline constexpr Size states_bytes{"states_bytes"};
inline constexpr Size activations_bytes{"activations_bytes"};
inline constexpr Size communication_bytes{"communication_bytes"};
inline constexpr Size other_bytes{"other_bytes"};
inline constexpr Size unshared_bytes{"unshared_bytes"};
inline constexpr Whole balanced_batch{"balanced_batch"};
inline constexpr Time balanced_ns{"balanced_ns"};
inline constexpr Real balanced_gflops{"balanced_gflops"};
inline constexpr Real limit_samples_per_s{"limit_samples_per_s"};
inline constexpr Whole limit_batch{"limit_batch"};
inline constexpr Whole saturated_batch{"saturated_batch"};
inline constexpr Whole larger_batch{"larger_batch"};
inline constexpr Time larger_batch_ns{"larger_batch_ns"};
inline constexpr Real tflops{"tflops"};
inline constexpr Whole products{"products"};
inline constexpr Time move_ns{"move_ns"};
inline constexpr Time products_ns{"products_ns"};
inline constexpr Time sum_ns{"sum_ns"};
inline constexpr Whole traced_steps{"traced_steps"};
inline constexpr Texts log{"log"};
inline constexpr Text first_device{"first_device"};
inline constexpr Text last_device{"last_device"};
inline constexpr Flag on_gpus{"on_gpus"};
inline constexpr Time forward_ns{"forward_ns"};
inline constexpr Time output_ns{"output_ns"};
inline constexpr Time overlap_ns{"overlap_ns"};
inline constexpr Time overlap_backward_ns{"overlap_backward_ns"};
inline constexpr Texts placement{"placement"};
inline constexpr Wholes blocks_each{"blocks_each"};
inline constexpr Size bytes_forward{"bytes_forward"};
inline constexpr Size input_bytes{"input_bytes"};
inline constexpr Wholes transfer_each_ns{"transfer_each_ns"};
inline constexpr Time transfer_ns{"transfer_ns"};
inline constexpr Time transfer_low_ns{"transfer_low_ns"};
inline constexpr Time transfer_high_ns{"transfer_high_ns"};
inline constexpr Time transfers_step_ns{"transfers_step_ns"};
inline constexpr Real some_busy{"some_busy"};
inline constexpr Time simulated_ns{"simulated_ns"};
inline constexpr Time measured_ns{"measured_ns"};
inline constexpr Real error{"error"};

// Columns of rows that are derived from other rows.
inline constexpr Real speedup{"speedup"};
inline constexpr Real speedup_low{"speedup_low"};
inline constexpr Real speedup_high{"speedup_high"};
inline constexpr Real efficiency{"efficiency"};
inline constexpr Whole base_devices{"base_devices"};
inline constexpr Real ideal_ns{"ideal_ns"};
inline constexpr Real unshrunk_ns{"unshrunk_ns"};
inline constexpr Real lost_exposed_ns{"lost_exposed_ns"};
inline constexpr Real lost_waiting_ns{"lost_waiting_ns"};
inline constexpr Real lost_rest_ns{"lost_rest_ns"};
inline constexpr Real idle_share{"idle_share"};
inline constexpr Real exposed_share{"exposed_share"};
inline constexpr Real rest_share{"rest_share"};
inline constexpr Real bytes_per_flop{"bytes_per_flop"};
inline constexpr Size message_bytes{"message_bytes"};
inline constexpr Real message_gbytes{"message_gbytes"};
inline constexpr Real waiting_device_0_ns{"waiting_device_0_ns"};
inline constexpr Real waiting_others_ns{"waiting_others_ns"};
inline constexpr Size through_device_0{"through_device_0"};
inline constexpr Size through_others{"through_others"};
inline constexpr Size memory_device_0{"memory_device_0"};
inline constexpr Size memory_others{"memory_others"};
inline constexpr Real busy_device_0{"busy_device_0"};
inline constexpr Real busy_others{"busy_others"};
inline constexpr Real variation{"variation"};
inline constexpr Text busy_each{"busy_each"};
inline constexpr Text memory_each{"memory_each"};
inline constexpr Text where{"where"};
inline constexpr Text split{"split"};
inline constexpr Text label{"label"};
inline constexpr Text computed{"computed"};
inline constexpr Text stability{"stability"};
inline constexpr Real loss_start{"loss_start"};
inline constexpr Real loss_last{"loss_last"};
inline constexpr Whole loss_step{"loss_step"};
inline constexpr Real loss_at_5{"loss_at_5"};
inline constexpr Real loss_at_10{"loss_at_10"};
inline constexpr Real gradients_lost{"gradients_lost"};
inline constexpr Time step_1_ns{"step_1_ns"};
inline constexpr Real mean_all_ns{"mean_all_ns"};
inline constexpr Real gflops{"gflops"};
inline constexpr Real gbytes{"gbytes"};
inline constexpr Real of_peak{"of_peak"};

// Points of plots that are not rows.
inline constexpr Whole step{"step"};
inline constexpr Real step_ns{"step_ns"};
inline constexpr Real y{"y"};  // the values of several columns

// A published measurement and its prediction.
inline constexpr Text source{"source"};
inline constexpr Whole line{"line"};
inline constexpr Text what{"what"};
inline constexpr Real measured_log{"measured_log"};
inline constexpr Real simulated_log{"simulated_log"};

/// A line of the log of a training: some steps together, or an evaluation.
struct LogLine {
  static constexpr Whole step{"step"};
  static constexpr Maybe epoch{"epoch"};
  static constexpr Maybe loss{"loss"};
  static constexpr Maybe lr{"lr"};
  static constexpr Maybe samples_per_s{"samples_per_s"};
  static constexpr Maybe tokens_per_s{"tokens_per_s"};
  static constexpr Maybe mfu{"mfu"};
  static constexpr Maybe data_wait{"data_wait"};
  static constexpr Maybe eval_loss{"eval_loss"};
  static constexpr Maybe eval_accuracy{"eval_accuracy"};
  static constexpr Maybe eval_perplexity{"eval_perplexity"};
  static constexpr MaybeWhole eval_samples{"eval_samples"};
  static constexpr Real seconds{"seconds"};
};

/// An entry of `ranks`.
struct RankEntry {
  static constexpr Whole rank{"rank"};
  static constexpr Text host{"host"};
  static constexpr Whole node{"node"};
  static constexpr Texts devices{"devices"};
  static constexpr Time clock_offset_ns{"clock_offset_ns"};
  static constexpr Real clock_drift_ppm{"clock_drift_ppm"};
  static constexpr Time clock_error_ns{"clock_error_ns"};
};

/// An entry of `roundings`.
struct RoundingEntry {
  static constexpr Text phase{"phase"};
  static constexpr Whole block{"block"};
  static constexpr Text what{"what"};
  static constexpr Whole values{"values"};
  static constexpr Whole underflows{"underflows"};
  static constexpr Whole overflows{"overflows"};
};

/// An entry of `gpus`.
struct GpuEntry {
  static constexpr Whole ordinal{"ordinal"};
  static constexpr Whole rank{"rank"};
  static constexpr Whole samples{"samples"};
  static constexpr Maybe utilization{"utilization"};
  static constexpr Size memory_used_bytes{"memory_used_bytes"};
  static constexpr Whole clock_mhz{"clock_mhz"};
  static constexpr Whole highest_clock_mhz{"highest_clock_mhz"};
  static constexpr Whole memory_clock_mhz{"memory_clock_mhz"};
  static constexpr Real watts{"watts"};
  static constexpr Whole celsius{"celsius"};
  static constexpr Texts slowed_by{"slowed_by"};
};

/// A timeline: one step, task by task.
struct Timeline {
  static constexpr Text label{"label"};
  static constexpr Text origin{"origin"};
  static constexpr Time duration_ns{"duration_ns"};
  static constexpr Texts devices{"devices"};
  static constexpr Texts lanes{"lanes"};
  static constexpr Objects events{"events"};
};

/// A task in a timeline; `device` and `lane` are indices into those of the timeline.
struct TimelineEvent {
  static constexpr Whole device{"device"};
  static constexpr Whole lane{"lane"};
  static constexpr Text name{"name"};
  static constexpr Text phase{"phase"};
  static constexpr Whole block{"block"};
  static constexpr Whole micro_batch{"micro_batch"};
  static constexpr Time start{"start"};
  static constexpr Time end{"end"};
  static constexpr Size sent{"sent"};
  static constexpr Size received{"received"};
  static constexpr Flag critical{"critical"};
  static constexpr Time met{"met"};
};

/// The result of `evaluate`.
struct Evaluated {
  static constexpr MaybeWhole step{"step"};
  static constexpr Whole samples{"samples"};
  static constexpr Maybe eval_loss{"eval_loss"};
  static constexpr Maybe eval_accuracy{"eval_accuracy"};
  static constexpr Maybe eval_perplexity{"eval_perplexity"};
};

/// The result of `bench collectives`, and a row of it.
struct BenchResult {
  static constexpr Text devices{"devices"};
  static constexpr Objects rows{"rows"};
  static constexpr Any laws{"laws"};
};
struct BenchRow {
  static constexpr Text operation{"operation"};
  static constexpr Whole count{"count"};
  static constexpr Text type{"type"};
  static constexpr Real algorithm_bandwidth{"algorithm_bandwidth"};
  static constexpr Real bus_bandwidth{"bus_bandwidth"};
  static constexpr Whole wrong{"wrong"};
};

/// The result of `devices`.
struct DevicesResult {
  static constexpr Objects devices{"devices"};
};

/// The result of `fit` for one split, in addition to the bytes of each cause.
struct FitResult {
  static constexpr Flag fits{"fits"};
  static constexpr Size needed_bytes{"needed_bytes"};
  static constexpr Size limit_bytes{"limit_bytes"};
  static constexpr Text flags{"flags"};
  static constexpr Objects devices{"devices"};
  static constexpr Objects reserved{"reserved"};
  static constexpr Whole estimated_step_ns{"estimated_step_ns"};
};

/// An entry of its `reserved`.
struct ReservedEntry {
  static constexpr Whole stage{"stage"};
  static constexpr Any causes{"causes"};
};

/// The result of `fit` for one split and those that are smaller, or for all splits.
struct FitAnswer {
  static constexpr Object fit{"fit"};
  static constexpr Objects smaller{"smaller"};
  static constexpr Size least_impossible_bytes{"least_impossible_bytes"};
  static constexpr Whole considered{"considered"};
  static constexpr Whole impossible{"impossible"};
  static constexpr Whole likely{"likely"};
  static constexpr Whole laid_out{"laid_out"};
  static constexpr Whole refused{"refused"};
  static constexpr Flag fits{"fits"};
  static constexpr Objects smallest{"smallest"};
  static constexpr Objects fastest{"fastest"};
  static constexpr Object nearest{"nearest"};
};

/// The result of `search`.
struct SearchAnswer {
  static constexpr Whole considered{"considered"};
  static constexpr Whole tried{"tried"};
  static constexpr Whole pruned{"pruned"};
  static constexpr Whole left_out{"left_out"};
  static constexpr Whole too_long{"too_long"};
  static constexpr Whole too_large{"too_large"};
  static constexpr Whole refused{"refused"};
  static constexpr Any reasons{"reasons"};
  static constexpr Flag complete{"complete"};
  static constexpr Objects ranked{"ranked"};
  static constexpr Any frontier{"frontier"};
  static constexpr Text against_all_devices{"against_all_devices"};
  static constexpr Object one_device{"one_device"};
  static constexpr Text against_one_device{"against_one_device"};
  static constexpr Text why_not_the_next{"why_not_the_next"};
};

/// The keys that an entry of its `ranked` has in addition to those of a split's record, and an entry of `programs`.
struct RankedEntry {
  static constexpr Flag from_shorter_steps{"from_shorter_steps"};
  static constexpr Any programs{"programs"};
};
struct ProgramEntry {
  static constexpr Text flags{"flags"};
  static constexpr Text cannot{"cannot"};
};

}  // namespace baton::job::key
