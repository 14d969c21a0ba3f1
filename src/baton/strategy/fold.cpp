#include "baton/strategy/fold.h"

#include <algorithm>
#include <map>
#include <span>

#include "baton/plan/verify.h"
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

/// Replicas of a plan of two, written as some of `dp`.
class Folder {
 public:
  Folder(const Plan& two, const Axes& axes, const cluster::Cluster& cluster) : two_(two), axes_(axes), cluster_(cluster) {}

  /// Whether each collective between replicas has one member of each. A check for overflow over divided tensors has several.
  bool is_simple() const {
    return std::all_of(two_.tasks().begin(), two_.tasks().end(), [&](const Task& task) {
      const auto* collective = std::get_if<Collective>(&task.action);
      return collective == nullptr || !between_replicas(*collective) || two_.members(collective->meeting).size() == 2;
    });
  }

  Folded fold(const std::string& title) {
    std::vector<std::vector<DeviceId>> stands_for;
    for (std::int64_t p = 0; p < axes_.pp; ++p) {
      for (std::int64_t t = 0; t < axes_.tp; ++t) {
        stands_for.emplace_back();
        for (std::int64_t d = 0; d < axes_.dp; ++d) {
          stands_for.back().push_back(axes_.device(p, d, t));
        }
        names_.push_back(cluster_.device(stands_for.back()[0]).name);
      }
    }
    std::map<std::vector<std::int64_t>, std::vector<std::uint32_t>> kinds;  // ranks by the sizes of their pieces
    for (std::uint32_t rank = 0; rank < replicas(); ++rank) {
      kinds[piece_sizes(rank)].push_back(rank);
    }
    Folded folded{written(title, 1, replicas() - 1), std::move(stands_for), {}, divided()};
    for (const auto& [sizes, ranks] : kinds) {
      const Plan second = written(title, 1, ranks[0]);
      for (const plan::Totals& device : plan::totals_by_device(second)) {
        folded.totals += device * static_cast<std::int64_t>(ranks.size());
      }
      count_slices(second, ranks, folded.totals);
    }
    return folded;
  }

 private:
  std::uint32_t replicas() const { return static_cast<std::uint32_t>(axes_.dp); }
  /// Which of the two replicas a device of theirs belongs to.
  std::int64_t replica_of(DeviceId device) const { return static_cast<std::int64_t>(device.index()) / axes_.tp % 2; }
  DeviceId kept_device(DeviceId device) const {
    const auto at = static_cast<std::int64_t>(device.index());
    return DeviceId(static_cast<std::size_t>(at / (2 * axes_.tp) * axes_.tp + at % axes_.tp));
  }
  bool between_replicas(const Collective& collective) const {
    const std::span<const TaskId> members = two_.members(collective.meeting);
    return std::any_of(members.begin(), members.end(), [&](TaskId member) { return replica_of(two_[member].device) == 0; }) &&
           std::any_of(members.begin(), members.end(), [&](TaskId member) { return replica_of(two_[member].device) == 1; });
  }

  bool divided() const {
    return std::any_of(two_.buffers().begin(), two_.buffers().end(), [](const Buffer& buffer) {
      const auto* part = std::get_if<ParameterPart>(&buffer.content);
      return part != nullptr && part->piece_end > 0;
    });
  }

  /// What falls to a rank of each size of parameter that is divided.
  std::vector<std::int64_t> piece_sizes(std::uint32_t rank) const {
    std::map<std::int64_t, std::int64_t> size_of;
    for (const Buffer& buffer : two_.buffers()) {
      if (const auto* part = std::get_if<ParameterPart>(&buffer.content); part != nullptr && part->piece_end > 0) {
        const std::int64_t elements = part->shape().elements();
        size_of[elements] = plan::piece_of(elements, rank, replicas()).size();
      }
    }
    std::vector<std::int64_t> list;
    for (const auto& [elements, size] : size_of) {
      list.push_back(size);
    }
    return list;
  }

