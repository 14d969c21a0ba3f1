#include "baton/predict/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "baton/base/error.h"
#include "baton/cluster/blueprint.h"
#include "baton/cost/roofline.h"
#include "baton/cost/uniform.h"
#include "baton/findings/median.h"
#include "baton/job/reserved.h"
#include "baton/lab/rows.h"
#include "baton/measure/collectives.h"
#include "baton/model/parse.h"
#include "baton/plan/memory.h"
#include "baton/plan/ordering.h"
#include "baton/sim/simulate.h"
#include "baton/training/simulation.h"

namespace baton::predict {
namespace {

double in_seconds(Nanoseconds time) { return static_cast<double>(time.count) * 1e-9; }

double step_of(const job::JobSpec& spec, const cluster::Machine& machine) {
  const training::Job job(spec, machine);
  const std::optional<strategy::Folded> folded = job.fold();
  if (folded) {
    return in_seconds(training::Simulation(job, folded->plan, job::stands_for(*folded)).step().duration);
  }
  const plan::Plan plan = job.compile();
  return in_seconds(training::Simulation(job, plan).step().duration);
}

job::JobSpec with_micro_batches(job::JobSpec spec, std::int64_t count) {
  const std::int64_t each = spec.batch / spec.micro_batches.value_or(1);
  spec.micro_batches = count;
  spec.batch = each * count;
  return spec;
}

/// Plans that would take minutes each are left out of tables of many rows. Of replicas and of tensor ranks two are compiled.
void refuse_huge(const job::JobSpec& spec, std::int64_t micro_batches) {
  constexpr std::int64_t tasks_per_block = 30;
  constexpr std::int64_t most = 5'000'000;
  const auto blocks = static_cast<std::int64_t>(model::parse_model(spec.model).blocks().size());
  const auto two_of = [](std::optional<std::int64_t> parts) { return std::min<std::int64_t>(2, parts.value_or(1)); };
  const std::int64_t copies = two_of(spec.dp) * two_of(spec.tp);
  if (const std::int64_t tasks = blocks * tasks_per_block * copies * micro_batches; tasks > most) {
    throw usage_error("its plan of about {:.1f} million tasks is larger than validate simulates",
                      static_cast<double>(tasks) * 1e-6);
  }
}

/// Without these figures of a cluster's file a step would take no time, or hardly any.
void require_figures(const job::JobSpec& spec) {
  const cluster::Blueprint blueprint = cluster::blueprint_by_name(spec.cluster);
  const auto require = [&](bool given, const char* what) {
    if (!given) {
      throw usage_error("the cluster {} has no {}, which a training step needs", spec.cluster, what);
    }
  };
  const std::int64_t devices = spec.devices.count().value_or(1);
  require(!blueprint.device.speed.rates.empty(), "[device.rates]");
  require(blueprint.device.speed.memory_bandwidth > 0, "memory_bandwidth");
  require(devices == 1 || blueprint.wiring.port.bandwidth > 0 || blueprint.in_node == 1, "[port] bandwidth");
  require(devices <= blueprint.in_node || blueprint.wiring.network.bandwidth > 0, "[network] bandwidth");
}

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n;") == std::string::npos) {
    return cell;
  }
  std::string text = "\"";
  for (const char c : cell) {
    text += c == '"' ? "\"\"" : std::string(1, c);
  }
  return text + "\"";
}

/// A plan of one op on one device.
plan::Plan one_op(const op::Op& op, bool backward, const std::vector<op::Operand>& reads, const std::vector<op::Operand>& writes) {
  plan::Draft draft;
  draft.title = "one kernel";
  draft.devices = {"GPU:0"};
  plan::Task task{.action = plan::Compute{op}, .device = DeviceId(0), .labels = {}, .reads = {}, .writes = {}, .after = {}};
  task.labels.phase = backward ? plan::Phase::backward : plan::Phase::forward;
  for (const op::Operand& one : reads) {
    task.reads.push_back(
        draft.add({.device = DeviceId(0), .dtype = one.dtype, .shape = one.shape, .content = {}, .label = "read"}));
  }
  for (const op::Operand& one : writes) {
    task.writes.push_back(
        draft.add({.device = DeviceId(0), .dtype = one.dtype, .shape = one.shape, .content = {}, .label = "written"}));
  }
  draft.tasks.push_back(std::move(task));
  return plan::finish(std::move(draft));
}

}  // namespace

