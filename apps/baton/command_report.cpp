#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "baton/base/error.h"
#include "baton/lab/bystanders.h"
#include "baton/lab/rows.h"
#include "baton/lab/store.h"
#include "baton/report/report.h"
#include "baton/report/table.h"
#include "commands.h"
#include "compare_results.h"
#include "run_report.h"

namespace baton::app {
namespace {

namespace fs = std::filesystem;
using lab::Json;

void show_report(const std::string& folder, bool pdf) {
  if (!fs::is_directory(folder)) {
    throw usage_error("{} is not a folder of results: baton lab writes them under runs/", folder);
  }
  const lab::Store store{fs::path(folder)};
  for (const lab::Result& result : write_report(store)) {
    fmt::print("{}\n", report::to_terminal(result));
  }
  fmt::print("Report: {}\n", (fs::path(folder) / "report.html").string());
  if (pdf) {
    write_pdf(folder);
  }
}

constexpr std::array<const char*, 3> timed_keys{"time_per_step_ns", "time_low_ns", "time_high_ns"};

/// Two runs side by side, point by point.
void compare(const std::string& first, const std::string& second) {
  for (const std::string& folder : {first, second}) {
    if (!fs::is_directory(folder)) {
      throw usage_error("{} is not a folder of results: baton lab writes them under runs/", folder);
    }
  }
  const lab::Store a{fs::path(first)};
  const lab::Store b{fs::path(second)};
  report::Table table({"experiment", "point", "A", "B", "B/A", "difference"});
  std::size_t shown = 0;
  for (const std::string& id : a.experiments()) {
    const std::map<std::string, Json> left = a.records(id, false);
    const std::map<std::string, Json> right = b.records(id, false);
    for (const auto& [point, record] : left) {
      const auto other = right.find(point);
      const auto is_timed = [](const Json& row) {
        return std::all_of(timed_keys.begin(), timed_keys.end(), [&](const char* key) {
          return row.contains(key) && row[key].is_number() && std::abs(row[key].get<double>()) < 1e18;
        });
      };
      if (other == right.end() || !is_timed(record) || !is_timed(other->second)) {
        continue;
      }
      const auto is_disturbed = [](const Json& row) { return lab::disturbs(row.value("others_share", 0.0)); };
      const auto origin = [](const Json& row) { return row.value("origin", "measured"); };
      table.row({id, lab::to_words(Json::parse(point)), to_text(lab::time_of(record)), to_text(lab::time_of(other->second)),
                 fmt::format("{:.3f}", lab::number(other->second, "time_per_step_ns") / lab::number(record, "time_per_step_ns")),
                 origin(record) != origin(other->second)
                     ? fmt::format("A is {}, B {}", origin(record), origin(other->second))
                     : (lab::differs(record, other->second) ? "beyond the noise" : "within the noise") +
                           std::string(is_disturbed(record) || is_disturbed(other->second) ? ", on a busy machine" : "")});
      ++shown;
    }
  }
  if (shown == 0) {
    throw usage_error("{} and {} have no measured point in common", first, second);
  }
  fmt::print("{}", table.text());
}

}  // namespace

void add_report_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("report", "Write the report of a run again, from its stored results");
  auto folder = std::make_shared<std::string>();
  command->add_option("folder", *folder, "a folder under runs/")->type_name("FOLDER")->required();
  command->footer("\nExample:\n  baton report runs/20261115-101500-lab");
  auto pdf = std::make_shared<bool>(false);
  command->add_flag("--pdf", *pdf, "also write it as PDF (needs Chromium)");
  command->callback([folder, pdf] { show_report(*folder, *pdf); });
}

void add_compare_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("compare", "Show two runs side by side, and which differences exceed the noise");
  auto first = std::make_shared<std::string>();
  auto second = std::make_shared<std::string>();
  command->add_option("A", *first, "a folder under runs/, or a result of train --json or of a PyTorch twin")->required();
  command->add_option("B", *second, "another")->required();
  command->footer(
      "\nExamples:\n  baton compare runs/20261115-101500-lab runs/20261116-090000-lab\n  baton compare baton.json pytorch.json");
  command->callback([first, second] {
    if (fs::is_regular_file(*first) && fs::is_regular_file(*second)) {
      fmt::print("{}", compare_results(*first, *second));
    } else {
      compare(*first, *second);
    }
  });
}

}  // namespace baton::app
