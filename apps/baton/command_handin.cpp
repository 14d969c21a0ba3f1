#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <variant>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/stop.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/cluster/machine.h"
#include "baton/devices/devices.h"
#include "baton/lab/conditions.h"
#include "baton/lab/rows.h"
#include "baton/lab/store.h"
#include "baton/measure/environment.h"
#include "baton/report/table.h"
#include "baton/sheet/handin.h"
#include "baton/sheet/tarball.h"
#include "browser.h"
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

/// The cluster that is simulated in addition to rows whose devices shared cores: the course's own kind of machine.
constexpr const char* cluster_beside = "pcie-5";
/// A document of at least this many pages has a table of contents.
constexpr int pages_with_contents = 4;

struct HandinWords {
  std::string sheet;
  std::string name;
  std::optional<lab::DeviceType> devices;
  std::string cluster;
  std::string option;
  std::string preset;
  std::string out;
  std::optional<Nanoseconds> limit;
  bool resume = false;
};

/// The source of results: experiments run on devices of this machine, or simulated on another.
struct ResultSource {
  lab::Settings settings;
  sheet::ResultSet source;
  fs::path records;
};

std::string option_of(const sheet::Sheet& sheet, const HandinWords& words) {
  const std::vector<std::string> options = sheet::options_of(sheet);
  if (options.empty()) {
    if (!words.option.empty()) {
      throw usage_error("{} leaves no choice of options: leave --option out", sheet.id);
    }
    return "";
  }
  if (words.option.empty()) {
    return options.front();
  }
  const auto found = std::find_if(options.begin(), options.end(),
                                  [&](const std::string& one) { return canonical(one) == canonical(words.option); });
  if (found == options.end()) {
    throw unknown_name("option of " + sheet.id, words.option, options);
  }
  return *found;
}