double simulated_step(const job::JobSpec& spec, const cluster::Machine& machine) {
  const std::int64_t count = spec.micro_batches.value_or(1);
  const std::int64_t stages = spec.pp.value_or(1);
  require_figures(spec);
  const bool rounds = spec.schedule == "interleaved";  // whole rounds over the stages
  const std::int64_t few = std::max<std::int64_t>(2, stages);
  const std::int64_t more = few + (rounds ? stages : std::max<std::int64_t>(1, stages / 4));
  refuse_huge(spec, std::min(count, more));
  if (count <= more) {
    return step_of(spec, machine);
  }
  const double base = step_of(with_micro_batches(spec, few), machine);
  const double next = step_of(with_micro_batches(spec, more), machine);
  return base + (next - base) * static_cast<double>(count - few) / static_cast<double>(more - few);
}

Bytes simulated_memory(const job::JobSpec& spec, const cluster::Machine& machine) {
  const training::Job job(spec, machine);
  const cost::Software software = cost::software_by_name(spec.software);
  if (const std::vector<job::Reserved> reserved = job::reserved_memory(job.request(), software, job.cluster().devices()[0].memory);
      !reserved.empty()) {
    return job::reported(reserved, software).total;
  }
  const std::optional<strategy::Folded> folded = job.fold();
  const std::optional<plan::Plan> whole = folded ? std::nullopt : std::optional(job.compile());
  const plan::Plan& plan = folded ? folded->plan : *whole;
  std::vector<Bytes> peak = plan::plan_memory(plan, plan::order(plan)).peak;
  if (folded) {
    peak.insert(peak.end(), folded->peak_of_others.begin(), folded->peak_of_others.end());
  }
  return *std::max_element(peak.begin(), peak.end());
}

double simulated_time(const PublishedAllReduce& job) {
  cluster::Blueprint blueprint = cluster::blueprint_by_name(job.cluster);
  if (blueprint.wiring.port.bandwidth == 0) {
    throw usage_error("the cluster {} has no [port] bandwidth, which an all_reduce needs", job.cluster);
  }
  if (job.ring) {
    blueprint.wiring.switch_sums = 0;
  }
  const cluster::Cluster cluster = blueprint.take(job.devices);
  std::vector<std::string> names;
  for (const cluster::Device& device : cluster.devices()) {
    names.push_back(device.name);
  }
  const measure::MeetingsPlan one = measure::meetings(plan::Move::all_reduce, std::max<std::int64_t>(1, job.bytes / 4), 1, names);
  return in_seconds(sim::simulate(one.plan, cluster, cost::Uniform({})).duration);
}

double simulated_time(const PublishedKernel& job) {
  const cluster::Blueprint blueprint = cluster::blueprint_by_name(job.cluster);
  if (blueprint.device.speed.memory_bandwidth == 0) {
    throw usage_error("the cluster {} has no memory_bandwidth, which a kernel needs", job.cluster);
  }
  const cluster::Cluster cluster = blueprint.take(1);
  const cost::Roofline roofline(cluster, cost::software_by_name(job.software));
  const DType type = job.precision == "fp16" ? DType::f16 : job.precision == "bf16" ? DType::bf16 : DType::f32;
  const auto time = [&](const op::Op& op, const std::vector<op::Operand>& reads, const std::vector<op::Operand>& writes) {
    return in_seconds(roofline.duration(one_op(op, job.backward, reads, writes), TaskId(0)));
  };
  if (job.kind == PublishedKernel::Kind::attention) {
    const std::int64_t wide = job.features * (job.heads / std::max<std::int64_t>(1, job.kv_heads));
    const op::Operand q{Shape{job.positions, job.batch, job.kv_heads, wide}, type};
    const op::Operand k{Shape{job.positions, job.batch, job.kv_heads, job.features}, type};
    const op::Operand sums{Shape{job.positions, job.batch, job.heads}, DType::f32};
    return job.backward ? time(op::AttentionBackward{.causal = job.causal}, {q, q, k, k, q, sums}, {q, k, k})
                        : time(op::Attention{.causal = job.causal}, {q, k, k}, {q, sums});
  }
  const op::Operand rows{Shape{job.positions, job.features}, type};
  const op::Operand gains{Shape{job.features}, type};
  const bool layer = job.kind == PublishedKernel::Kind::layer_norm;
  if (!job.backward) {
    return layer ? time(op::LayerNorm{}, {rows, gains, gains}, {rows}) : time(op::RmsNorm{}, {rows, gains}, {rows});
  }
  // The libraries' backward is one kernel for both gradients: it reads the two operands once.
  return layer ? time(op::LayerNormBackwardInput{}, {rows, rows, gains}, {rows})
               : time(op::RmsNormBackwardInput{}, {rows, rows, gains}, {rows});
}

