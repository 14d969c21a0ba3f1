#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "baton/lab/experiment.h"

namespace baton::lab {

/// A question with its answer.
struct Answer {
  std::string id;  // as in Question
  std::string question;
  std::string text;  // empty if the rows cannot answer it

  friend bool operator==(const Answer&, const Answer&) = default;
};

/// The result of an experiment. Everything that is shown of it is made from this.
struct Result {
  std::shared_ptr<const Experiment> experiment;  // with the groups in its table and plots, if there are any
  std::vector<Record> rows;
  std::string trained = {};     // what was trained, in one line; empty if nothing was
  std::vector<Answer> answers;  // one for each of the experiment's questions, in order
  std::vector<std::string> details;
  std::vector<Record> timelines;
  std::string command;
  Preset preset = Preset::quick;
};

/// Values that replace an axis's own: `--set devices=1,2`.
using AxisValues = std::map<std::string, std::vector<job::FieldValue>>;
/// Parses `axis=value,value`; numbers become numbers.
void parse_axis_values(const std::string& text, AxisValues& values);
/// Sets the values of an axis; texts that are numbers become numbers.
void set_axis_values(const std::string& axis, std::vector<job::FieldValue> list, AxisValues& values);

/// The values whose axis the experiment has.
AxisValues values_for(const Experiment& experiment, const AxisValues& values);

/// The experiment with one more axis for each of these fields of a job for which it has no axis yet and which can be set; others
/// are skipped. Its jobs then have those values.
Experiment extended(const Experiment& experiment, const std::vector<std::string>& names);

/// Its task, with the values that these points have for the axes that it names.
std::string task_of(const Experiment& experiment, const std::vector<Point>& points);

/// The points of an experiment: the product of its axes, in order. A usage error names an axis it does not have,
/// or a value that the axis cannot have.
std::vector<Point> points(const Experiment& experiment, Preset preset, const AxisValues& values);

/// Called after each instance with the share of the work that is done; false: stop here.
using Progress = std::function<bool(double done, const std::string& what)>;
/// Called with a point's record whenever there is a newer one. `final` is the last for the point.
using Keep = std::function<void(const Point& point, const Record& record, bool final)>;

/// Measures every point that `known` has no final record for, each in several fresh instances (instances.h) that are interleaved
/// with those of the other points. Records come in the order of the points; a point that could not be measured has a `reason`; of
/// one that was cut short by a stop, `stopped` says "not finished". Points that took turns have the same `batch_name`, and the
/// `drift` of the machine over their rounds.
std::vector<Record> measure(const Experiment& experiment, const std::vector<Point>& points, const Settings& settings,
                            const std::map<Point, Record>& known, const Keep& keep, const Progress& progress);

/// Makes rows, answers and timelines from records. If several values are set for an axis that has one value in the presets, they
/// make groups: derived columns and answers are those of one group, and say which. An answer then has one line per group.
Result conclude(std::shared_ptr<const Experiment> experiment, const std::vector<Point>& points, std::vector<Record> records,
                std::string command, Preset preset);

/// True if the values that printers read from every row have the right types.
bool is_sound(const Record& record);

/// Concludes from records that were read from a file: a usage error says that they are damaged if they lack values of the
/// experiment.
Result conclude_kept(std::shared_ptr<const Experiment> experiment, const std::vector<Point>& points, std::vector<Record> records,
                     std::string command, Preset preset);

}  // namespace baton::lab
