#include "baton/cost/roofline.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "baton/base/duration.h"
#include "baton/op/traits.h"

namespace baton::cost {
namespace {

double over(double amount, double rate) { return rate > 0 ? amount / rate * 1e9 : 0; }

/// The rate of the products of a type, of which a device reaches a share.
double peak(const cluster::Speed& speed, DType type, bool tf32, bool fp8) {
  using cluster::RateType;
  if (fp8 && is_narrow(type)) {
    return speed.rates[RateType::f8].value_or(speed.rate(type));
  }
  return tf32 ? speed.rates[RateType::tf32].value_or(speed.rate(type)) : speed.rate(type);
}

/// A product as m × n results of k terms each.
struct Extents {
  double m, n, k;
};
Extents results_and_terms(const op::ProductExtents& extents, double written) {
  const auto rows = static_cast<double>(extents.rows);
  const auto in = static_cast<double>(extents.in);
  const auto out = static_cast<double>(extents.out);
  if (written == in * out && written != rows * out) {
    return {in, out, rows};  // the gradient of weights
  }
  return written == rows * in && written != rows * out ? Extents{rows, in, out} : Extents{rows, out, in};
}

}  // namespace

double product_rate(const cluster::Speed& speed, DType type, bool tf32, double smallest_extent) {
  return peak(speed, type, tf32, false) * speed.efficiency *
         (smallest_extent > 0 ? smallest_extent / (smallest_extent + speed.half_extent) : 1);
}

double product_time(const cluster::Speed& speed, double rate, double m, double n, double k) {
  struct Tile {
    double m, n, share;  // `share` of the rate: smaller tiles read their operands more often
  };
  constexpr std::array<Tile, 6> tiles{
      {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.94}, {128, 64, 0.8}, {64, 128, 0.8}, {64, 64, 0.65}}};
  constexpr double fill = 96;  // terms that pass before the first results are added up
  const double units = speed.multiprocessors;
  double least = 0;
  for (const Tile& tile : tiles) {
    const double count = std::ceil(m / tile.m) * std::ceil(n / tile.n);
    for (double parts = 1; parts <= 16; parts *= 2) {
      if (parts > 1 && (k / parts < 512 || count * parts > 2 * units)) {
        break;
      }
      const double waves = std::ceil(count * parts / units);
      const double sums = parts > 1 ? over(parts * m * n * 8, speed.memory_bandwidth) * 1e-9 : 0;
      const double time = waves * 2 * tile.m * tile.n * (k / parts + fill) / (rate / units * tile.share) + sums;
      least = least == 0 ? time : std::min(least, time);
    }
  }
  return least;
}

namespace {

/// A cast of a parameter, which is done once for a step.
bool casts_parameter(const plan::Plan& plan, const plan::Task& task) {
  return task.reads.size() == 1 && plan[task.reads[0]].role == plan::Role::parameter;
}

}  // namespace

/// True if it is the first task of a stage's forward of a micro-batch.
bool Roofline::begins_micro_batch(const plan::Plan& plan, TaskId id) const {
  const plan::Task& task = plan[id];
  if (task.labels.phase != plan::Phase::forward || task.lane != plan::Lane::compute) {
    return false;
  }
  const TaskId before = plan.before(id);
  if (!before.valid() || casts_parameter(plan, plan[before])) {
    return true;
  }
  const plan::Labels& other = plan[before].labels;
  return other.phase != task.labels.phase || other.micro_batch != task.labels.micro_batch || other.stage != task.labels.stage;
}

/// A program's kernel for scores may need a multiple of this many heads.
bool Roofline::fuses_scores(const op::AttentionExtents& extents) const { return extents.heads % software_.scores_multiple == 0; }

