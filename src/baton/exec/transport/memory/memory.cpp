#include <algorithm>
#include <atomic>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/cost/link_time.h"
#include "baton/exec/transport/dealing.h"
#include "baton/exec/transport/operation.h"
#include "baton/exec/transport/transport.h"

namespace baton::exec {
namespace {

/// Small enough to stay in the first cache of a core.
constexpr std::int64_t run_elements = 8192;

/// The operations of one member. Other members take some of them when they are idle.
struct alignas(64) Work {
  std::atomic<std::size_t> next{0};
  std::vector<Operation> operations;
};

/// The state that the members of one transfer or collective share.
class MemoryMeeting {
 public:
  explicit MemoryMeeting(std::size_t members) : works_(members) {}

  // Set up before the first step.
  SharedRounding rounding_;
  std::vector<Work> works_;  // by rank
  std::size_t operation_count_ = 0;
  std::vector<threads::Doorbell*> doorbells_;
  Nanoseconds min_duration_;  // emulated duration

  // Changed within a step.
  alignas(64) std::atomic<std::size_t> arrived_{0};
  std::atomic<bool> met_{false};
  alignas(64) std::atomic<std::size_t> finished_{0};
  std::atomic<std::int64_t> over_at_{0};

  void begin_step() {
    arrived_.store(0, std::memory_order_relaxed);
    met_.store(false, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    for (Work& work : works_) {
      work.next.store(0, std::memory_order_relaxed);
    }
  }

  void ring_all() const {
    for (threads::Doorbell* bell : doorbells_) {
      bell->ring();
    }
  }

  bool complete() const { return met_.load(std::memory_order_acquire); }
  bool finished() const { return finished_.load(std::memory_order_acquire) == operation_count_; }

  void arrive() {
    const std::size_t before = arrived_.fetch_add(1, std::memory_order_acq_rel);
    if (before + 1 == works_.size()) {
      if (min_duration_.count > 0) {
        over_at_.store((now() + min_duration_).count, std::memory_order_relaxed);
      }
      met_.store(true, std::memory_order_release);
      ring_all();
    }
  }

  /// Takes operations of one member until there are none.
  void work_on(Work& work) {
    std::size_t done = 0;
    Rounding rounding;
    for (std::size_t i = work.next.fetch_add(1, std::memory_order_relaxed); i < work.operations.size();
         i = work.next.fetch_add(1, std::memory_order_relaxed)) {
      rounding += work.operations[i].run();
      ++done;
    }
    if (rounding.values > 0) {
      rounding_.add(rounding);
    }
    if (done > 0 && finished_.fetch_add(done, std::memory_order_acq_rel) + done == operation_count_) {
      ring_all();
    }
  }
};

class MemoryExchange final : public Exchange, private threads::TeamWork {
 public:
  MemoryExchange(MemoryMeeting& meeting, std::size_t rank, threads::Team* team) : meeting_(meeting), rank_(rank), team_(team) {}

  void post() override { meeting_.arrive(); }

  bool progress(bool idle) override {
    if (!meeting_.complete()) {
      return false;
    }
    if (left(meeting_.works_[rank_])) {
      work_ = &meeting_.works_[rank_];
      work();
    }
    if (idle) {
      for (Work& other : meeting_.works_) {
        if (left(other)) {
          work_ = &other;
          work();
        }
      }
    }
    return meeting_.finished() && (meeting_.min_duration_.count == 0 || now() >= over_at());
  }

  std::optional<Nanoseconds> due() const override {
    if (meeting_.min_duration_.count == 0 || !meeting_.complete() || !meeting_.finished()) {
      return std::nullopt;
    }
    return over_at();
  }

  Rounding rounding() const override { return rank_ == 0 ? meeting_.rounding_.total() : Rounding{}; }

 private:
  static bool left(const Work& work) { return work.next.load(std::memory_order_relaxed) < work.operations.size(); }
  /// Set by the last to arrive, before `met_` is set.
  Nanoseconds over_at() const { return Nanoseconds(meeting_.over_at_.load(std::memory_order_relaxed)); }

