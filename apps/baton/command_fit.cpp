#include <fmt/format.h>

#include <array>

#include "baton/base/error.h"
#include "baton/cluster/machine.h"
#include "baton/job/fit.h"
#include "baton/lab/json.h"
#include "baton/op/optimizer.h"
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

struct FitWords {
  job::JobSpec job;
  std::int64_t top = 10;
  std::string json;
};

bool is_of_split(const job::JobField& field) { return field.topic == job::Topic::split; }

/// The flags of the split, after those that all splits have in common.
std::string split_flags(const job::JobSpec& spec) {
  return job::flags_of(spec, shell_word, [](const job::JobField& field) { return field.name == "devices" || is_of_split(field); });
}

/// True if the job asks for a split. The balance of blocks over stages (--balance) is not a split by itself.
bool is_split(const job::JobSpec& spec) {
  return !job::flags_of(spec, {}, [](const job::JobField& field) { return is_of_split(field) && field.name != "balance"; }).empty();
}

/// A cause of a device's memory: the heading of its column, its key, and how much there is of it.
struct Cause {
  const char* heading;
  key::Size size;
  Bytes (*bytes)(const job::DeviceMemory& one);
};
constexpr std::array causes{
    Cause{"parameters", key::parameters_bytes, [](const job::DeviceMemory& one) { return Bytes(one.held.parameters); }},
    Cause{"gradients", key::gradients_bytes, [](const job::DeviceMemory& one) { return Bytes(one.held.gradients); }},
    Cause{"states", key::states_bytes, [](const job::DeviceMemory& one) { return Bytes(one.held.states); }},
    Cause{"activations", key::activations_bytes, [](const job::DeviceMemory& one) { return Bytes(one.held.activations); }},
    Cause{"communication", key::communication_bytes, [](const job::DeviceMemory& one) { return Bytes(one.held.communication); }},
    Cause{"other", key::other_bytes, [](const job::DeviceMemory& one) { return Bytes(one.held.other); }},
    Cause{"unshared", key::unshared_bytes, [](const job::DeviceMemory& one) { return one.unshared(); }}};

lab::Record to_record(const job::Fit& fit) {
  std::vector<lab::Record> devices;
  for (const job::DeviceMemory& one : fit.devices) {
    lab::Record device{key::device(one.device), key::stands_for(one.copies), key::peak_bytes(one.peak)};
    for (const Cause& cause : causes) {
      device.update({cause.size(cause.bytes(one))});
    }
    devices.push_back(std::move(device));
  }
  using Entry = key::FitResult;
  lab::Record record{key::name(fit.name),
                     Entry::fits(fit.fits()),
                     key::peak_bytes(fit.fullest().peak),
                     Entry::needed_bytes(fit.needed()),
                     Entry::limit_bytes(fit.limit),
                     Entry::flags(split_flags(fit.spec)),
                     Entry::devices(devices)};
  std::vector<lab::Record> reserved;
  for (const job::Reserved& one : fit.reserved) {
    Json causes = Json::object();
    for (const auto& [cause, bytes] : one.causes) {
      causes[cause] = bytes.count;
    }
    reserved.push_back({key::ReservedEntry::stage(static_cast<std::int64_t>(one.stage)), key::bytes(one.total),
                        key::ReservedEntry::causes(causes)});
  }
  if (!reserved.empty()) {
    record.set(Entry::reserved, reserved);
  }
  if (fit.estimated_time > 0) {
    record.set(Entry::estimated_step_ns, static_cast<std::int64_t>(fit.estimated_time));
  }
  return record;
}

std::vector<lab::Record> to_records(const std::vector<job::Fit>& fits) {
  std::vector<lab::Record> records;
  for (const job::Fit& one : fits) {
    records.push_back(to_record(one));
  }
  return records;
}

void print_devices(const job::Fit& fit) {
  std::vector<std::string> columns{"device", "memory", "bytes"};
  for (const Cause& cause : causes) {
    columns.emplace_back(cause.heading);
  }
  report::Table table(columns);
  for (const job::DeviceMemory& one : fit.devices) {
    std::vector<std::string> row{one.device, to_text(one.peak), fmt::format("{}", one.peak.count)};
    for (const Cause& cause : causes) {
      row.push_back(to_text(cause.bytes(one)));
    }
    table.row(std::move(row), one.peak > fit.limit ? "(does not fit)" : "");
  }
  fmt::print("{}", table.text());
  if (fit.devices[0].copies > 1) {
    fmt::print("each row stands for {} identical devices\n", fit.devices[0].copies);
  }
  fmt::print("unshared: memory that cannot be shared because tasks run side by side, and gaps between buffers\n");
}