Nanoseconds limit_of(const HandinWords& words, lab::Preset preset) {
  return words.limit ? *words.limit : preset == lab::Preset::full ? Nanoseconds(30'000'000'000) : Nanoseconds(900'000'000);
}

/// "1 core", "2 cores".
std::string counted(std::size_t count, std::string_view what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

ResultSource measured_place(const HandinWords& words, const lab::DeviceType& devices, std::optional<lab::Preset> preset) {
  ResultSource place;
  place.settings.devices = devices;
  place.settings.machine = cluster::probe();
  const std::vector<cluster::Device> opened = devices::open_devices(lab::device_list(devices).names(), place.settings.machine);
  place.settings.preset = preset.value_or(devices.gpus ? lab::Preset::full : lab::Preset::quick);
  place.settings.time_limit = limit_of(words, place.settings.preset);
  const std::size_t cores = place.settings.machine.cores.size();
  const bool parts = std::any_of(opened.begin(), opened.end(),
                                 [](const cluster::Device& device) { return device.gpu && device.gpu->of > 1; });
  const std::string named = lab::to_text(devices);
  place.source = {.devices = named,
                  .summary = !devices.gpus
                                 ? fmt::format("{} of this machine ({})", counted(cores, "core"), place.settings.machine.cpu)
                             : parts ? fmt::format("{} of one GPU of this machine ({})", counted(opened.size(), "part"), named)
                                     : fmt::format("{} of this machine ({})", counted(opened.size(), "GPU"), named),
                  .parts_of_gpu = parts};
  return place;
}

ResultSource simulated_place(const HandinWords& words, const std::string& cluster, std::optional<lab::Preset> preset) {
  ResultSource place;
  place.settings.machine = cluster::probe();
  place.settings.cluster = cluster;
  const bool here = job::is_this_machine(cluster);
  std::int64_t most_devices = 0;
  if (!here) {
    const cluster::Blueprint blueprint = cluster::blueprint_by_name(cluster);
    blueprint.take(1);  // a network alone has no devices
    most_devices = blueprint.networked ? 0 : blueprint.in_node;
  }
  place.settings.preset = preset.value_or(here ? lab::Preset::quick : lab::Preset::full);
  place.settings.time_limit = limit_of(words, place.settings.preset);
  place.source = {.devices = here ? "this machine" : cluster,
                  .summary = here ? std::string("this machine, from tasks timed by themselves")
                                  : fmt::format("{} ({})", cluster, cluster::blueprint_by_name(cluster).summary),
                  .simulated = true,
                  .most_devices = most_devices};
  return place;
}

/// If the place has fewer devices than the sheet's counts, all that it has stand for the larger ones.
lab::AxisValues devices_that_exist(const ResultSource& place, const lab::Experiment& experiment) {
  lab::AxisValues values;
  for (const lab::Axis& axis : experiment.axes) {
    if (axis.name != lab::key::devices.name) {
      continue;
    }
    const std::vector<job::FieldValue>& counts = place.settings.preset == lab::Preset::full ? axis.full : axis.quick;
    const auto exists = [&](const job::FieldValue& count) { return std::get<std::int64_t>(count) <= place.source.most_devices; };
    if (place.source.most_devices == 0 || std::all_of(counts.begin(), counts.end(), exists)) {
      continue;
    }
    std::vector<job::FieldValue>& there = values[axis.name];
    for (const job::FieldValue& count : counts) {
      const job::FieldValue capped = std::min(std::get<std::int64_t>(count), place.source.most_devices);
      if (std::find(there.begin(), there.end(), capped) == there.end()) {
        there.push_back(capped);
      }
    }
  }
  return values;
}

std::string command_of(const HandinWords& words, const ResultSource& place, const std::string& id) {
  std::string command = fmt::format("baton lab run {} --preset {}", id, lab::to_text(place.settings.preset));
  for (const auto& [axis, counts] : devices_that_exist(place, lab::experiment_by_id(id))) {
    std::string list;
    for (const job::FieldValue& count : counts) {
      list += (list.empty() ? "" : ",") + lab::word_of(count);
    }
    command += fmt::format(" --set {}={}", axis, list);
  }
  if (place.source.simulated) {
    command += " --cluster " + shell_word(place.settings.cluster);
  } else if (place.settings.devices.gpus) {
    command += " --devices " + shell_word(lab::to_text(place.settings.devices));
  }
  return as_called(command + (words.limit ? " --time-limit " + job::flag_text(*words.limit) : ""));
}

/// Runs the experiments of a place as one, so that the instances of all their points take turns: then times of different tasks, and
/// a time that several of them share, were measured under the same conditions.
class Runs {
 public:
  Runs(const HandinWords& words, const Interrupt& interrupt) : words_(words), interrupt_(interrupt) {}

  void run(ResultSource& place, const std::vector<std::string>& ids) {
    const lab::Store store(place.records);
    std::vector<Asking> asking;
    for (const std::string& id : ids) {
      ask(place, store, id, asking);
    }
    std::map<Measured, std::vector<std::size_t>> jobs;  // those who ask for a job
    for (std::size_t i = 0; i < asking.size(); ++i) {
      jobs[measured_for(place, asking[i])].push_back(i);
    }
    std::vector<lab::Point> points;
    std::map<lab::Point, lab::Record> known;
    for (const Asking& one : asking) {
      const std::vector<std::size_t>& sharing = jobs[measured_for(place, one)];
      if (&asking[sharing.front()] != &one) {
        continue;
      }
      points.push_back(merged(one));
      for (const std::size_t other : sharing) {
        if (!asking[other].known.empty()) {
          known[points.back()] = asking[other].known;
        }
      }
    }
    ProgressBar bar(place.source.simulated ? "simulating" : "measuring", 1000, true, ProgressBar::percent);
    const auto keep = [&](const lab::Point& point, const lab::Record& record, bool final) {
      const auto found = std::find_if(asking.begin(), asking.end(), [&](const Asking& one) { return merged(one) == point; });
      for (const std::size_t i : jobs[measured_for(place, *found)]) {
        store.keep(asking[i].id, asking[i].point, record, final, asking[i].conditions_name);
      }
    };
    for (const lab::Point& point : points) {  // some points that share the record may not have it yet
      if (const auto record = known.find(point); record != known.end()) {
        keep(point, record->second, true);
      }
    }
    lab::measure(together(), points, place.settings, known, keep, [&](double done, const std::string&) {
      bar.show(static_cast<std::int64_t>(done * 1000));
      return !interrupt_.asked();
    });
    for (const std::string& id : ids) {
      if (!interrupt_.asked()) {
        place.source.results[id] = lab::conclude(store, id);
      }
    }
  }

 private:
  /// An experiment that asks for a point.
  struct Asking {
    std::string id;
    lab::Point point;
    std::string conditions_name;
    lab::Record known = {};  // the record of an earlier run, if that is continued
  };

  /// The axis that names the experiment, before the axes of its own.
  static constexpr const char* asking_axis = "experiment";

  /// The experiment whose points are those of others, with their names.
  static lab::Experiment together() {
    lab::Experiment all;
    all.id = "handin";
    all.open = [](const lab::Point& point, const lab::Settings& settings) {
      lab::Point own;
      for (const auto& [axis, value] : point) {
        if (axis != asking_axis) {
          own.set(axis, value);
        }
      }
      return lab::experiment_by_id(lab::text(point, asking_axis)).open(own, settings);
    };
    return all;
  }

  static lab::Point merged(const Asking& one) {
    lab::Point point{{asking_axis, one.id}};
    for (const auto& [axis, value] : one.point) {
      check(axis != asking_axis, "{} has an axis {}", one.id, asking_axis);
      point.set(axis, value);
    }
    return point;
  }

  /// The job that is measured for it: its text, or the point if nobody shares it. Simulating a job again costs nothing, and an
  /// experiment may need simulations of its own.
  using Measured = std::variant<std::string, lab::Point>;
  static Measured measured_for(const ResultSource& place, const Asking& one) {
    const std::string job = place.source.simulated ? "" : sheet::job_of(one.id, one.point);
    return job.empty() ? Measured(merged(one)) : Measured(job);
  }

  void ask(const ResultSource& place, const lab::Store& store, const std::string& id, std::vector<Asking>& asking) const {
    const lab::Experiment& experiment = lab::experiment_by_id(id);
    const std::vector<lab::Point> points = lab::points(experiment, place.settings.preset, devices_that_exist(place, experiment));
    const Json conditions = lab::experiment_conditions(place.settings, points, std::nullopt);
    const std::string name = lab::conditions_name(conditions);
    std::map<lab::Point, lab::Record> known = words_.resume ? store.records(id, true, name) : std::map<lab::Point, lab::Record>();
    store.keep_spec({.experiment = id,
                     .title = experiment.title,
                     .run_command = command_line(),
                     .created = time_text(),
                     .preset = place.settings.preset,
                     .command = command_of(words_, place, id),
                     .points = points,
                     .environment = measure::environment(place.settings.machine),
                     .conditions = conditions,
                     .toml = std::nullopt});
    for (const lab::Point& point : points) {
      asking.push_back({id, point, name, known[point]});
    }
  }

  const HandinWords& words_;
  const Interrupt& interrupt_;
};

/// The file in a hand-in's folder with the name of its sheet: "hw1 C".
constexpr const char* sheet_file = "records/sheet.txt";

std::string sheet_in(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / sheet_file, error)) {
    return "";
  }
  std::string text = read_file(folder / sheet_file, "the name of a hand-in's sheet", Bytes(1 << 10));
  text.erase(std::min(text.find('\n'), text.size()));
  return text;
}

