#include "baton/strategy/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/schedule/flaw.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/stages.h"
#include "baton/strategy/training_step.h"

namespace baton::strategy {
namespace {

using Axis = NamedLayout::Axis;

/// The axis that gets the devices which the user's own numbers leave.
Axis rest_of(const Request& request, const NamedLayout& named) {
  return named.rest.value_or(request.layout.schedule.empty() ? Axis::dp : Axis::pp);
}

/// A layout in which nothing is open.
struct Resolved : Axes {
  std::int64_t zero = 0;
  schedule::Grid grid;  // one row if there is no pipeline
  std::vector<std::int32_t> device_of_stage;
  std::int64_t micro_batches = 1;

  std::int64_t stages() const { return std::ssize(device_of_stage); }
};

/// A strategy by name must not be left without devices on its axis: the user's numbers may give all devices to other axes.
void refuse_unused_name(const Request& request, const NamedLayout& named, const std::array<std::int64_t, 3>& axes) {
  constexpr std::array<std::string_view, 3> flags{"--dp", "--pp", "--tp"};
  constexpr std::array<std::string_view, 3> parts{"replica", "stage", "part of each tensor"};
  if (!named.rest || named.zero > 0 || axes[static_cast<std::size_t>(*named.rest)] > 1) {
    return;  // ZeRO has a sentence of its own
  }
  std::vector<std::string> given;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] > 1) {
      given.push_back(request.layout.grid && i == 1 ? "--schedule" : fmt::format("{} {}", flags[i], axes[i]));
    }
  }
  if (given.empty()) {
    return;
  }
  const bool pipeline = named.rest == Axis::pp;
  throw usage_error("strategy {} has one {} if {} {} all the devices: {}", request.strategy.name(),
                    parts[static_cast<std::size_t>(*named.rest)], fmt::join(given, " and "), given.size() == 1 ? "takes" : "take",
                    pipeline ? fmt::format("leave out one of them, or write --schedule {} --pp N {} for a pipeline of N devices",
                                           named.schedule, fmt::join(given, " "))
                             : "leave out one of them");
}

void resolve_axes(const Request& request, const NamedLayout& named, Resolved& resolved) {
  const Layout& layout = request.layout;
  const std::int64_t there = static_cast<std::int64_t>(request.cluster.size());
  const std::int64_t devices = request.written_parts > 0 ? there / request.written_parts * layout.tp : there;
  const std::int64_t own_rows = layout.grid ? static_cast<std::int64_t>(layout.grid->rows.size()) : 0;
  if (own_rows > 0 && layout.pp > 0 && layout.pp != own_rows) {
    throw usage_error("the schedule's file has {} rows, one per device, but pp is {}", own_rows, layout.pp);
  }
  const std::array<std::int64_t, 3> asked{layout.dp, own_rows > 0 ? own_rows : layout.pp, layout.tp};
  std::array<std::int64_t, 3> axes{};
  std::int64_t product = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    axes[i] = asked[i] > 0 ? asked[i] : 1;
    product *= axes[i];
  }
  const auto rest = static_cast<std::size_t>(rest_of(request, named));
  if (asked[rest] == 0 && devices % product == 0) {
    axes[rest] = devices / product;
    product = devices;
  }
  if (product != devices) {
    const std::string_view more = asked[0] == 0 ? "--dp" : asked[1] == 0 ? "--pp" : "--tp";
    throw usage_error("dp × pp × tp = {} × {} × {} = {}, but there {} {} device{}: the product must be the number of devices{}",
                      axes[0], axes[1], axes[2], product, devices == 1 ? "is" : "are", devices, devices == 1 ? "" : "s",
                      devices % product == 0 ? fmt::format(", so add {} {}", more, devices / product) : "");
  }
  refuse_unused_name(request, named, axes);
  resolved.dp = axes[0];
  resolved.pp = axes[1];
  resolved.tp = axes[2];
  resolved.written_parts = request.written_parts;
  if (layout.sp && resolved.tp == 1) {
    throw usage_error(
        "sequence parallelism divides the sequence over the devices of divided tensors, but no tensors are divided: add --tp");
  }
}

