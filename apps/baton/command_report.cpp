#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "baton/base/error.h"
#include "baton/lab/conditions.h"
#include "baton/lab/rows.h"
#include "baton/lab/store.h"
#include "baton/measure/other_processes.h"
#include "baton/report/report.h"
#include "baton/report/table.h"
#include "commands.h"
#include "compare_results.h"
#include "run_report.h"
#include "terminal.h"

namespace baton::app {
namespace {

namespace fs = std::filesystem;
using lab::Json;

/// A sentence for each experiment of which records are left out as damaged. `exit_code` becomes 1 if a point has no result for it.
std::vector<std::string> damages_of(const lab::Store& store, int& exit_code) {
  std::vector<std::string> sentences;
  for (const std::string& id : store.experiments()) {
    const lab::Damage damage = lab::damage_of(store, *store.spec(id));
    if (!damage.sentence.empty()) {
      sentences.push_back(damage.sentence);
    }
    exit_code = damage.lost ? 1 : exit_code;
  }
  for (const std::string& id : store.without_spec()) {
    sentences.push_back(fmt::format("{} is left out: {}.spec.json, which says what was measured, is not next to it",
                                    store.records_path(id).string(), id));
    exit_code = 1;
  }
  return sentences;
}

void say(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) {
    fmt::print(stderr, "baton: {}\n", printable(sentence));
  }
}

void show_report(const std::string& folder, bool pdf, const std::string& playground, int& exit_code) {
  if (!fs::is_directory(folder)) {
    throw usage_error("{} is not a folder of results: baton lab writes them under runs/", folder);
  }
  const lab::Store store{fs::path(folder)};
  require_playground(playground);
  for (const lab::Result& result : write_report(store, {}, playground)) {
    fmt::print("{}\n", report::to_terminal(result));
  }
  say(damages_of(store, exit_code));
  fmt::print("Report: {}\n", (fs::path(folder) / "report.html").string());
  if (pdf) {
    write_pdf(folder);
  }
}

/// The kept records of an experiment, by point. A usage error if they are damaged.
std::map<lab::Point, lab::Record> records_of(const lab::Store& store, const std::string& id) {
  const std::optional<lab::RunSpec> spec = store.spec(id);
  std::map<lab::Point, lab::Record> records = spec ? store.records(id, false, lab::conditions_name(spec->conditions))
                                                   : std::map<lab::Point, lab::Record>();
  for (const auto& [point, record] : records) {
    if (!lab::is_sound(record)) {
      throw usage_error(
          "the results of {} in {} are damaged, or of another version of baton: a value in a record has the wrong type", id,
          store.folder().string());
    }
  }
  return records;
}

bool is_timed(const lab::Record& record) {
  const double time = lab::number(record, lab::key::time_per_step_ns, 0.0);
  return time > 0 && time < 1e18;
}

/// The conditions in which two runs of an experiment differ: a difference of times may come from these.
std::string not_alike(const lab::Store& a, const lab::Store& b, const std::string& id) {
  const Json before = a.spec(id)->conditions;
  const Json now = b.spec(id)->conditions;
  if (before.empty() || now.empty()) {
    return "";
  }
  std::vector<std::string> found;
  for (const char* part : {"run", "own"}) {
    const std::vector<std::string> some = lab::differences(before.value(part, Json::object()), now.value(part, Json::object()));
    found.insert(found.end(), some.begin(), some.end());
  }
  return found.empty() ? "" : fmt::format("{}: B has another {}\n", id, fmt::join(found, ", another "));
}

/// Two runs side by side, point by point.
void compare(const std::string& first, const std::string& second, int& exit_code) {
  for (const std::string& folder : {first, second}) {
    if (!fs::exists(folder)) {
      throw usage_error("there is no {}: give two folders of results, or two JSON files of runs", folder);
    }
    if (!fs::is_directory(folder)) {
      throw usage_error("{} is not a folder of results: baton lab writes them under runs/", folder);
    }
  }
  const lab::Store a{fs::path(first)};
  const lab::Store b{fs::path(second)};
  report::Table table({"experiment", "point", "A", "B", "B/A", "difference"});
  std::size_t shown = 0;
  std::string notes;
  for (const std::string& id : a.experiments()) {
    const std::map<lab::Point, lab::Record> left = records_of(a, id);
    const std::map<lab::Point, lab::Record> right = records_of(b, id);
    bool any = false;
    for (const auto& [point, record] : left) {
      const auto other = right.find(point);
      if (other == right.end() || !is_timed(record) || !is_timed(other->second)) {
        continue;
      }
      const auto is_disturbed = [](const lab::Record& row) { return measure::disturbs(row.value(lab::key::others_share, 0.0)); };
      const auto origin = [](const lab::Record& row) { return row.value(lab::key::origin, "measured"); };
      table.row({id, lab::to_words(point), to_text(lab::time_of(record)), to_text(lab::time_of(other->second)),
                 fmt::format("{:.3f}", lab::number(other->second, lab::key::time_per_step_ns) /
                                           lab::number(record, lab::key::time_per_step_ns)),
                 origin(record) != origin(other->second)
                     ? fmt::format("A is {}, B {}", origin(record), origin(other->second))
                     : lab::noise_text(lab::difference_of(record, other->second)) +
                           std::string(is_disturbed(record) || is_disturbed(other->second) ? ", on a busy machine" : "")});
      ++shown;
      any = true;
    }
    notes += any ? not_alike(a, b, id) : "";
  }
  std::vector<std::string> damages = damages_of(a, exit_code);
  const std::vector<std::string> others = damages_of(b, exit_code);
  damages.insert(damages.end(), others.begin(), others.end());
  if (shown == 0) {
    throw usage_error("{} and {} have no measured point in common{}{}", first, second, damages.empty() ? "" : "; ",
                      fmt::join(damages, "; "));
  }
  fmt::print("{}{}{}", table.text(), notes.empty() ? "" : "\n", notes);
  say(damages);
}

}  // namespace

void add_report_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("report", "Write the report of a run again, from its stored results");
  auto folder = std::make_shared<std::string>();
  command->add_option("folder", *folder, "a folder under runs/")->type_name("DIR")->required();
  command->footer("\nExample:\n  baton report runs/20261115-101500-lab");
  auto pdf = std::make_shared<bool>(false);
  command->add_flag("--pdf", *pdf, "also write it as PDF (needs Chromium)");
  auto playground = std::make_shared<std::string>();
  command->add_option("--playground", *playground, playground_help)->type_name("FILE");
  command->callback([folder, pdf, playground, &exit_code] { show_report(*folder, *pdf, *playground, exit_code); });
}

void add_compare_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("compare", "Show two runs side by side, and which differences exceed the noise");
  auto first = std::make_shared<std::string>();
  auto second = std::make_shared<std::string>();
  command->add_option("A", *first, "a folder under runs/, or a result of train --json or of a PyTorch twin")
      ->type_name("PATH")
      ->required();
  command->add_option("B", *second, "another")->type_name("PATH")->required();
  command->footer(
      "\nExamples:\n  baton compare runs/20261115-101500-lab runs/20261116-090000-lab\n  baton compare baton.json pytorch.json");
  command->callback([first, second, &exit_code] {
    if (fs::is_regular_file(*first) && fs::is_regular_file(*second)) {
      fmt::print("{}", compare_results(*first, *second));
    } else {
      compare(*first, *second, exit_code);
    }
  });
}

}  // namespace baton::app
