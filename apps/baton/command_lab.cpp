#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/cluster/gpu.h"
#include "baton/devices/devices.h"
#include "baton/lab/conditions.h"
#include "baton/lab/rows.h"
#include "baton/lab/spec.h"
#include "baton/lab/store.h"
#include "baton/measure/environment.h"
#include "baton/report/report.h"
#include "baton/report/table.h"
#include "baton/training/job.h"
#include "called_as.h"
#include "commands.h"
#include "options.h"
#include "run_report.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

namespace fs = std::filesystem;
using lab::Json;

struct LabWords {
  std::vector<std::string> ids;
  std::optional<lab::Preset> preset;  // nullopt: quick, or full where another machine is simulated, which takes no longer
  lab::DeviceType devices;
  std::vector<std::string> sets;
  std::string out = "runs";
  std::string json;
  std::optional<Nanoseconds> limit;
  std::string spec;
  std::string cluster;
  std::optional<job::WhatIf> what_if;
  bool simulate = false;
  bool resume = false;
  bool precise = false;
  bool pdf = false;
  std::string playground;
};

/// Timelines are kept of at most this many points of an experiment: a page with more of them could not be read.
constexpr std::size_t most_timelines = 100;

/// With more points than this, the limit on records is said before they are measured; with fewer, each may have more than any
/// record needs.
constexpr std::int64_t many_points = 2000;

/// The file's name without its ending; it must not be taken by an experiment of the course.
std::string spec_id(const std::string& path) {
  std::string id = canonical(fs::path(path).stem().string());
  for (const lab::Experiment& experiment : lab::experiments()) {
    if (experiment.id == id) {
      throw usage_error("the spec {} has the name of the experiment {}: rename the file", path, id);
    }
  }
  return id;
}

/// Leaves out experiments that cannot be simulated, if others are left. Returns a line for each that was asked for by name.
std::string keep_simulated(std::vector<std::shared_ptr<const lab::Experiment>>& chosen, bool all) {
  std::string notes;
  for (const auto& experiment : chosen) {
    if (experiment->by_losses && !all) {
      notes += fmt::format("note: experiment {} looks at losses, which only training gives: it is left out\n", experiment->id);
    }
  }
  const std::string first = chosen.front()->id;
  std::erase_if(chosen, [](const auto& experiment) { return experiment->by_losses; });
  if (chosen.empty()) {
    throw usage_error("experiment {} looks at losses, which only training gives: run it without --simulate", first);
  }
  return notes;
}

/// The experiments with axes for the fields of a job that are set in addition to those they have.
void extend(std::vector<std::shared_ptr<const lab::Experiment>>& chosen, const lab::AxisValues& sets) {
  std::vector<std::string> names;
  for (const auto& [name, values] : sets) {
    names.push_back(name);
  }
  for (auto& experiment : chosen) {
    experiment = std::make_shared<const lab::Experiment>(lab::extended(*experiment, names));
  }
}

bool simulates(const LabWords& words) { return words.simulate || !words.cluster.empty(); }

bool simulates_this_machine(const LabWords& words) { return words.cluster.empty() || job::is_this_machine(words.cluster); }

std::string cluster_of(const LabWords& words) {
  return simulates_this_machine(words) ? std::string(job::this_machine) : words.cluster;
}

lab::Preset preset_of(const LabWords& words) {
  if (words.preset) {
    return *words.preset;
  }
  return simulates(words) && !simulates_this_machine(words) ? lab::Preset::full : lab::Preset::quick;
}

/// The simulated machine, for the heading of a report.
std::string simulated_on(const LabWords& words) {
  const std::string what_if = job::flag_text(words.what_if.value_or(job::WhatIf()));
  const std::string changes = what_if.empty() ? "" : ", what if " + what_if;
  if (simulates_this_machine(words)) {
    return "this machine, from tasks that were timed one by one" + changes;
  }
  const cluster::Blueprint blueprint = cluster::blueprint_by_name(words.cluster);
  return fmt::format("{} ({}){}", blueprint.name, blueprint.summary, changes);
}

lab::AxisValues axis_values(const std::vector<std::string>& sets) {
  lab::AxisValues values;
  for (const std::string& set : sets) {
    lab::parse_axis_values(set, values);
  }
  return values;
}