  void work() {
    if (team_->size() > 1 && work_->operations.size() >= 8) {
      team_->run(*this);
    } else {
      meeting_.work_on(*work_);
    }
  }
  void run(const threads::Member&) override { meeting_.work_on(*work_); }

  MemoryMeeting& meeting_;
  std::size_t rank_;
  threads::Team* team_;
  Work* work_ = nullptr;
};

/// The operation for one run of a member's share.
Operation operation_of(const plan::Task& first, DType type, const std::vector<MemberMemory>& members, std::size_t owner,
                       const ElementRun& run) {
  const auto* collective = std::get_if<plan::Collective>(&first.action);
  const Move move = move_of(first);
  const bool applies = collective != nullptr && collective->sgd_rate > 0;
  Operation operation{.type = type, .count = run.count};
  if (move == Move::copy || move == Move::broadcast) {
    operation.from = {members[0].at(run)};
    operation.to = {members[owner].at(run)};
    return operation;
  }
  if (move == Move::all_gather) {
    operation.from = {members[owner].piece_at(run)};
  }
  for (const MemberMemory& member : members) {
    (move == Move::all_gather ? operation.to : operation.from).push_back(member.at(run));
    if (move == Move::all_reduce) {
      operation.to.push_back(applies ? member.parameter_at(run) : member.at(run));
    }
  }
  if (move == Move::reduce) {
    operation.to = {members[0].at(run)};
  } else if (move == Move::reduce_scatter) {
    operation.to = {members[owner].piece_at(run)};
  }
  if (move != Move::all_gather) {
    operation.kind = applies                  ? Operation::Function::apply
                     : collective->accumulate ? Operation::Function::add
                                              : Operation::Function::sum;
    operation.rate = collective->sgd_rate;
  }
  return operation;
}

class MemoryTransport final : public Transport {
 public:
  explicit MemoryTransport(TransportContext context) : context_(std::move(context)) {
    for (std::size_t m = 0; m < context_.plan.meeting_count(); ++m) {
      meetings_.push_back(context_.is_local(MeetingId(m)) ? open(MeetingId(m)) : nullptr);
    }
  }

  std::unique_ptr<Exchange> prepare(TaskId id) override {
    const plan::Task& task = context_.plan[id];
    return std::make_unique<MemoryExchange>(*meetings_[plan::meeting_of(task).index()], rank_of(task),
                                            context_.teams[task.device.index()]);
  }

  void begin_step() override {
    for (const std::unique_ptr<MemoryMeeting>& meeting : meetings_) {
      if (meeting) {
        meeting->begin_step();
      }
    }
  }

 private:
  std::unique_ptr<MemoryMeeting> open(MeetingId id) {
    const plan::Plan& plan = context_.plan;
    const std::span<const TaskId> tasks = plan.members(id);
    const plan::Task& first = plan[tasks[0]];
    const DType type = plan[plan::payload(first)[0]].dtype;
    auto meeting = std::make_unique<MemoryMeeting>(tasks.size());
    std::vector<TaskId> by_rank(tasks.size());
    for (const TaskId member : tasks) {
      by_rank[rank_of(plan[member])] = member;
    }
    std::vector<MemberMemory> members;
    for (const TaskId member : by_rank) {
      members.emplace_back(plan[member], context_.addresses[member.index()], type);
      meeting->doorbells_.push_back(context_.doorbells[plan[member].device.index()]);
    }
    const std::vector<Share> shares = deal(plan, id, run_elements);
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      for (const ElementRun& run : shares[rank].runs) {
        meeting->works_[rank].operations.push_back(operation_of(first, type, members, rank, run));
      }
      meeting->operation_count_ += shares[rank].runs.size();
    }
    if (context_.link) {
      meeting->min_duration_ = cost::link_time(plan, id, *context_.link);
    }
    return meeting;
  }

  TransportContext context_;
  std::vector<std::unique_ptr<MemoryMeeting>> meetings_;
};

}  // namespace

std::unique_ptr<Transport> make_memory_transport(TransportContext context) {
  return std::make_unique<MemoryTransport>(std::move(context));
}

}  // namespace baton::exec
