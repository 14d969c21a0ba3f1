#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "baton/cluster/gpu.h"
#include "baton/cluster/machine.h"
#include "baton/lab/point.h"
#include "baton/training/job.h"

namespace baton::lab {

enum class Preset : std::uint8_t { quick, full };
std::string_view to_text(Preset preset);
/// A usage error lists them.
Preset preset_by_name(std::string_view name);

/// A quantity that an experiment varies: the values of the quick preset and of the full one, which has the courses' sizes.
struct Axis {
  /// The type of the values: `counts` are whole numbers above 0, since nothing below one can be measured; `numbers` are at least 0.
  enum class Type : std::uint8_t { any, counts, numbers };
  using Check = std::function<void(const job::FieldValue& value)>;

  /// An axis of the type that its key has.
  template <typename T>
  Axis(job::Key<T> key, std::string meant, std::vector<job::FieldValue> few, std::vector<job::FieldValue> all, Check by = nullptr,
       std::string other = {})
      : Axis(std::string(key), std::move(meant), std::move(few), std::move(all), std::move(by), std::move(other)) {
    type = std::is_same_v<T, std::int64_t> ? Type::counts : std::is_same_v<T, double> ? Type::numbers : Type::any;
  }
  Axis(std::string called, std::string meant, std::vector<job::FieldValue> few, std::vector<job::FieldValue> all,
       Check by = nullptr, std::string other = {})
      : name(std::move(called)),
        meaning(std::move(meant)),
        quick(std::move(few)),
        full(std::move(all)),
        check(std::move(by)),
        also(std::move(other)) {}

