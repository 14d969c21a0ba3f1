#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "baton/base/error.h"
#include "baton/op/traits.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Collective;
using plan::Draft;
using plan::ParameterPart;
using plan::Role;
using plan::Task;

/// Tasks that belong together: the use of a block's parameters in one phase of one micro-batch.
struct Use {
  std::int32_t block;
  plan::Phase phase;
  std::int32_t micro_batch;
  auto operator<=>(const Use&) const = default;
};

Use use_of(const Task& task) { return {task.labels.block, task.labels.phase, task.labels.micro_batch}; }

/// One device's run of tasks that read the parameters of a block.
struct Segment {
  Use use;
  std::vector<std::size_t> tasks;
  std::vector<BufferId> parameters;  // in order of their ordinals
};

/// Facts about the whole draft before its groups of replicas are divided. Each buffer and each task is of one group.
struct Division {
  Division(const Draft& draft, const Replication& replication)
      : layouts(replication.parameters),
        rank_of(draft.devices.size(), 0),
        parameters(replication.groups.size()),
        tasks(replication.groups.size()),
        insertions(draft.tasks.size() + 1),
        divided(draft.buffers.size(), false),
        pieces(draft.buffers.size()),
        written(draft.buffers.size(), false),
        last_writer(draft.buffers.size(), 0) {
    std::vector<std::size_t> group_of(draft.devices.size(), 0);
    for (std::size_t g = 0; g < replication.groups.size(); ++g) {
      for (std::size_t rank = 0; rank < replication.groups[g].size(); ++rank) {
        group_of[replication.groups[g][rank].index()] = g;
        rank_of[replication.groups[g][rank].index()] = static_cast<std::uint32_t>(rank);
      }
    }
    for (std::size_t b = 0; b < draft.buffers.size(); ++b) {
      if (draft.buffers[b].role == Role::parameter && draft.buffers[b].persistent) {
        parameters[group_of[draft.buffers[b].device.index()]].push_back(BufferId(b));
      }
    }
    for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
      tasks[group_of[draft.tasks[i].device.index()]].push_back(i);
      for (const BufferId id : draft.tasks[i].writes) {
        last_writer[id.index()] = i;
      }
    }
  }

  bool is_divided(BufferId id) const { return id.index() < divided.size() && divided[id.index()]; }

  const std::vector<ParameterLayout>& layouts;    // by ordinal
  std::vector<std::uint32_t> rank_of;             // by device: its place in its group
  std::vector<std::vector<BufferId>> parameters;  // by group: those that live on
  std::vector<std::vector<std::size_t>> tasks;    // by group
  std::vector<std::vector<Task>> insertions;      // the tasks inserted after each task (Draft::rearrange)
  std::vector<bool> divided;                      // by buffer: whether it is a parameter that is kept in pieces
  std::vector<BufferId> pieces;                   // by buffer: the piece of such a parameter; not valid if its device has none
  std::vector<bool> written;                      // by buffer: whether a task that was looked at writes it
  std::vector<std::size_t> last_writer;           // by buffer
};

/// Shards the buffers that the replicas of one group hold.
class Divider {
 public:
  Divider(Draft& draft, Division& division, const std::vector<DeviceId>& group, std::size_t number)
      : draft_(draft),
        division_(division),
        layouts_(division.layouts),
        group_(group),
        tasks_(division.tasks[number]),
        parameters_(division.parameters[number]) {}

  void divide() {
    divide_parameters();
    gather_for_each_use();
    gather_at_start();
    scatter_gradients();
  }

 private:
  std::uint32_t size() const { return static_cast<std::uint32_t>(group_.size()); }
  std::uint32_t rank_of(DeviceId device) const { return division_.rank_of[device.index()]; }
  /// The index of an entry in a table by rank and ordinal.
  std::size_t entry(std::uint32_t rank, std::uint32_t ordinal) const { return rank * layouts_.size() + ordinal; }
  std::size_t entries() const { return size() * layouts_.size(); }

  /// The piece of a buffer that a rank holds; not valid if it is empty.
  BufferId add_piece(BufferId whole, std::uint32_t rank, bool persistent) {
    const plan::Piece piece = plan::piece_of(draft_[whole].shape.elements(), rank, size());
    if (piece.size() == 0) {
      return {};
    }
    Buffer buffer = draft_[whole];
    auto& part = std::get<ParameterPart>(buffer.content);
    part.piece_begin = piece.begin;
    part.piece_end = piece.end;
    buffer.shape = Shape{piece.size()};
    buffer.persistent = persistent;
    buffer.label = fmt::format("piece {} of {}", rank, buffer.label);
    return draft_.add(std::move(buffer));
  }