/// Refuses a strategy's name and a flag that contradict each other.
void refuse_contradictions(const Request& request, const NamedLayout& named) {
  const Layout& layout = request.layout;
  const bool is_schedule = named.rest == Axis::pp;
  const bool other = layout.grid ||
                     (!layout.schedule.empty() && schedule::schedule_by_name(layout.schedule).name != named.schedule);
  if (is_schedule && other) {
    throw usage_error("strategy {} is a pipeline under the schedule {}, but --schedule asks for {}: give one of them",
                      request.strategy.name(), named.schedule, layout.grid ? "one of your own" : layout.schedule);
  }
  if (named.zero > 0 && layout.zero && *layout.zero != named.zero) {
    throw usage_error("strategy {} is stage {} of ZeRO, but --zero asks for {}: give one of them", request.strategy.name(),
                      named.zero, *layout.zero);
  }
  if (layout.balance != Balance::even && !layout.split.empty()) {
    throw usage_error("--split says how many blocks each stage gets, so --balance has nothing to decide: give one of them");
  }
  if (layout.grid && layout.chunks > 0) {
    throw usage_error("a schedule of your own says itself which stages a device has, so it takes no --chunks");
  }
}

void refuse_few_rows(std::int64_t micro_batches, std::int64_t rows) {
  if (micro_batches > rows) {
    throw usage_error("{} micro-batches cannot be made of {} sample{} per replica", micro_batches, rows, rows == 1 ? "" : "s");
  }
}

/// The number of micro-batches, and the grid.
void resolve_schedule(const Request& request, const NamedLayout& named, Resolved& resolved) {
  const Layout& layout = request.layout;
  const std::int64_t rows = request.step.global_batch / resolved.dp;
  if (layout.grid) {
    resolved.grid = schedule::aligned_sound(*layout.grid);
    resolved.micro_batches = schedule::micro_batches(*layout.grid);
    if (layout.micro_batches > 0 && layout.micro_batches != resolved.micro_batches) {
      throw usage_error("the schedule's file has {} micro-batches, but {} are asked for", resolved.micro_batches,
                        layout.micro_batches);
    }
    refuse_few_rows(resolved.micro_batches, rows);
  } else {
    const schedule::Schedule& schedule = schedule::schedule_by_name(layout.schedule.empty() ? named.schedule : layout.schedule);
    if (resolved.pp == 1 && layout.chunks > 0) {
      throw usage_error(
          "--chunks are stages on each device of a pipeline, but this split has no pipeline: give it devices with --pp");
    }
    if (resolved.pp == 1 && !layout.schedule.empty() && layout.pp != 1 && request.cluster.size() > 1) {
      throw usage_error("the schedule {} needs a pipeline: give it devices with --pp", schedule.name);
    }
    resolved.micro_batches = layout.micro_batches > 0     ? layout.micro_batches
                             : schedule.formulas.overlaps ? std::max<std::int64_t>(1, std::min(rows, 2 * resolved.pp))
                                                          : 1;
    refuse_few_rows(resolved.micro_batches, rows);
    resolved.grid = schedule.grid({.devices = resolved.pp,
                                   .chunks = layout.chunks > 0 ? layout.chunks : schedule.default_chunks,
                                   .micro_batches = resolved.micro_batches});
  }
  resolved.device_of_stage = schedule::device_of_stage_unchecked(resolved.grid);
}

Resolved resolve(const Request& request, const NamedLayout& named) {
  refuse_contradictions(request, named);
  Resolved resolved;
  resolve_axes(request, named, resolved);
  if (request.step.global_batch < resolved.dp) {
    throw usage_error("a global batch of {} cannot be divided over {} devices: each needs a sample at least",
                      request.step.global_batch, resolved.dp);
  }
  resolve_schedule(request, named, resolved);
  resolved.zero = request.layout.zero.value_or(named.zero);
  if (resolved.zero > 3) {
    throw usage_error("there is no stage {} of ZeRO: choose 1, 2 or 3", resolved.zero);
  }
  if (resolved.zero > 0 && resolved.dp == 1 && request.cluster.size() > 1) {
    throw usage_error("ZeRO divides what replicas hold alike, but there is one replica: give it some with --dp");
  }
  return resolved;
}

