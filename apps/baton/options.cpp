#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton::app {

void add_job_flags(CLI::App& command, lab::JobWords& words) {
  for (const lab::JobField& field : lab::job_fields()) {
    // The words that have a short form, or another name that people bring along.
    const std::string flag = field.name == "model"           ? "-m,--model"
                             : field.name == "strategy"      ? "-s,--strategy"
                             : field.name == "devices"       ? "-d,--devices"
                             : field.name == "batch"         ? "-b,--batch,--global-batch"
                             : field.name == "micro-batches" ? "--micro-batches,--accumulate"
                                                             : "--" + field.name;
    std::string& word = words.*field.word;
    if (field.name == "delay") {
      command
          .add_option_function<std::vector<std::string>>(
              flag, [&word](const std::vector<std::string>& all) { word = fmt::format("{}", fmt::join(all, ";")); }, field.help)
          ->take_all()
          ->allow_extra_args(false);
      continue;
    }
    CLI::Option* option = command.add_option(flag, word, field.help);
    if (!word.empty()) {
      option->capture_default_str();
    }
  }
}

}  // namespace baton::app