/// In nanoseconds.
double Roofline::attention_time(const cluster::Device& device, const op::AttentionExtents& extents, double rate,
                                double bytes) const {
  const cluster::Speed& speed = device.speed;
  const Kernels& kernels = software_.on(device.product);
  const auto queries = static_cast<double>(extents.queries);
  const auto keys = static_cast<double>(extents.keys);
  const auto heads = static_cast<double>(extents.heads);
  const auto features = static_cast<double>(extents.features);
  const double products = extents.backward ? 5 : 2;
  const double memory = speed.memory_bandwidth * speed.memory_efficiency;
  const double fused_passes = extents.backward ? software_.scores_backward : software_.scores_forward;
  const double passes = fused_passes + (fused_passes > 0 && !fuses_scores(extents) ? software_.unfused_passes : 0);
  if (passes >
      0) {  // all scores are computed and kept, whether a position sees them or not; the forward's are there in the backward
    const double flops = 2 * (extents.backward ? 4 : 2) * heads * queries * keys * features;
    const double share = features / (features + 32);  // few terms per result
    return over(flops, rate * speed.efficiency * kernels.products * share) +
           over(passes * heads * queries * keys * 2 + bytes, memory);
  }
  const double flops = 2 * products * heads * queries * keys * features / (extents.causal ? 2 : 1);
  const double share = extents.backward ? kernels.attention_backward : kernels.attention_forward;
  const double half = kernels.attention_half * (extents.causal ? 2 : 1);
  const double reached = share > 0 ? share * keys / (keys + half) : speed.efficiency * features / (features + speed.half_extent);
  return std::max(over(flops, rate * reached), over(bytes, memory));
}

/// The bytes that a task reads and writes: a stream that the plan keeps in float32 counts half if the program keeps it in 16 bits.
double Roofline::bytes_moved(const plan::Plan& plan, const plan::Task& task) const {
  double sum = 0;
  for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
    for (const BufferId id : *list) {
      const plan::Buffer& buffer = plan[id];
      const auto* part = std::get_if<plan::ValuePart>(&buffer.content);
      const bool stream = software_.narrow_stream && part != nullptr && buffer.dtype == DType::f32 &&
                          part->value.index() < plan.graph().values.size() && plan.graph().values[part->value.index()].wide;
      sum += static_cast<double>(buffer.size().count) * (stream ? 0.5 : 1);
    }
  }
  return sum;
}

Nanoseconds Roofline::duration(const plan::Plan& plan, TaskId id) const {
  const plan::Task& task = plan[id];
  const cluster::Device& device = cluster_.device(task.device);
  const cluster::Speed& speed = device.speed;
  const plan::TaskWork work = plan::work(plan, id);
  const DType type = task.reads.empty() ? DType::f32 : plan[task.reads[0]].dtype;
  const double bytes = bytes_moved(plan, task);
  const double memory = speed.memory_bandwidth * speed.memory_efficiency;
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  if (compute == nullptr) {
    const double passes = std::holds_alternative<plan::Update>(task.action) ? software_.update_passes : 1;
    return speed.launch + to_duration(std::max(over(static_cast<double>(work.flops.count), product_rate(speed, type, false, 0)),
                                               over(passes * bytes, memory)));
  }
  const std::vector<op::Operand> reads = plan::operands_of(plan.buffers(), task.reads);
  const std::vector<op::Operand> writes = plan::operands_of(plan.buffers(), task.writes);
  const double rate = peak(speed, type, op::rounds_to_tf32(compute->op), false);
  if (const auto attention = op::attention_extents(compute->op, reads)) {
    return speed.launch + to_duration(attention_time(device, *attention, rate, bytes));
  }
  const auto extents = op::product_extents(compute->op, reads, writes);
  if (!extents) {
    if (op::is_loss(compute->op) && software_.loss_bytes > 0) {
      return speed.launch + to_duration(over(software_.loss_bytes * static_cast<double>(reads[0].shape.elements()), memory));
    }
    const bool norm = op::is_norm(compute->op);
    const double units = speed.multiprocessors > 0 ? speed.rate(DType::f32) : product_rate(speed, type, false, 0);
    const double computing = over(static_cast<double>(work.flops.count), units);
    const double passes = !norm                                        ? software_.elementwise
                          : task.labels.phase == plan::Phase::backward ? software_.norm_gradients
                                                                       : software_.norms;
    return speed.launch + to_duration(std::max(computing, over(passes * bytes, memory)));
  }
  double computing = 0;
  const double smallest = static_cast<double>(std::min({extents->rows, extents->in, extents->out}));
  if (speed.multiprocessors > 0) {
    const Extents whole = results_and_terms(*extents, static_cast<double>(writes[0].shape.elements()));
    const double share = speed.efficiency * software_.on(device.product).products;
    const double fastest = peak(speed, type, op::rounds_to_tf32(compute->op), software_.fp8) * share;
    const double joined = software_.joined_projections && op::projects_to_heads(compute->op) ? 3 : 1;
    computing = product_time(speed, fastest, whole.m, whole.n * joined, whole.k) / joined * 1e9;
    // Tensor cores read 16 bytes at a time: rows that do not begin there are read piece by piece.
    if (is_narrow(type) && (extents->in % 8 != 0 || extents->out % 8 != 0)) {
      computing *= software_.on(device.product).unaligned;
    }
  } else {
    computing = over(static_cast<double>(work.flops.count), product_rate(speed, type, op::rounds_to_tf32(compute->op), smallest));
  }
  double casting = 0;
  if (software_.fp8 && software_.casts > 0 && is_narrow(type)) {
    double elements = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(2, reads.size()); ++i) {  // not a bias
      elements += static_cast<double>(reads[i].shape.elements());
    }
    casting = over(software_.casts * elements, memory);
  }
  const bool again = software_.recomputed_products > 0 && task.labels.phase == plan::Phase::forward;
  return speed.launch +
         to_duration((std::max(computing, over(bytes, memory)) + casting) * (again ? 1 + software_.recomputed_products : 1));
}

