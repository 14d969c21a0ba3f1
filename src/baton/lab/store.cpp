#include "baton/lab/store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <ctime>
#include <fstream>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/lab/conditions.h"
#include "baton/lab/rows.h"
#include "baton/lab/spec.h"

namespace baton::lab {
namespace {

namespace fs = std::filesystem;

/// The largest spec that is read: ten thousand points take some megabytes.
constexpr Bytes most_read(std::int64_t{64} << 20);
constexpr std::size_t most_values_kept = 1'000'000;  // for a spec or a record

/// True if a line is longer than the longest record that is read.
bool too_large(std::string_view line) {
  return line.size() > static_cast<std::size_t>(most_record.count) || values_in(line).values > most_values_kept;
}

/// A file of the store; empty if there is none.
std::string read_kept(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) ? read_file(path, path.string(), most_read) : "";
}

Json to_json(const RunSpec& spec) {
  Json points = Json::array();
  for (const Point& point : spec.points) {
    points.push_back(point.json());
  }
  Json json{{"experiment", spec.experiment},
            {"title", spec.title},
            {"run_command", spec.run_command},
            {"created", spec.created},
            {"preset", to_text(spec.preset)},
            {"command", spec.command},
            {"points", points},
            {"environment", spec.environment},
            {"basis", spec.conditions}};
  if (spec.toml) {
    json["toml"] = *spec.toml;
  }
  return json;
}

/// True if a report's facts on the machine have the types that they should have.
bool is_environment(const Json& value) {
  const auto suits = [&](const char* key, bool is_right) { return !value.contains(key) || is_right; };
  return value.is_object() && suits("cpu", value.value("cpu", Json()).is_string()) &&
         suits("host", value.value("host", Json()).is_string()) && suits("cores", value.value("cores", Json()).is_number()) &&
         suits("simulated_on", value.value("simulated_on", Json()).is_string());
}

/// Reads a spec. Fields that a file of an earlier version lacks are empty; nullopt if a field has another type than it should.
std::optional<RunSpec> from_json(const Json& json, const std::string& id) {
  if (!json.is_object() || !json.contains("points") || !json["points"].is_array()) {
    return std::nullopt;
  }
  RunSpec spec;
  spec.experiment = id;
  bool sound = true;
  for (const Json& one : json["points"]) {
    const std::optional<Point> point = Point::parse(one);
    sound = sound && point;
    spec.points.push_back(point.value_or(Point()));
  }
  const auto take = [&](const char* key, std::string& text) {
    if (json.contains(key)) {
      sound = sound && json[key].is_string();
      text = json[key].is_string() ? json[key].get<std::string>() : "";
    }
  };
  std::string preset;
  take("title", spec.title);
  take("run_command", spec.run_command);
  take("created", spec.created);
  take("preset", preset);
  take("command", spec.command);
  spec.preset = preset == to_text(Preset::full) ? Preset::full : Preset::quick;
  if (json.contains("environment")) {
    spec.environment = json["environment"];
    sound = sound && is_environment(spec.environment);
  }
  if (json.contains("basis")) {
    spec.conditions = json["basis"];
    sound = sound && spec.conditions.is_object() &&
            std::all_of(spec.conditions.begin(), spec.conditions.end(), [](const Json& part) { return part.is_object(); });
  }
  if (json.contains("toml")) {
    take("toml", spec.toml.emplace());
  }
  return sound ? std::optional(std::move(spec)) : std::nullopt;
}

}  // namespace

Store::Store(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    throw failure("the folder {} cannot be made: {}", folder_.string(), error.message());
  }
}

void Store::keep_spec(const RunSpec& spec) const {
  write_whole(folder_ / (spec.experiment + ".spec.json"), to_json(spec).dump(2) + "\n");
}