/// Bytes that a device keeps per parameter of its stage, by ZeRO's memory formula: the weights that kernels read, their gradients,
/// and the optimizer's states.
double parameter_bytes(const Request& request, const Resolved& resolved) {
  const Precision precision = request.step.precision;
  const auto value = static_cast<double>(size_of(dtype_of(precision)));
  const auto parameter = static_cast<double>(size_of(parameter_type(precision)));
  const double kept = parameter * static_cast<double>(op::state_slots(request.step.optimizer)) +
                      (is_mixed(precision) ? parameter : 0);
  const auto n = static_cast<double>(resolved.dp);
  const std::array<double, 4> by_stage{2 * value + kept, 2 * value + kept / n, value + (value + kept) / n, (2 * value + kept) / n};
  return by_stage[static_cast<std::size_t>(resolved.zero)] / static_cast<double>(resolved.tp);
}

/// The load of each stage, by the schedule.
std::vector<StageLoad> stage_loads(const Request& request, const Resolved& resolved) {
  const std::vector<std::int64_t> kept = schedule::in_flight(resolved.grid);
  const std::int64_t rows = request.step.global_batch / resolved.dp;
  std::vector<StageLoad> loads;
  for (std::int64_t stage = 0; stage < resolved.stages(); ++stage) {
    const std::int64_t alive = kept[static_cast<std::size_t>(resolved.device_of_stage[static_cast<std::size_t>(stage)])] *
                               resolved.pp / resolved.stages();
    loads.push_back({.rows = rows,
                     .rows_kept = rows * std::max<std::int64_t>(1, alive) / resolved.micro_batches,
                     .parameter_bytes = parameter_bytes(request, resolved),
                     .element_bytes = size_of(dtype_of(request.step.precision))});
  }
  return loads;
}

std::vector<std::int64_t> blocks_of_stage(const Request& request, const Resolved& resolved) {
  const auto blocks = static_cast<std::int64_t>(request.model.blocks().size());
  const std::vector<std::int64_t>& split = request.layout.split;
  if (split.empty()) {
    if (resolved.stages() > blocks) {
      throw usage_error("{} has {} block{}, which cannot be split over {} {}: each stage needs a block at least",
                        request.model.name(), blocks, blocks == 1 ? "" : "s", resolved.stages(),
                        resolved.stages() == resolved.pp ? "devices" : "stages");
    }
    if (resolved.stages() == 1 && request.layout.balance != Balance::even) {
      throw usage_error("strategy {} does not split the model, so it takes no --balance", request.strategy.name());
    }
    return balanced_stages(request.model, request.layout.balance, stage_loads(request, resolved));
  }
  if (resolved.stages() == 1) {
    throw usage_error("strategy {} does not split the model, so it takes no --split", request.strategy.name());
  }
  const std::int64_t placed = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  if (static_cast<std::int64_t>(split.size()) != resolved.stages() || placed != blocks ||
      std::any_of(split.begin(), split.end(), [](std::int64_t n) { return n < 1; })) {
    throw usage_error("a split of {} stages and {} blocks does not fit {} {} and the {} blocks of {}", split.size(), placed,
                      resolved.stages(), resolved.stages() == resolved.pp ? "devices" : "stages", blocks, request.model.name());
  }
  return split;
}

/// The rows of the table that the axes and the flags ask for: a dimension over an axis of more than one device.
Table table_of(const Request& request, const Axes& axes) {
  Table table;
  if (axes.dp > 1) {
    table.push_back({model::batch.name, MeshAxis::replicas});
  }
  if (axes.tp > 1) {
    table.push_back({'f', MeshAxis::parts});
    table.push_back({'h', MeshAxis::parts});
    table.push_back({'v', MeshAxis::parts});
    if (request.layout.sp) {
      table.push_back({'t', MeshAxis::parts});
    }
  }
  return table;
}

