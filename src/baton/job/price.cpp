#include "baton/job/price.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "baton/base/error.h"
#include "baton/cost/roofline.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/stages.h"
#include "baton/strategy/training_step.h"

namespace baton::job {
namespace {

using strategy::Recompute;

double over(double amount, double rate) { return rate > 0 ? amount / rate * 1e9 : 0; }

/// The most that a port carries in a second, whatever the size of messages; 0: no limit.
double widest_port(const cluster::Cluster& cluster) {
  if (!cluster.wiring()) {
    return 0;
  }
  const cluster::Link& port = cluster.wiring()->port;
  double most = port.bandwidth;
  for (const cluster::Link::SizeRange& range : port.size_ranges) {
    most = most == 0 || range.bandwidth == 0 ? 0 : std::max(most, range.bandwidth);
  }
  return most;
}

/// The first devices, with memory for anything.
cluster::Cluster roomy(const cluster::Cluster& cluster, std::int64_t count) {
  std::vector<cluster::Device> devices(cluster.devices().begin(), cluster.devices().begin() + count);
  for (cluster::Device& device : devices) {
    device.memory = Bytes(std::int64_t{1} << 60);
  }
  return cluster::Cluster(std::move(devices), cluster.emulated_link(), cluster.wiring());
}

double bytes_of(const model::Value& value, std::int64_t rows, const strategy::Step& step) {
  const std::int64_t width = value.integers || value.statistics || value.wide ? 4 : size_of(strategy::dtype_of(step.precision));
  return static_cast<double>(value.shape(rows).elements() * width);
}

/// The schedule of a choice with a pipeline.
const schedule::Schedule& chosen_schedule(const Choice& choice) {
  return schedule::schedules()[static_cast<std::size_t>(choice.schedule)];
}

}  // namespace

std::optional<std::pair<std::int64_t, std::int64_t>> shorter_steps(const Choice& choice, std::int64_t batch) {
  // Steps repeat once the pipeline is full: later if the backward is in halves. A long pipeline is costly to simulate, and the
  // share of a step in which it fills is large, so less is asked of it.
  const bool in_halves = choice.pp > 1 && !chosen_schedule(choice).formulas.kept;
  const bool is_long = choice.pp > 8;
  const std::int64_t stages = std::max<std::int64_t>(2, choice.pp);
  const std::int64_t few = stages * ((is_long ? 1 : 2) + (in_halves ? 1 : 0));
  const std::int64_t more = choice.chunks > 1 && is_long ? few + stages : few + (is_long ? stages / 4 : stages);
  const bool even = batch % choice.dp == 0 && batch / choice.dp % choice.micro_batches == 0;
  return even && choice.micro_batches > few + more ? std::optional(std::pair(few, more)) : std::nullopt;
}

Pricer::Pricer(strategy::Request request, const WhatIf& what_if, const cost::Software& software, Duration own)
    : request_(std::move(request)),
      cluster_(changed(request_.cluster, what_if)),
      what_if_(what_if),
      software_(software),
      own_(std::move(own)),
      reduced_(reduced(request_.model)),
      port_(widest_port(cluster_)),
      parameters_(static_cast<double>(request_.model.parameter_count())) {
  for (std::size_t block = 0; block < request_.model.blocks().size(); ++block) {
    for (const op::ProductExtents& one : request_.model.products(block)) {
      const Matrix matrix{static_cast<double>(one.rows), static_cast<double>(one.out), static_cast<double>(one.in),
                          block == 0 ? 2.0 : 3.0};
      const auto same = std::find_if(matrices_.begin(), matrices_.end(), [&](const Matrix& other) {
        return other.positions == matrix.positions && other.rows == matrix.rows && other.columns == matrix.columns;
      });
      if (same == matrices_.end()) {
        matrices_.push_back(matrix);
      } else {
        same->products += matrix.products;
      }
    }
  }
  const std::vector<cluster::Device>& devices = cluster_.devices();
  in_node_ = static_cast<double>(
      std::count_if(devices.begin(), devices.end(), [&](const cluster::Device& device) { return device.node == devices[0].node; }));
}

std::optional<std::string> Pricer::refused(std::int64_t tp, bool sp) {
  if (tp == 1) {
    return std::nullopt;
  }
  const auto [found, added] = refused_.try_emplace({tp, sp});
  if (added) {
    try {
      unit({tp, sp, 1, false});
    } catch (const Error& error) {
      found->second = error.what();
    }
  }
  return found->second;
}

const Pricer::Unit& Pricer::unit(const UnitKey& key) {
  if (const auto found = units_.find(key); found != units_.end()) {
    return found->second;
  }
  const auto& [tp, sp, rows, light] = key;
  const std::int64_t below = std::int64_t{1} << (std::bit_width(static_cast<std::uint64_t>(rows)) - 1);
  if (below == rows) {
    return units_.emplace(key, make_unit(key)).first->second;
  }
  // Between two powers of two in proportion.
  const Unit& less = unit({tp, sp, below, light});
  const Unit& more = unit({tp, sp, 2 * below, light});
  const double share = static_cast<double>(rows - below) / static_cast<double>(below);
  Unit between = less;
  for (std::size_t b = 0; b < between.blocks.size(); ++b) {
    for (double Unit::Block::*part : {&Unit::Block::forward, &Unit::Block::backward, &Unit::Block::weights, &Unit::Block::inner,
                                      &Unit::Block::late, &Unit::Block::output}) {
      between.blocks[b].*part += share * (more.blocks[b].*part - less.blocks[b].*part);
    }
  }
  return units_.emplace(key, std::move(between)).first->second;
}

/// The times of a simulated step on the first device, by block of the model.
class Pricer::UnitSums {
 public:
  /// `share`: the part of the step's rows that the unit has.
  UnitSums(const plan::Plan& plan, std::size_t blocks, double share)
      : plan_(plan),
        share_(share),
        unit_{std::vector<Unit::Block>(blocks)},
        forward_end_(blocks, 0),
        backward_end_(blocks, 0),
        lives_(plan.buffers().size()) {}

