#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/job/programs.h"
#include "baton/lab/json.h"
#include "baton/lab/rows.h"
#include "baton/predict/search.h"
#include "baton/report/table.h"
#include "called_as.h"
#include "commands.h"
#include "options.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

using lab::Json;
namespace key = lab::key;

struct SearchWords {
  job::JobSpec job;
  std::int64_t top = 10;
  std::string json;
};

/// The command that simulates the split.
std::string command_of(const job::JobSpec& spec) {
  return called_as() + " simulate " +
         job::flags_of(spec, shell_word, [](const job::JobField& field) { return field.name != "fold"; });
}

std::vector<std::string> cells(const predict::RankedSplit& one) {
  const auto part = [&](Nanoseconds time) { return lab::percent(trace::share_of(time, one.step)); };
  return {one.name, to_text(one.step), to_text(one.memory), part(one.time.busy), part(one.time.exposed), part(one.time.waiting)};
}

lab::Record to_record(const predict::RankedSplit& one, std::int64_t batch) {
  Json programs = Json::object();
  for (const job::ProgramFlags& program : job::flags_for_programs(one.choice, batch)) {
    using Entry = key::ProgramEntry;
    const bool can = program.cannot.empty();
    programs[program.program] = lab::Record{can ? Entry::flags(program.flags) : Entry::cannot(program.cannot)}.json();
  }
  lab::Record record = predict::to_record(one);
  record.set(key::RankedEntry::from_shorter_steps, one.from_shorter_steps);
  record.set(key::command, command_of(one.spec));
  record.set(key::RankedEntry::programs, programs);
  return record;
}

/// Prints the flags with which other programs split the work in the same way.
void print_programs(const predict::RankedSplit& one, std::int64_t batch) {
  fmt::print("\nOther programs for {}\n", one.name);
  for (const job::ProgramFlags& program : job::flags_for_programs(one.choice, batch)) {
    fmt::print("  {}: {}\n", program.program, program.cannot.empty() ? program.flags : "cannot: " + program.cannot);
  }
}

/// Prints the number of splits, and of those that were simulated or left out.
void print_counts(const predict::SearchResult& result, const std::string& cluster) {
  fmt::print("{} splits over 1 to {} device{} of {} considered, {} of them compiled, verified and simulated\n", result.considered,
             result.devices, result.devices == 1 ? "" : "s", cluster, result.tried);
  if (result.pruned > 0) {
    fmt::print("  {} cannot be faster than the fastest: their products and messages alone take longer\n", result.pruned);
  }
  if (result.left_out > 0) {
    fmt::print("  {} are not simulated: by formulas for computing, links and idle time others are faster\n", result.left_out);
  }
  if (result.too_long > 0) {
    fmt::print("  {} are not simulated, though some may be faster: their plans would have more tasks than a search compiles\n",
               result.too_long);
  }
  if (result.too_large > 0) {
    fmt::print("  {} do not fit: they need {} or more\n", result.too_large, to_text(result.least_too_large));
  }
  std::vector<std::pair<std::size_t, std::string>> reasons;
  for (const auto& [reason, count] : result.reasons) {
    reasons.emplace_back(count, reason);
  }
  std::stable_sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  constexpr std::size_t shown = 3;
  for (std::size_t i = 0; i < std::min(shown, reasons.size()); ++i) {
    fmt::print("  {} refused: {}\n", reasons[i].first, printable(reasons[i].second));
  }
  if (reasons.size() > shown) {
    fmt::print("  {} more reasons of refusal are in --json\n", reasons.size() - shown);
  }
  if (std::any_of(result.ranked.begin(), result.ranked.end(),
                  [](const predict::RankedSplit& one) { return one.from_shorter_steps; })) {
    fmt::print("  steps of many micro-batches: two shorter ones are simulated, the rest is in proportion\n");
  }
  fmt::print("\n");
}

/// The search with a bar of its progress, until Ctrl-C.
predict::SearchResult search_until(const Interrupt& interrupt, const job::JobSpec& spec) {
  std::optional<ProgressBar> bar;
  return predict::search(spec, cluster::probe(), [&](std::size_t done, std::size_t total) {
    if (!bar) {
      bar.emplace("searching", static_cast<std::int64_t>(total), true, "splits");
    }
    bar->show(static_cast<std::int64_t>(done));
    return !interrupt.asked();
  });
}

