#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/lab/rows.h"
#include "baton/measure/environment.h"
#include "baton/predict/validation.h"
#include "baton/report/page.h"
#include "baton/report/report.h"
#include "baton/report/table.h"
#include "commands.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

namespace fs = std::filesystem;

struct ValidateWords {
  std::vector<std::string> paths;
  std::string cluster;
  std::string software;
  std::string out;
  std::string errors;
  std::string page;
  std::string only;
};

constexpr Bytes most_table(std::int64_t{64} << 20);

/// The tables that the paths name: files, and the .csv files of folders.
std::vector<fs::path> tables_of(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.emplace_back(path);
      continue;
    }
    std::vector<fs::path> inside;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
      if (canonical(entry.path().extension().string()) == ".csv") {
        inside.push_back(entry.path());
      }
    }
    if (error) {
      throw usage_error("{} cannot be read: {}", path, error.message());
    }
    if (inside.empty()) {
      throw usage_error("{} holds no .csv file", path);
    }
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

std::string signed_percent(double share) { return fmt::format("{:+.1f} %", share * 100); }

void print_errors(const std::vector<predict::SourceErrors>& list) {
  report::Table table({"source", "points", "mean", "median", "within 10 %", "bias", "worst", "at line"});
  for (const predict::SourceErrors& one : list) {
    if (one.points == 0) {
      table.row({one.source, "0", "", "", "", "", "", ""});
      continue;
    }
    table.row({one.source, fmt::format("{}", one.points), fmt::format("{:.1f} %", one.mean * 100),
               fmt::format("{:.1f} %", one.median * 100), fmt::format("{:.0f} %", one.within_ten * 100), signed_percent(one.bias),
               signed_percent(one.worst->error()), fmt::format("{}", one.worst->published.line)});
  }
  fmt::print("{}", table.text());
}

/// Prints why rows were not simulated: each reason once per source, with the number of rows and the first of them.
void print_refused(const std::vector<predict::ValidatedPoint>& points) {
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> refused;
  for (const predict::ValidatedPoint& point : points) {
    if (!point.simulated()) {
      refused[{point.published.source, point.published.reason}].push_back(point.published.line);
    }
  }
  if (refused.empty()) {
    return;
  }
  fmt::print("\nNot simulated\n");
  for (const auto& [key, lines] : refused) {
    fmt::print("  {}, line {}{}: {}\n", key.first, lines[0], lines.size() == 1 ? "" : fmt::format(" and {} more", lines.size() - 1),
               key.second);
  }
}

/// Memory, where it is published.
void print_memory(const std::vector<predict::ValidatedPoint>& points) {
  std::map<std::string, std::vector<double>> errors;
  for (const predict::ValidatedPoint& point : points) {
    if (point.memory > 0) {
      errors[point.published.source].push_back(point.memory / *point.published.memory - 1);
    }
  }
  for (const auto& [source, list] : errors) {
    double sum = 0;
    double worst = 0;
    for (const double error : list) {
      sum += std::abs(error);
      worst = std::abs(error) > std::abs(worst) ? error : worst;
    }
    fmt::print("\nMemory of the fullest device, {}: {} points, mean {:.1f} %, worst {}\n", source, list.size(),
               sum / static_cast<double>(list.size()) * 100, signed_percent(worst));
  }
}

/// Prints the assumptions on values that a table leaves open, once per table.
void print_assumed(const std::vector<predict::PublishedCase>& cases) {
  std::vector<std::string> sources;
  std::map<std::string, std::vector<std::string>> assumed;
  for (const predict::PublishedCase& one : cases) {
    if (!one.assumed.empty() && assumed[one.source].empty()) {
      sources.push_back(one.source);
    }
    for (const std::string& what : one.assumed) {
      std::vector<std::string>& list = assumed[one.source];
      if (std::find(list.begin(), list.end(), what) == list.end()) {
        list.push_back(what);
      }
    }
  }
  for (const std::string& source : sources) {
    fmt::print("assumed for table {}: {}\n", source, fmt::join(assumed[source], ", "));
  }
  fmt::print("{}", sources.empty() ? "" : "\n");
}

/// The cases of the tables. One that cannot be read is named; if there are others, these are read all the same.
std::vector<predict::PublishedCase> read_tables(const ValidateWords& words, bool& all_read) {
  std::vector<predict::PublishedCase> cases;
  const std::vector<fs::path> files = tables_of(words.paths);
  for (const fs::path& file : files) {
    try {
      const predict::PublishedTable table = predict::parse_table(read_file(file, "the table " + file.string(), most_table),
                                                                 file.stem().string());
      for (predict::PublishedCase& one : predict::published_cases(table, {.cluster = words.cluster, .software = words.software})) {
        if (words.only.empty() || (words.only == "fitted") == one.fitted) {
          cases.push_back(std::move(one));
        }
      }
    } catch (const Error& error) {
      if (files.size() == 1) {
        throw;
      }
      fmt::print(stderr, "baton: {} is left out: {}\n", printable(file.string()), printable(error.what()));
      all_read = false;
    }
  }
  return cases;
}