  void add(const plan::Task& task, const trace::Event& event) {
    note_buffers(task);
    const auto end = static_cast<double>(event.end.count);
    const auto duration = end - static_cast<double>(event.start.count);
    const bool of_block = is_block(task.labels.block);
    const std::size_t block = of_block ? static_cast<std::size_t>(task.labels.block) : 0;
    if (task.labels.phase == plan::Phase::update) {
      unit_.blocks[block].update += duration;
    } else if (of_block) {
      double& last = task.labels.phase == plan::Phase::forward ? forward_end_[block] : backward_end_[block];
      last = std::max(last, end);
      if (makes_gradients(task)) {
        add_gradients(task, unit_.blocks[block], duration);
      }
    }
  }

  Unit take() {
    add_times();
    add_memory();
    return std::move(unit_);
  }

 private:
  struct Life {
    std::int32_t block = -1;  // the block of the first task that touches it; -1: that task is not in the forward of a block
    bool touched = false;
    bool backward = false;
    bool late = false;
  };

  bool is_block(std::int32_t block) const { return block >= 0 && block < static_cast<std::int32_t>(unit_.blocks.size()); }

  void note_buffers(const plan::Task& task) {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        Life& life = lives_[id.index()];
        if (!life.touched) {
          life.touched = true;
          life.block = task.labels.phase == plan::Phase::forward ? task.labels.block : -1;
        }
        life.backward = life.backward || task.labels.phase == plan::Phase::backward;
      }
    }
  }

  /// Those of weights.
  bool makes_gradients(const plan::Task& task) const {
    return task.labels.phase == plan::Phase::backward && task.lane == plan::Lane::compute &&
           std::any_of(task.writes.begin(), task.writes.end(),
                       [&](BufferId id) { return std::holds_alternative<plan::ParameterPart>(plan_[id].content); });
  }

  void add_gradients(const plan::Task& task, Unit::Block& block, double duration) {
    block.weights += duration * share_;
    for (const BufferId id : task.reads) {
      const plan::Buffer& buffer = plan_[id];
      Life& life = lives_[id.index()];
      if (!buffer.persistent && !life.late && !std::holds_alternative<plan::ParameterPart>(buffer.content)) {
        life.late = true;
        block.late += static_cast<double>(buffer.size().count) * share_;
      }
    }
  }

  void add_times() {
    double at = 0;
    for (std::size_t b = 0; b < unit_.blocks.size(); ++b) {
      unit_.blocks[b].forward = std::max(0.0, forward_end_[b] - at) * share_;
      at = std::max(at, forward_end_[b]);
    }
    for (std::size_t b = unit_.blocks.size(); b-- > 0;) {
      unit_.blocks[b].backward = std::max(0.0, backward_end_[b] - at) * share_;
      at = std::max(at, backward_end_[b]);
    }
  }

  void add_memory() {
    for (std::size_t i = 0; i < lives_.size(); ++i) {
      const plan::Buffer& buffer = plan_.buffers()[i];
      if (buffer.device.index() != 0 || !is_block(lives_[i].block)) {
        continue;
      }
      Unit::Block& block = unit_.blocks[static_cast<std::size_t>(lives_[i].block)];
      if (buffer.role == plan::Role::parameter && buffer.persistent && !plan::is_kept_copy(buffer)) {
        block.elements += static_cast<double>(buffer.shape.elements());
      } else if (!buffer.persistent && lives_[i].backward && !std::holds_alternative<plan::ParameterPart>(buffer.content)) {
        block.inner += static_cast<double>(buffer.size().count) * share_;
      }
    }
  }

  const plan::Plan& plan_;
  double share_;
  Unit unit_;
  std::vector<double> forward_end_;
  std::vector<double> backward_end_;
  std::vector<Life> lives_;
};

