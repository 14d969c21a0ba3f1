#include <fmt/format.h>

#include <map>
#include <optional>
#include <random>
#include <thread>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/units.h"
#include "baton/exercise/mark.h"
#include "baton/lab/json.h"
#include "baton/report/table.h"
#include "called_as.h"
#include "commands.h"
#include "options.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct CheckWords {
  std::string path;
  std::string folder;
  std::string exercise;
  std::optional<std::int64_t> seed;
  Nanoseconds time_limit{60'000'000'000};
  Bytes memory_limit{std::int64_t{1} << 30};
  std::optional<std::int64_t> jobs;
  std::string csv = "marks.csv";
  std::string json;
};

exercise::Limits limits_of(const CheckWords& words) {
  exercise::Limits limits;
  limits.all_seconds = static_cast<double>(words.time_limit.count) / 1e9;
  limits.memory = words.memory_limit.count;
  limits.seconds = std::min(limits.seconds, limits.all_seconds);
  return limits;
}

void list_exercises() {
  report::Table table({"exercise", "what is to be done"}, {true, true});
  for (const exercise::Exercise& one : exercise::exercises()) {
    table.row({one.name, one.title});
  }
  fmt::print("{}\n{} checks the answer in that folder.\n", table.text(),
             as_called(fmt::format("baton check exercises/{}", exercise::exercises()[0].name)));
}

void check_one(const CheckWords& words, int& exit_code) {
  std::string json = words.json;
  settle_outputs({&json});
  const exercise::Exercise* given = words.exercise.empty() ? nullptr : &exercise::exercise_by_name(words.exercise);
  const exercise::Submission submission = exercise::submission_at(words.path, given);
  const auto seed = static_cast<std::uint64_t>(words.seed.value_or(0));
  call_if_stopped([] { exercise::remove_build_folder(); });
  const exercise::Marks marks = exercise::mark(submission, seed, limits_of(words));
  if (json != "-") {
    const std::string text = exercise::to_text(marks);
    for (const std::string_view line : split(std::string_view(text).substr(0, text.size() - 1), '\n')) {
      fmt::print("{}\n", printable(std::string(line)));
    }
  }
  if (!json.empty()) {
    // The output or exception of a program need not be UTF-8.
    write_output(json, exercise::to_json(marks).dump(2, ' ', false, lab::Json::error_handler_t::replace) + "\n");
  }
  exit_code = marks.earned() == marks.points() ? 0 : 1;
}

void check_class(const CheckWords& words) {
  std::string csv = words.csv;
  std::string json = words.json;
  settle_outputs({&csv, &json});
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  exercise::ClassOptions options{.folder = words.folder, .limits = limits_of(words)};
  options.only = words.exercise.empty() ? nullptr : &exercise::exercise_by_name(words.exercise);
  options.jobs = static_cast<int>(words.jobs.value_or(cores));
  options.seed = words.seed ? static_cast<std::uint64_t>(*words.seed) : std::random_device()();
  if (!json.empty()) {
    throw usage_error("--class writes a table: give --csv FILE");
  }
  say_if_stopped("no marks are written");
  std::optional<ProgressBar> bar;
  const std::vector<exercise::Row> rows = exercise::mark_class(options, [&](std::size_t done, std::size_t of) {
    if (!bar) {
      bar.emplace("marking", static_cast<std::int64_t>(of), true, "submissions");
    }
    bar->show(static_cast<std::int64_t>(done));
  });
  bar.reset();
  write_output(csv, exercise::to_csv(rows, options.seed));
  if (csv == "-") {
    return;
  }
  std::map<std::string, std::pair<int, int>> sums;
  for (const exercise::Row& row : rows) {
    sums[row.student].first += row.earned;
    sums[row.student].second += row.points;
  }
  report::Table table({"student", "points", "of"}, {true, false, false});
  for (const auto& [student, points] : sums) {
    table.row({printable(student), fmt::format("{}", points.first), fmt::format("{}", points.second)});
  }
  fmt::print("{}\nCases were drawn with seed {}. Marks with a remark each: {}\n", table.text(), options.seed, csv);
  if (!exercise::can_filter()) {
    fmt::print("Note: this system has no filters of system calls, so programs could use the network and files.\n");
  }
}

}  // namespace

void add_check_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("check", "Check the answer to an exercise, or mark those of a class");
  auto words = std::make_shared<CheckWords>();
  command
      ->add_option("path", words->path, "the folder of an exercise, or a file with an answer; without it the exercises are listed")
      ->type_name("PATH");
  command->add_option("--class", words->folder, "mark a folder that has a folder per student")->type_name("DIR");
  command->add_option("--exercise", words->exercise, "which exercise it is, if its name does not say so")->type_name("NAME");
  add_number(*command, "--seed", words->seed, std::int64_t{0}, most_seed,
             "draw the cases with this seed (default: 0; with --class a random one)");
  add_time(*command, "--time-limit", words->time_limit, Nanoseconds(1'000'000), "for all cases of an exercise together");
  add_size(*command, "--memory-limit", words->memory_limit, Bytes(16 << 20), "for a program that is checked");
  add_number(*command, "--jobs", words->jobs, std::int64_t{1}, std::int64_t{1024},
             "with --class: mark this many at a time (default: one per core)");
  command->add_option("--csv", words->csv, "with --class: the table to write, or - for standard output")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--json", words->json, "write points and sentences to a file, or to standard output with -")
      ->type_name("FILE");
  command->footer(
      "\nExamples:\n  baton check exercises/03-ring-all-reduce\n  baton check --class submissions --csv marks.csv --seed 7");
  command->callback([command, words, &exit_code] {
    if (!words->path.empty() && !words->folder.empty()) {
      throw usage_error("give the path of one answer or --class, not both");
    }
    for (const CLI::Option* option : words->folder.empty() ? command->get_options() : std::vector<CLI::Option*>()) {
      const std::string name = option->get_name();
      if (option->count() > 0 && words->path.empty()) {
        throw usage_error("{} is given, but no answer to check: name its folder, or --class with the folder of a class", name);
      }
      if (option->count() > 0 && (name == "--jobs" || name == "--csv")) {
        throw usage_error("{} works only with --class: leave it out for a single answer", name);
      }
    }
    if (!words->folder.empty()) {
      check_class(*words);
    } else if (words->path.empty()) {
      list_exercises();
    } else {
      check_one(*words, exit_code);
    }
  });
}

}  // namespace baton::app
