#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/job/spec_text.h"
#include "baton/lab/rows.h"
#include "baton/measure/collectives.h"
#include "baton/measure/core_share.h"
#include "baton/measure/environment.h"
#include "baton/report/report.h"
#include "baton/report/table.h"
#include "baton/training/job.h"
#include "commands.h"
#include "guard.h"
#include "options.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct BenchWords {
  job::JobSpec job;
  measure::BenchOptions options;
  std::string sizes = "8:64MiB:4";  // the text of --sizes, from which `options` is made
  std::string operations;
  Nanoseconds limit{100'000'000};
  std::string json;
  std::string cluster;
};

measure::BenchOptions options_of(const BenchWords& words) {
  measure::BenchOptions options = words.options;
  options.time = words.limit;
  if (!words.cluster.empty() &&
      std::find(options.operations.begin(), options.operations.end(), plan::Move::copy) == options.operations.end()) {
    throw usage_error("--write-cluster takes latency and bandwidth from send_receive: add it to --operations");
  }
  if (!words.cluster.empty() && options.max_bytes / options.factor / options.factor < options.min_bytes) {
    throw usage_error("--write-cluster takes at least three sizes, but --sizes is {}", words.sizes);
  }
  return options;
}

std::vector<plan::Move> parse_operations(const std::string& text) {
  std::vector<plan::Move> operations;
  for (const std::string_view name : split(text, ',')) {
    operations.push_back(measure::operation_by_name(name));
  }
  return operations;
}

/// "send_receive, all_reduce or broadcast".
std::string operation_names() {
  std::vector<std::string> names;
  for (const plan::Move operation : measure::every_operation()) {
    names.emplace_back(plan::to_text(operation));
  }
  return either(names);
}

std::string gigabytes(double bytes_a_second) { return fmt::format("{:.3g}", bytes_a_second * 1e-9); }

/// "alpha 1.20 µs, beta 8.1 GB/s".
std::string law_text(const findings::AlphaBeta& law) {
  return fmt::format("alpha {}, beta {}", to_text(Nanoseconds(static_cast<std::int64_t>(law.alpha_ns))),
                     law.beta > 0 ? gigabytes(law.beta) + " GB/s" : "without limit");
}

lab::Json to_json(const std::vector<measure::BenchRow>& rows, const training::Job& job) {
  namespace key = lab::key;
  std::vector<lab::Record> list;
  lab::Json laws = lab::Json::object();
  for (const measure::BenchRow& row : rows) {
    using Row = key::BenchRow;
    list.push_back({Row::operation(std::string(plan::to_text(row.operation))), key::bytes(Bytes(row.bytes)), Row::count(row.count),
                    Row::type(std::string(to_text(DType::f32))), key::time_ns(row.time), key::time_low_ns(row.low),
                    key::time_high_ns(row.high), Row::algorithm_bandwidth(row.algorithm_bandwidth()),
                    Row::bus_bandwidth(row.bus_bandwidth(job.cluster().size())), Row::wrong(row.wrong)});
    const findings::AlphaBeta law = measure::fit(rows, row.operation);
    laws[plan::to_text(row.operation)] = law.testable() ? lab::Json{{"alpha_ns", law.alpha_ns},
                                                                    {"beta", law.beta},
                                                                    {"r2", law.r2},
                                                                    {"worst_residual", law.worst_residual}}
                                                        : lab::Json();
  }
  return lab::Record{key::command(command_line()),
                     key::BenchResult::devices(job.spec().devices.text()),
                     key::backend(std::string(job.backend().name())),
                     key::BenchResult::rows(list),
                     key::BenchResult::laws(laws),
                     key::oversubscribed(job.cluster().oversubscribed()),
                     key::environment(measure::environment(job.machine()))}
      .json();
}

void print_rows(const std::vector<measure::BenchRow>& rows, std::size_t devices) {
  std::vector<plan::Move> done;
  for (const measure::BenchRow& row : rows) {
    if (done.empty() || done.back() != row.operation) {
      done.push_back(row.operation);
    }
  }
  for (const plan::Move operation : done) {
    report::Table table({"size (B)", "count", "type", "time (µs)", "algbw (GB/s)", "busbw (GB/s)", "#wrong"});
    for (const measure::BenchRow& row : rows) {
      if (row.operation == operation) {
        table.row({fmt::format("{}", row.bytes), fmt::format("{}", row.count), std::string(to_text(DType::f32)),
                   fmt::format("{:.2f}", static_cast<double>(row.time.count) / 1000), gigabytes(row.algorithm_bandwidth()),
                   gigabytes(row.bus_bandwidth(devices)), fmt::format("{}", row.wrong)});
      }
    }
    const findings::AlphaBeta law = measure::fit(rows, operation);
    fmt::print("\n{}\n{}{}{}\n", plan::to_text(operation), table.text(),
               law.testable() ? law_text(law) + ": " : "alpha and beta: ", findings::quality(law));
  }
}