Pricer::Unit Pricer::make_unit(const UnitKey& key) const {
  const auto& [tp, sp, rows, light] = key;
  const cluster::Cluster some = roomy(request_.cluster, tp);
  strategy::Request request{.model = reduced_.model,
                            .cluster = some,
                            .strategy = "product",
                            .step = request_.step,
                            .layout = request_.layout,
                            .target = request_.target};
  request.step.global_batch = rows * strategy::samples_together(reduced_.model);
  request.layout.dp = request.layout.pp = 1;
  request.layout.tp = tp;
  request.layout.sp = sp;
  request.layout.micro_batches = 1;
  request.layout.recompute = light ? Recompute::light : Recompute::none;
  request.layout.balance = strategy::Balance::even;
  const LaidOutPlan laid = lay_out(request, 2, [&](const plan::Plan& plan) {
    plan::Limits limits;
    limits.memory.assign(plan.devices().size(), some.devices()[0].memory);
    return limits;
  });
  const plan::Plan& plan = laid.plan;
  const trace::StepTrace step = imagined_step(plan, some, laid.stands_for, what_if_, software_, own_);
  const double share = static_cast<double>(rows) / static_cast<double>(request.step.global_batch);

  const std::size_t count = reduced_.model.blocks().size();
  UnitSums sums(plan, count, share);
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (plan.tasks()[t].device.index() == 0) {
      sums.add(plan.tasks()[t], step.events[t]);
    }
  }
  Unit unit = sums.take();
  for (std::size_t b = 0; b < count; ++b) {
    const model::Block& block = reduced_.model.blocks()[b];
    unit.blocks[b].output = bytes_of(block.values[block.out], rows, request_.step) / (sp ? static_cast<double>(tp) : 1);
  }
  return unit;
}