std::size_t Store::keep(const std::string& id, const Point& point, const Record& record, bool final,
                        const std::string& conditions) const {
  Json line{{"point", point.json()}, {"final", final}, {"basis", conditions}, {"record", record.json()}};
  std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (too_large(text) && record.has(key::timeline)) {
    line["record"].erase(key::timeline.name);
    text = line.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (too_large(text)) {
    throw failure("what was measured of {} at {} takes {}, but a record may take {}: measure fewer devices or messages at a time",
                  id, to_words(point), to_text(Bytes(static_cast<std::int64_t>(text.size()))), to_text(most_record));
  }
  append_line(folder_ / (id + ".jsonl"), text);
  return text.size();
}

namespace {

/// Keys that had other names when the record was stored.
Json with_current_keys(Json record) {
  struct Renamed {
    const char* before;
    const char* now;
  };
  const std::array<Renamed, 2> renamed{{{"pulse_gflops", key::core_peak_gflops.name}, {"apart_bytes", key::unshared_bytes.name}}};
  for (const Renamed& one : renamed) {
    if (const auto found = record.find(one.before); found != record.end() && !record.contains(one.now)) {
      Json value = std::move(*found);
      record.erase(one.before);
      record[one.now] = std::move(value);
    }
  }
  return record;
}

/// The latest record of each point, as lines come.
class Latest {
 public:
  Latest(bool only_final, std::string conditions, std::string name, std::vector<SkippedLine>* skipped = nullptr)
      : only_final_(only_final), conditions_(std::move(conditions)), name_(std::move(name)), skipped_(skipped) {}

  /// The next line; one that is too long comes as its beginning.
  void add(std::string_view text) {
    ++lines_;
    if (text.empty()) {
      return;
    }
    if (too_large(text)) {
      skip(fmt::format("is larger than the {} of a record", to_text(most_record)));
      return;
    }
    Json line = parse_json(text, most_values_kept);
    if (line.is_discarded()) {
      skip("is cut off or damaged");
      return;
    }
    std::optional<Point> point = Point::parse(line.is_object() ? line.value("point", Json()) : Json());
    if (!point || !line.contains("record") || !line["record"].is_object() || !line.contains("final") ||
        !line["final"].is_boolean() || !line.value("basis", Json("")).is_string()) {
      skip("is not a record");
      return;
    }
    if ((only_final_ && !line["final"].get<bool>()) || line.value("basis", Json("")) != conditions_) {
      return;
    }
    Kept& one = kept_[*std::move(point)];
    bytes_ += text.size() - one.bytes;
    one = {Record(with_current_keys(std::move(line["record"]))), text.size()};
    if (bytes_ > static_cast<std::size_t>(most_records.count)) {
      throw usage_error("{} holds more than {} of records, which is more than a report is made from", name_, to_text(most_records));
    }
  }

  std::map<Point, Record> take() {
    std::map<Point, Record> records;
    for (auto& [point, one] : kept_) {
      records.emplace(point, std::move(one.record));
    }
    return records;
  }

 private:
  void skip(std::string why) {
    if (skipped_ != nullptr) {
      skipped_->push_back({lines_, std::move(why)});
    }
  }

  struct Kept {
    Record record;
    std::size_t bytes = 0;
  };
  bool only_final_;
  std::string conditions_;
  std::string name_;
  std::vector<SkippedLine>* skipped_;
  std::size_t lines_ = 0;
  std::size_t bytes_ = 0;
  std::map<Point, Kept> kept_;
};

}  // namespace

std::map<Point, Record> parse_records(std::string_view lines, bool only_final, const std::string& conditions) {
  Latest latest(only_final, conditions, "the text");
  while (!lines.empty()) {
    const std::string_view text = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(text.size() + 1, lines.size()));
    latest.add(text);
  }
  return latest.take();
}

std::map<Point, Record> Store::records(const std::string& id, bool only_final, const std::string& conditions,
                                       std::vector<SkippedLine>* skipped) const {
  const fs::path path = records_path(id);
  Latest latest(only_final, conditions, path.string(), skipped);
  std::error_code missing;
  if (!fs::exists(path, missing)) {
    return {};
  }
  // Line by line: a record that a later one took the place of is not held.
  std::ifstream file(path, std::ios::binary);
  std::string line;
  const std::size_t most = static_cast<std::size_t>(most_record.count) + 1;  // a longer line is cut, and is still too large
  std::array<char, 1 << 16> block{};
  while (file.read(block.data(), block.size()) || file.gcount() > 0) {
    std::string_view rest(block.data(), static_cast<std::size_t>(file.gcount()));
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      line += rest.substr(0, std::min(end, most - line.size()));
      if (end == std::string_view::npos) {
        break;
      }
      latest.add(line);
      line.clear();
      rest.remove_prefix(end + 1);
    }
  }
  if (!file.eof()) {
    throw usage_error("{} cannot be read", path.string());
  }
  latest.add(line);
  return latest.take();
}

std::optional<RunSpec> Store::spec(const std::string& id) const {
  const fs::path path = folder_ / (id + ".spec.json");
  const std::string text = read_kept(path);
  if (text.empty() && !fs::exists(path)) {
    return std::nullopt;
  }
  std::optional<RunSpec> spec = from_json(parse_json(text, most_values_kept), id);
  if (!spec) {
    throw usage_error("{} is not a spec of an experiment, or is damaged", path.string());
  }
  return spec;
}

std::vector<std::string> Store::experiments() const {
  std::vector<std::string> ids;
  for (const Experiment& experiment : lab::experiments()) {
    if (fs::exists(folder_ / (experiment.id + ".spec.json"))) {
      ids.push_back(experiment.id);
    }
  }
  std::vector<std::string> others;  // those a user wrote
  constexpr std::string_view ending = ".spec.json";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(ending)) {
      const std::string id = name.substr(0, name.size() - ending.size());
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
        others.push_back(id);
      }
    }
  }
  std::sort(others.begin(), others.end());
  ids.insert(ids.end(), others.begin(), others.end());
  return ids;
}