Placement place(const Request& request, const Resolved& resolved) {
  Placement placement{.owner = {},
                      .shards = resolved.tp,
                      .written_shards = resolved.written_parts,
                      .table = table_of(request, resolved),
                      .micro_batches = resolved.micro_batches,
                      .blocks_of_stage = blocks_of_stage(request, resolved),
                      .grid = resolved.grid,
                      .recompute = request.layout.recompute};
  for (const cluster::Device& device : request.cluster.devices()) {
    placement.devices.push_back(device.name);
  }
  std::int64_t begin = 0;
  for (const std::int64_t rows : even_split(request.step.global_batch, resolved.dp)) {
    Placement::Replica replica{{begin, begin + rows}, {}};
    for (std::size_t stage = 0; stage < placement.blocks_of_stage.size(); ++stage) {
      const DeviceId device = resolved.device(resolved.device_of_stage[stage], static_cast<std::int64_t>(placement.replicas.size()),
                                              0);
      replica.device_of_block.insert(replica.device_of_block.end(), static_cast<std::size_t>(placement.blocks_of_stage[stage]),
                                     device);
    }
    placement.replicas.push_back(std::move(replica));
    begin += rows;
  }
  return placement;
}

/// The devices that are replicas of each other.
DeviceGroups replica_groups(const Resolved& resolved) {
  DeviceGroups groups;
  for (std::int64_t p = 0; p < resolved.pp; ++p) {
    for (std::int64_t t = 0; t < resolved.parts(); ++t) {
      groups.emplace_back();
      for (std::int64_t d = 0; d < resolved.dp; ++d) {
        groups.back().push_back(resolved.device(p, d, t));
      }
    }
  }
  return groups;
}

/// By parameter: the devices of each replica whose gradients of it are terms of a sum, together with those of other replicas. They
/// are parts that share an op along a dimension that the parameter does not have, or stages that share the parameter.
std::map<std::uint32_t, DeviceGroups> sums_of_gradients(const Request& request, const Resolved& resolved,
                                                        const Placement& placement, const Layouts& layouts) {
  const model::Model& model = request.model;
  std::map<std::size_t, std::set<std::size_t>> offsets;  // by ordinal: the first devices of the stages that hold it
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    for (std::size_t p = 0; p < model.blocks()[b].parameters.size(); ++p) {
      if (model.blocks()[b].parameters[p].kept != model::Kept::trained) {
        continue;
      }
      offsets[model.ordinal(b, p)].insert(placement.replicas[0].device_of_block[b].index());
    }
  }
  const std::set<std::size_t> over_parts = layouts.summed_over(MeshAxis::parts);
  const auto tp = static_cast<std::size_t>(resolved.parts());
  std::map<std::uint32_t, DeviceGroups> sums;
  for (const auto& [ordinal, firsts] : offsets) {
    const bool parts = over_parts.contains(ordinal);
    if (!parts && firsts.size() == 1) {
      continue;
    }
    DeviceGroups& groups = sums[static_cast<std::uint32_t>(ordinal)];
    for (std::size_t first = 0; first < static_cast<std::size_t>(resolved.dp) * tp; first += parts ? tp : 1) {
      groups.emplace_back();
      for (const std::size_t stage : firsts) {
        for (std::size_t part = 0; part < (parts ? tp : 1); ++part) {
          groups.back().push_back(DeviceId(stage + first + part));
        }
      }
    }
  }
  return sums;
}

/// The optimizer's step after all gradients, which are clipped first if it asks for that.
plan::Draft with_updates(plan::Draft draft, const Request& request, const DeviceGroups& norm_groups) {
  draft = add_updates(std::move(draft), request.step.optimizer);
  return op::clip_of(request.step.optimizer) > 0 ? clip_gradients(std::move(draft), norm_groups) : std::move(draft);
}

/// The devices that add up the squares of their gradients: the parts and stages of each replica, or all if replicas hold pieces. In
/// one collective, since some devices count more than others and come later.
DeviceGroups norm_groups(const Resolved& resolved) {
  DeviceGroups groups(resolved.zero > 0 ? 1 : static_cast<std::size_t>(resolved.dp));
  for (std::int64_t p = 0; p < resolved.pp; ++p) {
    for (std::int64_t d = 0; d < resolved.dp; ++d) {
      for (std::int64_t t = 0; t < resolved.parts(); ++t) {
        groups[resolved.zero > 0 ? 0 : static_cast<std::size_t>(d)].push_back(resolved.device(p, d, t));
      }
    }
  }
  return groups;
}