/// The sets (AXIS=VALUES) whose axis the experiment has.
std::vector<std::string> sets_for(const lab::Experiment& experiment, std::vector<std::string> sets) {
  std::erase_if(sets, [&](const std::string& set) { return lab::values_for(experiment, axis_values({set})).empty(); });
  return sets;
}

/// Every set must concern one of several experiments. Returns a line for each that some of them have no axis for; of a single
/// experiment, its points are refused.
std::string notes_on_sets(const std::vector<std::shared_ptr<const lab::Experiment>>& chosen, const std::vector<std::string>& sets) {
  std::string notes;
  for (const std::string& set : chosen.size() > 1 ? sets : std::vector<std::string>()) {
    const std::string axis = axis_values({set}).begin()->first;
    std::vector<std::string> without;
    std::set<std::string> axes;
    for (const auto& experiment : chosen) {
      if (sets_for(*experiment, {set}).empty()) {
        without.push_back(experiment->id);
      }
      for (const lab::Axis& one : experiment->axes) {
        axes.insert(one.name);
      }
    }
    if (without.size() == chosen.size()) {
      const std::vector<std::string> names(axes.begin(), axes.end());
      throw usage_error("none of these experiments has an axis '{}'{}: their axes are {}", axis, did_you_mean(axis, names),
                        fmt::join(names, ", "));
    }
    if (!without.empty()) {
      notes += fmt::format("note: {} {} no axis {} and use{} the preset\n", fmt::join(without, ", "),
                           without.size() == 1 ? "has" : "have", axis, without.size() == 1 ? "s" : "");
    }
  }
  return notes;
}

/// The command that measures one of the experiments again as it was measured, and keeps it in the same place.
std::string reproduce(const LabWords& words, const std::string& which, const std::vector<std::string>& sets) {
  const LabWords usual;
  std::string command = fmt::format("{} lab run {} --preset {}", called_as(), which, to_text(preset_of(words)));
  for (const std::string& set : sets) {
    command += " --set " + shell_word(set);
  }
  if (words.devices != usual.devices) {
    command += " --devices " + shell_word(lab::to_text(words.devices));
  }
  if (words.limit) {
    command += " --time-limit " + job::flag_text(*words.limit);
  }
  if (simulates(words)) {
    command += " --simulate --cluster " + shell_word(cluster_of(words));
  }
  if (words.what_if && words.what_if->changes()) {
    command += " --what-if " + shell_word(job::flag_text(*words.what_if));
  }
  if (words.precise) {
    command += " --precise";
  }
  if (words.out != usual.out) {
    command += " --out " + shell_word(words.out);
  }
  return command;
}

/// The latest run of this name, if it has the same conditions as this one; otherwise nothing, and `note` says why.
fs::path folder_to_resume(const std::string& out, const std::string& name, const lab::Settings& settings, std::string& note) {
  fs::path folder = lab::latest_run_folder(out, name);
  if (folder.empty()) {
    note += fmt::format("note: there is no run {} in {} to continue: a new one begins\n", name, out);
    return folder;
  }
  const lab::Store store(folder);
  for (const std::string& id : store.experiments()) {
    const Json conditions = store.spec(id)->conditions;
    const std::vector<std::string> other = conditions.contains("run")
                                               ? lab::differences(conditions["run"], lab::run_conditions(settings))
                                               : std::vector<std::string>{
                                                     "version (an earlier one, which did not say what its numbers depend on)"};
    if (!other.empty()) {
      note += fmt::format("note: {} is left as it is, because it was measured with another {}: a new run begins\n", folder.string(),
                          fmt::join(other, ", another "));
      return {};
    }
  }
  return folder;
}

/// The records of an earlier run of an experiment that `--resume` takes; `note` says which it leaves and why.
std::map<lab::Point, lab::Record> known_records(const lab::Store& store, const std::string& id, const Json& conditions,
                                                std::string& note) {
  const std::optional<lab::RunSpec> before = store.spec(id);
  std::map<lab::Point, lab::Record> known = store.records(id, true, lab::conditions_name(conditions));
  if (const lab::Damage damage = before ? lab::damage_of(store, *before) : lab::Damage(); damage.lost) {
    note += fmt::format("note: {}; points without a record are measured again\n", damage.sentence);
  }
  if (before && lab::conditions_name(before->conditions) != lab::conditions_name(conditions)) {
    const std::size_t left = store.records(id, true, lab::conditions_name(before->conditions)).size();
    note += fmt::format(
        "note: {} record{} of {} {} not used, because {} measured with another {}\n", left, left == 1 ? "" : "s", id,
        left == 1 ? "is" : "are", left == 1 ? "it was" : "they were",
        fmt::join(lab::differences(before->conditions.value("own", Json::object()), conditions["own"]), ", another "));
  }
  return known;
}

