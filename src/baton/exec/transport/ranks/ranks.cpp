#include <algorithm>
#include <map>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/cost/link_time.h"
#include "baton/exec/transport/ranks/meeting_builder.h"
#include "baton/exec/transport/ranks/progress_thread.h"
#include "baton/exec/transport/transport.h"
#include "baton/threads/memory_arena.h"

namespace baton::exec {
namespace {

/// The number of elements of one message.
constexpr std::int64_t elements_a_message = ranks::usual_message / sizeof(float);
/// Below are tags of messages that belong to no meeting.
constexpr int first_tag = 16;

class RankExchange final : public Exchange, private threads::TeamWork {
 public:
  RankExchange(RankMeeting& meeting, std::shared_ptr<ranks::World> world, ProgressThread& thread, std::atomic<RankMeeting*>& lane,
               threads::Team* team, bool first, bool slowed)
      : meeting_(meeting), world_(std::move(world)), progress_(thread), lane_(lane), team_(team), first_(first), slowed_(slowed) {}

  void post() override {
    lane_.store(&meeting_, std::memory_order_release);
    meeting_.arrive();
    progress_.ring();
  }

  bool progress(bool) override {
    if (!meeting_.met()) {
      return false;
    }
    world_->poll();
    if (team_->size() > 1 && meeting_.ready() > 1) {
      team_->run(*this);
    } else {
      meeting_.work();
    }
    return meeting_.finished() && (!slowed_ || now() >= meeting_.over_at());
  }

  std::optional<Nanoseconds> due() const override {
    return slowed_ && meeting_.met() && meeting_.finished() ? std::optional(meeting_.over_at()) : std::nullopt;
  }

  Rounding rounding() const override { return first_ ? meeting_.rounding() : Rounding{}; }

 private:
  void run(const threads::Member&) override { meeting_.work(); }

  RankMeeting& meeting_;
  std::shared_ptr<ranks::World> world_;
  ProgressThread& progress_;
  std::atomic<RankMeeting*>& lane_;
  threads::Team* team_;
  bool first_;  // true for the first of the members that this rank runs
  bool slowed_;
};

class RankTransport final : public Transport {
 public:
  RankTransport(TransportContext context, std::shared_ptr<ranks::World> world, std::vector<int> rank_of_device)
      : context_(std::move(context)),
        world_(std::move(world)),
        rank_of_device_(std::move(rank_of_device)),
        memory_(context_.staged.empty() ? make_memory_transport(context_) : nullptr),
        progress_(std::make_unique<ProgressThread>(world_, context_.no_core_to_spare)) {
    measure_staging();
    int tag = first_tag;
    for (std::size_t m = 0; m < context_.plan.meeting_count(); ++m) {
      meetings_.push_back(open(MeetingId(m), tag));
    }
    for (std::size_t d = 0; d < context_.doorbells.size(); ++d) {
      for (std::size_t lane = 0; lane < plan::lane_count && context_.doorbells[d] != nullptr; ++lane) {
        lanes_.emplace(LaneOfDevice(d, static_cast<plan::Lane>(lane)), &progress_->add_lane());
      }
    }
    progress_->start();
  }

  ~RankTransport() override {
    progress_.reset();
    if (world_->under_way()) {  // after a failure: what may still be written into stays
      for (auto& [lane, arena] : staging_) {
        new threads::MemoryArena(std::move(arena));
      }
    }
  }

  std::unique_ptr<Exchange> prepare(TaskId id) override {
    const plan::Task& task = context_.plan[id];
    const MeetingId meeting = plan::meeting_of(task);
    if (context_.is_local(meeting)) {
      return memory_->prepare(id);
    }
    return std::make_unique<RankExchange>(*meetings_[meeting.index()], world_, *progress_, *lanes_.at(lane_of(id)),
                                          context_.teams[task.device.index()], first_local(meeting) == id,
                                          context_.link.has_value());
  }

  void begin_step() override {
    if (memory_) {
      memory_->begin_step();
    }
    for (const std::unique_ptr<RankMeeting>& meeting : meetings_) {
      if (meeting) {
        meeting->begin_step();
      }
    }
  }

  bool polled() const override { return true; }
  void poll() override { world_->poll(); }
  void sleeps() override { progress_->device_sleeps(); }
  void wakes() override { progress_->device_wakes(); }

 private:
  using LaneOfDevice = std::pair<std::uint32_t, plan::Lane>;

  /// Members by their rank in the meeting.
  std::vector<TaskId> members(MeetingId id) const {
    std::vector<TaskId> list(context_.plan.members(id).size());
    for (const TaskId member : context_.plan.members(id)) {
      list[rank_of(context_.plan[member])] = member;
    }
    return list;
  }
  /// The first member that this rank runs; not valid if it runs none.
  TaskId first_local(MeetingId id) const {
    for (const TaskId member : members(id)) {
      if (context_.doorbells[context_.plan[member].device.index()] != nullptr) {
        return member;
      }
    }
    return {};
  }