ValidatedPoint validated(PublishedCase published, const cluster::Machine& machine) {
  ValidatedPoint point{.published = std::move(published), .spec = {}};
  if (!point.simulated()) {
    return point;
  }
  try {
    if (const auto* jobs = std::get_if<PublishedJobs>(&point.published.job)) {
      for (const job::JobSpec& spec : *jobs) {
        const double seconds = simulated_step(spec, machine);
        if (point.seconds == 0 || seconds < point.seconds) {
          point.seconds = seconds;
          point.spec = spec;
        }
      }
      if (point.published.memory && !point.spec.cluster.empty()) {
        point.memory = static_cast<double>(simulated_memory(point.spec, machine).count) / (1 << 30);
      }
    } else if (const auto* meeting = std::get_if<PublishedAllReduce>(&point.published.job)) {
      point.seconds = simulated_time(*meeting);
    } else {
      point.seconds = simulated_time(std::get<PublishedKernel>(point.published.job));
    }
    if (point.seconds <= 0) {
      point.published.reason = "the cluster's file has no figures for it, so that it takes no time";
    }
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::usage) {
      throw;
    }
    point.published.reason = error.what();
  }
  return point;
}

std::vector<ValidatedPoint> validate(std::vector<PublishedCase> cases, const cluster::Machine& machine,
                                     const ValidationProgress& progress) {
  std::vector<ValidatedPoint> points;
  const std::size_t total = cases.size();
  for (PublishedCase& one : cases) {
    points.push_back(validated(std::move(one), machine));
    if (!progress(points.size(), total)) {
      break;
    }
  }
  return points;
}

std::vector<SourceErrors> errors_by_source(const std::vector<ValidatedPoint>& points, bool fitted) {
  std::vector<SourceErrors> list;
  std::map<std::string, std::vector<double>> errors;
  for (const ValidatedPoint& point : points) {
    const std::string& source = point.published.source;
    if (point.published.fitted != fitted) {
      continue;
    }
    auto found = std::find_if(list.begin(), list.end(), [&](const SourceErrors& one) { return one.source == source; });
    if (found == list.end()) {
      list.push_back({.source = source});
      found = list.end() - 1;
    }
    if (!point.simulated()) {
      ++found->refused;
      continue;
    }
    ++found->points;
    const double error = std::abs(point.error());
    errors[source].push_back(error);
    found->mean += error;
    found->bias += point.error();
    found->within_ten += error <= 0.1 ? 1 : 0;
    if (found->worst == nullptr || error > std::abs(found->worst->error())) {
      found->worst = &point;
    }
  }
  for (SourceErrors& one : list) {
    const auto count = static_cast<double>(std::max<std::size_t>(1, one.points));
    one.mean /= count;
    one.bias /= count;
    one.within_ten /= count;
    one.median = one.points == 0 ? 0 : findings::median(errors[one.source]);
  }
  return list;
}