/// Keeps records of an experiment as they come, and says soon if they would be more than can be read again.
class Keeper {
 public:
  Keeper(const lab::Store& store, std::string id, std::string conditions, std::size_t points)
      : store_(store), id_(std::move(id)), conditions_(std::move(conditions)), points_(points) {}

  void operator()(const lab::Point& point, const lab::Record& record, bool final) {
    lab::Record kept = record;
    if (kept.has(lab::key::timeline) && ++timelines_ > most_timelines) {
      kept.erase(lab::key::timeline);
    }
    const std::size_t bytes = store_.keep(id_, point, kept, final, conditions_);
    final_bytes_ += final ? bytes : 0;
    const std::size_t expected = std::max(final_bytes_, kept.has(lab::key::timeline) ? 0 : bytes * points_);
    if (expected > static_cast<std::size_t>(lab::most_records.count)) {
      throw usage_error("{} points of about {} each are more than the {} of records that a report is made from: ask for fewer",
                        points_, to_text(Bytes(static_cast<std::int64_t>(bytes))), to_text(lab::most_records));
    }
  }

 private:
  const lab::Store& store_;
  std::string id_;
  std::string conditions_;
  std::size_t points_;
  std::size_t timelines_ = 0;
  std::size_t final_bytes_ = 0;
};

/// An experiment of a run.
struct Planned {
  std::shared_ptr<const lab::Experiment> experiment;
  std::optional<std::string> toml = {};  // the TOML of an experiment that a user wrote
  std::vector<lab::Point> points = {};
  Json conditions = {};                          // the conditions of its numbers
  std::map<lab::Point, lab::Record> known = {};  // records of an earlier run that are taken over
};

/// The named experiments, with the one of a spec; all if none is named.
std::vector<Planned> choose_experiments(const LabWords& words) {
  std::vector<Planned> chosen;
  for (const std::string& id : words.ids) {
    chosen.push_back({std::make_shared<const lab::Experiment>(lab::experiment_by_id(id))});
  }
  if (!words.spec.empty()) {
    std::string toml = read_file(words.spec, "the spec " + words.spec, most_toml);
    const auto experiment = std::make_shared<const lab::Experiment>(lab::parse_spec(toml, spec_id(words.spec)));
    chosen.push_back({experiment, std::move(toml)});
  }
  if (chosen.empty()) {
    for (const lab::Experiment& experiment : lab::experiments()) {
      chosen.push_back({std::make_shared<const lab::Experiment>(experiment)});
    }
  }
  return chosen;
}

