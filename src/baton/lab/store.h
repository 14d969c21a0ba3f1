#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "baton/lab/json.h"
#include "baton/lab/runner.h"

namespace baton::lab {

/// What was asked for of one experiment of a run.
struct RunSpec {
  std::string experiment;
  std::string title;        // of the run's report
  std::string run_command;  // of the whole run
  std::string created;      // as `time_text` has it
  Preset preset = Preset::quick;
  std::string command;  // measures this one again
  std::vector<Point> points;
  Json environment = Json::object();
  std::optional<std::string> toml;  // of an experiment that a user wrote

  friend bool operator==(const RunSpec&, const RunSpec&) = default;
};

/// What is kept of a run on disk: a folder with, for each experiment, its spec and a line for each record as it was
/// measured. A run that is killed loses at most the round under way.
class Store {
 public:
  /// Makes the folder; a failure says what is in the way.
  explicit Store(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }

  /// Under its experiment's name; it takes the place of the one before.
  void keep_spec(const RunSpec& spec) const;
  /// Appends a line and flushes it.
  void keep(const std::string& id, const Point& point, const Json& record, bool final) const;

  /// The records of an experiment, or only the final ones, as `parse_records` has them.
  std::map<std::string, Json> records(const std::string& id, bool only_final) const;
  /// Its spec; nothing where there is none. A usage error where it is damaged.
  std::optional<RunSpec> spec(const std::string& id) const;
  /// The experiments that have a spec here, in the order of the course.
  std::vector<std::string> experiments() const;

 private:
  std::filesystem::path folder_;
};

/// `runs/20261115-101500-NAME`, or with a number behind it where that is taken.
std::filesystem::path new_run_folder(const std::filesystem::path& runs, const std::string& name);
/// The latest run of that name; empty where there is none.
std::filesystem::path latest_run_folder(const std::filesystem::path& runs, const std::string& name);

/// Records by the text of their point out of lines as `Store::keep` writes them. Lines that were cut off or are no records are
/// passed over, and so is what would take more memory than results do.
std::map<std::string, Json> parse_records(std::string_view lines, bool only_final);

/// Rows, answers and timelines of an experiment out of what was kept. A usage error where that is damaged.
Result conclude(const Store& store, const std::string& id);

}  // namespace baton::lab