std::string to_csv(const std::vector<ValidatedPoint>& points) {
  std::string text = "source,line,what,measured_s,simulated_s,error,fitted,reason,job,measured_GiB,simulated_GiB\n";
  for (const ValidatedPoint& point : points) {
    const PublishedCase& one = point.published;
    text += fmt::format(
        "{},{},{},{:.6g},{},{},{},{},{},{},{}\n", quoted(one.source), one.line, quoted(one.what), one.seconds,
        point.simulated() ? fmt::format("{:.6g}", point.seconds) : "",
        point.simulated() ? fmt::format("{:.4f}", point.error()) : "", one.fitted ? "yes" : "no", quoted(one.reason),
        quoted(point.simulated() && !point.spec.cluster.empty() ? job::flags_of(point.spec) : ""),
        one.memory ? fmt::format("{:.1f}", *one.memory) : "", point.memory > 0 ? fmt::format("{:.1f}", point.memory) : "");
  }
  return text;
}

std::string to_error_list(const std::vector<ValidatedPoint>& points) {
  std::vector<const ValidatedPoint*> order;
  for (const ValidatedPoint& point : points) {
    order.push_back(&point);
  }
  const auto size = [](const ValidatedPoint* point) { return point->simulated() ? std::abs(point->error()) : -1; };
  std::stable_sort(order.begin(), order.end(), [&](const ValidatedPoint* a, const ValidatedPoint* b) { return size(a) > size(b); });
  std::string text = "error,memory_error,source,line,fitted,what,command\n";
  for (const ValidatedPoint* point : order) {
    const PublishedCase& published = point->published;
    const bool step = point->simulated() && !point->spec.cluster.empty();
    text += fmt::format("{},{},{},{},{},{},{}\n", point->simulated() ? fmt::format("{:+.1f} %", point->error() * 100) : "",
                        point->memory > 0 ? fmt::format("{:+.1f} %", (point->memory / *published.memory - 1) * 100) : "",
                        quoted(published.source), published.line, published.fitted ? "yes" : "no",
                        quoted(point->simulated() ? published.what : "not simulated: " + published.reason),
                        step ? quoted("./baton simulate " + job::flags_of(point->spec)) : "");
  }
  return text;
}

lab::Result validation_result(const std::vector<ValidatedPoint>& points, const std::string& command) {
  namespace key = job::key;
  auto experiment = std::make_shared<lab::Experiment>();
  experiment->id = "validate";
  experiment->title = "Predictions compared with published measurements";
  experiment->task = "Each point is a row of a published table, simulated from a cluster file and a software profile.";
  experiment->columns = {{key::source, "source"},
                         {key::line, "line", lab::Format::integer},
                         {key::what, "what"},
                         {key::measured_ns, "measured", lab::Format::time},
                         {key::simulated_ns, "simulated", lab::Format::time},
                         {key::error, "error", lab::Format::percent}};
  lab::Plot plot;
  plot.kind = lab::Plot::Type::scatter;
  plot.title = "Simulated against measured";
  plot.x = key::measured_ns;
  plot.y = key::simulated_ns;
  plot.x_title = "measured";
  plot.y_title = "simulated";
  plot.y_format = lab::Format::time;
  plot.log_x = plot.log_y = true;
  plot.series = key::source;
  plot.ideal = "equal";
  experiment->plots.push_back(plot);
  experiment->trains = false;
  lab::Result result{.experiment = nullptr, .rows = {}, .answers = {}, .details = {}, .timelines = {}, .command = command};
  for (const ValidatedPoint& point : points) {
    if (!point.simulated()) {
      result.details.push_back(
          fmt::format("Line {} of {} is not simulated: {}.", point.published.line, point.published.source, point.published.reason));
      continue;
    }
    result.rows.push_back(
        {key::source(point.published.source), key::line(static_cast<std::int64_t>(point.published.line)),
         key::what(point.published.what), key::measured_ns(Nanoseconds(static_cast<std::int64_t>(point.published.seconds * 1e9))),
         key::simulated_ns(Nanoseconds(static_cast<std::int64_t>(point.seconds * 1e9))), key::error(point.error())});
  }
  for (const SourceErrors& one : errors_by_source(points, false)) {
    if (one.points > 0) {
      result.details.push_back(fmt::format("{}: {} points, mean {}, median {}, worst {}.", one.source, one.points,
                                           lab::percent(one.mean), lab::percent(one.median), lab::percent(one.worst->error())));
    }
  }
  result.experiment = experiment;
  return result;
}

}  // namespace baton::predict