  /// True if several ranks run its members (this one need not be among them), and it is not carried otherwise.
  bool crosses(MeetingId id) const {
    if (!context_.staged.empty() && !context_.staged[id.index()]) {
      return false;
    }
    const std::span<const TaskId> list = context_.plan.members(id);
    const auto rank = [&](TaskId member) { return rank_of_device_[context_.plan[member].device.index()]; };
    return std::any_of(list.begin(), list.end(), [&](TaskId member) { return rank(member) != rank(list[0]); });
  }

  LaneOfDevice lane_of(TaskId id) const { return {context_.plan[id].device.value, context_.plan[id].lane}; }

  /// The tasks of a lane follow one another, so their meetings share one place for data from other ranks.
  void measure_staging() {
    std::map<LaneOfDevice, std::size_t> most;
    for (std::size_t m = 0; m < context_.plan.meeting_count(); ++m) {
      const TaskId first = first_local(MeetingId(m));
      if (first.valid() && crosses(MeetingId(m))) {
        RankMeeting unused(world_, {});
        int tag = 0;
        std::size_t& bytes = most[lane_of(first)];
        bytes = std::max(bytes, write(MeetingId(m), unused, Staging(nullptr), tag));
      }
    }
    for (const auto& [lane, bytes] : most) {
      staging_.emplace(lane, threads::MemoryArena(Bytes(static_cast<std::int64_t>(bytes))));
    }
  }

  std::unique_ptr<RankMeeting> open(MeetingId id, int& tag) {
    if (!crosses(id)) {
      return nullptr;
    }
    const TaskId first = first_local(id);
    std::vector<threads::Doorbell*> bells;
    for (const TaskId member : context_.plan.members(id)) {
      if (threads::Doorbell* bell = context_.doorbells[context_.plan[member].device.index()]) {
        bells.push_back(bell);
      }
    }
    auto meeting = std::make_unique<RankMeeting>(world_, std::move(bells));
    write(id, *meeting, Staging(first.valid() ? staging_.at(lane_of(first)).at(0) : nullptr), tag);
    return first.valid() ? std::move(meeting) : nullptr;
  }

  /// Writes a meeting's operations and returns the bytes of staging that they need.
  std::size_t write(MeetingId id, RankMeeting& meeting, Staging staging, int& tag) {
    const plan::Plan& plan = context_.plan;
    const std::vector<TaskId> tasks = members(id);
    const DType type = plan[plan::payload(plan[tasks[0]])[0]].dtype;
    std::vector<Participant> participants;
    for (const TaskId task : tasks) {
      const std::size_t device = plan[task].device.index();
      Participant one{.rank = rank_of_device_[device]};
      if (context_.doorbells[device] != nullptr) {
        one.memory.emplace(plan[task], context_.addresses[task.index()], type);
      }
      participants.push_back(std::move(one));
    }
    const std::vector<Share> shares = deal(plan, id, elements_a_message);
    const std::int64_t next_tag = tag + tags_of(shares);
    if (next_tag > world_->largest_tag()) {
      throw failure(
          "this plan has more messages between ranks than the MPI library can tell apart: {} is the largest "
          "tag it has",
          world_->largest_tag());
    }
    const int first_message = std::exchange(tag, static_cast<int>(next_tag));
    if (first_local(id).valid()) {
      plan::Task first = plan[tasks[0]];
      if (auto* collective = std::get_if<plan::Collective>(&first.action); collective != nullptr && !context_.staged.empty()) {
        collective->sgd_rate = 0;
      }
      write_meeting(meeting, first, type, participants, shares, first_message,
                    context_.link ? cost::link_time(plan, id, *context_.link) : Nanoseconds(0), staging);
    }
    return staging.used();
  }

  TransportContext context_;
  std::shared_ptr<ranks::World> world_;
  std::vector<int> rank_of_device_;  // by device
  std::unique_ptr<Transport> memory_;
  std::map<LaneOfDevice, threads::MemoryArena> staging_;
  std::vector<std::unique_ptr<RankMeeting>> meetings_;
  std::unique_ptr<ProgressThread> progress_;
  std::map<LaneOfDevice, std::atomic<RankMeeting*>*> lanes_;
};

}  // namespace

std::unique_ptr<Transport> make_rank_transport(TransportContext context, std::shared_ptr<ranks::World> world,
                                               std::vector<int> rank_of_device) {
  return std::make_unique<RankTransport>(std::move(context), std::move(world), std::move(rank_of_device));
}

}  // namespace baton::exec