/// `option` of the sheet with a space before it, or nothing.
fs::path open_folder(const HandinWords& words, const std::string& sheet, const std::string& option) {
  fs::path folder = words.out.empty() ? fs::path("handin-" + sheet) : fs::path(words.out);
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw usage_error("{} is a file: give a folder with --out", folder.string());
  }
  if (!words.resume && fs::is_directory(folder, error) && !fs::is_empty(folder, error)) {
    throw usage_error("{} exists already: continue it with --resume, or give another folder with --out", folder.string());
  }
  if (const std::string held = sheet_in(folder); !held.empty() && held != sheet + option) {
    throw usage_error("{} holds the hand-in of {}: {}give another folder with --out", folder.string(), held,
                      held.starts_with(sheet + " ") ? fmt::format("give --option {}, or ", held.substr(sheet.size() + 1)) : "");
  }
  fs::create_directories(folder / "records", error);
  if (error) {
    throw usage_error("the folder {} cannot be made: {}", folder.string(), error.message());
  }
  write_whole(folder / sheet_file, sheet + option + "\n");
  std::string page = (folder / "handin.html").string();
  settle_outputs({&page});
  return folder;
}

void write_files(const fs::path& folder, const sheet::Files& files) {
  for (const auto& [path, text] : files) {
    fs::create_directories((folder / path).parent_path());
    write_whole(folder / path, text);
  }
}

