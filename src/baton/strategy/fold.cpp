#include "baton/strategy/fold.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>

#include "baton/base/error.h"
#include "baton/plan/memory.h"
#include "baton/plan/verify.h"
#include "baton/schedule/grid.h"
#include "baton/strategy/table.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Collective;
using plan::ParameterPart;
using plan::Plan;
using plan::Task;

/// The axes that are folded: of more than two replicas, or parts, two are compiled and one of them is kept.
struct Folds {
  bool replicas = false;
  bool parts = false;
};

/// The devices of each node.
std::vector<std::int64_t> node_sizes(const cluster::Cluster& cluster) {
  std::map<int, std::int64_t> in_node;
  for (const cluster::Device& device : cluster.devices()) {
    ++in_node[device.node];
  }
  std::vector<std::int64_t> sizes;
  for (const auto& [node, size] : in_node) {
    sizes.push_back(size);
  }
  return sizes;
}

bool divides(std::int64_t a, std::int64_t b) { return a % b == 0 || b % a == 0; }

/// True if the kept devices have the same nodes, ports and links around them as those that they stand for. In a mesh, devices of a
/// node have different links: groups that share a node do not take the same time.
bool nodes_alike(const cluster::Cluster& cluster, const Axes& axes, const Folds& folds) {
  const std::vector<std::int64_t> sizes = node_sizes(cluster);
  const std::int64_t size = sizes[0];
  const bool even = std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t one) { return one == size; });
  if (cluster.wiring() && !cluster.wiring()->mesh.pairs.empty() && axes.tp > 1 && axes.tp != size) {
    return false;
  }
  if (sizes.size() == 1) {
    return true;
  }
  const std::int64_t ports = cluster.wiring() ? cluster.wiring()->network_ports : 1;
  return even && size % axes.tp == 0 && divides(size, ports) && (!folds.replicas || (axes.dp * axes.tp) % size == 0) &&
         (!folds.parts || divides(axes.tp, ports));
}

/// True if every part of a divided tensor has the same shape.
bool parts_even(const model::Model& model, const Axes& axes, bool sequence) {
  const std::string divided = sequence ? "fhvt" : "fhv";
  Table table;
  for (const char dim : divided) {
    table.push_back({dim, MeshAxis::parts});
  }
  const Layouts layouts(model, table, axes.tp);
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    const model::Block& block = model.blocks()[b];
    for (const model::Value& value : block.values) {
      for (const model::Dim& dim : value.dims) {
        if (divided.find(dim.name) != std::string::npos && dim.extent % axes.tp != 0) {
          return false;
        }
      }
    }
    for (std::size_t p = 0; p < block.parameters.size(); ++p) {
      const Names& names = layouts.parameter(b, p);
      for (std::size_t axis = 0; axis < names.size(); ++axis) {
        if (divided.find(names[axis]) != std::string::npos && block.parameters[p].shape[axis] % axes.tp != 0) {
          return false;
        }
      }
    }
  }
  return true;
}

/// A plan of two replicas, two parts or both, written as more of them.
class Folder {
 public:
  Folder(const Plan& two, const Axes& axes, const Folds& folds, const cluster::Cluster& cluster, bool clips)
      : two_(two), axes_(axes), folds_(folds), cluster_(cluster), kept_part_(clips ? 0 : 1), tasks_(two.devices().size()) {
    for (std::size_t m = 0; m < two.meeting_count(); ++m) {
      spans_.push_back(spans_of(two.members(MeetingId(m))));
      parts_of_meeting_.push_back(spans_.back() == Spans::replicas ? parts_in(two.members(MeetingId(m))) : 1);
    }
    for (std::size_t t = 0; t < two.tasks().size(); ++t) {
      tasks_[two.tasks()[t].device.index()].emplace_back(t);
    }
    for (const Buffer& buffer : two.buffers()) {
      if (const auto* part = std::get_if<ParameterPart>(&buffer.content);
          folds.replicas && part != nullptr && part->piece_end > 0) {
        divided_sizes_.insert(part->shape().elements());
      }
    }
  }