/// Prints the memory that the simulated program would reserve on the devices, if its profile says how it allocates.
void print_reserved(const job::Fit& fit) {
  std::vector<std::string> columns{"stage", "reserved"};
  for (const auto& [cause, bytes] : fit.reserved[0].causes) {
    columns.push_back(cause);
  }
  report::Table table(columns);
  for (const job::Reserved& one : fit.reserved) {
    std::vector<std::string> row{fmt::format("{}", one.stage), to_text(one.total)};
    for (const auto& [cause, bytes] : one.causes) {
      row.push_back(to_text(bytes));
    }
    table.row(std::move(row), one.total > fit.limit ? "(does not fit)" : "");
  }
  fmt::print("\nWhat {} reserves by PyTorch's allocator (torch.cuda.max_memory_reserved), when most is in use\n{}",
             fit.spec.software, table.text());
}

void print_one(const job::Fit& fit, const std::vector<job::Fit>& smaller) {
  const std::string answer = fit.fits() ? "Yes, it fits" : "No, it does not fit";
  if (fit.reserved.empty()) {
    fmt::print("{}: {} needs {} of {} on {}\n\n", answer, fit.name, to_text(fit.needed()), to_text(fit.limit),
               fit.fullest().device);
    print_devices(fit);
  } else {
    fmt::print("{}: with {}, {} needs {} of {}\n", answer, fit.spec.software, fit.name, to_text(fit.needed()), to_text(fit.limit));
    print_reserved(fit);
    fmt::print("\nWhat Baton's own plan of that split lays out\n");
    print_devices(fit);
  }
  if (!fit.fits()) {
    fmt::print("\nWhat would make it smaller, one change at a time\n");
    report::Table table({"split", "memory", "fits", "flags"});
    for (const job::Fit& one : smaller) {
      table.row({one.name, to_text(one.needed()), one.fits() ? "yes" : "no", split_flags(one.spec)});
    }
    fmt::print("{}", smaller.empty() ? "no single change of the split makes it smaller\n" : table.text());
  }
}

void print_rows(const std::vector<job::Fit>& list, std::size_t top) {
  report::Table table({"split", "memory", "parameters", "gradients", "states", "activations", "rest", "step (by formula)"});
  for (std::size_t i = 0; i < std::min(top, list.size()); ++i) {
    const job::DeviceMemory& one = list[i].fullest();
    const std::int64_t rest = one.held.communication + one.held.other + one.unshared().count;
    table.row({list[i].name, to_text(one.peak), to_text(Bytes(one.held.parameters)), to_text(Bytes(one.held.gradients)),
               to_text(Bytes(one.held.states)), to_text(Bytes(one.held.activations)), to_text(Bytes(rest)),
               to_text(Nanoseconds(static_cast<std::int64_t>(list[i].estimated_time)))});
  }
  fmt::print("{}", table.text());
}

/// The words for the parameters and an optimizer's states.
std::string parameters_and_states(const std::string& optimizer) {
  return op::state_slots(op::optimizer_by_name(optimizer)) == 0 ? fmt::format("parameters alone ({} has no states)", optimizer)
                                                                : fmt::format("parameters and the states of {} alone", optimizer);
}

std::string counted(std::size_t count, const char* one, const char* several) {
  return fmt::format("{} {}", count, count == 1 ? one : several);
}