plan::Draft build(const Request& request, const Resolved& resolved) {
  const Placement placement = place(request, resolved);
  plan::Draft draft = add_transfers(training_step(request.model, request.step, placement));
  if (request.step.forward_only) {
    return draft;
  }
  const Layouts layouts(request.model, placement.table, placement.shards);
  const Replication replication{layouts.parameters(static_cast<InPieces>(resolved.zero)), replica_groups(resolved)};
  draft = divide_over_replicas(std::move(draft), replication);
  draft = all_reduce_gradients(std::move(draft), request.layout.first_bucket, request.layout.bucket, replication);
  draft = all_reduce_shared_gradients(std::move(draft), sums_of_gradients(request, resolved, placement, layouts));
  return with_updates(std::move(draft), request, norm_groups(resolved));
}

void refuse_layout(const Request& request, std::string_view why) {
  const Layout& layout = request.layout;
  if (layout.dp > 1 || layout.pp > 1 || layout.tp > 1 || layout.sp || layout.zero.value_or(0) > 0 || !layout.schedule.empty() ||
      layout.grid) {
    throw usage_error("strategy {} {}, so it takes no --dp, --pp, --tp, --sp, --zero or --schedule", request.strategy.name(), why);
  }
}

plan::Draft build_single(const Request& request) {
  refuse_layout(request, "uses one device");
  const cluster::Cluster first({request.cluster.devices()[0]});
  const Resolved resolved = resolve(
      {.model = request.model, .cluster = first, .strategy = request.strategy, .step = request.step, .layout = request.layout}, {});
  plan::Draft draft = training_step(request.model, request.step, place(request, resolved));
  return request.step.forward_only ? std::move(draft) : with_updates(std::move(draft), request, {});
}

plan::Draft build_dp(const Request& request) {
  refuse_layout(request, "has one owner and whole replicas");
  Placement placement = place(request, resolve(request, {}));
  placement.owner = DeviceId(0);
  plan::Draft draft = training_step(request.model, request.step, placement);
  draft = replicate_parameters(std::move(draft));
  draft = add_transfers(std::move(draft));
  if (request.step.forward_only) {
    return draft;
  }
  draft = reduce_gradients_to(std::move(draft), *placement.owner);
  return with_updates(std::move(draft), request, {});
}

}  // namespace

namespace {

/// The arithmetic of the largest product in one sample's forward.
double largest_product_of_a_sample(const model::Model& model) {
  double operations = 0;
  const auto take = [&](double one) { operations = std::max(operations, one); };
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    for (const op::ProductExtents& one : model.products(b)) {
      take(2.0 * static_cast<double>(one.rows) * static_cast<double>(one.in) * static_cast<double>(one.out));
    }
    for (const model::Node& node : model.blocks()[b].nodes) {
      if (op::is_product(node.op) && node.parameters.empty()) {  // attention
        std::vector<op::Operand> reads;
        for (const std::size_t value : node.reads) {
          reads.push_back({model.blocks()[b].values[value].shape(1)});
        }
        take(static_cast<double>(op::work(node.op, reads, {}).flops.count));
      }
    }
  }
  return operations;
}

