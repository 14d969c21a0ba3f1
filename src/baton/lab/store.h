#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "baton/lab/json.h"
#include "baton/lab/runner.h"

namespace baton::lab {

/// The settings of one experiment of a run.
struct RunSpec {
  std::string experiment;
  std::string title;        // title of the run's report
  std::string run_command;  // the command that repeats the whole run
  std::string created;      // in the form of `time_text`
  Preset preset = Preset::quick;
  std::string command;  // measures this one again
  std::vector<Point> points;
  Json environment = Json::object();
  Json conditions = Json::object();  // what its numbers depend on (conditions.h); empty in files of version 0.1.0
  std::optional<std::string> toml;   // the TOML of an experiment that a user wrote

  friend bool operator==(const RunSpec&, const RunSpec&) = default;
};

/// A line of an experiment's file that holds no record that can be read.
struct SkippedLine {
  std::size_t line = 0;  // from 1
  std::string why;
};

/// The records of a run on disk: a folder with, for each experiment, its spec and one line per record as it was measured. A
/// run that is killed loses at most the instance under way. Whatever is written can be read back: a record that is too
/// large for that is refused when it is stored.
class Store {
 public:
  /// Makes the folder; a failure names what is in the way.
  explicit Store(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }

  /// Stores the spec under its experiment's name and replaces the one before.
  void keep_spec(const RunSpec& spec) const;
  /// Appends a line, flushes it and returns how long it is. `conditions` is the name of what the record depends on.
  std::size_t keep(const std::string& id, const Point& point, const Record& record, bool final,
                   const std::string& conditions = "") const;

  /// The records of an experiment that belong to the conditions, or only the final ones, in the form of `parse_records`. A usage
  /// error if they are more than a report can be made from, or cannot be read. Damaged lines are added to `skipped`.
  std::map<Point, Record> records(const std::string& id, bool only_final, const std::string& conditions = "",
                                  std::vector<SkippedLine>* skipped = nullptr) const;
  std::filesystem::path records_path(const std::string& id) const { return folder_ / (id + ".jsonl"); }
  /// Its spec; nullopt if there is none. A usage error if it is damaged.
  std::optional<RunSpec> spec(const std::string& id) const;
  /// The experiments that have a spec here, in the order of the course.
  std::vector<std::string> experiments() const;
  /// The experiments that have records here but no spec, so that their settings are unknown.
  std::vector<std::string> without_spec() const;

 private:
  std::filesystem::path folder_;
};

/// Makes `runs/20261115-101500-NAME`, or with a number after it if that exists. A failure names what is in the way.
std::filesystem::path new_run_folder(const std::filesystem::path& runs, const std::string& name);
/// The latest run of that name; empty if there is none.
std::filesystem::path latest_run_folder(const std::filesystem::path& runs, const std::string& name);

/// The most that the latest records of an experiment's points take together, as text, and the most that one takes.
inline constexpr Bytes most_records(std::int64_t{256} << 20);
inline constexpr Bytes most_record(std::int64_t{16} << 20);

/// Records by their point, from lines as `Store::keep` writes them: the latest of each point that belongs to the
/// conditions. Lines that were cut off or are not records are skipped. A usage error if they take more than `most_records`.
std::map<Point, Record> parse_records(std::string_view lines, bool only_final, const std::string& conditions = "");

/// Damaged lines of an experiment's file.
struct Damage {
  std::string sentence;  // says which lines are left out and why; empty if none is
  bool lost = false;     // a point has no final record, which may have been one of them
};
Damage damage_of(const Store& store, const RunSpec& spec);

/// Rows, answers and timelines of an experiment from its stored records; the details say which lines were left out as damaged and
/// which points have no result. A usage error if a record does not hold what it should.
Result conclude(const Store& store, const std::string& id);

}  // namespace baton::lab