void print_list(const job::FitList& list, const FitWords& words, std::size_t top) {
  const std::string held = parameters_and_states(job::with_software(words.job).optimizer);
  fmt::print(
      "{} over all devices considered: {} more than {} for {}, {} by formula, the others do not; {} compiled and laid out, of "
      "which {}; {} "
      "refused\n\n",
      counted(list.considered, "split", "splits"), counted(list.impossible, "needs", "need"), to_text(list.limit), held,
      counted(list.likely, "fits", "fit"), counted(list.laid_out, "is", "are"), counted(list.smallest.size(), "fits", "fit"),
      counted(list.refused, "is", "are"));
  if (list.laid_out == 0) {
    fmt::print("{}\n", list.impossible > 0 && list.impossible + list.refused == list.considered
                           ? fmt::format("No: {} need at least {} per device of {} in every split.", held,
                                         to_text(list.least_impossible), to_text(list.limit))
                           : "No split was laid out.");
    return;
  }
  if (list.smallest.empty()) {
    fmt::print("No: {}.{}\n",
               list.laid_out == 1 ? "the split that was laid out does not fit" : "none of the splits that were laid out fits",
               list.nearest ? fmt::format(" The smallest is {}, which needs {} of {}.", list.nearest->name,
                                          to_text(list.nearest->needed()), to_text(list.limit))
                            : "");
    return;
  }
  fmt::print("Yes. The fastest by formula that were laid out (the fullest device of each, to the byte in --json)\n");
  print_rows(list.fastest, top);
  fmt::print("\nThe smallest that were laid out\n");
  print_rows(list.smallest, top);
  fmt::print("\nThe memory of one split by cause, for example: {} fit --model {} --cluster {} {}\n", called_as(),
             shell_word(words.job.model.text()), shell_word(words.job.cluster), split_flags(list.fastest[0].spec));
}

void fit(FitWords words) {
  const auto top = static_cast<std::size_t>(words.top);
  settle_outputs({&words.json});
  const Interrupt interrupt;
  if (words.job.cluster.empty() || job::is_this_machine(words.job.cluster)) {
    throw usage_error(
        "fit needs another machine to fit the job into: give a name from `baton clusters`, or a file, with --cluster; of this "
        "machine "
        "`baton plan` shows what a split needs");
  }
  using Answer = key::FitAnswer;
  lab::Record answer{key::command(command_line()), key::cluster(words.job.cluster)};
  if (is_split(words.job)) {
    const job::Fit one = job::fit(words.job, cluster::probe().memory);
    const std::vector<job::Fit> smaller = one.fits() ? std::vector<job::Fit>{} : job::smaller_splits(one);
    if (words.json != "-") {
      print_one(one, smaller);
    }
    answer.set(Answer::fit, to_record(one));
    if (!smaller.empty()) {
      answer.set(Answer::smaller, to_records(smaller));
    }
  } else {
    std::optional<ProgressBar> bar;
    const job::FitList list = job::fitting_splits(words.job, [&](std::size_t done, std::size_t total) {
      if (!bar) {
        bar.emplace("laying out", static_cast<std::int64_t>(total), true, "splits");
      }
      bar->show(static_cast<std::int64_t>(done));
      return !interrupt.asked();
    });
    bar.reset();
    interrupt.begin_saving();
    if (words.json != "-") {
      print_list(list, words, top);
    }
    if (list.impossible > 0) {
      answer.set(Answer::least_impossible_bytes, list.least_impossible);
    }
    const auto count = [](std::size_t number) { return static_cast<std::int64_t>(number); };
    answer.set(Answer::considered, count(list.considered));
    answer.set(Answer::impossible, count(list.impossible));
    answer.set(Answer::likely, count(list.likely));
    answer.set(Answer::laid_out, count(list.laid_out));
    answer.set(Answer::refused, count(list.refused));
    answer.set(Answer::fits, !list.smallest.empty());
    answer.set(Answer::smallest, to_records(list.smallest));
    answer.set(Answer::fastest, to_records(list.fastest));
    if (list.nearest) {
      answer.set(Answer::nearest, to_record(*list.nearest));
    }
  }
  if (!words.json.empty()) {
    write_output(words.json, answer.json().dump(2) + "\n");
  }
}

}  // namespace

void add_fit_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("fit", "Does a job fit into the memory of a cluster's devices, and in which splits");
  auto words = std::make_shared<FitWords>();
  add_job_flags(*command, words->job);
  hide_job_flags(*command, data_flags());
  add_number(*command, "--top", words->top, std::int64_t{1}, std::int64_t{1000}, "number of splits to show");
  command->add_option("--json", words->json, "write the answer to a file, or to standard output with -")->type_name("FILE");
  command->footer(
      "\nWith a strategy or a split: the memory of each device by cause, and if it does not fit what would make it smaller.\n"
      "Without: which splits over all devices fit.\n"
      "\nExamples:\n  baton fit --model llama3-70b --cluster dgx-h100 --devices 64 --precision bf16 --optimizer adam\n"
      "  baton fit --model llama3-8b --cluster dgx-h100 --devices 8 --strategy zero-3 --precision bf16 --optimizer adam");
  command->callback([words] { fit(*words); });
}

}  // namespace baton::app