lab::Settings settings_of(const LabWords& words) {
  lab::Settings settings{
      .preset = preset_of(words), .devices = words.devices, .machine = cluster::probe(), .precise = words.precise};
  if (simulates(words)) {
    settings.cluster = cluster_of(words);
    settings.what_if = words.what_if.value_or(job::WhatIf());
  }
  devices::open_devices(lab::device_list(words.devices).names(), settings.machine);  // throws if there are none such
  settings.time_limit = words.limit                            ? *words.limit
                        : settings.preset == lab::Preset::full ? Nanoseconds(30'000'000'000)
                                                               : Nanoseconds(900'000'000);
  return settings;
}

/// The notes before an experiment of this many points.
std::string notes_on_size(const std::string& id, std::size_t points) {
  std::string notes;
  if (points > most_timelines) {
    notes += fmt::format("note: timelines are kept of the first {} of {} points of {}\n", most_timelines, points, id);
  }
  if (const auto count = static_cast<std::int64_t>(points); count > many_points) {
    notes += fmt::format(
        "note: a report holds at most {} of records: {} for each of the {} points of {}. If the first records are larger, the run "
        "ends before the last points\n",
        to_text(lab::most_records), to_text(Bytes(lab::most_records.count / count)), count, id);
  }
  return notes;
}

/// One `baton lab run`: experiments measured one after the other into a folder, and the report of it.
class LabRun {
 public:
  explicit LabRun(LabWords words) : words_(std::move(words)), simulates_(simulates(words_)) {
    choose();
    settings_ = settings_of(words_);
    plan_points();
    open_folder();
  }

  /// Returns the exit code of the program.
  int run() {
    announce();
    const Interrupt interrupt;
    ProgressBar bar(simulates_ ? "simulating" : "measuring", 1000, true, ProgressBar::percent);
    for (const Planned& one : planned_) {
      if (!interrupt.asked()) {
        measure(one, bar, interrupt);
      }
    }
    interrupt.begin_saving();
    if (interrupt.asked() && store_->experiments().empty()) {
      fmt::print(stderr, "baton: interrupted before a point was measured; {} holds no results\n", printable(folder_.string()));
      return interrupt.exit_code();
    }
    write_results();
    if (interrupt.asked()) {
      fmt::print(stderr, "baton: interrupted; the measured points are in {}, and --resume continues from there\n",
                 folder_.string());
      return interrupt.exit_code();
    }
    if (reached_ == 0) {
      throw failure("no point could be {}: the reasons are above and in {}", simulates_ ? "simulated" : "measured",
                    folder_.string());
    }
    return 0;
  }

 private:
  bool all() const { return words_.ids.empty() && words_.spec.empty(); }
  bool speaks() const { return words_.json != "-"; }

  void choose() {
    planned_ = choose_experiments(words_);
    std::vector<std::shared_ptr<const lab::Experiment>> chosen;
    for (const Planned& one : planned_) {
      chosen.push_back(one.experiment);
    }
    if (simulates_) {
      notes_ = keep_simulated(chosen, all());
    } else if (words_.what_if) {
      throw usage_error("--what-if needs a simulation: add --simulate");
    }
    std::erase_if(planned_, [&](const Planned& one) {
      return std::none_of(chosen.begin(), chosen.end(), [&](const auto& left) { return left->id == one.experiment->id; });
    });
    sets_ = axis_values(words_.sets);
    extend(chosen, sets_);
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      planned_[i].experiment = chosen[i];
    }
    notes_ += notes_on_sets(chosen, words_.sets);
  }

  void plan_points() {
    for (Planned& one : planned_) {
      one.points = lab::points(*one.experiment, settings_.preset,
                               planned_.size() > 1 ? lab::values_for(*one.experiment, sets_) : sets_);
      total_ += one.points.size();
    }
  }

  void open_folder() {
    const std::string name = (all()                  ? "lab"
                              : planned_.size() == 1 ? planned_[0].experiment->id
                                                     : "selection") +
                             (simulates_ ? "-simulated" : "");
    settle_outputs({&words_.json});
    require_playground(words_.playground);
    folder_ = words_.resume ? folder_to_resume(words_.out, name, settings_, notes_) : fs::path();
    if (folder_.empty()) {
      folder_ = lab::new_run_folder(words_.out, name);
    }
    store_.emplace(folder_);
    lock_.emplace(folder_,
                  fmt::format("another run writes its results to {}: wait for its end, or leave out --resume", folder_.string()));
    for (Planned& one : planned_) {
      one.conditions = lab::experiment_conditions(settings_, one.points, one.toml);
      if (words_.resume) {
        one.known = known_records(*store_, one.experiment->id, one.conditions, notes_);
      }
      notes_ += notes_on_size(one.experiment->id, one.points.size());
    }
    environment_ = measure::environment(settings_.machine);
    if (simulates_) {
      environment_["simulated_on"] = simulated_on(words_);
    }
  }

  void announce() const {
    if (!speaks()) {
      fmt::print(stderr, "{}", notes_);
      return;
    }
    fmt::print("{} experiment{}, {} point{}, {} preset; results go to {}\n{}\n", planned_.size(), planned_.size() == 1 ? "" : "s",
               total_, total_ == 1 ? "" : "s", to_text(settings_.preset), folder_.string(), notes_);
    std::fflush(stdout);
  }

  std::string title() const {
    if (all()) {
      return simulates_ ? "Parallel deep learning, simulated on " + settings_.cluster : "Parallel deep learning, measured";
    }
    const std::string& first = planned_[0].experiment->title;
    return planned_.size() == 1
               ? first
               : fmt::format("{} and {} more experiment{}", first, planned_.size() - 1, planned_.size() == 2 ? "" : "s");
  }

  /// Keeps the facts that a report of the experiment needs in addition to its records.
  void keep_spec(const Planned& one) const {
    const lab::Experiment& experiment = *one.experiment;
    const std::optional<lab::RunSpec> before = words_.resume ? store_->spec(experiment.id) : std::nullopt;
    store_->keep_spec({.experiment = experiment.id,
                       .title = title(),
                       .run_command = command_line(),
                       .created = created_,
                       .preset = settings_.preset,
                       .command = reproduce(words_, one.toml ? "--spec " + shell_word(words_.spec) : experiment.id,
                                            sets_for(experiment, words_.sets)),
                       .points = one.points,
                       .environment = before ? before->environment : environment_,
                       .conditions = one.conditions,
                       .toml = one.toml});
  }

  void measure(const Planned& one, ProgressBar& bar, const Interrupt& interrupt) {
    keep_spec(one);
    const std::string& id = one.experiment->id;
    const std::vector<lab::Record> records = lab::measure(
        *one.experiment, one.points, settings_, one.known,
        Keeper(*store_, id, lab::conditions_name(one.conditions), one.points.size()), [&](double done, const std::string&) {
          const double share = (static_cast<double>(before_) + done * static_cast<double>(one.points.size())) /
                               static_cast<double>(total_);
          bar.show(static_cast<std::int64_t>(share * 1000));
          return !interrupt.asked();
        });
    before_ += one.points.size();
    reached_ += static_cast<std::size_t>(
        std::count_if(records.begin(), records.end(), [](const lab::Record& record) { return !record.has(lab::key::reason); }));
    results_.push_back(lab::conclude(*store_, id));
    bar.clear();
    if (speaks()) {
      fmt::print("{}\n", report::to_terminal(results_.back()));
      std::fflush(stdout);
    }
    printed_.push_back(report::to_json(results_.back()));
  }

  void write_results() const {
    write_report(*store_, results_, words_.playground);
    if (!words_.json.empty()) {
      write_output(words_.json, (printed_.size() == 1 ? printed_[0] : printed_).dump(2) + "\n");
    }
    if (speaks()) {
      fmt::print("Report: {}\n", (folder_ / "report.html").string());
    }
    if (words_.pdf) {
      write_pdf(folder_);
    }
  }

  LabWords words_;
  bool simulates_;
  std::vector<Planned> planned_;
  lab::AxisValues sets_;
  lab::Settings settings_;
  std::string notes_;      // printed before the first point
  std::size_t total_ = 0;  // points
  fs::path folder_;
  std::optional<lab::Store> store_;
  std::optional<FolderLock> lock_;
  Json environment_;
  std::string created_ = time_text();

  std::size_t before_ = 0;   // points of experiments that are done
  std::size_t reached_ = 0;  // points with a result
  std::vector<lab::Result> results_;
  Json printed_ = Json::array();
};