void print_tables(const predict::SearchResult& result, std::int64_t top) {
  const std::vector<std::string> headings{"split", "step (simulated)", "memory", "computing", "exposed comm.", "waiting"};
  report::Table table(headings);
  bool shown = false;  // one device
  for (std::size_t i = 0; i < std::min<std::size_t>(result.ranked.size(), static_cast<std::size_t>(top)); ++i) {
    table.row(cells(result.ranked[i]));
    shown = shown || (result.one_device && result.ranked[i].spec == result.one_device->spec);
  }
  if (result.one_device && !shown) {
    table.row(cells(*result.one_device), result.one_device->memory > result.device_memory ? "(does not fit)" : "");
  }
  fmt::print("{}\nThe frontier: no simulated split is both faster and smaller than one of these\n", table.text());
  report::Table frontier(headings);
  for (const std::size_t i : result.frontier) {
    frontier.row(cells(result.ranked[i]));
  }
  fmt::print("{}\n", frontier.text());
}

void print_result(const predict::SearchResult& result, const SearchWords& words) {
  print_counts(result, words.job.cluster);
  print_tables(result, words.top);
  fmt::print("{}\n", command_of(result.ranked[0].spec));
  for (const std::string& sentence : {predict::against_one_device(result), predict::against_all_devices(result)}) {
    if (!sentence.empty()) {
      fmt::print("{}\n", sentence);
    }
  }
  if (result.ranked.size() > 1) {
    fmt::print("Why not the next: {}\n", predict::why_not(result.ranked[0], result.ranked[1]));
  }
  constexpr std::size_t best = 3;
  for (std::size_t i = 0; i < std::min(best, result.ranked.size()); ++i) {
    print_programs(result.ranked[i], words.job.batch);
  }
}

Json to_json(const predict::SearchResult& result, const job::JobSpec& spec) {
  std::vector<lab::Record> ranked;
  for (const predict::RankedSplit& one : result.ranked) {
    ranked.push_back(to_record(one, spec.batch));
  }
  using Answer = key::SearchAnswer;
  const auto count = [](std::size_t number) { return static_cast<std::int64_t>(number); };
  lab::Record record{key::command(command_line()),
                     key::origin("simulated"),
                     key::cluster(spec.cluster),
                     Answer::considered(count(result.considered)),
                     Answer::tried(count(result.tried)),
                     Answer::pruned(count(result.pruned)),
                     Answer::left_out(count(result.left_out)),
                     Answer::too_long(count(result.too_long)),
                     Answer::too_large(count(result.too_large)),
                     Answer::refused(count(result.refused)),
                     Answer::reasons(result.reasons),
                     Answer::complete(result.complete),
                     Answer::ranked(ranked),
                     Answer::frontier(result.frontier),
                     Answer::against_all_devices(predict::against_all_devices(result))};
  if (result.one_device) {
    record.set(Answer::one_device, to_record(*result.one_device, spec.batch));
    record.set(Answer::against_one_device, predict::against_one_device(result));
  }
  if (result.ranked.size() > 1) {
    record.set(Answer::why_not_the_next, predict::why_not(result.ranked[0], result.ranked[1]));
  }
  return record.json();
}

void search(SearchWords words, int& exit_code) {
  settle_outputs({&words.json});
  const Interrupt interrupt;
  const predict::SearchResult result = search_until(interrupt, words.job);
  interrupt.begin_saving();
  if (result.ranked.empty() && !result.complete) {
    fmt::print(stderr, "baton: interrupted before a split was simulated\n");
    exit_code = interrupt.exit_code();
    return;
  }
  if (result.ranked.empty()) {
    throw usage_error("no split of {} works on {}: {} need more memory than a device has{}, {} are refused", words.job.model.text(),
                      words.job.cluster, result.too_large,
                      result.too_large == 0 ? "" : fmt::format(" (the smallest at least {})", to_text(result.least_too_large)),
                      result.refused);
  }
  if (words.json != "-") {
    print_result(result, words);
  }
  if (!words.json.empty()) {
    write_output(words.json, to_json(result, words.job).dump(2) + "\n");
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
  hide_job_flags(*command, predict::fields_a_search_chooses());
  add_number(*command, "--top", words->top, std::int64_t{1}, std::int64_t{1000}, "number of splits to show, fastest first");
  command->add_option("--json", words->json, "write all splits to a file, or to standard output with -")->type_name("FILE");
  command->footer(
      "\nEvery split of replicas, stages and tensors over the devices and over fewer, with every stage of ZeRO, schedule, number "
      "of\n"
      "chunks and micro-batches and recomputation, is priced by formulas; about 50 of the best are simulated,\n"
      "and if plans are small all others that could be faster than the fastest.\n"
      "\nExamples:\n  baton search --model mlp:dim=8192,depth=16 --cluster dgx-a100 --devices 16 --batch 1024 --optimizer adam\n"
      "  baton search --model llama3-70b --cluster dgx-h100 --devices 64 --batch 512 --precision bf16 --optimizer adam");
  command->callback([words, &exit_code] { search(*words, exit_code); });
}

}  // namespace baton::app