const std::vector<std::int64_t>& Pricer::blocks_of_stages(std::int64_t stages) {
  const auto [found, added] = stages_.try_emplace(stages);
  if (added) {
    found->second = strategy::balanced_stages(request_.model, request_.layout.balance,
                                              std::vector<strategy::StageLoad>(static_cast<std::size_t>(stages)));
  }
  return found->second;
}

const Pricer::Pipe& Pricer::pipe(const PipeKey& key) {
  const auto found = pipes_.find(key);
  return found != pipes_.end() ? found->second : pipes_.emplace(key, make_pipe(key)).first->second;
}

Pricer::Pipe Pricer::make_pipe(const PipeKey& key) {
  const auto& [of_unit, pp, chunks, recompute] = key;
  const Unit& one = unit(of_unit);
  const std::vector<std::int64_t>& counts = blocks_of_stages(pp * chunks);
  struct Device {
    double time = 0, forward = 0, weights = 0, update = 0, elements = 0, kept = 0, late = 0;
  };
  std::vector<Device> devices(static_cast<std::size_t>(pp));
  Pipe pipe;
  std::size_t b = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    Device& device = devices[s % devices.size()];
    const std::size_t begin = b;
    const auto n = static_cast<std::size_t>(counts[s]);
    const std::size_t stride = recompute == Recompute::alternate ? 2
                               : recompute == Recompute::all     ? static_cast<std::size_t>(std::ceil(std::sqrt(n)))
                                                                 : 1;
    double run = 0;  // bytes of a run of blocks whose values are recomputed
    for (; b < begin + n; ++b) {
      const Unit::Block& block = one.blocks[reduced_.block_of[b]];
      const bool end_of_model = b == 0 || b + 1 == reduced_.block_of.size();
      const bool last_of_run = (b - begin) % stride + 1 == stride || b + 1 == begin + n;
      const bool again = recompute == Recompute::full ? !end_of_model : !last_of_run;
      device.forward += block.forward;
      device.time += block.forward + block.backward + (again ? block.forward : 0);
      device.weights += block.weights;
      device.update += block.update;
      device.elements += block.elements;
      device.late += block.late;
      device.kept += again ? (recompute == Recompute::full ? block.output : 0) : block.inner;
      run = last_of_run ? 0 : run + block.inner;
      pipe.again = std::max(pipe.again, again ? std::max(run, block.inner) : 0);
      if (b + 1 == begin + n && b + 1 < reduced_.block_of.size()) {
        pipe.message = std::max(pipe.message, block.output);
      }
    }
  }
  for (const Device& device : devices) {
    if (device.time > pipe.longest) {
      pipe.longest = device.time;
      pipe.forward = device.forward;
      pipe.weights = device.weights;
      pipe.backward = device.time - device.forward;
    }
    pipe.whole += device.time;
    pipe.update = std::max(pipe.update, device.update);
    pipe.elements = std::max(pipe.elements, device.elements);
    pipe.kept = std::max(pipe.kept, device.kept);
    pipe.late = std::max(pipe.late, device.late);
  }
  return pipe;
}

/// The time of a reduce_scatter or an all_gather over the replicas: rings within the nodes, and between them.
double Pricer::spread_time(double bytes, std::int64_t dp, std::int64_t tp) const {
  if (dp == 1 || !cluster_.wiring()) {
    return 0;
  }
  const cluster::Wiring& wiring = *cluster_.wiring();
  const double inside = std::clamp(std::floor(in_node_ / static_cast<double>(tp)), 1.0, static_cast<double>(dp));
  const double nodes = std::ceil(static_cast<double>(dp) / inside);
  const double port = wiring.bus > 0 ? std::min(port_ == 0 ? wiring.bus : port_, wiring.bus / in_node_) : port_;
  const double network = wiring.network.bandwidth * std::min(1.0, wiring.network_ports / in_node_);
  const double messages = std::max(1.0, bytes / static_cast<double>(std::max<std::int64_t>(1, request_.layout.bucket.count)));
  const double latency = static_cast<double>(wiring.start.count) + (inside - 1) * static_cast<double>(wiring.port.latency.count) +
                         (nodes - 1) * static_cast<double>(wiring.network.latency.count);
  return messages * latency + over((inside - 1) / inside * bytes, port) + over((nodes - 1) / nodes * bytes / inside, network);
}

