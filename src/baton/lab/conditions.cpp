#include "baton/lab/conditions.h"

#include <fmt/format.h>

#include <filesystem>

#include "baton/base/file.h"
#include "baton/base/hash.h"
#include "baton/base/text.h"
#include "baton/exec/fingerprint.h"
#include "baton/job/spec_text.h"
#include "baton/lab/rows.h"
#include "baton/lab/spec.h"
#include "baton/training/job.h"

namespace baton::lab {
namespace {

constexpr std::string_view of_job = "[job] ";         // begins the key of a field of a spec's job
constexpr std::string_view of_file = "contents of ";  // begins the key of a file

constexpr Bytes most_hashed(std::int64_t{4} << 20);  // the size of the largest file that is hashed, a schedule

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// True if a word names a file, as clusters and schedules do.
bool names_file(std::string_view word) {
  return word.ends_with(".toml") || word.ends_with(".csv") || word.find('/') != std::string_view::npos;
}

/// The contents of the files among these words, by name; a file that cannot be read is refused when it is used.
Json contents_of(const std::vector<std::string>& words) {
  Json files = Json::object();
  for (const std::string& word : words) {
    std::error_code error;
    if (names_file(word) && std::filesystem::is_regular_file(word, error)) {
      files[word] = hash_text(Hash(read_file(word, word, most_hashed)).value());
    }
  }
  return files;
}

/// The value of a job's field that a spec does not give.
std::string job_default(std::string_view name) {
  const job::JobField* field = training::find_field(name);
  return field == nullptr ? "" : field->text(job::JobSpec{});
}

/// The value of a key, also of a field of a job that is not given.
std::string value_in(const Json& conditions, const std::string& key) {
  if (conditions.contains(key)) {
    return word_of(conditions[key]);
  }
  const std::string usual = key.starts_with(of_job) ? job_default(std::string_view(key).substr(of_job.size())) : "";
  return usual.empty() ? "the default" : usual + " by default";
}

}  // namespace

Json run_conditions(const Settings& settings) {
  Json conditions{{"version", BATON_VERSION},
                  {"program", hash_text(exec::hash_program())},
                  {"preset", to_text(settings.preset)},
                  {"devices", to_text(settings.devices)}};
  const bool elsewhere = !settings.cluster.empty() && !job::is_this_machine(settings.cluster);
  const std::string machine = fmt::format("{}, {}, {} cores", settings.machine.host, settings.machine.cpu,
                                          settings.machine.cores.size());
  conditions["machine"] = elsewhere ? "none: another one is simulated" : machine;
  const bool measured = settings.cluster.empty();
  conditions["time limit"] = measured ? to_text(settings.time_limit) : "none: simulated";
  conditions["precise"] = measured && settings.precise ? "yes" : "no";
  conditions[key::cluster.name] = settings.cluster.empty() ? "none: measured" : settings.cluster;
  if (elsewhere) {
    std::vector<std::string> parts;
    for (const std::string_view part : split(settings.cluster, '+')) {
      parts.emplace_back(part);
    }
    const Json files = contents_of(parts);
    for (const auto& [file, hash] : files.items()) {
      conditions[std::string(of_file) + file] = hash;
    }
  }
  conditions["what-if"] = settings.what_if.changes() ? job::flag_text(settings.what_if) : "none";
  return conditions;
}

Json experiment_conditions(const Settings& settings, const std::vector<Point>& points, const std::optional<std::string>& toml) {
  Json own = Json::object();
  std::vector<std::string> words;
  std::int64_t most_devices = 0;
  for (const Point& point : points) {
    for (const auto& [axis, value] : point) {
      words.push_back(word_of(value));
      if (axis == key::devices.name && std::holds_alternative<std::int64_t>(value)) {
        most_devices = std::max(most_devices, std::get<std::int64_t>(value));
      }
    }
  }
  if (toml) {
    for (const auto& [key, value] : spec_job(*toml)) {
      own[std::string(of_job) + key] = value;
      words.push_back(value);
    }
  }
  if (settings.devices.gpus) {
    own["most devices"] = fmt::format("{}", most_devices);
  }
  const Json files = contents_of(words);
  for (const auto& [file, hash] : files.items()) {
    own[std::string(of_file) + file] = hash;
  }
  return {{"run", run_conditions(settings)}, {"own", own}};
}

std::string conditions_name(const Json& conditions) { return conditions.empty() ? "" : hash_text(Hash(conditions.dump()).value()); }

std::vector<std::string> differences(const Json& before, const Json& now) {
  std::vector<std::string> found;
  Json all = now;
  all.update(before);
  for (const auto& [key, value] : all.items()) {
    const bool in_both = before.contains(key) && now.contains(key);
    if (in_both && before[key] == now[key]) {
      continue;
    }
    if (key == "program" || (key.starts_with(of_file) && in_both)) {
      found.push_back(key);
    } else if (key.starts_with(of_file)) {
      const std::string file = key.substr(of_file.size());
      found.push_back(fmt::format("choice of files ({} {})", file, now.contains(key) ? "is new" : "is no longer used"));
    } else {
      found.push_back(fmt::format("{} ({}, now {})", key, value_in(before, key), value_in(now, key)));
    }
  }
  return found;
}

}  // namespace baton::lab