  std::string name;
  std::string meaning;
  std::vector<job::FieldValue> quick;
  std::vector<job::FieldValue> full;
  /// Throws a usage error if the axis cannot have this value. By default a value must be of the kind that the presets have.
  Check check;
  std::string also;  // another name that --set takes for it
  Type type = Type::any;
};

/// The name of an axis and of its column: with underscores, even if the user writes dashes.
std::string axis_name(std::string_view text);

/// The format of a column of the table: a number with six significant figures at most, as losses need, a rate with three.
enum class Format : std::uint8_t { text, integer, number, time, bytes, percent, ratio, rate, flops };
std::string_view to_text(Format format);

struct Column {
  std::string key;
  std::string heading;
  Format format = Format::text;
  bool if_known = false;  // left out of the table if no row has it, for example what GPUs report on a machine without them
};

/// A line in a plot: a fitted model, or theory.
struct Curve {
  std::string name;
  Json series;  // the value in the plot's column `series` that it belongs to; null: it belongs to none
  std::vector<std::pair<double, double>> points;
};

/// A picture of the rows; what the page draws.
struct Plot {
  enum class Type : std::uint8_t { line, scatter, bars, stacked, histogram };
  Type kind = Type::line;
  std::string title;
  std::string x;
  std::string y;
  std::string x_title;
  std::string y_title;
  Format y_format = Format::number;
  std::string series;          // the column that tells lines apart
  std::string ideal = "none";  // linear, flat or none
  bool log_x = false;          // true if a line plot has a logarithmic axis
  bool log_y = false;
  std::string low;  // the columns that hold the ends of the bar of uncertainty
  std::string high;
  std::vector<std::string> parts;        // the keys of a stacked plot
  std::vector<std::string> part_titles;  // the titles of those keys
  std::string theory;                    // the column that holds the values of theory, for bars
  Format x_format = Format::number;      // format of x, for points of its own
  /// The points that are drawn if they are not the rows: one per device, message or bin.
  std::function<std::vector<Record>(const std::vector<Record>& rows)> points;
  std::function<std::vector<Curve>(const std::vector<Record>& rows)> curves;
};

/// The points that a plot draws: its own, or the rows.
std::vector<Record> points_of(const Plot& plot, const std::vector<Record>& rows);

/// The devices of a run without their number, which each experiment sets: cores of this machine, or GPUs.
struct DeviceType {
  std::optional<cluster::GpuNames> gpus = {};  // or parts of one; nullopt: cores
  bool operator==(const DeviceType&) const = default;
};
/// `cpu`, `cuda`, `cuda:0,1`, `cuda:0/4`.
std::string to_text(const DeviceType& type);
/// nullopt if the text is something else, as cpu:2, which says how many. A usage error says what names of GPUs look like.
std::optional<DeviceType> find_device_type(std::string_view text);
/// As `find_device_type`; a usage error if it is something else.
DeviceType parse_device_type(std::string_view text);
/// All devices of this type: the cores of this machine as one, each GPU, or each part of one.
job::DeviceList device_list(const DeviceType& type);

/// The place and the conditions of an experiment's run.
struct Settings {
  Preset preset = Preset::quick;
  DeviceType devices;  // a point says how many
  cluster::Machine machine;
  Nanoseconds time_limit = Nanoseconds(1'500'000'000);  // for all instances of one point, warm-up included
  bool precise = false;                                 // measure until a difference of 3 % is found in nine of ten cases
  int instance = 0;               // which of a point's fresh instances is opened: the first one shows the losses
  std::string cluster;            // to simulate; empty: measure here
  job::WhatIf what_if;            // changes to the simulated machine
  std::int64_t most_devices = 0;  // the most devices that a point of the run asks for; 0: not known
  std::map<std::string, job::FieldValue> fields =
      {};  // fields set for the jobs, in addition to what the experiment says: optimizer → adam
  /// Called now and then, from another thread, with the share of a long measurement that is done. May be empty.
  std::function<void(double share)> within = nullptr;
};

/// `count` devices that are all alike, and stay so up to `most` of them: each gets the same number of cores, whether one
/// works or all do. With more devices than cores they take turns. A GPU is cut into as many parts as the run needs at most.
job::DeviceList devices_for(const Settings& settings, std::int64_t count, std::int64_t most);

/// One fresh instance of a point: an executor and memory of its own. A point is measured in several of them, one at a time and
/// interleaved with those of the other points, because equal jobs differ from one instance to the next.
class Measurement {
 public:
  virtual ~Measurement() = default;
  /// Measures for about this long. Called once.
  virtual void round(Nanoseconds time) = 0;
  /// True if this is the only instance of the point, because one takes long or the task asks for one; then nothing is known about
  /// the noise.
  virtual bool once() const { return false; }
  /// The measured values, from which the row, the answers and the page are made.
  virtual Record record() const = 0;
};

/// A question that an experiment answers.
struct Question {
  std::string id;    // if a homework sheet asks it, as "hw1/2/Q3": sheet, task, question; empty if no sheet does
  std::string text;  // the question in plain words
  /// The answer first, then the number, then the reason: at most 90 words. Empty if the rows cannot answer it.
  std::function<std::string(const std::vector<Record>& rows)> answer;
};

/// Axes, a function from a point to a measurement, a table, plots, and questions with their answers, all in one file, which may
/// hold several that share a measurement.
struct Experiment {
  std::string id;
  std::string part;  // the part of the course: A, B or C; empty if it belongs to none
  std::string title;
  std::string task;  // {axis} stands for the values that the axis has in a run
  std::vector<Question> questions;
  std::vector<Axis> axes;
  std::vector<Column> columns;
  std::vector<Plot> plots;
  /// Throws a usage error if the point cannot be measured here: its sentence becomes the row's reason.
  std::function<std::unique_ptr<Measurement>(const Point& point, const Settings& settings)> open;
  /// Fills in the columns that depend on other rows (speedup, efficiency), from records in the order of the points. A row has the
  /// point's values, what `open`'s records say, and `reason` if it was not measured.
  std::function<void(std::vector<Record>& rows)> derive;
  /// Further sentences made from the rows, for readers who want more than the answers. May be empty.
  std::function<std::vector<std::string>(const std::vector<Record>& rows)> details;
  /// True if it needs losses, which only training gives: then it cannot be simulated.
  bool by_losses = false;
  /// Fields of a job that it sets itself: they cannot be set in addition to its axes.
  std::vector<std::string> own_fields = {};
  /// True if it trains models: then fields of a job can be set in addition to its axes.
  bool trains = true;
};

/// The title of a part of the course; empty if there is no such part.
std::string_view part_title(std::string_view part);

/// Every experiment, in the order of the course.
const std::vector<Experiment>& experiments();
/// Finds one by id; a usage error lists them.
const Experiment& experiment_by_id(std::string_view id);

}  // namespace baton::lab