  static std::uint32_t ordinal_of(const Buffer& buffer) { return std::get<ParameterPart>(buffer.content).ordinal; }
  const ParameterLayout& layout(BufferId id) const { return layouts_[ordinal_of(draft_[id])]; }

  void divide_parameters() {
    std::vector<std::vector<BufferId>> parameters(size());
    for (const BufferId id : parameters_) {
      if (layout(id).use == Conversion::all_gather) {
        parameters[rank_of(draft_[id].device)].push_back(id);
      }
    }
    whole_of_.resize(entries());
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      for (const BufferId id : parameters[rank]) {
        draft_.buffers[id.index()].persistent = false;
        whole_of_[entry(rank, ordinal_of(draft_[id]))] = id;
        division_.divided[id.index()] = true;
        division_.pieces[id.index()] = add_piece(id, rank, true);
      }
    }
  }

  /// One member's task of a collective on pieces. A rank without a share has no pieces, but takes part.
  Task member(plan::Move kind, MeetingId meeting, std::uint32_t rank, const plan::Labels& labels, std::vector<BufferId> whole,
              std::vector<BufferId> held, bool accumulate) const {
    std::erase_if(held, [](BufferId piece) { return !piece.valid(); });
    Task task{.action = Collective{kind, meeting, rank, size(), 0, accumulate},
              .device = group_[rank],
              .lane = plan::Lane::communication,
              .labels = labels,
              .reads = {},
              .writes = {},
              .after = {}};
    if (kind == plan::Move::all_gather) {
      task.reads = std::move(held);
      task.writes = std::move(whole);
    } else {
      task.reads = std::move(whole);
      if (accumulate) {
        task.reads.insert(task.reads.end(), held.begin(), held.end());
      }
      task.writes = std::move(held);
    }
    return task;
  }

  std::vector<BufferId> pieces_of(const std::vector<BufferId>& whole) const {
    std::vector<BufferId> pieces;
    pieces.reserve(whole.size());
    for (const BufferId id : whole) {
      pieces.push_back(division_.pieces[id.index()]);
    }
    return pieces;
  }

  /// Blocks in the order in which the group's first device uses them, each with its parameters by ordinal.
  void gather_at_start() {
    std::vector<std::int32_t> order;
    std::map<std::int32_t, std::set<std::uint32_t>> ordinals;
    std::map<std::uint32_t, std::int32_t> first_user;  // block by ordinal
    for (const std::size_t i : tasks_) {
      const Task& task = draft_.tasks[i];
      if (task.device != group_[0]) {
        continue;
      }
      for (const BufferId id : task.reads) {
        if (division_.is_divided(id) && !layout(id).each_use) {
          // One that several blocks share is gathered with the first that uses it.
          const std::int32_t block = first_user.try_emplace(ordinal_of(draft_[id]), task.labels.block).first->second;
          if (!ordinals.contains(block)) {
            order.push_back(block);
          }
          ordinals[block].insert(ordinal_of(draft_[id]));
        }
      }
    }
    for (const std::int32_t block : order) {
      const MeetingId meeting = draft_.new_meeting();
      for (std::uint32_t rank = 0; rank < size(); ++rank) {
        std::vector<BufferId> whole;
        for (const std::uint32_t ordinal : ordinals[block]) {
          whole.push_back(whole_of_[entry(rank, ordinal)]);
        }
        std::vector<BufferId> pieces = pieces_of(whole);
        division_.insertions[0].push_back(member(plan::Move::all_gather, meeting, rank,
                                                 {.phase = plan::Phase::forward, .block = block}, std::move(whole),
                                                 std::move(pieces), false));
      }
    }
  }

  /// By rank: the uses that a device makes of parameters, in order.
  std::vector<std::vector<Segment>> segments() const {
    std::vector<std::vector<Segment>> lists(size());
    for (const std::size_t i : tasks_) {
      const Task& task = draft_.tasks[i];
      std::vector<Segment>& list = lists[rank_of(task.device)];
      for (const BufferId id : task.reads) {
        if (!division_.is_divided(id) || !layout(id).each_use) {
          continue;
        }
        if (list.empty() || list.back().use != use_of(task)) {
          list.push_back({use_of(task), {}, {}});
        }
        Segment& segment = list.back();
        if (segment.tasks.empty() || segment.tasks.back() != i) {
          segment.tasks.push_back(i);
        }
        if (std::find(segment.parameters.begin(), segment.parameters.end(), id) == segment.parameters.end()) {
          segment.parameters.push_back(id);
        }
      }
    }
    for (std::vector<Segment>& list : lists) {
      for (Segment& segment : list) {
        std::sort(segment.parameters.begin(), segment.parameters.end(),
                  [&](BufferId a, BufferId b) { return ordinal_of(draft_[a]) < ordinal_of(draft_[b]); });
      }
    }
    return lists;
  }

  /// A gather for each use, begun while the use before it computes, and not before the one before that is over: two blocks'
  /// parameters are whole at a time.
  void gather_for_each_use() {
    const std::vector<std::vector<Segment>> uses = segments();
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      check(uses[rank].size() == uses[0].size(), "devices of a group use parameters {} and {} times", uses[rank].size(),
            uses[0].size());
    }
    for (std::size_t s = 0; s < uses[0].size(); ++s) {
      const MeetingId meeting = draft_.new_meeting();
      for (std::uint32_t rank = 0; rank < size(); ++rank) {
        check(uses[rank][s].use == uses[0][s].use, "devices of a group use parameters in different orders");
        std::size_t at = uses[rank][s == 0 ? 0 : s - 1].tasks.front();
        if (s > 1) {  // no task may wait for one that stands after it
          at = std::max(at, uses[rank][s - 2].tasks.back() + 1);
        }
        const Segment& segment = uses[rank][s];
        std::vector<BufferId> copies;
        copies.reserve(segment.parameters.size());
        for (const BufferId id : segment.parameters) {
          copies.push_back(draft_.add(Buffer(draft_[id])));
          for (const std::size_t task : segment.tasks) {
            std::replace(draft_.tasks[task].reads.begin(), draft_.tasks[task].reads.end(), id, copies.back());
          }
        }
        const Use& use = segment.use;
        Task task = member(plan::Move::all_gather, meeting, rank,
                           {.phase = use.phase,
                            .block = use.block,
                            .micro_batch = use.micro_batch,
                            .stage = draft_.tasks[segment.tasks[0]].labels.stage},
                           std::move(copies), pieces_of(segment.parameters), false);
        if (s > 1) {
          task.after = {TaskId(uses[rank][s - 2].tasks.back())};
        }
        division_.insertions[at].push_back(std::move(task));
      }
    }
  }

  /// The gradients of one reduce-scatter: those that a block's parameters got in one micro-batch.
  struct GradientBatch {
    struct Gradient {
      std::uint32_t ordinal;
      BufferId id;
    };
    plan::Labels labels;
    std::vector<std::vector<Gradient>> by_rank;  // in order of ordinals
    std::vector<std::size_t> end_of_writes;      // by rank: the task that writes the last of them

    void put(std::uint32_t rank, std::uint32_t ordinal, BufferId id) {
      std::vector<Gradient>& list = by_rank[rank];
      const auto at = std::lower_bound(list.begin(), list.end(), ordinal,
                                       [](const Gradient& one, std::uint32_t wanted) { return one.ordinal < wanted; });
      if (at != list.end() && at->ordinal == ordinal) {
        at->id = id;
      } else {
        list.insert(at, {ordinal, id});
      }
    }
  };

  void scatter_gradients() {
    // Gradients that are not kept in pieces add up over micro-batches and are scattered once; of others each micro-batch's own are.
    // Gradients that add to pieces are scattered separately from those that start them: a block that shares a parameter has both.
    using Key = std::tuple<std::int32_t, std::int32_t, bool, int>;  // block, micro-batch, whether it adds, which of several
    struct Start {
      bool found = false;
      Use last{};
      int several = 0;  // the number of times of that use
    };
    std::map<Key, GradientBatch> batches;
    std::vector<std::pair<const Key, GradientBatch>*> order;
    std::vector<Start> starts(entries());
    for (const std::size_t i : tasks_) {
      Task& task = draft_.tasks[i];
      const std::uint32_t rank = rank_of(task.device);
      for (BufferId& id : task.writes) {
        const auto* part = std::get_if<ParameterPart>(&draft_[id].content);
        if (part == nullptr || draft_[id].role != Role::gradient || layout(id).gradient != Conversion::reduce_scatter) {
          continue;
        }
        const std::uint32_t ordinal = part->ordinal;
        const bool each = layout(id).each_micro_batch;
        if (!each && draft_.tasks[division_.last_writer[id.index()]].labels.block != task.labels.block) {
          continue;  // the other block that shares it will be the one
        }
        if (each && division_.written[id.index()]) {
          separate(task, id);
        } else {
          division_.written[id.index()] = true;
        }
        Start& start = starts[entry(rank, ordinal)];
        const bool first = !std::exchange(start.found, true);
        start.several = !each || first || start.last != use_of(task) ? 0 : start.several + 1;
        start.last = use_of(task);
        const auto [batch, added] = batches.try_emplace(
            Key(task.labels.block, each ? task.labels.micro_batch : 0, each && !first, start.several));
        if (added) {
          order.push_back(&*batch);
          batch->second.by_rank.resize(size());
          batch->second.end_of_writes.resize(size(), 0);
        }
        batch->second.end_of_writes[rank] = i + 1;
        batch->second.labels = task.labels;
        batch->second.put(rank, ordinal, id);
      }
    }
    std::vector<Kept> kept(entries());
    // By block and micro-batch, and rank: scatters that add come after those that start a piece.
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::size_t>> end_of_writes;
    for (auto* const one : order) {
      const auto& [block, micro_batch, adds, several] = one->first;
      std::vector<std::size_t>& last_of = end_of_writes.try_emplace({block, micro_batch}, size(), 0).first->second;
      for (std::uint32_t rank = 0; rank < size(); ++rank) {
        last_of[rank] = std::max(last_of[rank], one->second.end_of_writes[rank]);
        one->second.end_of_writes[rank] = adds || several > 0 ? last_of[rank] : one->second.end_of_writes[rank];
      }
      scatter(one->second, kept);
    }
  }

  /// Makes a task that adds to a gradient write one of its own.
  void separate(Task& task, BufferId& id) {
    const BufferId whole = id;
    Buffer own = draft_[whole];
    id = draft_.add(std::move(own));
    std::erase(task.reads, whole);
    auto& compute = std::get<plan::Compute>(task.action);
    compute.op = op::accumulating(compute.op, false);
  }

  /// The piece of a gradient that a device keeps, once there is one.
  struct Kept {
    bool found = false;
    BufferId piece;
  };

  void scatter(const GradientBatch& batch, std::vector<Kept>& kept) {
    const MeetingId meeting = draft_.new_meeting();
    bool accumulate = false;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      std::vector<BufferId> whole;
      std::vector<BufferId> pieces;
      for (const auto& [ordinal, id] : batch.by_rank[rank]) {
        Kept& own = kept[entry(rank, ordinal)];
        if (rank == 0) {
          accumulate = own.found;
        }
        if (!std::exchange(own.found, true)) {
          own.piece = add_piece(id, rank, false);
        }
        whole.push_back(id);
        pieces.push_back(own.piece);
      }
      division_.insertions[batch.end_of_writes[rank]].push_back(
          member(plan::Move::reduce_scatter, meeting, rank, batch.labels, std::move(whole), std::move(pieces), accumulate));
    }
  }

  Draft& draft_;
  Division& division_;
  const std::vector<ParameterLayout>& layouts_;  // by ordinal
  const std::vector<DeviceId>& group_;
  const std::vector<std::size_t>& tasks_;    // the tasks of the group
  const std::vector<BufferId>& parameters_;  // the parameters of the group
  std::vector<BufferId> whole_of_;           // by rank and ordinal
};