  /// Of an all-reduce each rank sums a slice. Slices differ by an element where they are uneven; the plan has that of ranks[0].
  void count_slices(const Plan& plan, const std::vector<std::uint32_t>& ranks, plan::Totals& totals) const {
    const auto n = static_cast<std::int64_t>(replicas());
    for (const Task& task : plan.tasks()) {
      const auto* collective = std::get_if<Collective>(&task.action);
      if (collective == nullptr || collective->kind != plan::Move::all_reduce || !between_replicas(*collective)) {
        continue;
      }
      std::int64_t elements = 0;
      std::int64_t width = 0;
      for (const BufferId id : plan::payload(task)) {
        elements += plan[id].shape.elements();
        width = size_of(plan[id].dtype);
      }
      std::int64_t more = 0;
      for (const std::uint32_t rank : ranks) {
        more += plan::piece_of(elements, rank, replicas()).size() - plan::piece_of(elements, ranks[0], replicas()).size();
      }
      totals.work.flops += Flops((n - 1) * more);
      totals.work.sent += Bytes((n - 2) * more * width);
      totals.work.received += Bytes((n - 2) * more * width);
    }
  }

  /// One of the two replicas, with the pieces of that rank.
  Plan written(const std::string& title, std::int64_t replica, std::uint32_t rank) const {
    std::vector<BufferId> buffer_of(two_.buffers().size());  // invalid: not written
    plan::Draft draft;
    draft.title = title;
    draft.devices = names_;
    for (std::size_t b = 0; b < two_.buffers().size(); ++b) {
      Buffer buffer = two_.buffers()[b];
      if (replica_of(buffer.device) != replica) {
        continue;
      }
      buffer.device = kept_device(buffer.device);
      if (auto* part = std::get_if<ParameterPart>(&buffer.content); part != nullptr && part->piece_end > 0) {
        const plan::Piece piece = plan::piece_of(part->shape().elements(), rank, replicas());
        if (piece.size() == 0) {
          continue;
        }
        part->piece_begin = piece.begin;
        part->piece_end = piece.end;
        buffer.shape = Shape{piece.size()};
      }
      buffer_of[b] = BufferId(draft.buffers.size());
      draft.buffers.push_back(std::move(buffer));
    }
    draft.tasks = written_tasks(replica, rank, buffer_of);
    draft.graph = two_.graph();
    return plan::finish(std::move(draft));  // what a task that is left out stood between comes together again
  }

  std::vector<Task> written_tasks(std::int64_t replica, std::uint32_t rank, const std::vector<BufferId>& buffer_of) const {
    std::vector<Task> tasks;
    std::vector<TaskId> kept(two_.tasks().size());
    for (std::size_t t = 0; t < two_.tasks().size(); ++t) {
      if (replica_of(two_.tasks()[t].device) != replica) {
        continue;
      }
      Task task = two_.tasks()[t];
      const bool writes = !task.writes.empty();
      task.device = kept_device(task.device);
      for (std::vector<BufferId>* list : {&task.reads, &task.writes}) {
        std::transform(list->begin(), list->end(), list->begin(), [&](BufferId id) { return buffer_of[id.index()]; });
        std::erase_if(*list, [](BufferId id) { return !id.valid(); });
      }
      auto* collective = std::get_if<Collective>(&task.action);
      if (writes && task.writes.empty() && collective == nullptr) {
        continue;  // an update of pieces that are empty here
      }
      std::transform(task.after.begin(), task.after.end(), task.after.begin(), [&](TaskId id) { return kept[id.index()]; });
      std::erase_if(task.after, [](TaskId id) { return !id.valid(); });
      if (auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
        transfer->peer = kept_device(transfer->peer);
      } else if (collective != nullptr && between_replicas(*collective)) {
        collective->size = replicas();
        collective->rank = rank;
      }
      kept[t] = TaskId(tasks.size());
      tasks.push_back(std::move(task));
    }
    return tasks;
  }

  const Plan& two_;
  const Axes& axes_;
  const cluster::Cluster& cluster_;
  std::vector<std::string> names_;  // of the devices that are written
};

}  // namespace

std::optional<Folded> fold(const Request& request) { return fold(request, strategy_by_name(request.strategy)); }

std::optional<Folded> fold(const Request& request, const Strategy& strategy) {
  const NamedLayout* layout = strategy.layout();
  if (layout == nullptr) {
    return std::nullopt;
  }
  refuse_uncountable(request);  // what is compiled below is a part of it
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
  const Plan both = compile(two, strategy);
  plan::require(plan::verify(both));  // of one replica alone nobody could say whether it computes the model
  Folder folder(both, axes, request.cluster);
  return folder.is_simple() ? std::optional(folder.fold(title_of(named, strategy))) : std::nullopt;
}

}  // namespace baton::strategy