  /// True if each collective between replicas can be told by its members that are kept, and replicas and parts do the same.
  bool is_simple() const {
    return std::find(parts_of_meeting_.begin(), parts_of_meeting_.end(), 0U) == parts_of_meeting_.end() &&
           (!folds_.replicas || (replicas_alike() && all_ranks_update())) && (!folds_.parts || parts_alike());
  }

  Folded fold(const std::string& title) {
    std::vector<std::vector<DeviceId>> stands_for;
    for (std::int64_t p = 0; p < axes_.pp; ++p) {
      for (std::int64_t r = 0; r < (folds_.replicas ? 1 : axes_.dp); ++r) {
        for (std::int64_t t = 0; t < (folds_.parts ? 1 : axes_.tp); ++t) {
          stands_for.emplace_back();
          for (std::int64_t d = r; d < (folds_.replicas ? axes_.dp : r + 1); ++d) {
            for (std::int64_t part = t; part < (folds_.parts ? axes_.tp : t + 1); ++part) {
              stands_for.back().push_back(axes_.device(p, d, part));
            }
          }
          names_.push_back(cluster_.device(stands_for.back()[0]).name);
        }
      }
    }
    std::map<std::vector<std::int64_t>, std::vector<std::uint32_t>> kinds;  // ranks by the sizes of their pieces
    for (std::uint32_t rank = 0; rank < replicas(); ++rank) {
      kinds[piece_sizes(rank)].push_back(rank);
    }
    Folded folded{written(title, replicas() - 1, kept_part_), std::move(stands_for), parts(), spans_, {}, 0, {}};
    for (const auto& [sizes, ranks] : kinds) {
      const bool last = ranks.back() + 1 == replicas();
      const std::optional<Plan> other = last ? std::nullopt : std::optional(written(title, ranks.back(), kept_part_));
      const Plan& one = last ? folded.plan : *other;
      const auto copies = static_cast<std::int64_t>(ranks.size());
      if (folds_.parts && kept_part_ == 0) {
        count(one, copies, folded);
        count(written(title, ranks.back(), 1), copies * (parts() - 1), folded);
      } else {
        count(one, copies * parts(), folded);
      }
      count_shares(one, ranks, folded);
      if (!last) {
        note_memory(one, folded);
      }
    }
    return folded;
  }

 private:
  /// The number of replicas that a device stands for.
  std::uint32_t replicas() const { return folds_.replicas ? static_cast<std::uint32_t>(axes_.dp) : 1; }
  std::int64_t parts() const { return folds_.parts ? axes_.tp : 1; }

  std::int64_t compiled_replicas() const { return folds_.replicas ? 2 : axes_.dp; }
  std::int64_t compiled_parts() const { return folds_.parts ? 2 : axes_.tp; }
  std::int64_t part_of(DeviceId device) const { return static_cast<std::int64_t>(device.index()) % compiled_parts(); }
  std::int64_t replica_of(DeviceId device) const {
    return static_cast<std::int64_t>(device.index()) / compiled_parts() % compiled_replicas();
  }
  /// True if a device of the plan of two is written: of replicas the second, of parts the given one.
  bool is_kept(DeviceId device, std::int64_t part) const {
    return (!folds_.replicas || replica_of(device) == 1) && (!folds_.parts || part_of(device) == part);
  }
  std::int64_t stage_of(DeviceId device) const {
    return static_cast<std::int64_t>(device.index()) / compiled_parts() / compiled_replicas();
  }
  DeviceId kept_device(DeviceId device) const {
    const std::int64_t stage = stage_of(device);
    const std::int64_t replica = folds_.replicas ? 0 : replica_of(device);
    const std::int64_t part = folds_.parts ? 0 : part_of(device);
    return DeviceId(
        static_cast<std::size_t>((stage * (folds_.replicas ? 1 : axes_.dp) + replica) * (folds_.parts ? 1 : axes_.tp) + part));
  }

