#include "baton/measure/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/base/text.h"
#include "baton/exec/executor.h"
#include "baton/findings/median.h"
#include "baton/measure/core_peak.h"
#include "baton/plan/verify.h"
#include "baton/ranks/pack.h"
#include "baton/sim/expand.h"
#include "baton/trace/analysis.h"

namespace baton::measure {
namespace {

using plan::Collective;

constexpr std::int64_t element_size = 4;
constexpr std::int64_t least_copies = 3;
constexpr std::int64_t most_copies_together = 64;
constexpr std::int64_t copied_together = std::int64_t{8} << 20;  // bytes: beyond it a few copies make a step long enough

bool by_pieces(plan::Move operation) { return plan::rule_of(operation).owner == plan::MoveRule::Owner::piece; }
/// True if a member brings only its piece, or takes only that.
bool brings_piece(plan::Move operation) { return by_pieces(operation) && !plan::rule_of(operation).sums; }
bool takes_piece(plan::Move operation) { return by_pieces(operation) && plan::rule_of(operation).sums; }

/// Whole numbers so small that their sums have no rounding.
double value_of(std::int64_t element, std::size_t rank) {
  return static_cast<double>(element % 17 + static_cast<std::int64_t>(rank) + 1);
}

double sum_of(std::int64_t element, std::size_t ranks) {
  double sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    sum += value_of(element, r);
  }
  return sum;
}

/// The value of an element of the whole on a member that takes it, at the end.
double expected(plan::Move operation, std::int64_t element, std::size_t ranks, std::int64_t elements) {
  if (plan::rule_of(operation).sums) {
    return sum_of(element, ranks);
  }
  for (std::uint32_t r = 0; r < ranks && by_pieces(operation); ++r) {
    if (element < plan::piece_of(elements, r, static_cast<std::uint32_t>(ranks)).end) {
      return value_of(element, r);
    }
  }
  return value_of(element, 0);
}

/// Calls visit(first, room for some elements from there on) for the elements of a piece in their order, so that only those are in
/// memory a second time.
template <typename Visit>
void for_each_run(const plan::Piece& piece, Visit visit) {
  constexpr std::int64_t most = 1 << 18;
  std::vector<float> room;
  for (std::int64_t begin = 0; begin < piece.size(); begin += most) {
    room.resize(static_cast<std::size_t>(std::min(most, piece.size() - begin)));
    visit(begin, std::span(room));
  }
}

/// Runs one meeting on known values and counts the wrong ones in its results.
std::int64_t count_wrong(plan::Move operation, std::int64_t elements, const cluster::Cluster& cluster, const exec::Backend& backend,
                         const std::vector<std::string>& devices, const std::shared_ptr<ranks::World>& world) {
  const MeetingsPlan one = meetings(operation, elements, 1, devices);
  exec::Executor executor(one.plan, cluster, backend, {}, world);
  const auto piece_of = [&](std::size_t rank, bool divided) {
    return divided ? plan::piece_of(elements, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(devices.size()))
                   : plan::Piece{0, elements};
  };
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (!one.brought[d].valid()) {
      continue;
    }
    const plan::Piece piece = piece_of(d, brings_piece(operation));
    for_each_run(piece, [&](std::int64_t begin, std::span<float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(value_of(piece.begin + begin + static_cast<std::int64_t>(i), d));
      }
      executor.write(one.brought[d], static_cast<std::size_t>(begin * element_size), std::as_bytes(values));
    });
  }
  executor.run({.steps = 1, .warmup = 0});
  std::int64_t wrong = 0;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (!one.taken[d].valid()) {
      continue;
    }
    const plan::Piece piece = piece_of(d, takes_piece(operation));
    for_each_run(piece, [&](std::int64_t begin, std::span<float> values) {
      executor.read(one.taken[d], static_cast<std::size_t>(begin * element_size), std::as_writable_bytes(values));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double right = expected(operation, piece.begin + begin + static_cast<std::int64_t>(i), devices.size(), elements);
        wrong += static_cast<double>(values[i]) != right ? 1 : 0;
      }
    });
  }
  return wrong;
}

