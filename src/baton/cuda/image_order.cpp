#include "baton/cuda/image_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

namespace baton::cuda {
namespace {

using plan::Plan;
using plan::Task;

template <typename AnyOp>
const AnyOp* op_of(const Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  return compute == nullptr ? nullptr : std::get_if<AnyOp>(&compute->op);
}

/// Buffers whose images must have the same order, and those that must have the usual one.
class Agreements {
 public:
  explicit Agreements(const Plan& plan) : parent_(plan.buffers().size()), fixed_(parent_.size()), wanted_(parent_.size()) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    for (std::size_t b = 0; b < parent_.size(); ++b) {
      const plan::Buffer& buffer = plan.buffers()[b];
      fixed_[b] = buffer.shape.rank() != 4 || buffer.persistent || !is_narrow(buffer.dtype) ||
                  buffer.shape[1] % whole_channels != 0 || !buffer.layout.empty();
    }
  }

  std::size_t root(std::size_t b) {
    while (parent_[b] != b) {
      b = parent_[b] = parent_[parent_[b]];
    }
    return b;
  }
  void fix(BufferId id) { fixed_[root(id.index())] = true; }
  void want(BufferId id) { wanted_[root(id.index())] = true; }
  void join(BufferId a, BufferId b) {
    const std::size_t to = root(a.index());
    const std::size_t from = root(b.index());
    parent_[from] = to;
    fixed_[to] = fixed_[to] || fixed_[from];
    wanted_[to] = wanted_[to] || wanted_[from];
  }
  void join_all(const Task& task, std::size_t reads) {
    for (std::size_t i = 0; i < reads; ++i) {
      join(task.writes.empty() ? task.reads[0] : task.writes[0], task.reads[i]);
    }
  }
  void fix_all(const Task& task) {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      std::for_each(list->begin(), list->end(), [&](BufferId id) { fix(id); });
    }
  }
  std::vector<bool> result() {
    std::vector<bool> last(parent_.size());
    for (std::size_t b = 0; b < last.size(); ++b) {
      last[b] = wanted_[root(b)] && !fixed_[root(b)];
    }
    return last;
  }

 private:
  std::vector<std::size_t> parent_;
  std::vector<bool> fixed_;
  std::vector<bool> wanted_;
};

/// True if a task is that pool, of a window for which there is a kernel.
template <typename AnyPool>
bool is_small(const Task& task) {
  constexpr std::int64_t most = 15;
  const auto* pool = op_of<AnyPool>(task);
  return pool != nullptr && pool->window <= most;
}

/// Adds the orders in which a task wants its operands. Weights have four axes too, but are not images.
void agree(const Plan& plan, const Task& task, Agreements& orders) {
  if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
    if (transfer->end == plan::Transfer::End::send) {
      for (const TaskId member : plan.members(transfer->meeting)) {
        const Task& other = plan[member];
        for (std::size_t i = 0; i < std::min(task.reads.size(), other.writes.size()); ++i) {
          orders.join(task.reads[i], other.writes[i]);
        }
      }
    }
    return;
  }
  if (op_of<op::Conv2d>(task) != nullptr) {
    orders.want(task.reads[0]);
    orders.want(task.writes[0]);
    std::for_each(task.reads.begin() + 1, task.reads.end(), [&](BufferId id) { orders.fix(id); });
  } else if (op_of<op::Conv2dBackwardInput>(task) != nullptr) {
    orders.want(task.reads[0]);
    orders.want(task.writes[0]);
    orders.fix(task.reads[1]);
  } else if (op_of<op::Conv2dBackwardWeight>(task) != nullptr) {
    orders.want(task.reads[0]);
    orders.want(task.reads[1]);
    std::for_each(task.writes.begin(), task.writes.end(), [&](BufferId id) { orders.fix(id); });
  } else if (op_of<op::BatchNorm>(task) != nullptr || op_of<op::Relu>(task) != nullptr || is_small<op::MaxPool>(task)) {
    orders.join_all(task, 1);
  } else if (op_of<op::BatchNormBackwardInput>(task) != nullptr || op_of<op::ReluBackward>(task) != nullptr ||
             op_of<op::Add>(task) != nullptr || is_small<op::MaxPoolBackward>(task)) {
    orders.join_all(task, 2);
  } else if (op_of<op::BatchNormBackwardWeight>(task) != nullptr) {
    orders.join(task.reads[0], task.reads[1]);
  } else if (op_of<op::TrackMoments>(task) == nullptr && op_of<op::AveragePool>(task) == nullptr &&
             op_of<op::AveragePoolBackward>(task) == nullptr && op_of<op::Flatten>(task) == nullptr &&
             op_of<op::FlattenBackward>(task) == nullptr) {
    orders.fix_all(task);
  }
}

