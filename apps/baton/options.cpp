#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace baton::app {

namespace {

/// "-b,--batch,--global-batch".
std::string flags_of(const lab::JobField& field) {
  std::string letters;
  std::string names = "--" + field.name;
  for (const std::string& spelling : field.also) {
    (spelling.size() == 1 ? letters : names) += spelling.size() == 1 ? "-" + spelling + "," : ",--" + spelling;
  }
  return letters + names;
}

}  // namespace

void add_job_flags(CLI::App& command, lab::JobWords& words, const std::vector<std::string>& only) {
  for (const lab::JobField& field : lab::job_fields()) {
    if (!only.empty() && std::find(only.begin(), only.end(), field.name) == only.end()) {
      continue;
    }
    const std::string flag = flags_of(field);
    std::string& word = words.*field.word;
    if (field.repeatable) {
      command
          .add_option_function<std::vector<std::string>>(
              flag, [&word](const std::vector<std::string>& all) { word = fmt::format("{}", fmt::join(all, ";")); }, field.help)
          ->type_name(field.type)
          ->take_all()
          ->allow_extra_args(false);
      continue;
    }
    CLI::Option* option = command.add_option(flag, word, field.help)->type_name(field.type);
    if (!word.empty()) {
      option->capture_default_str();
    }
  }
}

void add_settings(const lab::JobWords& words, std::vector<exec::Setting>& settings) {
  for (const lab::JobField& field : lab::job_fields()) {
    if (field.name != "devices" && field.name != "memory") {
      settings.push_back({"--" + field.name, words.*field.word});
    }
  }
}

const std::vector<std::string>& data_flags() {
  static const std::vector<std::string> flags{"data", "tokenizer", "token-type", "normalize", "augment"};
  return flags;
}

void hide_job_flags(CLI::App& command, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    command.get_option("--" + name)->group("");
  }
}

}  // namespace baton::app