/// The time of a message from a stage to the next.
double Pricer::message_time(double bytes, std::int64_t dp, std::int64_t tp) const {
  if (!cluster_.wiring()) {
    return 0;
  }
  const cluster::Wiring& wiring = *cluster_.wiring();
  const bool leaves = static_cast<double>(dp * tp) >= in_node_;
  const cluster::Link& link = leaves ? wiring.network : wiring.port;
  return static_cast<double>(link.latency.count) +
         over(bytes, leaves ? link.bandwidth * std::min(1.0, wiring.network_ports / in_node_) : link.bandwidth);
}

/// By ZeRO's formula: the weights that kernels read, their gradients, and the optimizer's states.
double Pricer::parameter_bytes(double elements, std::int64_t dp, std::int64_t zero) const {
  const strategy::Precision precision = request_.step.precision;
  const auto value = static_cast<double>(size_of(strategy::dtype_of(precision)));
  const auto parameter = static_cast<double>(size_of(strategy::parameter_type(precision)));
  const double gradient = request_.step.wide_gradients ? parameter : value;
  const double kept = parameter * static_cast<double>(op::state_slots(request_.step.optimizer)) +
                      (strategy::is_mixed(precision) ? parameter : 0);
  const auto n = static_cast<double>(dp);
  const std::array<double, 4> by_stage{value + gradient + kept, value + gradient + kept / n, value + (gradient + kept) / n,
                                       (value + gradient + kept) / n};
  return elements * by_stage[static_cast<std::size_t>(zero)];
}

/// The number of micro-batches of a whole device's work that are kept at once, if the backward is in one piece.
double Pricer::in_flight(const Choice& choice) const {
  if (choice.pp == 1) {
    return 1;
  }
  const double most = chosen_schedule(choice).formulas.kept({choice.pp, choice.chunks, choice.micro_batches});
  return std::min(static_cast<double>(choice.micro_batches), most);
}

/// The grid's moments that no other exceeds in both counts.
std::vector<std::pair<double, double>> moments_of(const schedule::Grid& grid, std::int64_t chunks) {
  std::vector<std::pair<double, double>> list;
  for (const auto& row : grid.rows) {
    double forward = 0;
    double halves = 0;
    for (const std::optional<schedule::Action>& action : row) {
      if (action && action->kind != schedule::Computation::backward_weight) {
        forward += action->kind == schedule::Computation::forward ? 1 : -1;
        halves += action->kind == schedule::Computation::backward_input ? 1 : 0;
        list.emplace_back(forward / static_cast<double>(chunks), halves / static_cast<double>(chunks));
      } else if (action) {
        halves -= 1;
      }
    }
  }
  std::sort(list.rbegin(), list.rend());
  double most = -1;
  std::erase_if(list, [&](const std::pair<double, double>& one) {
    const bool exceeded = one.second <= most;
    most = std::max(most, one.second);
    return exceeded;
  });
  return list;
}

/// The memory that micro-batches keep on the device that keeps most. If the backward is in halves, values whose first half is done
/// are kept for the second, recomputed or not. Long pipelines are taken for shorter ones in proportion.
double Pricer::kept_at_most(const Choice& choice, const Pipe& pipe) {
  if (choice.pp == 1 || chosen_schedule(choice).formulas.kept != nullptr) {
    return in_flight(choice) * pipe.kept;
  }
  constexpr std::int64_t longest = 16;
  const std::int64_t devices = std::min(choice.pp, longest);
  const std::int64_t rounds = std::clamp<std::int64_t>((choice.micro_batches + choice.pp - 1) / choice.pp, 1, 3);
  const std::int64_t count = choice.micro_batches < choice.pp
                                 ? std::max<std::int64_t>(1, choice.micro_batches * devices / choice.pp)
                                 : rounds * devices;
  const auto [found, added] = moments_.try_emplace({choice.schedule, choice.chunks, devices, count});
  if (added) {
    try {
      found->second = moments_of(chosen_schedule(choice).grid({devices, choice.chunks, count}), choice.chunks);
    } catch (const Error&) {
      found->second = {{static_cast<double>(devices), 0}};  // the schedule says itself why it cannot be
    }
  }
  double most = 0;
  for (const auto& [forward, halves] : found->second) {
    most = std::max(most, forward * pipe.kept + halves * pipe.late);
  }
  return most * static_cast<double>(choice.pp) / static_cast<double>(devices);
}