void run_lab(LabWords words, int& exit_code) { exit_code = LabRun(std::move(words)).run(); }

void list_experiments() {
  report::Table table({"id", "part", "what it shows"});
  for (const lab::Experiment& experiment : lab::experiments()) {
    table.row({experiment.id, experiment.part, experiment.title});
  }
  fmt::print("{}", table.text());
}

/// Shows one of them: its task, and the axes that it varies in each preset.
void show_experiment(const std::string& id) {
  const lab::Experiment& experiment = lab::experiment_by_id(id);
  fmt::print("{} (part {})\n{}\n\n", experiment.title, experiment.part,
             lab::task_of(experiment, lab::points(experiment, lab::Preset::quick, {})));
  const auto list = [](const std::vector<job::FieldValue>& values) {
    std::string text;
    for (const job::FieldValue& value : values) {
      text += (text.empty() ? "" : ", ") + lab::word_of(value);
    }
    return text;
  };
  report::Table table({"axis", "what it is", "quick", "full"});
  for (const lab::Axis& axis : experiment.axes) {
    table.row({axis.name, axis.meaning, list(axis.quick), list(axis.full)});
  }
  fmt::print("{}\n--set {}=VALUE,... sets other values\n", table.text(), experiment.axes[0].name);
}

void add_lab_flags(CLI::App& command, LabWords& words) {
  command
      .add_option_function<std::string>(
          "--preset", [&words](const std::string& name) { words.preset = lab::preset_by_name(name); },
          "quick, or full for the sizes of the course (default: quick; full if another machine is simulated)")
      ->type_name("NAME");
  command
      .add_option_function<std::string>(
          "-d,--devices", [&words](const std::string& type) { words.devices = lab::parse_device_type(type); },
          "type of the devices: cpu, cuda, or parts of one GPU, for example cuda:0/4")
      ->type_name("TYPE")
      ->default_str(lab::to_text(words.devices));
  command
      .add_option_function<std::vector<std::string>>(
          "--set",
          [&words](const std::vector<std::string>& sets) { words.sets.insert(words.sets.end(), sets.begin(), sets.end()); },
          "use these values of an axis, for example devices=1,2, in every experiment that has it; may be given several times")
      ->type_name("AXIS=VALUES")
      ->allow_extra_args(false);
  command.add_option("--out", words.out, "folder for the results")->type_name("DIR")->capture_default_str();
  command.add_flag("--simulate", words.simulate, "simulate instead of measuring");
  command
      .add_option("--cluster", words.cluster,
                  "the machine to simulate: machine (this one), a name from `baton clusters`, or a file")
      ->type_name("CLUSTER");
  command
      .add_option_function<std::string>(
          "--what-if", [&words](const std::string& changes) { words.what_if = job::parse_what_if(changes); },
          "simulate a changed machine, for example compute=2x,link=0.5x,latency=+10us")
      ->type_name("CHANGES");
  add_time(command, "--time-limit", words.limit, Nanoseconds(0),
           "time for measuring one point, for example 2s (default: 0.9s; 30s with --preset full)");
  command.add_flag("--precise", words.precise,
                   "measure until a difference of 3 % between points would be seen; takes at least twice as long");
  command.add_option("--json", words.json, "write the results to a file, or to standard output with -")->type_name("FILE");
  command.add_flag("--pdf", words.pdf, "also write the report as PDF (needs Chromium)");
  command.add_option("--playground", words.playground, playground_help)->type_name("FILE");
  command.add_flag("--resume", words.resume, "continue the latest run of the same experiments");
}

}  // namespace