/// The tasks of one device's compute lane, in order.
class Shares {
 public:
  Shares(const Plan& plan, const std::vector<bool>& last, std::vector<TaskId> tasks, std::vector<NormShare>& shares)
      : plan_(plan), last_(last), tasks_(std::move(tasks)), shares_(shares) {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      for (const BufferId id : plan[tasks_[i]].reads) {
        readers_[id].push_back(i);
      }
      if (const auto* norm = op_of<op::BatchNorm>(plan[tasks_[i]]); norm != nullptr) {
        epsilon_[plan[tasks_[i]].reads[0]] = norm->epsilon;
      }
    }
  }

  void walk() {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      const Task& task = plan_[tasks_[i]];
      NormShare& share = shares_[tasks_[i].index()];
      if (const auto* tracked = op_of<op::TrackMoments>(task)) {
        take(share, task.reads[0], tracked->group, epsilon_[task.reads[0]]);
      } else if (const auto* norm = op_of<op::BatchNorm>(task)) {
        take(share, task.reads[0], norm->group, norm->epsilon);
        share.takes_moments = share.takes_moments && !norm->running;
        scaled_.insert(task.reads[0]);
        if (share.x.valid() && !norm->running) {
          postpone(i);
        }
      } else if (const auto* input = op_of<op::BatchNormBackwardInput>(task)) {
        take(share, task.reads[1], input->group, input->epsilon);
        share.takes_scales = share.x.valid() && scaled_.insert(task.reads[1]).second;
        take_slopes(share, task.reads[0]);
      } else if (const auto* weight = op_of<op::BatchNormBackwardWeight>(task)) {
        take(share, task.reads[0], weight->group, weight->epsilon);
        take_slopes(share, task.reads[1]);
      } else if (op_of<op::ReluBackward>(task) != nullptr) {
        go_back(i);
      }
      for (const BufferId written : task.writes) {
        forget(written, share.takes_slopes && op_of<op::ReluBackward>(task) != nullptr);
      }
    }
  }

 private:
  using Settings = std::pair<std::int64_t, double>;  // group and epsilon

  void take(NormShare& share, BufferId x, std::int64_t group, double epsilon) {
    if (!last_[x.index()]) {
      return;
    }
    const Settings settings{group, epsilon};
    share.x = x;
    share.group = group;
    share.epsilon = epsilon;
    share.takes_moments = !moments_.contains(x) || moments_[x] != settings;
    moments_[x] = settings;
    if (share.takes_moments) {
      scaled_.erase(x);
      std::erase_if(slopes_, [&](const auto& known) { return known.second == x; });
    }
  }
  void take_slopes(NormShare& share, BufferId dy) {
    if (share.x.valid()) {
      const auto known = slopes_.find(dy);
      share.takes_slopes = known == slopes_.end() || known->second != share.x;
      std::erase_if(slopes_, [&](const auto& other) { return other.second == share.x; });  // there is one place for them
      slopes_[dy] = share.x;
    }
  }
  void forget(BufferId written, bool keep_slopes) {
    moments_.erase(written);
    scaled_.erase(written);
    std::erase_if(after_, [&](const auto& known) { return known.first == written || known.second == written; });
    std::erase_if(slopes_, [&](const auto& known) { return (known.first == written && !keep_slopes) || known.second == written; });
  }

  /// The first later task that reads a buffer which nothing writes before; none: nothing.
  std::optional<std::size_t> next_reader(BufferId id, std::size_t from) const {
    const auto found = readers_.find(id);
    if (found == readers_.end()) {
      return std::nullopt;
    }
    const auto next = std::upper_bound(found->second.begin(), found->second.end(), from);
    return next == found->second.end() || is_written(id, from + 1, *next) ? std::nullopt : std::optional(*next);
  }
  bool is_written(BufferId id, std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) {
      const std::vector<BufferId>& writes = plan_[tasks_[i]].writes;
      if (std::find(writes.begin(), writes.end(), id) != writes.end()) {
        return true;
      }
    }
    return false;
  }

  /// Lets the only reader of a norm apply it, where x is still there then.
  void postpone(std::size_t at) {
    const Task& norm = plan_[tasks_[at]];
    const BufferId x = norm.reads[0];
    const BufferId y = norm.writes[0];
    const auto all = readers_.find(y);
    if (all == readers_.end() || all->second.size() != 1 || all->second[0] < at || plan_[y].persistent) {
      return;
    }
    const std::size_t reader = all->second[0];
    const Task& next = plan_[tasks_[reader]];
    const bool relu = op_of<op::Relu>(next) != nullptr;
    const bool add = op_of<op::Add>(next) != nullptr && next.reads[0] != next.reads[1] &&
                     !shares_[tasks_[reader].index()].x.valid();
    const auto needed = readers_.find(x);
    const bool lives = needed != readers_.end() && needed->second.back() > reader && !is_written(x, at + 1, reader + 1) &&
                       !is_written(x, reader + 1, needed->second.back() + 1);
    if ((!relu && !add) || !lives) {
      return;
    }
    const NormShare& own = shares_[tasks_[at].index()];
    shares_[tasks_[at].index()].postponed = true;
    shares_[tasks_[reader].index()] = {
        .x = x, .group = own.group, .epsilon = own.epsilon, .applies = true, .operand = next.reads[0] == y ? 0U : 1U};
    if (relu) {
      after_[next.writes[0]] = x;
    } else {
      postpone_sum(at, reader);
    }
  }

  /// Lets the ReLU that alone reads the sum of a norm and another value apply the norm and add, if x and the other value are still
  /// there then.
  void postpone_sum(std::size_t norm, std::size_t at) {
    const Task& add = plan_[tasks_[at]];
    NormShare& share = shares_[tasks_[at].index()];
    const BufferId sum = add.writes[0];
    const BufferId other = add.reads[share.operand == 0 ? 1 : 0];
    const auto all = readers_.find(sum);
    if (all == readers_.end() || all->second.size() != 1 || all->second[0] < at || plan_[sum].persistent) {
      return;
    }
    const std::size_t reader = all->second[0];
    const auto lives = [&](BufferId id, std::size_t from) {
      const auto needed = readers_.find(id);
      return needed != readers_.end() && needed->second.back() > reader && !is_written(id, from + 1, needed->second.back() + 1);
    };
    if (op_of<op::Relu>(plan_[tasks_[reader]]) == nullptr || !lives(share.x, norm) || !lives(other, at)) {
      return;
    }
    shares_[tasks_[reader].index()] = {
        .x = share.x, .group = share.group, .epsilon = share.epsilon, .applies = true, .added = other};
    share.applies = false;
    share.postponed = true;
  }

  /// Takes the slopes on the way back through a ReLU, where they are needed next and x is known.
  void go_back(std::size_t at) {
    const Task& task = plan_[tasks_[at]];
    const BufferId dy = task.writes[0];
    const auto readers = readers_.find(dy);
    if (readers == readers_.end()) {
      return;
    }
    for (const std::size_t reader : readers->second) {
      if (reader < at || is_written(dy, at + 1, reader)) {
        continue;
      }
      const Task& next = plan_[tasks_[reader]];
      const bool input = op_of<op::BatchNormBackwardInput>(next) != nullptr && next.reads[0] == dy;
      const bool weight = op_of<op::BatchNormBackwardWeight>(next) != nullptr && next.reads[1] == dy;
      if (!input && !weight) {
        continue;
      }
      const BufferId x = input ? next.reads[1] : next.reads[0];
      const auto known = moments_.find(x);
      if (!last_[x.index()] || known == moments_.end() || is_written(x, at, reader)) {
        continue;
      }
      const auto settings_of = [](const auto& norm) { return Settings{norm.group, norm.epsilon}; };
      if (known->second != (input ? settings_of(*op_of<op::BatchNormBackwardInput>(next))
                                  : settings_of(*op_of<op::BatchNormBackwardWeight>(next)))) {
        continue;
      }
      NormShare share{.x = x, .group = known->second.first, .epsilon = known->second.second};
      const auto after = after_.find(task.reads[1]);
      share.after_norm = after != after_.end() && after->second == x && scaled_.contains(x);
      take_slopes(share, dy);
      share.takes_slopes = true;
      shares_[tasks_[at].index()] = share;
      return;
    }
  }

  const Plan& plan_;
  const std::vector<bool>& last_;
  std::vector<TaskId> tasks_;
  std::vector<NormShare>& shares_;
  std::map<BufferId, std::vector<std::size_t>> readers_;
  std::map<BufferId, double> epsilon_;
  std::map<BufferId, Settings> moments_;  // by x: those that are kept are of what it holds
  std::set<BufferId> scaled_;             // those x whose norm has noted its gain
  std::map<BufferId, BufferId> slopes_;   // by dy: the x whose slopes are kept
  std::map<BufferId, BufferId> after_;    // by what a ReLU gave: the x of the norm that it directly followed
};

}  // namespace

