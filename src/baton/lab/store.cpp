#include "baton/lab/store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <ctime>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/lab/spec.h"

namespace baton::lab {
namespace {

namespace fs = std::filesystem;

/// The most that is read of a spec or of the records of an experiment: a run of the course leaves some megabytes in all.
constexpr Bytes most_read(std::int64_t{64} << 20);
constexpr std::size_t most_values_kept = 1'000'000;

/// A file of the store; empty where there is none.
std::string read_kept(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) ? read_file(path, path.string(), most_read) : "";
}

Json to_json(const RunSpec& spec) {
  Json json{{"experiment", spec.experiment},   {"title", spec.title},
            {"run_command", spec.run_command}, {"created", spec.created},
            {"preset", to_text(spec.preset)},  {"command", spec.command},
            {"points", spec.points},           {"environment", spec.environment}};
  if (spec.toml) {
    json["toml"] = *spec.toml;
  }
  return json;
}

/// What a file of an earlier version does not have is empty; nothing where something is not of the kind that it should be.
std::optional<RunSpec> from_json(const Json& json, const std::string& id) {
  if (!json.is_object() || !json.contains("points") || !json["points"].is_array()) {
    return std::nullopt;
  }
  RunSpec spec;
  spec.experiment = id;
  spec.points = json["points"].get<std::vector<Point>>();
  bool sound = std::all_of(spec.points.begin(), spec.points.end(), [](const Point& point) { return point.is_object(); });
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
    sound = sound && spec.environment.is_object();
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

void Store::keep(const std::string& id, const Point& point, const Json& record, bool final) const {
  const Json line{{"point", point}, {"final", final}, {"record", record}};
  append_line(folder_ / (id + ".jsonl"), line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::map<std::string, Json> parse_records(std::string_view lines, bool only_final) {
  struct Kept {
    Json record;
    std::size_t values = 0;
  };
  std::map<std::string, Kept> kept;
  std::size_t left = most_values_kept;
  while (!lines.empty()) {
    const std::string_view text = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(text.size() + 1, lines.size()));
    Json line = parse_json(text, left);
    if (!line.is_object() || !line.contains("point") || !line["point"].is_object() || !line.contains("record") ||
        !line["record"].is_object() || !line.contains("final") || !line["final"].is_boolean() ||
        (only_final && !line["final"].get<bool>())) {
      continue;
    }
    Kept& one = kept[line["point"].dump()];
    left += one.values;
    one = {std::move(line["record"]), values_in(text).values};
    left -= std::min(left, one.values);
  }
  std::map<std::string, Json> records;
  for (auto& [point, one] : kept) {
    records.emplace(point, std::move(one.record));
  }
  return records;
}

std::map<std::string, Json> Store::records(const std::string& id, bool only_final) const {
  return parse_records(read_kept(folder_ / (id + ".jsonl")), only_final);
}

std::optional<RunSpec> Store::spec(const std::string& id) const {
  const fs::path path = folder_ / (id + ".spec.json");
  const std::string text = read_kept(path);
  if (text.empty() && !fs::exists(path)) {
    return std::nullopt;
  }
  std::optional<RunSpec> spec = from_json(parse_json(text, most_values_kept), id);
  if (!spec) {
    throw usage_error("{} is no spec of an experiment, or is damaged", path.string());
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

fs::path new_run_folder(const fs::path& runs, const std::string& name) {
  const fs::path base = runs / fmt::format("{:%Y%m%d-%H%M%S}-{}", fmt::localtime(std::time(nullptr)), name);
  fs::path path = base;
  for (int i = 2; fs::exists(path); ++i) {
    path = fmt::format("{}-{}", base.string(), i);
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
    for (const auto& [key, value] : point.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        keys.push_back(key);
      }
    }
  }
  return keys;
}

}  // namespace

Result conclude(const Store& store, const std::string& id) {
  const std::optional<RunSpec> spec = store.spec(id);
  if (!spec) {
    throw usage_error("{} holds no results of {}", store.folder().string(), id);
  }
  const auto experiment = std::make_shared<const Experiment>(
      extended(spec->toml ? parse_spec(*spec->toml, id) : experiment_by_id(id), keys_of(spec->points)));
  std::map<std::string, Json> kept = store.records(id, false);
  std::vector<Json> records;
  for (const Point& point : spec->points) {
    records.push_back(kept[point.dump()]);
  }
  return conclude_kept(experiment, spec->points, std::move(records), spec->command, spec->preset);
}

}  // namespace baton::lab
