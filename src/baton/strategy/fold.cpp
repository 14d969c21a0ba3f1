#include "baton/strategy/fold.h"

#include <algorithm>
#include <map>

#include "baton/schedule/grid.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Collective;
using plan::ParameterPart;
using plan::Plan;
using plan::Task;

/// Whether a replica finds the same nodes and ports around it as every other.
bool nodes_alike(const cluster::Cluster& cluster, const Axes& axes) {
  std::map<int, std::int64_t> in_node;
  for (const cluster::Device& device : cluster.devices()) {
    ++in_node[device.node];
  }
  if (in_node.size() == 1) {
    return true;
  }
  const std::int64_t size = in_node.begin()->second;
  const bool even = std::all_of(in_node.begin(), in_node.end(), [&](const auto& node) { return node.second == size; });
  const std::int64_t ports = cluster.wiring() ? cluster.wiring()->network_ports : 1;
  return even && size % axes.tp == 0 && (axes.dp * axes.tp) % size == 0 && (size % ports == 0 || ports % size == 0);
}

bool replicas_alike(const Request& request, const Axes& axes) {
  const bool everywhere = std::all_of(request.delays.begin(), request.delays.end(),
                                      [](const DelayRequest& delay) { return delay.device < 0; });
  return axes.dp > 2 && everywhere && request.step.global_batch % axes.dp == 0 && nodes_alike(request.cluster, axes);
}

/// The first replica of a plan of two, written as if there were `replicas`.
class Folder {
 public:
  Folder(const Plan& two, const Axes& axes, const cluster::Cluster& cluster) : two_(two), axes_(axes), cluster_(cluster) {}

  Folded fold(std::string title) {
    std::vector<std::vector<DeviceId>> stands_for;
    std::vector<std::string> names;
    for (std::int64_t p = 0; p < axes_.pp; ++p) {
      for (std::int64_t t = 0; t < axes_.tp; ++t) {
        stands_for.emplace_back();
        for (std::int64_t d = 0; d < axes_.dp; ++d) {
          stands_for.back().push_back(axes_.device(p, d, t));
        }
        names.push_back(cluster_.device(stands_for.back()[0]).name);
      }
    }
    keep_buffers();
    keep_tasks();
    return Folded{Plan(std::move(title), std::move(names), std::move(buffers_), std::move(tasks_)), std::move(stands_for)};
  }

 private:
  /// Which of the two replicas a device of theirs belongs to.
  std::int64_t replica_of(DeviceId device) const { return static_cast<std::int64_t>(device.index()) / axes_.tp % 2; }
  DeviceId kept_device(DeviceId device) const {
    const auto at = static_cast<std::int64_t>(device.index());
    return DeviceId(static_cast<std::size_t>(at / (2 * axes_.tp) * axes_.tp + at % axes_.tp));
  }

  /// Where pieces are uneven the last ones are the largest: the replica that is kept has those, and none needs more.
  std::uint32_t last_rank() const { return static_cast<std::uint32_t>(axes_.dp - 1); }

  void keep_buffers() {
    buffer_.resize(two_.buffers().size());
    for (std::size_t b = 0; b < two_.buffers().size(); ++b) {
      Buffer buffer = two_.buffers()[b];
      if (replica_of(buffer.device) != 0) {
        continue;
      }
      buffer.device = kept_device(buffer.device);
      if (auto* part = std::get_if<ParameterPart>(&buffer.content); part != nullptr && part->piece_end > 0) {
        const plan::Piece piece = plan::piece_of(part->shape().elements(), last_rank(), static_cast<std::uint32_t>(axes_.dp));
        part->piece_begin = piece.begin;
        part->piece_end = piece.end;
        buffer.shape = Shape{piece.size()};
      }
      buffer_[b] = BufferId(buffers_.size());
      buffers_.push_back(std::move(buffer));
    }
  }

  void keep_tasks() {
    std::vector<TaskId> kept(two_.tasks().size());
    for (std::size_t t = 0; t < two_.tasks().size(); ++t) {
      if (replica_of(two_.tasks()[t].device) != 0) {
        continue;
      }
      Task task = two_.tasks()[t];
      task.device = kept_device(task.device);
      for (std::vector<BufferId>* list : {&task.reads, &task.writes}) {
        for (BufferId& id : *list) {
          id = buffer_[id.index()];
        }
      }
      for (TaskId& id : task.after) {
        id = kept[id.index()];
      }
      if (auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
        transfer->peer = kept_device(transfer->peer);
      } else if (auto* collective = std::get_if<Collective>(&task.action)) {
        for (const TaskId member : two_.members(collective->meeting)) {
          if (replica_of(two_[member].device) != 0) {
            collective->size = static_cast<std::uint32_t>(axes_.dp);  // one between replicas
            collective->rank = last_rank();
          }
        }
      }
      kept[t] = TaskId(tasks_.size());
      tasks_.push_back(std::move(task));
    }
  }

  const Plan& two_;
  const Axes& axes_;
  const cluster::Cluster& cluster_;
  std::vector<BufferId> buffer_;  // by buffer of the plan of two: the one that is kept
  std::vector<Buffer> buffers_;
  std::vector<Task> tasks_;
};

}  // namespace

std::optional<Folded> fold(const Request& request) { return fold(request, strategy_by_name(request.strategy)); }

std::optional<Folded> fold(const Request& request, const Strategy& strategy) {
  const NamedLayout* layout = strategy.layout();
  if (layout == nullptr) {
    return std::nullopt;
  }
  Request named = request;
  named.strategy = strategy.name;
  const Axes axes = axes_of(named, *layout);
  if (!replicas_alike(request, axes)) {
    return std::nullopt;
  }
  std::vector<cluster::Device> devices;
  for (std::int64_t p = 0; p < axes.pp; ++p) {
    for (std::int64_t d = 0; d < 2; ++d) {
      for (std::int64_t t = 0; t < axes.tp; ++t) {
        devices.push_back(request.cluster.device(axes.device(p, d, t)));
      }
    }
  }
  const cluster::Cluster pair(std::move(devices), request.cluster.emulated_link(), request.cluster.wiring());
  Request two{.model = request.model,
              .cluster = pair,
              .strategy = request.strategy,
              .step = request.step,
              .layout = request.layout,
              .target = request.target,
              .delays = request.delays};
  two.step.global_batch = request.step.global_batch / axes.dp * 2;
  two.layout.dp = 2;
  two.layout.pp = axes.pp;
  two.layout.tp = axes.tp;
  two.layout.micro_batches = schedule::micro_batches(grid_of(named, *layout));
  return Folder(compile(two, strategy), axes, request.cluster).fold(title_of(named, strategy));
}

}  // namespace baton::strategy