/// Makes gradients wait until those before the last ones are scattered, on each device: at most whole gradients of two blocks exist
/// at a time, however slow communication is.
void bound_whole_gradients(Draft& draft) {
  std::vector<std::size_t> written(draft.buffers.size(), 0);  // the place of the task that wrote a buffer last
  struct Scatters {
    std::size_t count = 0;
    std::size_t last = 0;
    std::size_t before_last = 0;
  };
  std::vector<Scatters> scatters(draft.devices.size());
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    for (const BufferId id : draft.tasks[i].writes) {
      written[id.index()] = i;
    }
    const auto* collective = std::get_if<Collective>(&draft.tasks[i].action);
    if (collective == nullptr || collective->kind != plan::Move::reduce_scatter ||
        !std::holds_alternative<ParameterPart>(draft[draft.tasks[i].reads[0]].content)) {
      continue;
    }
    Scatters& before = scatters[draft.tasks[i].device.index()];
    if (before.count >= 2) {
      std::size_t first = i;
      for (const BufferId id : plan::payload(draft.tasks[i])) {
        first = std::min(first, written[id.index()]);
      }
      if (before.before_last < first) {
        draft.tasks[first].after.push_back(TaskId(before.before_last));
      }
    }
    before = {before.count + 1, i, before.last};
  }
}

}  // namespace

plan::Draft divide_over_replicas(plan::Draft draft, const Replication& replication) {
  const std::vector<ParameterLayout>& layouts = replication.parameters;
  const auto any = [&](auto asks) { return std::any_of(layouts.begin(), layouts.end(), asks); };
  if (!any([](const ParameterLayout& one) { return one.gradient == Conversion::reduce_scatter; })) {
    return draft;
  }
  Division division(draft, replication);
  for (std::size_t g = 0; g < replication.groups.size(); ++g) {
    Divider(draft, division, replication.groups[g], g).divide();
  }
  // Inserted tasks refer to others by their current places.
  draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(division.insertions));
  if (any([](const ParameterLayout& one) { return one.each_micro_batch; })) {
    bound_whole_gradients(draft);
  }
  return draft;
}

}  // namespace baton::strategy
