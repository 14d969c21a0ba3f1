#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/lab/json.h"
#include "baton/lab/rows.h"
#include "baton/lab/search.h"
#include "baton/report/table.h"
#include "called_as.h"
#include "commands.h"
#include "options.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

using lab::Json;

struct SearchWords {
  lab::JobWords job;
  std::string top = "10";
  std::string json;
};

/// The flags that give the split again.
std::string flags_of(const lab::JobWords& words) {
  std::string text;
  for (const lab::JobField& field : lab::job_fields()) {
    const std::string& word = words.*field.word;
    if (field.name != "fold" && word != lab::JobWords{}.*field.word) {
      text += fmt::format(" --{} {}", field.name, shell_word(word));
    }
  }
  return called_as() + " simulate" + text;
}

std::vector<std::string> cells(const lab::Found& one) {
  const auto part = [&](Nanoseconds time) { return lab::percent(trace::share(time, one.step)); };
  return {one.name, to_text(one.step), to_text(one.memory), part(one.time.busy), part(one.time.exposed), part(one.time.waiting)};
}

Json to_json(const lab::Found& one) {
  return {{"name", one.name},
          {"time_per_step_ns", one.step.count},
          {"peak_bytes", one.memory.count},
          {"compute_ns", one.time.busy.count},
          {"exposed_ns", one.time.exposed.count},
          {"waiting_ns", one.time.waiting.count},
          {"rest_ns", one.time.rest().count},
          {"command", flags_of(one.words)}};
}

void search(SearchWords words, int& exit_code) {
  const std::int64_t top = parse_integer(words.top, "--top", 1, 1000);
  settle_outputs({&words.json});
  const Interrupt interrupt;
  std::optional<ProgressBar> bar;
  const lab::SearchResult result = lab::search(words.job, cluster::probe(), [&](std::size_t done, std::size_t total) {
    if (!bar) {
      bar.emplace("searching", static_cast<std::int64_t>(total), true, "splits");
    }
    bar->show(static_cast<std::int64_t>(done));
    return !interrupt.asked();
  });
  bar.reset();
  interrupt.wind_up();
  if (result.ranked.empty()) {
    throw usage_error("no split of {} works on {}: {} need more memory than a device has{}, {} are refused", words.job.model,
                      words.job.cluster, result.too_large,
                      result.too_large == 0 ? "" : fmt::format(" (the smallest at least {})", to_text(result.least_too_large)),
                      result.refused);
  }
  if (words.json != "-") {
    fmt::print(
        "{} splits over 1 to all devices simulated on {} (micro-batches: 1, 2 and 4 times the stages), {} skipped because others "
        "are faster and smaller than they can be, {} do not fit{}, {} "
        "are refused\n\n",
        result.tried, words.job.cluster, result.pruned, result.too_large,
        result.too_large == 0 ? "" : fmt::format(" (they need {} or more)", to_text(result.least_too_large)), result.refused);
    report::Table table({"split", "step (simulated)", "memory", "computing", "exposed comm.", "waiting"});
    bool shown = false;  // one device
    for (std::size_t i = 0; i < std::min<std::size_t>(result.ranked.size(), static_cast<std::size_t>(top)); ++i) {
      table.row(cells(result.ranked[i]));
      shown = shown || (result.one_device && result.ranked[i].words == result.one_device->words);
    }
    if (result.one_device && !shown) {
      table.row(cells(*result.one_device), result.one_device->memory > result.device_memory ? "(does not fit)" : "");
    }
    fmt::print("{}\nThe frontier: no split is both faster and smaller than one of these\n", table.text());
    report::Table frontier({"split", "step (simulated)", "memory", "computing", "exposed comm.", "waiting"});
    for (const std::size_t i : result.frontier) {
      frontier.row(cells(result.ranked[i]));
    }
    fmt::print("{}\n{}\n", frontier.text(), flags_of(result.ranked[0].words));
    if (const std::string sentence = lab::against_one_device(result); !sentence.empty()) {
      fmt::print("{}\n", sentence);
    }
    if (result.ranked.size() > 1) {
      fmt::print("Why not the next: {}\n", lab::why_not(result.ranked[0], result.ranked[1]));
    }
  }
  if (!words.json.empty()) {
    Json ranked = Json::array();
    for (const lab::Found& one : result.ranked) {
      ranked.push_back(to_json(one));
    }
    Json object{{"command", command_line()},  {"origin", "simulated"},       {"cluster", words.job.cluster},
                {"tried", result.tried},      {"pruned", result.pruned},     {"too_large", result.too_large},
                {"refused", result.refused},  {"complete", result.complete}, {"ranked", ranked},
                {"frontier", result.frontier}};
    if (result.one_device) {
      object["one_device"] = to_json(*result.one_device);
      object["against_one_device"] = lab::against_one_device(result);
    }
    if (result.ranked.size() > 1) {
      object["why_not_the_next"] = lab::why_not(result.ranked[0], result.ranked[1]);
    }
    write_output(words.json, object.dump(2) + "\n");
  }
  if (!result.complete) {
    fmt::print(stderr, "baton: interrupted; only the splits simulated so far are shown\n");
    exit_code = interrupt.exit_code();
  }
}

}  // namespace

void add_search_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("search",
                                             "Find the fastest and the smallest split of a job over a cluster, by simulation");
  auto words = std::make_shared<SearchWords>();
  add_job_flags(*command, words->job);
  hide_job_flags(*command, data_flags());
  command->add_option("--top", words->top, "number of splits to show, fastest first")->type_name("N")->capture_default_str();
  command->add_option("--json", words->json, "write all splits to a file, or to standard output with -")->type_name("FILE");
  command->footer(
      "\nExample:\n  baton search --model mlp:dim=8192,depth=16 --cluster dgx-a100 --devices 16 --batch 1024 --optimizer adam");
  command->callback([words, &exit_code] { search(*words, exit_code); });
}

}  // namespace baton::app