/// No step takes less than the products of a device at the efficiency of their largest extents, and its update; nor than gradients
/// need through a port.
double Pricer::least_time(const Choice& choice, double samples) const {
  if (own_) {
    return 0;  // whatever the user's own formula says
  }
  const cluster::Speed& speed = cluster_.devices()[0].speed;
  const DType type = strategy::dtype_of(request_.step.precision);
  const bool tf32 = request_.step.precision == strategy::Precision::tf32;
  const auto pieces = static_cast<double>(choice.micro_batches);
  const auto tp = static_cast<double>(choice.tp);
  const auto element = static_cast<double>(size_of(type));
  const bool tiled = speed.multiprocessors > 0;  // then no extent but waves of tiles decide
  const double share = tiled ? std::max(1.0, software_.on(cluster_.devices()[0].product).products) * (software_.fp8 ? 2 : 1) : 1;
  double computing = 0;
  for (const Matrix& matrix : matrices_) {
    const double rows = samples * matrix.positions;
    const double extent = tiled ? 0 : std::min({rows, matrix.rows, matrix.columns});
    const double rate = cost::product_rate(speed, type, tf32, extent) * share;
    const double arithmetic = over(2 * rows * matrix.rows * matrix.columns / tp, rate);
    const double weights = over(matrix.rows * matrix.columns * element / tp, speed.memory_bandwidth);
    computing += matrix.products * pieces * (static_cast<double>(speed.launch.count) + std::max(arithmetic, weights));
  }
  const auto dp = static_cast<double>(choice.dp);
  const auto states = static_cast<double>(op::state_slots(request_.step.optimizer));
  const double part = parameters_ * element / static_cast<double>(choice.pp * choice.tp);
  const double updating = states == 0 ? 0 : over(part * (3 + 2 * states) / (choice.zero > 0 ? dp : 1), speed.memory_bandwidth);
  double moving = over(2 * (dp - 1) / dp * part, port_);
  if (cluster_.wiring() && cluster_.wiring()->switch_sums > 0) {
    moving = std::min(moving, over(part, cluster_.wiring()->switch_sums));
  }
  return std::max((computing / static_cast<double>(choice.pp) + updating) / what_if_.compute, moving);
}

/// No device holds less than its part of the parameters and states.
double Pricer::least_memory(const Choice& choice) const {
  const auto dp = static_cast<double>(choice.dp);
  const strategy::Precision precision = request_.step.precision;
  const auto states = static_cast<double>(op::state_slots(request_.step.optimizer));
  const double part = parameters_ / static_cast<double>(choice.pp * choice.tp);
  // The optimizer keeps its states, and the parameters that it changes, in fp32 if the step computes in 16 bits.
  const double kept = part * static_cast<double>(size_of(strategy::parameter_type(precision))) * (states + 1);
  if (choice.zero == 0 || choice.zero == 3) {
    return kept / (choice.zero == 3 ? dp : 1);
  }
  const double whole = part * static_cast<double>(size_of(strategy::dtype_of(precision)));  // in the step's own type
  return strategy::is_mixed(precision) ? whole + kept / dp : whole + (kept - whole) / dp;
}