constexpr Bytes largest_pdf(std::int64_t{256} << 20);

struct Printed {
  int pages = 0;
  std::string obstacle;  // why there is no PDF; empty if there is one
};

/// Prints handin.html as handin.pdf, with contents if it has many pages.
Printed write_handin_pdf(const fs::path& folder, const sheet::Document& document, sheet::Files& files) {
  const fs::path page = folder / "handin.html";
  const fs::path pdf = folder / "handin.pdf";
  std::error_code error;
  fs::remove(pdf, error);  // left by an earlier run
  const std::optional<std::string> browser = find_browser();
  if (!browser) {
    return {0, "Chromium, which prints it, is not here; install the package chromium"};
  }
  std::string printed;
  try {
    print_page(*browser, page, pdf);
    printed = read_file(pdf, "the PDF", largest_pdf);
    // Contents take room themselves, so that the pages they name are read off a print that has them.
    for (int round = 0; round < 2 && sheet::page_count(printed) >= pages_with_contents; ++round) {
      const std::vector<int> pages = sheet::pages_of_sections(printed, document.sections.size());
      if (pages.empty()) {
        break;
      }
      files["handin.html"] = sheet::to_html(document, pages);
      write_whole(page, files["handin.html"]);
      print_page(*browser, page, pdf);
      printed = read_file(pdf, "the PDF", largest_pdf);
    }
  } catch (const Error& failed) {
    if (printed.empty()) {
      return {0, fmt::format("{}; print handin.html in another way", failed.what())};
    }
    write_whole(pdf, printed);  // the print before is whole
  }
  files["handin.pdf"] = printed;
  return {sheet::page_count(printed), ""};
}

/// The document with the commands in its texts as a user types them.
sheet::Document with_commands_as_called(sheet::Document document) {
  for (sheet::Paragraph& note : document.notes) {
    note.text = as_called(note.text);
  }
  for (sheet::Section& section : document.sections) {
    for (sheet::Block& block : section.blocks) {
      if (auto* paragraph = std::get_if<sheet::Paragraph>(&block)) {
        paragraph->text = as_called(paragraph->text);
      } else if (auto* asked = std::get_if<sheet::Asked>(&block)) {
        asked->answer = as_called(asked->answer);
        asked->beside = as_called(asked->beside);
      }
    }
  }
  return document;
}

/// The same hand-in at the sheet's own sizes, with all that was asked for, in a folder of its own.
std::string full_command(const HandinWords& words, const std::string& sheet, const std::string& option, const fs::path& folder) {
  std::string command = fmt::format("baton handin {}", sheet);
  for (const auto& [flag, value] :
       std::vector<std::pair<const char*, std::string>>{{"--name", words.name},
                                                        {"--devices", words.devices ? lab::to_text(*words.devices) : ""},
                                                        {"--cluster", words.cluster},
                                                        {"--option", option},
                                                        {"--preset", "full"},
                                                        {"--time-limit", words.limit ? job::flag_text(*words.limit) : ""},
                                                        {"--out", folder.string() + "-full"}}) {
    command += value.empty() ? "" : fmt::format(" {} {}", flag, shell_word(value));
  }
  return command;
}

/// The experiments of a sheet by where they run: `beside` has those for questions that the first place cannot answer.
struct ExperimentIds {
  std::vector<std::string> first;
  std::vector<std::string> beside;
};

/// The experiments that are known before anything runs. A simulation has no losses and no noise.
ExperimentIds experiments_of(const std::vector<sheet::SheetTask>& tasks, bool simulates) {
  ExperimentIds ids;
  for (const sheet::SheetTask& task : tasks) {
    for (const std::string& id : task.experiments) {
      const bool simulable = !lab::experiment_by_id(id).by_losses;
      if (simulable || !simulates) {
        ids.first.push_back(id);
      }
      if (simulates && (!simulable || !task.noise_columns.empty())) {
        ids.beside.push_back(id);
      }
    }
  }
  return ids;
}

