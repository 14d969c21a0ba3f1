#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

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

/// Tasks that belong together: what one block does with its parameters in one phase of one micro-batch.
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

class Divider {
 public:
  Divider(Draft& draft, const std::vector<ParameterLayout>& layouts, const std::vector<DeviceId>& group,
          std::vector<std::vector<Task>>& behind)
      : draft_(draft), layouts_(layouts), group_(group), behind_(behind), rank_of_(draft.devices.size(), size()) {
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      rank_of_[group_[rank].index()] = rank;
    }
  }

  void divide() {
    divide_parameters();
    gather_for_each_use();
    gather_at_start();
    scatter_gradients();
  }

 private:
  std::uint32_t size() const { return static_cast<std::uint32_t>(group_.size()); }
  /// `size()` of a device that is not in the group.
  std::uint32_t rank_of(DeviceId device) const { return rank_of_[device.index()]; }

  /// The piece of a buffer that falls to a rank; none where that is nothing.
  std::optional<BufferId> add_piece(BufferId whole, std::uint32_t rank, bool persistent) {
    const plan::Piece piece = plan::piece_of(draft_[whole].shape.elements(), rank, size());
    if (piece.size() == 0) {
      return std::nullopt;
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
    for (std::size_t b = 0; b < draft_.buffers.size(); ++b) {
      const Buffer& buffer = draft_.buffers[b];
      if (const std::uint32_t rank = rank_of(buffer.device); rank < size() && buffer.role == Role::parameter && buffer.persistent &&
                                                             layout(BufferId(b)).use == Conversion::all_gather) {
        parameters[rank].push_back(BufferId(b));
      }
    }
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      for (const BufferId id : parameters[rank]) {
        draft_.buffers[id.index()].persistent = false;
        whole_of_[{rank, ordinal_of(draft_[id])}] = id;
        piece_of_[id] = add_piece(id, rank, true);
      }
    }
  }

  /// One member's task of a collective on pieces. A rank to whom nothing falls has no pieces, but takes part.
  Task member(plan::Move kind, MeetingId meeting, std::uint32_t rank, const plan::Labels& labels, std::vector<BufferId> whole,
              const std::vector<std::optional<BufferId>>& pieces, bool accumulate) const {
    std::vector<BufferId> held;
    for (const std::optional<BufferId>& piece : pieces) {
      if (piece) {
        held.push_back(*piece);
      }
    }
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

  std::vector<std::optional<BufferId>> pieces_of(const std::vector<BufferId>& whole) const {
    std::vector<std::optional<BufferId>> pieces;
    for (const BufferId id : whole) {
      pieces.push_back(piece_of_.at(id));
    }
    return pieces;
  }

  /// Blocks in the order in which the group's first device uses them, each with its parameters by ordinal.
  void gather_at_start() {
    std::vector<std::int32_t> order;
    std::map<std::int32_t, std::set<std::uint32_t>> ordinals;
    std::map<std::uint32_t, std::int32_t> first_user;  // block by ordinal
    for (const Task& task : draft_.tasks) {
      for (const BufferId id : task.reads) {
        if (task.device == group_[0] && piece_of_.contains(id) && !layout(id).each_use) {
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
          whole.push_back(whole_of_.at({rank, ordinal}));
        }
        const auto pieces = pieces_of(whole);
        behind_[0].push_back(member(plan::Move::all_gather, meeting, rank, {.phase = plan::Phase::forward, .block = block},
                                    std::move(whole), pieces, false));
      }
    }
  }

  /// By rank: the uses that a device makes of parameters, in order.
  std::vector<std::vector<Segment>> segments() const {
    std::vector<std::vector<Segment>> lists(size());
    for (std::size_t i = 0; i < draft_.tasks.size(); ++i) {
      const Task& task = draft_.tasks[i];
      if (rank_of(task.device) == size()) {
        continue;
      }
      std::vector<Segment>& list = lists[rank_of(task.device)];
      for (const BufferId id : task.reads) {
        if (!piece_of_.contains(id) || !layout(id).each_use) {
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
      std::size_t at = draft_.tasks.size();
      for (std::uint32_t rank = 0; rank < size(); ++rank) {
        check(uses[rank][s].use == uses[0][s].use, "devices of a group use parameters in different orders");
        at = std::min(at, s == 0 ? uses[rank][0].tasks.front() : uses[rank][s - 1].tasks.front());
      }
      if (s > 1) {  // no task may wait for one that stands behind it
        for (std::uint32_t rank = 0; rank < size(); ++rank) {
          at = std::max(at, uses[rank][s - 2].tasks.back() + 1);
        }
      }
      for (std::uint32_t rank = 0; rank < size(); ++rank) {
        const Segment& segment = uses[rank][s];
        std::vector<BufferId> copies;
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
                           copies, pieces_of(segment.parameters), false);
        if (s > 1) {
          task.after = {TaskId(uses[rank][s - 2].tasks.back())};
        }
        behind_[at].push_back(std::move(task));
      }
    }
  }

  /// What one reduce-scatter takes: the gradients that a block's parameters got in one micro-batch, by rank and ordinal.
  struct Harvest {
    std::size_t behind = 0;
    plan::Labels labels;
    std::vector<std::map<std::uint32_t, BufferId>> by_rank;
  };

  void scatter_gradients() {
    // Gradients that are not kept in pieces add up over micro-batches and are scattered once; of others each micro-batch's own are.
    // What adds to pieces that are there is scattered apart from what starts them: a block that shares a parameter has both.
    using Key = std::tuple<std::int32_t, std::int32_t, bool, int>;  // block, micro-batch, whether it adds, which of several
    std::map<Key, Harvest> harvests;
    std::vector<Key> order;
    std::set<BufferId> written;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<Use, int>>
        started;  // by rank and ordinal: the last use, and how often
    const std::map<BufferId, std::size_t> last = last_writers();
    for (std::size_t i = 0; i < draft_.tasks.size(); ++i) {
      Task& task = draft_.tasks[i];
      const std::uint32_t rank = rank_of(task.device);
      if (rank == size()) {
        continue;
      }
      for (BufferId& id : task.writes) {
        const auto* part = std::get_if<ParameterPart>(&draft_[id].content);
        if (part == nullptr || draft_[id].role != Role::gradient || layout(id).gradient != Conversion::reduce_scatter) {
          continue;
        }
        const std::uint32_t ordinal = part->ordinal;
        const bool each = layout(id).each_micro_batch;
        if (!each && draft_.tasks[last.at(id)].labels.block != task.labels.block) {
          continue;  // the other block that shares it will be the one
        }
        if (each && !written.insert(id).second) {
          separate(task, id);
        }
        const auto [start, first] = started.try_emplace({rank, ordinal}, use_of(task), 0);
        const int several = !each || first || start->second.first != use_of(task) ? 0 : start->second.second + 1;
        start->second = {use_of(task), several};
        const Key key(task.labels.block, each ? task.labels.micro_batch : 0, each && !first, several);
        if (!harvests.contains(key)) {
          order.push_back(key);
          harvests[key].by_rank.resize(size());
        }
        Harvest& harvest = harvests[key];
        harvest.behind = i + 1;
        harvest.labels = task.labels;
        harvest.by_rank[rank][ordinal] = id;
      }
    }
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::optional<BufferId>> pieces;  // by rank and ordinal
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t>
        behind;  // by block and micro-batch: what adds comes after what starts
    for (const Key& key : order) {
      std::size_t& last_of = behind[{std::get<0>(key), std::get<1>(key)}];
      last_of = std::max(last_of, harvests[key].behind);
      harvests[key].behind = std::get<2>(key) || std::get<3>(key) > 0 ? last_of : harvests[key].behind;
      scatter(harvests[key], pieces);
    }
  }

  /// The task that writes each gradient of a parameter last.
  std::map<BufferId, std::size_t> last_writers() const {
    std::map<BufferId, std::size_t> last;
    const bool once = std::any_of(layouts_.begin(), layouts_.end(),
                                  [](const ParameterLayout& one) { return !one.each_micro_batch; });
    for (std::size_t i = 0; once && i < draft_.tasks.size(); ++i) {
      if (rank_of(draft_.tasks[i].device) < size()) {
        for (const BufferId id : draft_.tasks[i].writes) {
          last[id] = i;
        }
      }
    }
    return last;
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

  void scatter(const Harvest& harvest, std::map<std::pair<std::uint32_t, std::uint32_t>, std::optional<BufferId>>& kept) {
    const MeetingId meeting = draft_.new_meeting();
    bool accumulate = false;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      std::vector<BufferId> whole;
      std::vector<std::optional<BufferId>> pieces;
      for (const auto& [ordinal, id] : harvest.by_rank[rank]) {
        const auto found = kept.find({rank, ordinal});
        if (rank == 0) {
          accumulate = found != kept.end();
        }
        if (found == kept.end()) {
          kept[{rank, ordinal}] = add_piece(id, rank, false);
        }
        whole.push_back(id);
        pieces.push_back(kept[{rank, ordinal}]);
      }
      behind_[harvest.behind].push_back(
          member(plan::Move::reduce_scatter, meeting, rank, harvest.labels, std::move(whole), pieces, accumulate));
    }
  }

  Draft& draft_;
  const std::vector<ParameterLayout>& layouts_;  // by ordinal
  const std::vector<DeviceId>& group_;
  std::vector<std::vector<Task>>& behind_;
  std::vector<std::uint32_t> rank_of_;                                    // by device
  std::map<std::pair<std::uint32_t, std::uint32_t>, BufferId> whole_of_;  // by rank and ordinal
  std::map<BufferId, std::optional<BufferId>> piece_of_;                  // of a whole parameter
};

/// Makes gradients wait until those before the last ones are scattered, on each device: whole gradients of two blocks are there
/// at a time, however far communication lags behind.
void bound_whole_gradients(Draft& draft) {
  std::map<BufferId, std::size_t> written;  // where the task stands that wrote a buffer last
  std::map<DeviceId, std::vector<std::size_t>> scatters;
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    for (const BufferId id : draft.tasks[i].writes) {
      written[id] = i;
    }
    const auto* collective = std::get_if<Collective>(&draft.tasks[i].action);
    if (collective == nullptr || collective->kind != plan::Move::reduce_scatter ||
        !std::holds_alternative<ParameterPart>(draft[draft.tasks[i].reads[0]].content)) {
      continue;
    }
    std::vector<std::size_t>& before = scatters[draft.tasks[i].device];
    if (before.size() >= 2) {
      std::size_t first = i;
      for (const BufferId id : plan::payload(draft.tasks[i])) {
        first = std::min(first, written.at(id));
      }
      const std::size_t awaited = before[before.size() - 2];
      if (awaited < first) {
        draft.tasks[first].after.push_back(TaskId(awaited));
      }
    }
    before.push_back(i);
  }
}

}  // namespace

plan::Draft divide_over_replicas(plan::Draft draft, const Replication& replication) {
  const std::vector<ParameterLayout>& layouts = replication.parameters;
  const auto any = [&](auto asks) { return std::any_of(layouts.begin(), layouts.end(), asks); };
  if (!any([](const ParameterLayout& one) { return one.gradient == Conversion::reduce_scatter; })) {
    return draft;
  }
  std::vector<std::vector<Task>> behind(draft.tasks.size() + 1);
  for (const std::vector<DeviceId>& group : replication.groups) {
    Divider(draft, layouts, group, behind).divide();
  }
  // Tasks put in name others by the places they have now.
  draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(behind));
  if (any([](const ParameterLayout& one) { return one.each_micro_batch; })) {
    bound_whole_gradients(draft);
  }
  return draft;
}

}  // namespace baton::strategy