/// Times from the end of one meeting to the end of the next. Buffers hold zeros, so that sums do not grow.
std::vector<Nanoseconds> time_meetings(const plan::Plan& plan, std::int64_t copies, const cluster::Cluster& cluster,
                                       const exec::Backend& backend, Nanoseconds limit,
                                       const std::shared_ptr<ranks::World>& world) {
  exec::Executor executor(plan, cluster, backend, {}, world);
  const exec::RunResult first = executor.run({.steps = 3, .warmup = 2});
  const std::int64_t fit = limit.count / std::max<std::int64_t>(1, first.step_times.back().count);
  const std::int64_t steps = agreed(std::clamp<std::int64_t>(fit, 4, 2000) + 1, world.get());
  const exec::RunResult result = executor.run({.steps = steps, .warmup = 1});
  std::vector<Nanoseconds> times;
  for (const trace::StepTrace& step : result.trace.steps) {
    std::optional<Nanoseconds> before;
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      const Nanoseconds end = trace::ended_at(plan, step, plan.members(MeetingId(static_cast<std::size_t>(copy)))[0]);
      if (before) {
        times.push_back(end - *before);
      }
      before = end;
    }
  }
  return times;
}

/// The time of a meeting by the formula of an algorithm, on links that carry nothing else.
double by_law(const BenchRow& row, const cluster::Cluster& cluster, const cluster::Link& link, cluster::Algorithm algorithm) {
  std::vector<cluster::Device> devices = cluster.devices();
  for (cluster::Device& device : devices) {
    device.node = 0;
  }
  std::vector<std::string> device_names(devices.size());
  const cluster::Cluster wired(std::move(devices), std::nullopt, cluster::Wiring{.port = link, .algorithm = algorithm});
  const sim::Links links(wired);
  const plan::Plan plan = meetings(row.operation, row.bytes / element_size, 1, device_names).plan;
  double time = 0;
  for (const sim::Leg& leg : sim::expand(plan, MeetingId(0), links, wired)) {
    double slowest = 0;
    for (const sim::Load& load : leg.loads) {
      slowest = std::max(slowest, load.bytes * load.flows);
    }
    time += static_cast<double>(leg.latency.count) + (link.bandwidth > 0 ? slowest / link.bandwidth * 1e9 : 0);
  }
  return time;
}

}  // namespace

std::int64_t agreed(std::int64_t number, ranks::World* world) {
  if (world == nullptr || world->alone()) {
    return number;
  }
  const ranks::Packer packer = ranks::Packer().add(number);
  ranks::Blob blob(packer.span().begin(), packer.span().end());
  world->broadcast(blob, 0);
  return ranks::Unpacker(blob).take<std::int64_t>();
}

std::vector<plan::Move> every_operation() {
  std::vector<plan::Move> all;
  for (const plan::MoveRule& rule : plan::move_rules) {
    all.push_back(rule.move);
  }
  return all;
}

plan::Move operation_by_name(std::string_view name) {
  std::vector<std::string> list;
  for (const plan::MoveRule& rule : plan::move_rules) {
    if (canonical(name) == canonical(rule.name)) {
      return rule.move;
    }
    list.emplace_back(rule.name);
  }
  throw usage_error("there is no operation '{}'{}: choose {}", name, did_you_mean(name, list), either(list));
}

void parse_sizes(std::string_view text, BenchOptions& options) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() > 3) {
    throw usage_error("--sizes is '{}', but must be as 8:64MiB, or 8:64MiB:2 with the factor from one size to the next", text);
  }
  options.min_bytes = parse_bytes(parts[0], "--sizes, the smallest,").count;
  options.max_bytes = parse_bytes(parts.size() > 1 ? parts[1] : parts[0], "--sizes, the largest,").count;
  options.factor = parts.size() > 2 ? parse_integer(parts[2], "--sizes, the factor,", 2, 1024) : options.factor;
  constexpr std::int64_t largest = std::int64_t{1} << 40;
  if (options.min_bytes < element_size || options.max_bytes < options.min_bytes || options.max_bytes > largest) {
    throw usage_error("--sizes is '{}', but sizes go up, from {} bytes (one element) to 1T at most", text, element_size);
  }
}