std::vector<bool> channels_last(const Plan& plan) {
  Agreements orders(plan);
  using Norm = std::tuple<std::vector<BufferId>, std::int64_t, double>;  // its gain and bias, group and epsilon
  std::map<BufferId, Norm> norm_of;                                      // by x: the first norm that reads it
  for (const Task& task : plan.tasks()) {
    agree(plan, task, orders);
    if (const auto* norm = op_of<op::BatchNorm>(task)) {
      Norm one{{task.reads.begin() + 1, task.reads.end()}, norm->group, norm->epsilon};
      if (norm_of.try_emplace(task.reads[0], one).first->second != one) {
        orders.fix(task.reads[0]);  // the sums, gains and biases that a norm keeps have one place per x
      }
    }
  }
  return orders.result();
}

std::vector<NormShare> norm_shares(const Plan& plan, const plan::Ordering& ordering, const std::vector<bool>& last) {
  std::vector<NormShare> shares(plan.tasks().size());
  std::map<DeviceId, std::vector<TaskId>> by_device;
  for (const TaskId id : ordering.sequence) {
    by_device[plan[id].device].push_back(id);
  }
  for (auto& [device, tasks] : by_device) {
    Shares(plan, last, std::move(tasks), shares).walk();
  }
  return shares;
}

}  // namespace baton::cuda