/// As `describe`, of a layout that is resolved already.
std::string description_of(const Request& request, const NamedLayout& named, const Resolved& resolved) {
  const int divided = (resolved.dp > 1) + (resolved.pp > 1) + (resolved.tp > 1);
  const std::array<std::int64_t, 3> axes{resolved.dp, resolved.pp, resolved.tp};
  const bool by_name = named.rest && divided <= 1 && (divided == 0 || axes[static_cast<std::size_t>(*named.rest)] > 1) &&
                       resolved.zero == named.zero && !request.layout.sp;
  if (by_name) {
    return request.strategy.name();
  }
  std::vector<std::string> parts;
  std::string product;
  for (const auto& [axis, count] : {std::pair("dp", resolved.dp), std::pair("pp", resolved.pp), std::pair("tp", resolved.tp)}) {
    if (count > 1) {
      product += fmt::format("{}{} {}", product.empty() ? "" : " × ", axis, count);
    }
  }
  parts.push_back(product.empty() ? "one device" : product);
  if (request.layout.sp) {
    parts.push_back("sequence divided");
  }
  if (resolved.zero > 0) {
    parts.push_back(fmt::format("zero {}", resolved.zero));
  }
  if (resolved.pp > 1) {
    parts.push_back(request.layout.grid               ? "a schedule of its own"
                    : request.layout.schedule.empty() ? named.schedule
                                                      : request.layout.schedule);
  }
  if (resolved.micro_batches > 1) {
    parts.push_back(fmt::format("{} micro-batches", resolved.micro_batches));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// As `title_of`, of a request that is described already.
std::string title_with(const Request& request, const std::string& description) {
  const Precision precision = request.step.precision;
  return fmt::format("{} of {}, global batch {}, on {} device{}{}{}", description, request.model.name(), request.step.global_batch,
                     request.cluster.size(), request.cluster.size() == 1 ? "" : "s", precision == Precision::fp32 ? "" : ", ",
                     precision == Precision::fp32 ? "" : to_text(precision));
}

}  // namespace

std::string describe(const Request& request) {
  const NamedLayout* named = request.strategy.layout();
  return named == nullptr ? request.strategy.name() : description_of(request, *named, resolve(request, *named));
}

std::string title_of(const Request& request) { return title_with(request, describe(request)); }

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> list = [] {
    std::vector<Strategy> all{
        {"single", "the whole model and batch on the first device", build_single, {.one_device = true}},
        {"dp",
         "one owner: device 0 replicates parameters, scatters inputs, gathers outputs and updates",
         build_dp,
         {.one_owner = true}},
        {"ddp", "a replica on each device; gradients all-reduced in buckets while the backward goes on", NamedLayout{}},
        {"layers", "blocks spread over the devices in order; one device works at a time", NamedLayout{.rest = Axis::pp}},
        {"tensor", "features between two Linear layers, heads and vocabularies divided over the devices",
         NamedLayout{.rest = Axis::tp}},
        {"zero-1", "ddp with the optimizer's states divided over the devices", NamedLayout{.zero = 1}},
        {"zero-2", "ddp with states and gradients divided", NamedLayout{.zero = 2}},
        {"zero-3", "ddp with states, gradients and parameters divided; parameters are gathered block by block",
         NamedLayout{.zero = 3}},
        {"product", "replicas × stages × divided tensors, as --dp, --pp and --tp say", NamedLayout{.rest = {}}},
    };
    for (const schedule::Schedule& schedule : schedule::schedules()) {
      if (schedule.name != "naive") {
        all.push_back({schedule.name, schedule.summary, NamedLayout{.rest = Axis::pp, .schedule = schedule.name}});
      }
    }
    return all;
  }();
  return list;
}

std::optional<Axes> axes_of(const Request& request) {
  const NamedLayout* named = request.strategy.layout();
  return named == nullptr ? std::nullopt : std::optional<Axes>(resolve(request, *named));
}

std::optional<schedule::Grid> grid_of(const Request& request) {
  const NamedLayout* named = request.strategy.layout();
  return named == nullptr ? std::nullopt : std::optional(resolve(request, *named).grid);
}

void refuse_uncountable(const Request& request) {
  // Beyond this, counts of flops and bytes would not fit in 64 bits.
  double widths = static_cast<double>(request.model.input().elements());
  for (const model::Block& block : request.model.blocks()) {
    widths += static_cast<double>(block.output().elements());
  }
  const auto batch = static_cast<double>(request.step.global_batch);
  const auto parameters = static_cast<double>(request.model.parameter_count());
  if (parameters > 1e13 || batch * parameters > 1e17 || batch * widths > 1e15) {
    throw usage_error("{} with a global batch of {} is larger than any machine: {:.3g} parameters", request.model.name(),
                      request.step.global_batch, parameters);
  }
  // A task's count must be exact. The sum over all devices may be larger: then it is kept in floating point.
  if (const double operations = 3 * batch * largest_product_of_a_sample(request.model); operations > 9e18) {
    throw usage_error(
        "one layer of {} with a global batch of {} has {:.3g} operations, more than are counted for one task: at most 9e18",
        request.model.name(), request.step.global_batch, operations);
  }
}