  /// The axes over which the members of a meeting lie: both replicas, or both parts, which a transfer never has.
  Spans spans_of(std::span<const TaskId> members) const {
    const auto differ = [&](auto place) {
      return std::any_of(members.begin(), members.end(),
                         [&](TaskId member) { return place(two_[member].device) != place(two_[members[0]].device); });
    };
    const bool replicas = folds_.replicas && differ([&](DeviceId device) { return replica_of(device); });
    const bool parts = folds_.parts && differ([&](DeviceId device) { return part_of(device); });
    return replicas && parts ? Spans::both : replicas ? Spans::replicas : parts ? Spans::parts : Spans::nothing;
  }

  /// The number of parts of one stage of a replica in a meeting; 0 if that differs between the stages.
  std::uint32_t parts_in(std::span<const TaskId> members) const {
    std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> count;  // by stage and replica
    for (const TaskId member : members) {
      ++count[{stage_of(two_[member].device), replica_of(two_[member].device)}];
    }
    const bool even = std::all_of(count.begin(), count.end(), [&](const auto& one) { return one.second == count.begin()->second; });
    return even ? count.begin()->second : 0;
  }

  /// True if two devices of the plan of two have the same tasks in the same order: of the tasks that `counts`, compared by `alike`.
  template <typename Counts, typename Alike>
  bool same_tasks(DeviceId first, DeviceId second, Counts counts, Alike alike) const {
    const auto tasks_of = [&](DeviceId device) {
      std::vector<TaskId> list;
      std::copy_if(tasks_[device.index()].begin(), tasks_[device.index()].end(), std::back_inserter(list),
                   [&](TaskId id) { return counts(two_[id]); });
      return list;
    };
    const std::vector<TaskId> a = tasks_of(first);
    const std::vector<TaskId> b = tasks_of(second);
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](TaskId x, TaskId y) {
      const Task& one = two_[x];
      const Task& other = two_[y];
      return one.action.index() == other.action.index() && plan::verb(one) == plan::verb(other) && one.lane == other.lane &&
             one.labels == other.labels && alike(one, other);
    });
  }

  /// True if both replicas have the same tasks in the same order. Updates are left out: only one replica has a piece of a parameter
  /// of one element.
  bool replicas_alike() const {
    const auto counts = [](const Task& task) { return !std::holds_alternative<plan::Update>(task.action); };
    const auto alike = [](const Task& a, const Task& b) {
      return !plan::meeting_of(a).valid() || plan::payload(a).size() == plan::payload(b).size();
    };
    for (std::size_t d = 0; d < two_.devices().size(); ++d) {
      if (replica_of(DeviceId(d)) == 0 &&
          !same_tasks(DeviceId(d), DeviceId(d + static_cast<std::size_t>(compiled_parts())), counts, alike)) {
        return false;
      }
    }
    return true;
  }

  /// True if each rank has a piece on each device, if a collective is for the ranks that have one: of norms and of counts of
  /// gradients that are not finite.
  bool all_ranks_update() const {
    const auto among_updates = [&](const Buffer& buffer) {
      return std::holds_alternative<plan::SquaredNorm>(buffer.content) ||
             std::holds_alternative<plan::NonFiniteCount>(buffer.content);
    };
    if (divided_sizes_.empty() || std::none_of(two_.buffers().begin(), two_.buffers().end(), among_updates)) {
      return true;
    }
    std::vector<std::int64_t> largest(two_.devices().size(), -1);
    for (const Buffer& buffer : two_.buffers()) {
      const auto* part = std::get_if<ParameterPart>(&buffer.content);
      if (part != nullptr && buffer.persistent && buffer.role == plan::Role::parameter) {
        std::int64_t& own = largest[buffer.device.index()];
        own = std::max(own, part->piece_end > 0 ? part->shape().elements() : axes_.dp);
      }
    }
    return std::all_of(largest.begin(), largest.end(), [&](std::int64_t one) { return one < 0 || one >= axes_.dp; });
  }

  bool alike_buffers(std::span<const BufferId> a, std::span<const BufferId> b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](BufferId x, BufferId y) {
      return two_[x].shape == two_[y].shape && two_[x].dtype == two_[y].dtype && two_[x].role == two_[y].role;
    });
  }

  /// True if the two parts have the same tasks over buffers of the same shapes. Of parameters that all parts hold the first one
  /// alone counts the squares that gradients are clipped by, so that it has some of them more: then it is the one that is kept, and
  /// none takes longer.
  bool parts_alike() const {
    const auto counts = [](const Task&) { return true; };
    const auto alike = [&](const Task& a, const Task& b) {
      const bool squares = kept_part_ == 0 && std::holds_alternative<plan::Compute>(a.action) && !a.writes.empty() &&
                           std::holds_alternative<plan::SquaredNorm>(two_[a.writes[0]].content);
      return a.workspace == b.workspace && alike_buffers(a.writes, b.writes) &&
             (squares ? among(b.reads, a.reads) : alike_buffers(a.reads, b.reads));
    };
    for (std::size_t d = 0; d < two_.devices().size(); ++d) {
      if (part_of(DeviceId(d)) == 0 && !same_tasks(DeviceId(d), DeviceId(d + 1), counts, alike)) {
        return false;
      }
    }
    return true;
  }
  /// True if some buffers are like some of the others, in their order.
  bool among(std::span<const BufferId> some, std::span<const BufferId> all) const {
    for (const BufferId one : all) {
      if (!some.empty() && alike_buffers(some.first(1), {&one, 1})) {
        some = some.subspan(1);
      }
    }
    return some.empty();
  }

  /// A rank's number of elements of each size of divided parameter.
  std::vector<std::int64_t> piece_sizes(std::uint32_t rank) const {
    std::vector<std::int64_t> list;
    for (const std::int64_t elements : divided_sizes_) {
      list.push_back(plan::piece_of(elements, rank, replicas()).size());
    }
    return list;
  }

  static void note_memory(const Plan& plan, Folded& folded) {
    const std::vector<Bytes> peak = plan::plan_memory(plan, plan::order(plan)).peak;
    folded.peak_of_others.resize(peak.size());
    for (std::size_t d = 0; d < peak.size(); ++d) {
      folded.peak_of_others[d] = std::max(folded.peak_of_others[d], peak[d]);
    }
  }

  static void count(const Plan& plan, std::int64_t copies, Folded& folded) {
    for (const plan::Totals& device : plan::totals_by_device(plan)) {
      folded.totals += device * copies;
      folded.flops += static_cast<double>(device.work.flops.count) * static_cast<double>(copies);
    }
  }

  /// The rank and size of a collective over a folded axis, as written for one replica and one part.
  struct RankAndSize {
    std::uint32_t rank;
    std::uint32_t size;
  };
  RankAndSize rank_and_size_of(const Collective& collective, std::uint32_t replica, std::uint32_t part) const {
    const auto tp = static_cast<std::uint32_t>(axes_.tp);
    switch (spans_[collective.meeting.index()]) {
      case Spans::replicas: {  // the members of a stage's meeting are in the order of replicas and then of parts
        const std::uint32_t written = parts_of_meeting_[collective.meeting.index()];
        return {(collective.rank / (2 * written) * replicas() + replica) * written + collective.rank % written,
                collective.size / 2 * replicas()};
      }
      case Spans::parts:  // the size of divided tensors' meetings is that of all parts already; that of gradients is two
        return {rank_of_stage(collective) * tp + part, stages_of(collective) * tp};
      case Spans::both:
        return {rank_of_stage(collective) * replicas() * tp + replica * tp + part, stages_of(collective) * replicas() * tp};
      case Spans::nothing:
        break;
    }
    return {collective.rank, collective.size};
  }
  /// The number of stages that have members in a collective between parts, and the number of this one among them.
  std::uint32_t stages_of(const Collective& collective) const {
    const std::size_t of_each = spans_[collective.meeting.index()] == Spans::both ? 4 : 2;
    return static_cast<std::uint32_t>(two_.members(collective.meeting).size() / of_each);
  }
  std::uint32_t rank_of_stage(const Collective& collective) const {
    const std::uint32_t of_each = spans_[collective.meeting.index()] == Spans::both ? 4 : 2;
    return stages_of(collective) == 1 ? 0 : collective.rank / of_each;
  }

  /// Each rank of an all-reduce sums a share. Shares differ by an element if they are uneven; the plan has those of one rank.
  void count_shares(const Plan& plan, const std::vector<std::uint32_t>& ranks, Folded& folded) const {
    for (const Task& task : plan.tasks()) {
      const auto* collective = std::get_if<Collective>(&task.action);
      if (collective == nullptr || collective->kind != plan::Move::all_reduce ||
          spans_[collective->meeting.index()] == Spans::nothing) {
        continue;
      }
      std::int64_t elements = 0;
      std::int64_t width = 0;
      for (const BufferId id : plan::payload(task)) {
        elements += plan[id].shape.elements();
        width = size_of(plan[id].dtype);
      }
      const auto n = static_cast<std::int64_t>(collective->size);
      if (elements % n == 0) {
        continue;
      }
      const std::int64_t counted = plan::piece_of(elements, collective->rank, collective->size).size();
      const std::uint32_t stage = collective->rank / per_stage(*collective);
      std::int64_t more = 0;
      for (const std::uint32_t rank : ranks) {
        for (std::uint32_t part = 0; part < static_cast<std::uint32_t>(parts()); ++part) {
          const std::uint32_t own = stage * per_stage(*collective) + local_rank(*collective, rank, part);
          more += plan::piece_of(elements, own, collective->size).size() - counted;
        }
      }
      folded.totals.work.flops += Flops((n - 1) * more);
      folded.flops += static_cast<double>((n - 1) * more);
      folded.totals.work.sent += Bytes((n - 2) * more * width);
      folded.totals.work.received += Bytes((n - 2) * more * width);
    }
  }
  std::uint32_t per_stage(const Collective& collective) const {
    const Spans spans = spans_[collective.meeting.index()];
    const auto tp = static_cast<std::uint32_t>(axes_.tp);
    return spans == Spans::replicas ? replicas() * parts_of_meeting_[collective.meeting.index()]
           : spans == Spans::parts  ? tp
                                    : replicas() * tp;
  }
  std::uint32_t local_rank(const Collective& collective, std::uint32_t replica, std::uint32_t part) const {
    const Spans spans = spans_[collective.meeting.index()];
    const std::uint32_t written = parts_of_meeting_[collective.meeting.index()];
    return spans == Spans::replicas ? replica * written + collective.rank % written
           : spans == Spans::parts  ? part
                                    : replica * static_cast<std::uint32_t>(axes_.tp) + part;
  }

  /// The plan of the kept device out of the plan of two, with the pieces of that rank. `kept`: the number of the part, if parts are
  /// folded.
  Plan written(const std::string& title, std::uint32_t rank, std::int64_t kept) const {
    std::vector<BufferId> buffer_of(two_.buffers().size());  // invalid: not written
    plan::Draft draft;
    draft.title = title;
    draft.devices = names_;
    for (std::size_t b = 0; b < two_.buffers().size(); ++b) {
      if (!is_kept(two_.buffers()[b].device, kept)) {
        continue;
      }
      Buffer buffer = two_.buffers()[b];
      buffer.device = kept_device(buffer.device);
      if (auto* part = std::get_if<ParameterPart>(&buffer.content); folds_.replicas && part != nullptr && part->piece_end > 0) {
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
    draft.tasks = written_tasks(rank, kept, buffer_of);
    draft.graph = two_.graph();
    return plan::finish(std::move(draft));  // connects the predecessors and successors of tasks that are left out
  }

  std::vector<Task> written_tasks(std::uint32_t rank, std::int64_t part, const std::vector<BufferId>& buffer_of) const {
    std::vector<Task> tasks;
    std::vector<TaskId> kept(two_.tasks().size());
    for (std::size_t t = 0; t < two_.tasks().size(); ++t) {
      if (!is_kept(two_.tasks()[t].device, part)) {
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
      if (writes && task.writes.empty() && (collective == nullptr || task.reads.empty())) {
        continue;  // an update, or a sum, of pieces that are empty here
      }
      std::transform(task.after.begin(), task.after.end(), task.after.begin(), [&](TaskId id) { return kept[id.index()]; });
      std::erase_if(task.after, [](TaskId id) { return !id.valid(); });
      if (auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
        transfer->peer = kept_device(transfer->peer);
      } else if (collective != nullptr) {
        const RankAndSize place = rank_and_size_of(*collective, rank, static_cast<std::uint32_t>(axes_.tp - 1));
        collective->size = place.size;
        collective->rank = place.rank;
      }
      kept[t] = TaskId(tasks.size());
      tasks.push_back(std::move(task));
    }
    return tasks;
  }

  const Plan& two_;
  const Axes& axes_;
  Folds folds_;
  const cluster::Cluster& cluster_;
  std::int64_t kept_part_;                       // the kept one of the two parts
  std::vector<std::vector<TaskId>> tasks_;       // by device
  std::vector<Spans> spans_;                     // by meeting
  std::vector<std::uint32_t> parts_of_meeting_;  // by meeting: of one stage and replica
  std::vector<std::string> names_;               // names of the devices that are written
  std::set<std::int64_t> divided_sizes_;         // sizes of the parameters that are kept in pieces
};

std::optional<Folded> fold_by(const Request& request, const Axes& axes, const Folds& folds) {
  if (!nodes_alike(request.cluster, axes, folds)) {
    return std::nullopt;
  }
  std::vector<cluster::Device> devices;
  for (std::int64_t p = 0; p < axes.pp; ++p) {
    for (std::int64_t d = 0; d < (folds.replicas ? 2 : axes.dp); ++d) {
      for (std::int64_t t = 0; t < (folds.parts ? 2 : axes.tp); ++t) {
        devices.push_back(request.cluster.device(axes.device(p, d, t)));
      }
    }
  }
  const cluster::Cluster some(std::move(devices), request.cluster.emulated_link(), request.cluster.wiring());
  Request two{.model = request.model,
              .cluster = some,
              .strategy = request.strategy,
              .step = request.step,
              .layout = request.layout,
              .target = request.target,
              .delays = request.delays,
              .written_parts = folds.parts ? 2 : 0};
  if (folds.replicas) {
    two.step.global_batch = request.step.global_batch / axes.dp * 2;
  }
  two.layout.dp = folds.replicas ? 2 : axes.dp;
  two.layout.pp = axes.pp;
  two.layout.tp = axes.tp;
  two.layout.micro_batches = schedule::micro_batches(*grid_of(request));
  const Plan both = compile(two);
  Folder folder(both, axes, folds, request.cluster, op::clip_of(request.step.optimizer) > 0);
  if (!folder.is_simple()) {
    return std::nullopt;
  }
  // The plan of one replica alone cannot be checked against the model.
  plan::require(plan::verify(both, {.alike_parts = folds.parts ? axes.tp : 0}));
  return folder.fold(title_of(request));
}

}  // namespace

std::optional<Folded> fold(const Request& request) {
  if (request.strategy.layout() == nullptr) {
    return std::nullopt;
  }
  refuse_uncountable(request);  // the plan that is compiled below is a part of it
  const Axes axes = *axes_of(request);
  const bool everywhere = std::all_of(request.delays.begin(), request.delays.end(),
                                      [](const DelayRequest& delay) { return delay.device < 0; });
  const bool replicas = everywhere && axes.dp > 2 && request.step.global_batch % axes.dp == 0;
  const bool parts = everywhere && axes.tp > 2 && parts_even(request.model, axes, request.layout.sp);
  std::vector<Folds> ways;
  if (replicas && parts) {
    ways.push_back({true, true});
  }
  if (replicas) {
    ways.push_back({true, false});
  }
  if (parts) {
    ways.push_back({false, true});
  }
  for (const Folds& folds : ways) {
    if (std::optional<Folded> folded = fold_by(request, axes, folds)) {
      return folded;
    }
  }
  return std::nullopt;
}

}  // namespace baton::strategy
