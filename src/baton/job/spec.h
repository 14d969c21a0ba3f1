#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "baton/base/preparation.h"
#include "baton/base/units.h"
#include "baton/cluster/cluster.h"
#include "baton/cluster/device_names.h"
#include "baton/job/loss_scaling.h"
#include "baton/job/what_if.h"
#include "baton/model/model_name.h"
#include "baton/op/rate.h"
#include "baton/strategy/delays.h"
#include "baton/strategy/layout.h"
#include "baton/strategy/step.h"
#include "baton/strategy/strategies.h"

namespace baton::job {

/// The devices of a job: a number of a simulated cluster's, or names of devices of this machine: text, as cluster/machine.h and
/// cluster/gpu.h describe it, or numbers of cores or GPUs. Only a machine can tell what the text means.
class DeviceList {
 public:
  DeviceList() = default;
  DeviceList(std::int64_t count) : count_(count) {}                // NOLINT: a number is a list
  DeviceList(std::string text);                                    // NOLINT: and so is a text; one of digits alone is a number
  DeviceList(const char* text) : DeviceList(std::string(text)) {}  // NOLINT
  DeviceList(cluster::CpuNames cpus) : names_(std::move(cpus)) {}  // NOLINT
  DeviceList(cluster::CoreSets sets) : names_(std::move(sets)) {}  // NOLINT
  DeviceList(cluster::GpuNames gpus) : names_(std::move(gpus)) {}  // NOLINT

  /// `count` devices that share this machine's cores evenly, as `cpu:4`.
  static DeviceList cpus(std::size_t count) { return cluster::CpuNames{.count = count}; }

  /// nullopt if it names devices.
  std::optional<std::int64_t> count() const { return count_; }
  /// A number alone is a text that names none.
  cluster::DeviceNames names() const;
  /// The text that the command line takes.
  std::string text() const;
  bool operator==(const DeviceList&) const = default;

 private:
  std::optional<std::int64_t> count_;
  cluster::DeviceNames names_ = "cpu";
};

/// The parameters that weight decay acts on.
enum class Decay : std::uint8_t { all, matrices };
/// The type of the gradients of parameters in 16-bit training.
enum class GradientType : std::uint8_t { same, fp32 };
/// Says when one of many identical replicas is simulated for all.
enum class Fold : std::uint8_t { automatic, always, never };

/// A training job, as the command line, a spec file or an experiment asks for it. Texts are names that are looked up in a table, a
/// file or a machine when the job is made; nullopt and empty texts mean "not asked for".
struct JobSpec {
  model::ModelName model = "mlp:dim=1024,depth=2";
  std::optional<strategy::Strategy> strategy;  // nullopt: single, or product if a layout is given
  DeviceList devices;
  std::int64_t batch = 64;
  std::optional<strategy::Loss> loss;  // nullopt: cross-entropy if the model gives scores, mse otherwise
  double label_smoothing = 0;
  std::string optimizer = "sgd";
  std::optional<double> lr;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  Decay decay = Decay::all;
  op::RateSchedule lr_schedule;
  std::optional<double> clip;
  std::optional<std::int64_t> dp;
  std::optional<std::int64_t> pp;
  std::optional<std::int64_t> tp;
  bool sp = false;
  std::optional<std::int64_t> zero;
  std::string schedule;  // a name, or the path of a schedule file
  std::optional<std::int64_t> chunks;
  strategy::Precision precision = strategy::Precision::fp32;
  GradientType gradients = GradientType::same;
  LossScaling loss_scale;
  std::int64_t loss_scale_growth = 2000;
  std::vector<std::int64_t> split;
  strategy::Balance balance = strategy::Balance::even;
  strategy::Recompute recompute = strategy::Recompute::none;
  std::optional<std::int64_t> micro_batches;
  Bytes bucket = Bytes(25 << 20);
  Bytes first_bucket = Bytes(1 << 20);
  std::optional<cluster::Link> link;
  std::optional<Bytes> memory;
  std::string backend;  // empty: chosen by the devices
  std::vector<strategy::DelayRequest> delays;
  std::int64_t seed = 0;
  std::int64_t samples = 0;
  std::string data;  // empty: random numbers
  std::string tokenizer;
  std::optional<TokenType> token_type;
  std::optional<PixelScale> normalize;
  Augmentation augment;
  std::string cluster;   // empty: run on this machine, not simulated
  std::string software;  // training program of the simulated machine; empty: Baton's own
  WhatIf what_if;
  Fold fold = Fold::automatic;