double BenchRow::algorithm_bandwidth() const {
  return time.count > 0 ? static_cast<double>(bytes) / (static_cast<double>(time.count) * 1e-9) : 0;
}

double BenchRow::bus_bandwidth(std::size_t members) const {
  return plan::bus_factor(operation, static_cast<std::int64_t>(members)) * algorithm_bandwidth();
}

MeetingsPlan meetings(plan::Move operation, std::int64_t elements, std::int64_t copies, const std::vector<std::string>& devices) {
  const auto count = static_cast<std::uint32_t>(devices.size());
  const std::uint32_t members = operation == plan::Move::copy ? 2 : count;
  std::vector<plan::Buffer> buffers;
  std::vector<plan::Task> tasks;
  std::vector<BufferId> brought(count);
  std::vector<BufferId> taken(count);
  const auto add = [&](std::uint32_t device, bool piece) {
    const std::int64_t size = piece ? plan::piece_of(elements, device, count).size() : elements;
    buffers.push_back({.device = DeviceId(device), .role = plan::Role::communication, .persistent = true, .shape = {size}});
    return BufferId(buffers.size() - 1);
  };
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    for (std::uint32_t rank = 0; rank < members; ++rank) {
      const bool root = rank == 0;
      const plan::MoveRule& rule = plan::rule_of(operation);
      const bool owns = rule.owner != plan::MoveRule::Owner::root || root;
      const bool in_place = rule.sums && !by_pieces(operation) && owns;
      const bool takes = by_pieces(operation) || (!rule.sums && !owns);
      if (copy == 0 && (rule.sums || owns)) {
        brought[rank] = add(rank, brings_piece(operation));
      }
      if (takes) {
        taken[rank] = add(rank, takes_piece(operation));
      } else if (in_place) {
        taken[rank] = brought[rank];
      }
      const MeetingId meeting(static_cast<std::size_t>(copy));
      plan::Task task{.device = DeviceId(rank), .lane = plan::Lane::communication};
      if (operation != plan::Move::copy) {
        task.action = Collective{.kind = operation, .meeting = meeting, .rank = rank, .size = count};
      } else {
        task.action = plan::Transfer{root ? plan::Transfer::End::send : plan::Transfer::End::receive, meeting, DeviceId(1 - rank)};
      }
      if (brought[rank].valid()) {
        task.reads = {brought[rank]};
      }
      if (taken[rank].valid()) {
        task.writes = {taken[rank]};
      }
      tasks.push_back(std::move(task));
    }
  }
  return {plan::Plan(fmt::format("{} of {} bytes between {} devices, {} times", to_text(operation), elements * element_size,
                                 members, copies),
                     devices, std::move(buffers), std::move(tasks)),
          std::move(brought), std::move(taken)};
}

std::vector<BenchRow> bench_collectives(const cluster::Cluster& cluster, const exec::Backend& backend, const BenchOptions& options,
                                        const BenchProgress& progress, const std::shared_ptr<ranks::World>& world) {
  if (cluster.size() < 2) {
    throw usage_error("messages need two devices: ask for more, as --devices cpu:2");
  }
  std::vector<std::string> devices;
  for (const cluster::Device& device : cluster.devices()) {
    devices.push_back(device.name);
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor) {
    sizes.push_back(bytes);
  }
  for (const plan::Move operation : options.operations) {  // sizes that do not fit are found before anything is measured
    const std::int64_t unit = by_pieces(operation) ? static_cast<std::int64_t>(cluster.size()) : 1;
    const plan::Plan largest =
        meetings(operation, std::max<std::int64_t>(1, sizes.back() / element_size / unit) * unit, least_copies, devices).plan;
    plan::require(plan::verify(largest, exec::limits(largest, cluster, backend)));
  }
  std::vector<BenchRow> rows;
  const std::size_t total = sizes.size() * options.operations.size();
  const auto members = static_cast<std::int64_t>(cluster.size());
  for (const plan::Move operation : options.operations) {
    for (const std::int64_t bytes : sizes) {
      if (progress && !progress(rows.size(), total)) {
        return rows;
      }
      // Every member has an equal piece, and at least one element.
      const std::int64_t unit = by_pieces(operation) ? members : 1;
      const std::int64_t elements = std::max<std::int64_t>(1, bytes / element_size / unit) * unit;
      const std::int64_t copies = std::clamp<std::int64_t>(copied_together / (elements * element_size), least_copies,
                                                           most_copies_together);
      const plan::Plan plan = meetings(operation, elements, copies, devices).plan;
      BenchRow row{.operation = operation, .bytes = elements * element_size, .count = elements / unit};
      try {
        row.wrong = count_wrong(operation, elements, cluster, backend, devices, world);
        const trace::Spread spread = trace::spread(time_meetings(plan, copies, cluster, backend, options.time, world));
        row.time = spread.median;
        row.low = spread.p5;
        row.high = spread.p95;
      } catch (const Stopped&) {
        return rows;
      }
      rows.push_back(row);
    }
  }
  return rows;
}

