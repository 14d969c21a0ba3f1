#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace baton::app {

namespace {

/// "-b,--batch,--global-batch".
std::string flags_of(const job::JobField& field) {
  std::string letters;
  std::string names = "--" + field.name;
  for (const std::string& spelling : field.also) {
    (spelling.size() == 1 ? letters : names) += spelling.size() == 1 ? "-" + spelling + "," : ",--" + spelling;
  }
  return letters + names;
}

}  // namespace

void add_job_flags(CLI::App& command, job::JobSpec& spec, const std::vector<std::string>& only) {
  for (const job::JobField& field : training::job_fields()) {
    if (!only.empty() && std::find(only.begin(), only.end(), field.name) == only.end()) {
      continue;
    }
    const std::string flag = flags_of(field);
    CLI::Option* option = nullptr;
    if (field.add) {
      option = command
                   .add_option_function<std::vector<std::string>>(
                       flag,
                       [&spec, &field](const std::vector<std::string>& all) {
                         field.reset(spec);
                         for (const std::string& one : all) {
                           field.add(spec, one);
                         }
                       },
                       field.help)
                   ->take_all()
                   ->allow_extra_args(false);
    } else {
      option = command.add_option_function<std::string>(
          flag, [&spec, &field](const std::string& value) { field.set(spec, value); }, field.help);
    }
    option->type_name(field.type);
    if (const std::string usual = field.text(spec); !usual.empty()) {
      option->default_str(usual);
    }
  }
}

void add_settings(const job::JobSpec& spec, std::vector<exec::Setting>& settings) {
  for (const job::JobField& field : training::job_fields()) {
    if (field.name != "devices" && field.name != "memory") {
      settings.push_back({"--" + field.name, field.text(spec)});
    }
  }
}

const std::vector<std::string>& data_flags() {
  static const std::vector<std::string> flags = [] {
    std::vector<std::string> names;
    for (const job::JobField& field : training::job_fields()) {
      if (field.topic == job::Topic::data) {
        names.push_back(field.name);
      }
    }
    return names;
  }();
  return flags;
}

void hide_job_flags(CLI::App& command, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    command.get_option("--" + name)->group("");
  }
}

}  // namespace baton::app