/// True if the first place leaves a question of an experiment open that a second one can answer.
bool needs_second_place(const ResultSource& first, const std::string& id, const std::vector<sheet::SheetTask>& tasks) {
  const auto found = first.source.results.find(id);
  if (found == first.source.results.end()) {
    return false;
  }
  const lab::Result& result = found->second;
  const bool unanswered = std::any_of(result.answers.begin(), result.answers.end(),
                                      [](const lab::Answer& answer) { return answer.text.empty() && !answer.id.empty(); });
  if (first.source.simulated) {
    return unanswered;
  }
  const bool simulable = !lab::experiment_by_id(id).by_losses;
  const bool refused = std::any_of(result.rows.begin(), result.rows.end(),
                                   [](const lab::Record& row) { return row.has(lab::key::reason); });
  const bool told_by_others = unanswered || refused || first.source.parts_of_gpu || sheet::oversubscribed(result);
  // A table of smaller sizes than the sheet names has one of those next to it.
  const bool too_small = sheet::is_reduced(result) && std::any_of(tasks.begin(), tasks.end(), [&](const sheet::SheetTask& task) {
                           return task.names_size &&
                                  std::find(task.experiments.begin(), task.experiments.end(), id) != task.experiments.end();
                         });
  return simulable && (told_by_others || too_small);
}

/// Writes the document and all that belongs to it, and packs them. `again` is the command that continues.
void write_handin(const fs::path& folder, const sheet::Sheet& sheet, const sheet::Document& document, sheet::Files files,
                  const std::string& again) {
  write_files(folder, files);
  Printed print;
  try {
    print = write_handin_pdf(folder, document, files);
  } catch (const Stopped&) {
    throw Stopped(fmt::format("interrupted before the archive was written; this command continues: {}", again));
  }
  write_whole(folder / (sheet.id + ".tar.gz"), sheet::to_tarball(sheet.id, files));
  if (!print.obstacle.empty()) {
    fmt::print("There is no handin.pdf: {}. This command tries again: {}\n", print.obstacle, again);
  } else {
    fmt::print("handin.pdf has {} page{}{}\n", print.pages, print.pages == 1 ? "" : "s",
               print.pages > sheet.most_pages ? fmt::format("; the sheet allows at most {}", sheet.most_pages) : "");
  }
}

void hand_in(const HandinWords& words, int& exit_code) {
  const sheet::Sheet& sheet = sheet::sheet_by_id(words.sheet);
  const std::string option = option_of(sheet, words);
  const std::vector<sheet::SheetTask> tasks = sheet::tasks_of(sheet, option);
  if (words.devices && !words.cluster.empty()) {
    throw usage_error("--devices measures here and --cluster simulates elsewhere: give one of them");
  }
  const std::optional<lab::Preset> preset = words.preset.empty() ? std::nullopt : std::optional(lab::preset_by_name(words.preset));
  const bool simulates = !words.cluster.empty();
  ResultSource first = simulates ? simulated_place(words, words.cluster, preset)
                                 : measured_place(words, words.devices.value_or(lab::DeviceType{}), preset);
  const fs::path folder = open_folder(words, sheet.id, option.empty() ? "" : " " + option);
  const FolderLock lock(
      folder,
      fmt::format("another run writes its hand-in to {}: wait for its end, or give another folder with --out", folder.string()));
  first.records = folder / "records";
  ExperimentIds ids = experiments_of(tasks, simulates);
  fmt::print("{}: {} experiment{}, {} preset, on {}; the hand-in goes to {}\n", sheet.title, ids.first.size(),
             ids.first.size() == 1 ? "" : "s", lab::to_text(first.settings.preset), first.source.summary, folder.string());
  std::fflush(stdout);
  const Interrupt interrupt;
  Runs runs(words, interrupt);
  runs.run(first, ids.first);
  // The results that the first place cannot show: of a simulation losses, of devices that share cores those of separate ones.
  ResultSource beside = simulates ? measured_place(words, lab::DeviceType{}, lab::Preset::quick)
                                  : simulated_place(words, cluster_beside, lab::Preset::full);
  beside.records = folder / "records" / "beside";
  for (const std::string& id : ids.first) {
    const bool known = std::find(ids.beside.begin(), ids.beside.end(), id) != ids.beside.end();
    if (!known && needs_second_place(first, id, tasks)) {
      ids.beside.push_back(id);
    }
  }
  if (!ids.beside.empty()) {
    runs.run(beside, ids.beside);
  }
  const std::string again = command_line() + (words.resume ? "" : " --resume");
  if (interrupt.asked()) {
    fmt::print(stderr, "baton: interrupted; the measured points are in {}; this command continues from there: {}\n",
               folder.string(), again);
    exit_code = interrupt.exit_code();
    return;
  }
  const sheet::Evidence evidence{first.source, beside.source};
  const sheet::Cover cover{words.name, time_text().substr(0, 10), command_line(),
                           as_called(full_command(words, sheet.id, option, folder)), cluster_beside};
  const sheet::Document document = with_commands_as_called(sheet::compose(sheet, tasks, cover, evidence));
  write_handin(folder, sheet, document, sheet::files_of(sheet, tasks, document, evidence), again);
  if (const std::string busy = sheet::busy_note(evidence); !busy.empty()) {
    fmt::print("{}\n", busy);
  }
  fmt::print("Hand in: {}\n", (folder / (sheet.id + ".tar.gz")).string());
}