Nanoseconds Roofline::issuing(const plan::Plan& plan, TaskId id) const {
  const plan::Task& task = plan[id];
  if (std::holds_alternative<plan::Collective>(task.action)) {
    return software_.host_collective;
  }
  if (std::holds_alternative<plan::Transfer>(task.action)) {
    return software_.host_message;
  }
  if (std::holds_alternative<plan::Update>(task.action)) {
    return software_.host_update;
  }
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  if (compute == nullptr) {
    return Nanoseconds(0);
  }
  if (task.labels.phase == plan::Phase::update || casts_parameter(plan, task)) {
    return software_.host_update;  // casts and updates of all parameters together: kernels over lists of tensors
  }
  const bool again = task.labels.phase == plan::Phase::backward && !task.writes.empty() &&
                     plan[task.writes[0]].role == plan::Role::activation;
  Nanoseconds time = task.labels.phase == plan::Phase::forward ? software_.host_forward
                     : again                                   ? software_.host_recompute
                                                               : software_.host_backward;
  if (software_.joined_projections && op::projects_to_heads(compute->op)) {
    time = Nanoseconds(time.count / 3);
  }
  if (software_.unfused_ops > 0) {
    if (const auto attention = op::attention_extents(compute->op, plan::operands_of(plan.buffers(), task.reads));
        attention && !fuses_scores(*attention)) {
      time = Nanoseconds(std::llround(static_cast<double>(time.count) * (1 + software_.unfused_ops)));
    }
  }
  return software_.host_micro_batch.count > 0 && begins_micro_batch(plan, id) ? time + software_.host_micro_batch : time;
}

Nanoseconds Roofline::copying(const plan::Plan& plan, TaskId id) const {
  const cluster::Speed& speed = cluster_.device(plan[id].device).speed;
  return to_duration(over(static_cast<double>(carried(plan, id).count), speed.memory_bandwidth));
}

std::string Roofline::origin() const {
  return "roofline: launch + max(flops / (rate x efficiency), bytes / memory bandwidth), figures of the cluster's file" +
         (software_.name == "baton" ? "" : "; the software profile " + software_.name);
}

}  // namespace baton::cost