void add_lab_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("lab", "Run the experiments of the course and write the report");
  auto words = std::make_shared<LabWords>();
  add_lab_flags(*command, *words);
  CLI::App* list = command->add_subcommand("list", "List the experiments, or show what one varies");
  auto listed = std::make_shared<std::string>();
  list->add_option("id", *listed, "the id of an experiment")->type_name("ID");
  list->callback([listed, command] {
    for (const CLI::Option* option : command->get_options()) {
      if (option->count() > 0) {
        throw usage_error("lab list takes no {}: leave it out", option->get_name());
      }
    }
    listed->empty() ? list_experiments() : show_experiment(*listed);
  });
  CLI::App* run = command->add_subcommand("run", "Run one or more experiments");
  const std::shared_ptr<LabWords>& run_words = words;  // flags may stand before `run` or after it
  run->add_option("id", run_words->ids, "the ids of the experiments")->type_name("ID");
  run->add_option("--spec", run_words->spec, "a TOML file with an experiment of your own (see experiments/)")->type_name("FILE");
  add_lab_flags(*run, *run_words);
  run->footer("\nExamples:\n  baton lab run strong-scaling\n  baton lab run delay --set delay_ms=0,10 --set devices=1,2");
  run->callback([run_words, &exit_code] {
    if (run_words->ids.empty() && run_words->spec.empty()) {
      throw usage_error("name an experiment, for example baton lab run strong-scaling; baton lab list shows all");
    }
    run_lab(*run_words, exit_code);
  });
  command->footer("\nExamples:\n  baton lab\n  baton lab list\n  baton lab run strong-scaling dp-vs-ddp --preset full");
  command->callback([command, words, &exit_code] {
    if (command->get_subcommands().empty()) {
      run_lab(*words, exit_code);
    }
  });
}

}  // namespace baton::app
