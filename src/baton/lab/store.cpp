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
constexpr std::size_t most_values = 1'000'000;

/// A file of the store; empty where there is none.
std::string read_kept(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) ? read_file(path, path.string(), most_read) : "";
}

}  // namespace

Store::Store(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    throw failure("the folder {} cannot be made: {}", folder_.string(), error.message());
  }
}

void Store::keep_spec(const std::string& id, const Json& spec) const {
  write_whole(folder_ / (id + ".spec.json"), spec.dump(2) + "\n");
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
  std::size_t left = most_values;
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

Json Store::spec(const std::string& id) const {
  const fs::path path = folder_ / (id + ".spec.json");
  const std::string text = read_kept(path);
  if (text.empty() && !fs::exists(path)) {
    return {};
  }
  Json spec = parse_json(text, most_values);
  const auto is_text = [&](const char* key) { return !spec.contains(key) || spec[key].is_string(); };
  if (!spec.is_object() || !spec.contains("points") || !spec["points"].is_array() ||
      !std::all_of(spec["points"].begin(), spec["points"].end(), [](const Json& point) { return point.is_object(); }) ||
      !is_text("command") || !is_text("preset") || !is_text("title") || !is_text("run_command") || !is_text("created") ||
      !is_text("toml") || (spec.contains("environment") && !spec["environment"].is_object())) {
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

Result conclude(const Store& store, const std::string& id) {
  const Json spec = store.spec(id);
  if (spec.is_null()) {
    throw usage_error("{} holds no results of {}", store.folder().string(), id);
  }
  const auto experiment = spec.contains("toml")
                              ? std::make_shared<const Experiment>(parse_spec(spec["toml"].get<std::string>(), id))
                              : std::make_shared<const Experiment>(experiment_by_id(id));
  std::map<std::string, Json> kept = store.records(id, false);
  std::vector<Point> points;
  std::vector<Json> records;
  for (const Json& point : spec["points"]) {
    points.push_back(point);
    records.push_back(kept[point.dump()]);
  }
  return conclude_kept(experiment, points, std::move(records), spec.value("command", ""),
                       spec.value("preset", "") == to_text(Preset::full) ? Preset::full : Preset::quick);
}

}  // namespace baton::lab