void list_sheets() {
  report::Table table({"sheet", "title", "options", "pages"}, {true, true, true, false});
  for (const sheet::Sheet& sheet : sheet::sheets()) {
    const std::vector<std::string> options = sheet::options_of(sheet);
    table.row({sheet.id, sheet.title, options.empty() ? "" : either(options), fmt::format("at most {}", sheet.most_pages)});
  }
  fmt::print("{}", table.text());
}

}  // namespace

void add_handin_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("handin",
                                             "Answer a homework sheet: measure, write the document, the code and the archive");
  auto words = std::make_shared<HandinWords>();
  command->add_option("sheet", words->sheet, "hw1, hw3, practical8, csye-hw4, or list to name them")
      ->type_name("SHEET")
      ->required();
  command->add_option("--name", words->name, "name of the student, for the title")->type_name("NAME");
  command
      ->add_option_function<std::string>(
          "-d,--devices",
          [words](const std::string& type) {
            words->devices = lab::find_device_type(type);
            if (!words->devices) {
              throw usage_error(
                  "--devices is '{}', but a hand-in takes only the type, cpu or cuda: the sheet sets the number of devices", type);
            }
          },
          "measure on this kind of device: cpu, cuda, or parts of a GPU as cuda:0/4")
      ->type_name("TYPE");
  command
      ->add_option("--cluster", words->cluster, "simulate instead, on machine (this one), a name from `baton clusters` or a file")
      ->type_name("CLUSTER");
  command->add_option("--option", words->option, "which option to answer if a task leaves a choice: A, B or C (default: A)")
      ->type_name("NAME");
  command->add_option("--preset", words->preset, "quick, or full for the sheet's sizes (default: full; quick on CPUs)")
      ->type_name("NAME");
  command->add_option("--out", words->out, "the folder to write (handin-SHEET)")->type_name("DIR");
  add_time(*command, "--time-limit", words->limit, Nanoseconds(0), "for one point, as 2s");
  command->add_flag("--resume", words->resume, "continue in the existing folder");
  command->footer(
      "\nExamples:\n  baton handin list\n  baton handin hw1 --name \"Ada Lovelace\" --option C\n  baton handin hw3 --cluster "
      "pcie-5");
  command->callback([command, words, &exit_code] {
    if (words->sheet == "list") {
      for (const CLI::Option* option : command->get_options()) {
        if (option->count() > 0 && option->get_name() != "sheet") {
          throw usage_error("handin list takes no {}: leave it out", option->get_name());
        }
      }
      list_sheets();
    } else {
      hand_in(*words, exit_code);
    }
  });
}

}  // namespace baton::app