bool is_rebalanced_by_work(const Request& request) {
  const NamedLayout* layout = request.strategy.layout();
  if (layout == nullptr || !request.layout.split.empty()) {
    return false;
  }
  const Resolved resolved = resolve(request, *layout);
  Request by_work = request;
  by_work.layout.balance = Balance::work;
  return resolved.stages() > 1 && blocks_of_stage(request, resolved) != blocks_of_stage(by_work, resolved);
}

double estimated_tasks(const Request& request, bool folded) {
  std::size_t ops = 0;
  for (const model::Block& block : request.model.blocks()) {
    ops += block.nodes.size();
  }
  double copies = 1;
  auto micro_batches = static_cast<double>(std::max<std::int64_t>(request.layout.micro_batches, 1));
  if (const NamedLayout* layout = request.strategy.layout()) {
    const Resolved resolved = resolve(request, *layout);
    copies = folded ? 1 : static_cast<double>(resolved.dp * resolved.parts());
    micro_batches = static_cast<double>(resolved.micro_batches);
  }
  constexpr double per_op = 3;  // its forward, its backward, and its share of updates, conversions and messages
  return per_op * static_cast<double>(ops) * copies * micro_batches;
}

namespace {

/// A strategy of the program's own may have left out a pass. Tasks of its draft that read or write what another device holds are
/// refused.
void refuse_reads_across(const plan::Draft& draft, const Request& request) {
  for (const plan::Task& task : draft.tasks) {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        if (draft[id].device != task.device) {
          const auto& devices = request.cluster.devices();
          throw usage_error(
              "in the draft of strategy {} a task of {} {} a buffer of {}: add_transfers moves what other devices hold",
              request.strategy.name(), devices.at(task.device.index()).name, list == &task.reads ? "reads" : "writes",
              devices.at(draft[id].device.index()).name);
        }
      }
    }
  }
}

}  // namespace

plan::Plan compile(const Request& request) {
  if (request.step.global_batch < 1) {
    throw usage_error("a global batch of {} has nothing to train on", request.step.global_batch);
  }
  refuse_uncountable(request);
  if (request.step.loss == Loss::cross_entropy && request.model.output().rank() < 1) {
    throw usage_error("cross-entropy needs a vector of scores per sample, but {} gives {}", request.model.name(),
                      to_text(request.model.output()));
  }
  const Precision precision = request.step.precision;
  const NamedLayout* layout = request.strategy.layout();
  const std::optional<Resolved> resolved = layout == nullptr ? std::nullopt : std::optional(resolve(request, *layout));
  plan::Draft draft = resolved ? build(request, *resolved) : request.strategy.build(request);
  if (!request.strategy.is_listed()) {
    refuse_reads_across(draft, request);
  }
  if (is_mixed(precision)) {
    draft = cast_parameters(narrow_values(std::move(draft), request.step), dtype_of(precision));
  }
  if (request.step.loss_scale) {
    draft = scale_loss(std::move(draft), *request.step.loss_scale);
  }
  plan::Target target = request.target;
  // A fused update would leave nothing for a delay before the update to stand before.
  if (std::any_of(request.delays.begin(), request.delays.end(),
                  [](const DelayRequest& delay) { return delay.before == plan::Phase::update; })) {
    target.gradient_with_sgd = false;
    target.all_reduce_with_sgd = false;
  }
  draft = fuse(std::move(draft), target);
  if (precision == Precision::tf32) {
    draft = use_tf32(std::move(draft));
  }
  draft = set_layouts(std::move(draft), target);
  draft = inject_delays(std::move(draft), request.delays);
  if (request.step.loads_ahead && target.loads) {
    draft = load_ahead(std::move(draft));
  }
  draft = set_workspaces(std::move(draft), target, request.cluster);
  draft.title = title_with(request, resolved ? description_of(request, *layout, *resolved) : request.strategy.name());
  return plan::finish(std::move(draft));
}

}  // namespace baton::strategy