std::vector<std::string> Store::without_spec() const {
  std::vector<std::string> ids;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const fs::path name = entry.path().filename();
    if (name.extension() == ".jsonl" && !fs::exists(folder_ / (name.stem().string() + ".spec.json"))) {
      ids.push_back(name.stem().string());
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

fs::path new_run_folder(const fs::path& runs, const std::string& name) {
  const fs::path base = runs / fmt::format("{:%Y%m%d-%H%M%S}-{}", fmt::localtime(std::time(nullptr)), name);
  fs::path path = base;
  std::error_code error;
  fs::create_directories(runs, error);
  for (int i = 2; !error && !fs::create_directory(path, error); ++i) {  // another run may begin in this moment
    path = fmt::format("{}-{}", base.string(), i);
  }
  if (error) {
    throw failure("the folder {} cannot be made: {}", path.string(), error.message());
  }
  return path;
}

fs::path latest_run_folder(const fs::path& runs, const std::string& name) {
  fs::path latest;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(runs, error)) {
    const std::string folder = entry.path().filename().string();
    // 20261115-101500-NAME, or NAME-2 where two began in one second
    const std::string rest = folder.size() > 16 ? folder.substr(16) : "";
    const bool same = rest == name || (rest.starts_with(name + "-") && rest.size() > name.size() + 1 &&
                                       std::all_of(rest.begin() + static_cast<std::ptrdiff_t>(name.size()) + 1, rest.end(),
                                                   [](unsigned char c) { return std::isdigit(c) != 0; }));
    if (entry.is_directory() && same && (latest.empty() || latest.filename().string() < folder)) {
      latest = entry.path();
    }
  }
  return latest;
}

namespace {

std::vector<std::string> keys_of(const std::vector<Point>& points) {
  std::vector<std::string> keys;
  for (const Point& point : points) {
    for (const auto& [axis, value] : point) {
      if (std::find(keys.begin(), keys.end(), axis) == keys.end()) {
        keys.push_back(axis);
      }
    }
  }
  return keys;
}

/// The first of many, and the number of the others.
std::string first_of(const std::vector<std::string>& all) {
  constexpr std::size_t shown = 4;
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(shown, all.size()));
  return fmt::format("{}{}", fmt::join(all.begin(), end, ", "),
                     all.size() > shown ? fmt::format(" and {} more", all.size() - shown) : "");
}

}  // namespace

Damage damage_of(const Store& store, const RunSpec& spec) {
  std::vector<SkippedLine> skipped;
  const std::map<Point, Record> final = store.records(spec.experiment, true, conditions_name(spec.conditions), &skipped);
  if (skipped.empty()) {
    return {};
  }
  std::vector<std::string> lines;
  for (const SkippedLine& one : skipped) {
    lines.push_back(fmt::format("line {} {}", one.line, one.why));
  }
  return {fmt::format("{} record{} of {} {} left out: {}", lines.size(), lines.size() == 1 ? "" : "s",
                      store.records_path(spec.experiment).string(), lines.size() == 1 ? "is" : "are", first_of(lines)),
          std::any_of(spec.points.begin(), spec.points.end(), [&](const Point& point) { return !final.contains(point); })};
}

Result conclude(const Store& store, const std::string& id) {
  const std::optional<RunSpec> spec = store.spec(id);
  if (!spec) {
    throw usage_error("{} holds no results of {}", store.folder().string(), id);
  }
  const auto experiment = std::make_shared<const Experiment>(
      extended(spec->toml ? parse_spec(*spec->toml, id) : experiment_by_id(id), keys_of(spec->points)));
  const std::map<Point, Record> kept = store.records(id, false, conditions_name(spec->conditions));
  std::vector<Record> records;
  std::vector<std::string> missing;
  for (const Point& point : spec->points) {
    const auto found = kept.find(point);
    records.push_back(found == kept.end() ? Record() : found->second);
    if (found == kept.end()) {
      missing.push_back(to_words(point));
    } else if (found->second.empty()) {
      throw usage_error("the results of {} are damaged, or of another version of baton: a record is empty", id);
    }
  }
  Result result = conclude_kept(experiment, spec->points, std::move(records), spec->command, spec->preset);
  if (!missing.empty()) {
    result.details.push_back(fmt::format("{} of {} points {} no result: {}.", missing.size(), spec->points.size(),
                                         missing.size() == 1 ? "has" : "have", first_of(missing)));
  }
  if (const Damage damage = damage_of(store, *spec); !damage.sentence.empty()) {
    result.details.push_back(damage.sentence + ".");
  }
  return result;
}

}  // namespace baton::lab