findings::AlphaBeta fit(const std::vector<BenchRow>& rows, plan::Move operation) {
  std::vector<double> bytes;
  std::vector<double> times;
  for (const BenchRow& row : rows) {
    if (row.operation == operation) {
      bytes.push_back(static_cast<double>(row.bytes));
      times.push_back(static_cast<double>(row.time.count));
    }
  }
  return findings::fit_message(bytes, times);
}

MeasuredLinks measured_links(const std::vector<BenchRow>& rows, const cluster::Cluster& cluster) {
  const findings::AlphaBeta law = fit(rows, plan::Move::copy);
  MeasuredLinks found;
  found.link = {Nanoseconds(std::llround(law.alpha_ns)), law.beta};
  std::optional<double> smallest;
  for (const cluster::Algorithm algorithm : {cluster::Algorithm::ring, cluster::Algorithm::tree, cluster::Algorithm::direct}) {
    std::vector<double> errors;
    for (const BenchRow& row : rows) {
      if (row.operation != plan::Move::copy && row.time.count > 0) {
        const auto time = static_cast<double>(row.time.count);
        errors.push_back(std::abs(by_law(row, cluster, found.link, algorithm) - time) / time);
      }
    }
    if (errors.empty()) {
      break;
    }
    const double median = findings::median(errors);
    if (!smallest || median < *smallest) {
      smallest = median;
      found.algorithm = algorithm;
      found.median_error = median;
    }
  }
  return found;
}

std::string to_cluster_file(const cluster::Cluster& cluster, const MeasuredLinks& links, const std::string& origin) {
  const cluster::Device& device = cluster.devices()[0];
  std::string summary;
  for (const char c : origin) {
    summary += c == '"' || c == '\\' ? '\'' : c;
  }
  std::string out = fmt::format("summary = \"{}\"\n\n[device]\nname = \"{}\"\ncount = {}\nmemory = \"{}\"\nlanes = \"{}\"\n",
                                summary, device.product, cluster.size(), device.memory.count,
                                device.shared_lanes ? "shared" : "separate");
  if (!device.gpu) {
    out += fmt::format("\n[device.rates]  # multiply-adds in registers, on each of its cores\nf32 = \"{:.1f}GFLOP/s\"\n",
                       core_peak_gflops(0.01) * static_cast<double>(device.cores.size()));
  }
  out += fmt::format("\n[port]  # alpha and beta of what one device sends to another\nlatency = \"{}ns\"\n",
                     links.link.latency.count);
  if (links.link.bandwidth > 0) {
    out += fmt::format("bandwidth = \"{:.4f}GB/s\"\n", links.link.bandwidth * 1e-9);
  }
  if (links.link.core_share > 0) {
    out += fmt::format("core = {:.3f}  # by which products are slower while messages cross both ways\n", links.link.core_share);
  }
  return out + fmt::format(
                   "\n[collectives]  # the one whose formula is nearest to what was measured: off by {:.0f} % in "
                   "the median\n"
                   "algorithm = \"{}\"\n",
                   100 * links.median_error, cluster::to_text(links.algorithm));
}

}  // namespace baton::measure