void bench_collectives(BenchWords words, int& exit_code) {
  const measure::BenchOptions options = options_of(words);
  ranks::on_rank_0(world(), [&] { settle_outputs({&words.json, &words.cluster}); });
  const training::Job job(words.job, cluster::probe(), shared_world());
  const Interrupt interrupt;
  std::optional<ProgressBar> bar;
  const std::vector<measure::BenchRow> rows = measure::bench_collectives(
      job.cluster(), job.backend(), options,
      [&](std::size_t done, std::size_t total) {
        if (!bar) {
          bar.emplace("measuring", static_cast<std::int64_t>(total), world().rank() == 0, "sizes");
        }
        bar->show(static_cast<std::int64_t>(done));
        return !world().alone() || !interrupt.asked();  // ranks agree in the middle of a size
      },
      shared_world());
  bar.reset();
  interrupt.begin_saving();
  const int stopped = interrupt.exit_code_anywhere(world());
  exit_code = stopped;
  measure::MeasuredLinks links;
  if (!words.cluster.empty() && stopped == 0) {
    links = measure::measured_links(rows, job.cluster());
    links.link.core_share = measure::measure_core_share(job.cluster(), job.backend(), links.link.bandwidth, shared_world());
  }
  if (world().rank() != 0) {
    return;
  }
  std::int64_t wrong = 0;
  for (const measure::BenchRow& row : rows) {
    wrong += row.wrong;
  }
  const bool say = words.json != "-";
  if (say) {
    fmt::print("collectives between {} devices ({}), {} backend{}, measured: the median time per operation\n", job.cluster().size(),
               job.spec().devices.text(), job.backend().name(),
               job.cluster().emulated_link() ? ", links slowed to " + job::flag_text(*job.spec().link) : "");
    if (const std::string note = job.oversubscription(); !note.empty()) {
      fmt::print("note: {}\n", note);
    }
    print_rows(rows, job.cluster().size());
  }
  if (!words.json.empty()) {
    write_output(words.json, to_json(rows, job).dump(2) + "\n");
  }
  if (stopped != 0) {
    fmt::print(stderr, "baton: interrupted; only the sizes measured so far are shown\n");
  } else if (!words.cluster.empty()) {
    write_output(words.cluster, measure::to_cluster_file(
                                    job.cluster(), links,
                                    fmt::format("{}, links measured {} by {}", job.machine().cpu, time_text(), command_line())));
    if (say && words.cluster != "-") {
      fmt::print("\nCluster: {}, with collectives by the formula of {}, whose median error is {}\n", words.cluster,
                 cluster::to_text(links.algorithm), lab::percent(links.median_error));
      if (links.link.core_share > 0) {
        fmt::print("Messages in both directions take {} of a core per device.\n", lab::percent(links.link.core_share));
      }
    }
  }
  if (wrong > 0) {
    throw failure("{} elements are wrong: the transport is faulty", wrong);
  }
}

/// Sends an error of this rank to the others, which would wait for it.
void bench_guarded(const BenchWords& words, int& exit_code) {
  {
    const StartLimit limit(!world().alone());
    std::vector<exec::Setting> settings{{"--sizes", words.sizes},
                                        {"--operations", words.operations},
                                        {"--time-limit", job::flag_text(words.limit)},
                                        {"--json", words.json},
                                        {"--write-cluster", words.cluster}};
    add_settings(words.job, settings);
    exec::require_same(world(), settings);
  }
  open_guard(world(), Nanoseconds(5'000'000'000));
  try {
    bench_collectives(words, exit_code);
    guard_end(world());
  } catch (const Error& error) {
    guard_failure(printable(error.what()), error.kind() == Error::Kind::usage ? 2 : 1);
    throw;
  }
}

void add_bench_flags(CLI::App& command, BenchWords& words) {
  add_job_flags(command, words.job, {"devices", "link", "backend", "memory"});
  command
      .add_option_function<std::string>(
          "--sizes",
          [&words](const std::string& sizes) {
            words.sizes = sizes;
            measure::parse_sizes(sizes, words.options);
          },
          "smallest size, largest size and factor, for example 8:64MiB:4; MB and M mean MiB here")
      ->type_name("FROM:TO:FACTOR")
      ->default_str(words.sizes);
  command
      .add_option_function<std::string>(
          "--operations",
          [&words](const std::string& operations) {
            words.operations = operations;
            words.options.operations = parse_operations(operations);
          },
          fmt::format("any of {}, for example all_reduce,broadcast (default: all)", operation_names()))
      ->type_name("NAMES");
  add_time(command, "--time-limit", words.limit, Nanoseconds(0), "approximate time for one size of one operation");
  command.add_option("--json", words.json, "write the rows to a file, or to standard output with -")->type_name("FILE");
  command
      .add_option("--write-cluster", words.cluster,
                  "write a cluster file with the measured links, for baton simulate --cluster FILE")
      ->type_name("FILE");
}

}  // namespace

void add_bench_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("bench", "Time messages between devices");
  command->require_subcommand(1);
  command->footer("\nExample:\n  baton bench collectives --devices cpu:2");
  CLI::App* collectives = command->add_subcommand("collectives",
                                                  "Time collectives and transfers over a range of sizes, and check their results");
  auto words = std::make_shared<BenchWords>();
  words->job.devices = "cpu:2";
  add_bench_flags(*command, *words);  // flags may stand before `collectives` or after it
  add_bench_flags(*collectives, *words);
  collectives->footer(
      "\nExamples:\n  baton bench collectives --devices cpu:2\n"
      "  baton bench collectives --devices cpu:4 --sizes 1KiB:16MiB:2 --operations all_reduce\n"
      "  baton bench collectives --devices cpu:2 --write-cluster mine.toml && baton simulate --cluster "
      "mine.toml --strategy ddp");
  collectives->callback([words, &exit_code] { bench_guarded(*words, exit_code); });
}

}  // namespace baton::app