/// Replicas and parts that are compiled: two of those that are folded into one, or all.
double Pricer::written_copies(const Choice& choice) const {
  const auto in_node = static_cast<std::int64_t>(in_node_);
  const bool one_node = choice.devices() <= in_node;
  const bool full_nodes = choice.devices() % in_node == 0 && in_node % choice.tp == 0;
  const bool pieces_alike = choice.zero < 2 || !choice.sp;  // otherwise collectives of pieces stand in another order
  const bool replicas = request_.step.global_batch % choice.dp == 0 && pieces_alike &&
                        (one_node || (full_nodes && choice.dp * choice.tp % in_node == 0));
  const bool parts = one_node || full_nodes;
  return static_cast<double>((replicas ? std::min<std::int64_t>(choice.dp, 2) : choice.dp) *
                             (parts ? std::min<std::int64_t>(choice.tp, 2) : choice.tp));
}

Price Pricer::price(const Choice& choice) {
  const double samples = static_cast<double>(request_.step.global_batch) / static_cast<double>(choice.dp);
  const auto pieces = static_cast<double>(choice.micro_batches);
  const auto rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(samples / pieces)));
  const Pipe& pipe = this->pipe(
      {{choice.tp, choice.sp, rows, choice.recompute == Recompute::light}, choice.pp, choice.chunks, choice.recompute});
  const auto dp = static_cast<double>(choice.dp);
  const auto pp = static_cast<double>(choice.pp);
  const auto value = static_cast<double>(size_of(strategy::dtype_of(request_.step.precision)));

  double time = pieces * pipe.longest;
  if (choice.pp > 1) {
    const schedule::Formulas& formulas = chosen_schedule(choice).formulas;
    const double message = message_time(pipe.message, choice.dp, choice.tp);
    if (!formulas.overlaps) {
      time = pieces * (pipe.whole + 2 * (pp - 1) * message);
    } else {
      constexpr double uneven = 0.05;  // the wait of stages that are not alike, in a schedule without waits
      const double waiting = formulas.waiting > 0 ? formulas.waiting / static_cast<double>(choice.chunks) : uneven;
      time += (pipe.whole - pipe.longest) * waiting + 2 * (pp * static_cast<double>(choice.chunks) - 1) * message;
      time = std::max(time, 2 * static_cast<double>(choice.chunks) * pieces * message);
    }
  }
  // Gradients travel during the last backward; pieces of parameters during every forward and backward.
  if (choice.dp > 1) {
    const double spread = spread_time(pipe.elements * value, choice.dp, choice.tp);
    const double once = choice.zero < 2 ? 2 * spread : choice.zero == 2 ? spread : 0;
    const double each = choice.zero < 2 ? 0 : choice.zero == 2 ? spread : 3 * spread;
    time = std::max(time, pieces * each) + std::max(0.05 * once, once - 0.8 * pipe.backward);
  }
  time += pipe.update / (choice.zero > 0 ? dp : 1);

  Price price;
  price.time = time;
  price.memory = parameter_bytes(pipe.elements, choice.dp, choice.zero) + kept_at_most(choice, pipe) + pipe.again;
  price.least_time = least_time(choice, samples / pieces);
  price.least_memory = least_memory(choice);
  constexpr double tasks_per_block = 30;
  const auto shorter = shorter_steps(choice, request_.step.global_batch);
  price.tasks = static_cast<double>(reduced_.block_of.size()) * tasks_per_block *
                (shorter ? static_cast<double>(shorter->first + shorter->second) : pieces) *
                (choice.recompute == Recompute::none ? 1 : 1.4);
  price.all_tasks = price.tasks * static_cast<double>(choice.dp * choice.tp);
  constexpr double folded = 4;    // copies at most that are written of plans that are folded
  constexpr double checking = 4;  // the factor of a task's time if all replicas are written out: sums are proved term by term
  const double copies = written_copies(choice);
  price.tasks *= copies * (copies > folded ? checking : 1);
  return price;
}

}  // namespace baton::job
