#include "baton/lab/store.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "baton/base/error.h"
#include "baton/lab/spec.h"

namespace baton::lab {
namespace {

namespace fs = std::filesystem;

/// Writes all of it and closes; the error's number otherwise.
int write_all(int file, std::string_view text, bool sync) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      const int error = errno;
      ::close(file);
      return error;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (sync && ::fsync(file) != 0) {
    const int error = errno;
    ::close(file);
    return error;
  }
  return ::close(file) == 0 ? 0 : errno;
}

}  // namespace

void write_whole(const fs::path& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path.string(), getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int error = file < 0 ? errno : write_all(file, text, true);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(temporary.c_str());
    throw failure("{} cannot be written: {}", path.string(), std::strerror(error));
  }
}

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
  const fs::path path = folder_ / (id + ".jsonl");
  const Json line{{"point", point}, {"final", final}, {"record", record}};
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  // A line that a killed run left unfinished is ended first, or this one would be lost with it.
  char last = '\n';
  const off_t size = file < 0 ? 0 : ::lseek(file, 0, SEEK_END);
  const bool cut = size > 0 && ::pread(file, &last, 1, size - 1) == 1 && last != '\n';
  const int error = file < 0 ? errno : write_all(file, (cut ? "\n" : "") + line.dump() + "\n", false);
  if (error != 0) {
    throw failure("{} cannot be written: {}", path.string(), std::strerror(error));
  }
}

std::map<std::string, Json> Store::records(const std::string& id, bool only_final) const {
  std::map<std::string, Json> records;
  std::ifstream file(folder_ / (id + ".jsonl"));
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_discarded() && line.contains("point") && line.contains("record") &&
        (line.value("final", false) || !only_final)) {
      records[line["point"].dump()] = line["record"];
    }
  }
  return records;
}

Json Store::spec(const std::string& id) const {
  std::ifstream file(folder_ / (id + ".spec.json"));
  if (!file) {
    return {};
  }
  std::ostringstream text;
  text << file.rdbuf();
  Json spec = Json::parse(text.str(), nullptr, false);
  if (spec.is_discarded() || !spec.is_object() || !spec.contains("points") || !spec["points"].is_array()) {
    throw usage_error("{} is no spec of an experiment", (folder_ / (id + ".spec.json")).string());
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
    if (entry.is_directory() && same &&
        (latest.empty() || latest.filename().string() < folder)) {
      latest = entry.path();
    }
  }
  return latest;
}

Result conclude(const Store& store, const std::string& id) {
  const Json spec = store.spec(id);
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
  return conclude(experiment, points, std::move(records), spec.value("command", ""),
                  spec.value("preset", "quick") == "full" ? Preset::full : Preset::quick);
}

}  // namespace baton::lab