void write_page(const std::string& path, const std::vector<predict::ValidatedPoint>& points) {
  const lab::Result result = predict::validation_result(points, command_line());
  lab::RunSpec spec;
  spec.experiment = result.experiment->id;
  spec.title = result.experiment->title;
  spec.run_command = spec.command = command_line();
  spec.created = time_text();
  lab::Json report = report::to_report({result}, spec);
  report["preset"] = "";
  report["environment"] = {{"nothing_measured", true}};
  report["experiments"][0]["part_title"] = "Predictions";
  write_output(path, report::to_page(report));
}

void validate(ValidateWords words, int& exit_code) {
  settle_outputs({&words.out, &words.errors, &words.page});
  if (!words.software.empty()) {
    (void)cost::software_by_name(words.software);
  }
  if (!words.cluster.empty()) {
    (void)cluster::blueprint_by_name(words.cluster);
  }
  bool all_read = true;
  std::vector<predict::PublishedCase> cases = read_tables(words, all_read);
  const bool prints = words.out != "-" && words.errors != "-" && words.page != "-";
  if (prints) {
    print_assumed(cases);
  }
  const Interrupt interrupt;
  const std::size_t total = cases.size();
  std::optional<ProgressBar> bar(std::in_place, "simulating", static_cast<std::int64_t>(total), true, "rows");
  const std::vector<predict::ValidatedPoint> points = predict::validate(std::move(cases), cluster::probe(),
                                                                        [&](std::size_t done, std::size_t) {
                                                                          bar->show(static_cast<std::int64_t>(done));
                                                                          return !interrupt.asked();
                                                                        });
  bar.reset();
  interrupt.begin_saving();
  const auto simulated = std::count_if(points.begin(), points.end(),
                                       [](const predict::ValidatedPoint& point) { return point.simulated(); });
  if (prints) {
    fmt::print(
        "{} published time{}, {} simulated, {} not\nErrors are simulated time / measured time - 1; mean and median are of their "
        "absolute values\n\n",
        points.size(), points.size() == 1 ? "" : "s", simulated, points.size() - static_cast<std::size_t>(simulated));
    print_errors(predict::errors_by_source(points, false));
    if (const std::vector<predict::SourceErrors> fitted = predict::errors_by_source(points, true); !fitted.empty()) {
      fmt::print(
          "\nEvery tenth row of sources with at least 20 rows is left out above, because constants were chosen by it. Their "
          "errors:\n");
      print_errors(fitted);
    }
    print_memory(points);
    print_refused(points);
  }
  if (!words.out.empty()) {
    write_output(words.out, predict::to_csv(points));
  }
  if (!words.errors.empty()) {
    write_output(words.errors, predict::to_error_list(points));
  }
  if (!words.page.empty()) {
    write_page(words.page, points);
  }
  if (simulated == 0 && points.size() == total) {
    fmt::print(stderr, "baton: {}\n",
               total == 0 ? "the tables have no rows to simulate" : "none of the rows of the tables could be simulated");
  }
  exit_code = simulated == 0 || !all_read ? 1 : 0;
  if (points.size() < total) {
    fmt::print(stderr, "baton: interrupted; only the rows simulated so far are shown\n");
    exit_code = interrupt.exit_code();
  }
}

}  // namespace

void add_validate_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("validate", "Compare predictions with tables of measured times that others published");
  auto words = std::make_shared<ValidateWords>();
  command->add_option("tables", words->paths, "CSV files, or folders of them; the columns of a table say what it holds")
      ->type_name("PATH")
      ->required();
  command->add_option("--cluster", words->cluster, "the machine of tables that name no GPU")->type_name("CLUSTER");
  command
      ->add_option("--software", words->software, "the software profile of all rows, instead of the one that their columns suggest")
      ->type_name("NAME");
  command->add_option("--out", words->out, "write each point as CSV, to a file or to standard output with -")->type_name("FILE");
  command
      ->add_option(
          "--errors", words->errors,
          "write a list of all points as CSV, the largest error first, with the command of each, but not what was measured")
      ->type_name("FILE");
  command->add_option("--page", words->page, "write a page with a plot of simulated against measured times")->type_name("FILE");
  command
      ->add_option("--only", words->only,
                   "fitted: every tenth row only, by which constants are chosen; others: the other rows only")
      ->type_name("NAME")
      ->check(CLI::IsMember({"fitted", "others"}));
  command->footer("\nExample:\n  baton validate published/ --out points.csv --page points.html");
  command->callback([words, &exit_code] { validate(*words, exit_code); });
}

}  // namespace baton::app