  /// True if both ask for the same job.
  bool operator==(const JobSpec&) const = default;
};

/// A value for a field, as in its source: text from a command line, numbers from TOML, JSON and Python.
using FieldValue = std::variant<std::string, std::int64_t, double>;

/// The topic of a field.
enum class Topic : std::uint8_t { step, split, data, machine };

/// One option of a job: the one place that knows its name, its type and its range.
struct JobField {
  std::string name;  // the flag without dashes
  std::string type;  // what help shows for the value: N, NAME, SIZE, ...
  std::string help;
  /// Sets the member, in its range; a usage error names the flag and names what is accepted. An empty text means "not asked for" if
  /// the field may be left out.
  std::function<void(JobSpec& spec, const FieldValue& value)> set;
  /// Sets the member to its default.
  std::function<void(JobSpec& spec)> reset;
  /// The value as text for the command line; empty if the field was left out.
  std::function<std::string(const JobSpec& spec)> text;
  /// The value for JSON and Python: a number if it is one, otherwise its text. Setting it gives the member again, to the
  /// bit.
  std::function<FieldValue(const JobSpec& spec)> value;
  /// True if two specifications have the same value.
  std::function<bool(const JobSpec& a, const JobSpec& b)> same;
  Topic topic = Topic::step;
  bool numeric = false;                                        // takes numbers alone
  std::vector<std::string> also = {};                          // other spellings: a letter, or a name known from other programs
  std::function<std::vector<std::string>()> values = nullptr;  // the allowed names, if the value is one of a few names
  /// Sets it from numbers, if its value is a list of whole numbers.
  std::function<void(JobSpec& spec, const std::vector<std::int64_t>& values)> set_list = nullptr;
  /// Refuses a value that can be set but with which no job can be made.
  std::function<void(const FieldValue& value)> require = nullptr;
  /// True for a text that is allowed in addition to `values`, as the path of a file.
  std::function<bool(const std::string& text)> takes_beside = nullptr;
  /// True if an experiment may be given it in addition to its axes: it says neither how work is split nor where it runs.
  bool beside_axes = false;
  /// Adds one more value, if the field may be given several times.
  std::function<void(JobSpec& spec, std::string_view value)> add = nullptr;

  /// True if the field differs from its default in the specification.
  bool given(const JobSpec& spec) const;
};

/// The range of a number as help shows it: both bounds if the upper one is small enough to mean something, as 0..3; otherwise N, or
/// N>=2 if it is to be above 1.
std::string range_text(std::int64_t low, std::int64_t high);
std::string range_text(double low, double high);

/// All options, in the order of the help. Which backends there are, only the layers that run jobs know.
const std::vector<JobField>& fields();

/// The memory of devices on which any step fits, for questions of time alone.
inline constexpr Bytes ample_memory{std::int64_t{1} << 50};

/// The name of a cluster that means this machine, and whether a name is that one.
constexpr std::string_view this_machine = "machine";
bool is_this_machine(std::string_view cluster);
/// True if the job is simulated on another machine than this.
bool is_imagined(const JobSpec& spec);

/// True if the name of a schedule is the path of a file, not the name of a known schedule.
bool is_schedule_file(const std::string& name);

/// The field with this spelling, in which dashes and underscores are the same; nullptr if there is none.
const JobField* find_field(const std::vector<JobField>& fields, std::string_view name);
/// Sets a field by any of its spellings; a usage error lists the names.
void set_field(JobSpec& spec, std::string_view name, const FieldValue& value);
/// The same for a field whose value is a list of whole numbers.
void set_list_field(JobSpec& spec, std::string_view name, const std::vector<std::int64_t>& values);

/// The flags that ask for this job, for those wanted fields that differ from their defaults: "--batch 128 --dp 2".
/// `quote` quotes a text for a shell.
std::string flags_of(const JobSpec& spec, const std::function<std::string(const std::string& text)>& quote = {},
                     const std::function<bool(const JobField& field)>& wanted = {});

/// The job, in which fields with their default values take those of the software profile that it names.
JobSpec with_software(JobSpec spec);

}  // namespace baton::job
