#include <chrono>
#include <future>
#include <map>
#include <thread>

#include "baton/base/clock.h"
#include "baton/cost/link_time.h"
#include "baton/cuda/event.h"
#include "baton/cuda/nccl.h"
#include "baton/cuda/nccl_part.h"
#include "baton/cuda/status.h"
#include "baton/cuda/stream_transport.h"

namespace baton::cuda {
namespace {

class NcclStreamTransport;

/// A message fails when another rank is gone, often before anybody has said so. The watch over the ranks names that rank and ends
/// this process; only if nobody does so within this time the error is this rank's own.
constexpr Nanoseconds until_named(3'000'000'000);

/// The state that this rank's members of one meeting share.
struct NcclMeeting {
  struct Member {
    const GpuPlace* place;
    cudaStream_t stream;
    NcclPart part;
  };
  std::vector<Member> members;
  std::size_t begun = 0;     // members that have begun in this step
  std::size_t position = 0;  // among the meetings that this rank takes part in
};

class NcclStreamExchange final : public StreamExchange {
 public:
  NcclStreamExchange(NcclStreamTransport& all, NcclMeeting& meeting, cudaStream_t stream)
      : all_(all), meeting_(meeting), stream_(stream) {}

  void begin() override {
    come_.record(stream_);
    ++meeting_.begun;
  }
  bool progress() override;
  bool has_come() const override { return come_.passed(); }

 private:
  NcclStreamTransport& all_;
  NcclMeeting& meeting_;
  cudaStream_t stream_;
  Event come_{Event::Purpose::order};
};

class NcclStreamTransport final : public StreamTransport, private CommunicatorFactory {
 public:
  explicit NcclStreamTransport(const StreamTransportContext& context)
      : slice_(context.slice), plan_(context.slice.plan()), link_(context.link), progress_(context.world->progress()) {
    const std::vector<std::size_t> group_of = join_groups(plan_, context.routes, context.rank_of_device, *context.world, *this);
    // Communicators of one GPU must be used in one order on all ranks: that of the plan's sequence, in which a meeting stands
    // where the last of its members does.
    std::vector<std::size_t> missing;
    for (std::size_t m = 0; m < context.routes.size(); ++m) {
      missing.push_back(plan_.members(MeetingId(m)).size());
    }
    std::size_t next = 0;
    for (const TaskId id : context.ordering.sequence) {
      const MeetingId meeting = plan::meeting_of(plan_[id]);
      if (!meeting.valid() || context.routes[meeting.index()] != MeetingRoute::nccl || --missing[meeting.index()] > 0) {
        continue;
      }
      if (open(meeting, group_of[meeting.index()])) {
        meetings_.at(meeting).position = next++;
      }
    }
  }

  std::unique_ptr<StreamExchange> prepare(TaskId id) override {
    slice_.place(plan_[id].device).enter();
    return std::make_unique<NcclStreamExchange>(*this, meetings_.at(plan::meeting_of(plan_[id])), slice_.stream(plan_[id]));
  }

  void begin_step() override {
    turn_ = 0;
    for (auto& [id, meeting] : meetings_) {
      meeting.begun = 0;
    }
  }

  void look() override {
    if (!failed_) {
      try {
        for (const auto& [key, communicator] : communicators_) {
          communicator->require_health();
        }
      } catch (const nccl::Disconnected& error) {
        fail(error);
      }
    }
    if (failed_ && now() - failed_->at > until_named) {
      throw failed_->error;
    }
  }

  void give_up() noexcept override {
    try {
      nccl::in_group([this] {
        for (const auto& [key, communicator] : communicators_) {
          communicator->abort();
        }
      });
    } catch (const Error&) {
      // This rank fails already.
    }
  }

  /// Enqueues the meeting when its turn has come and all members of this rank have; returns whether it is enqueued.
  bool pass(NcclMeeting& meeting) {
    if (meeting.position == turn_ && meeting.begun == meeting.members.size() && !failed_) {
      try {
        enqueue(meeting);
      } catch (const nccl::Disconnected& error) {
        fail(error);
        return false;
      }
      ++turn_;
    }
    return meeting.position < turn_;
  }

 private:
  using MemberKey = std::pair<std::size_t, DeviceId>;  // the number of the set, and the device

  ranks::Blob make_id() override { return nccl::make_id(); }
  void join(std::size_t group, const ranks::Blob& id, std::size_t size, const std::vector<GroupMember>& members) override {
    std::vector<nccl::GpuMember> mine;
    for (const GroupMember& one : members) {
      mine.push_back({static_cast<int>(one.member), slice_.place(one.device).ordinal()});
    }
    try {
      auto joining = std::async(std::launch::async, [&] { return nccl::join(id, static_cast<int>(size), mine); });
      while (joining.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
        progress_->look();  // it is another rank that may hang meanwhile
      }
      const std::vector<std::shared_ptr<nccl::Communicator>> joined = joining.get();
      for (std::size_t i = 0; i < members.size(); ++i) {
        communicators_[{group, members[i].device}] = joined[i];
      }
    } catch (const nccl::Disconnected&) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(until_named.count));
      throw;
    }
  }

  static void enqueue(const NcclMeeting& meeting) {
    nccl::in_group([&] {
      for (const NcclMeeting::Member& member : meeting.members) {
        member.place->enter();
        member.part.exchange(member.stream);
      }
    });
    for (const NcclMeeting::Member& member : meeting.members) {
      if (member.part.afterwards) {
        member.place->enter();
        member.part.afterwards(member.stream);
      }
    }
    require_launched("launching a message");
  }

  void fail(const nccl::Disconnected& error) { failed_ = Failure{error, now()}; }

  /// Returns false if this rank runs none of its members.
  bool open(MeetingId id, std::size_t group) {
    NcclMeeting meeting;
    const std::int64_t min_duration = link_ ? cost::link_time(plan_, id, *link_).count : 0;
    for (const TaskId member : plan_.members(id)) {
      const plan::Task& task = plan_[member];
      if (slice_.is_here(task.device)) {
        const GpuPlace& place = slice_.place(task.device);
        meeting.members.push_back({&place, place.stream(task.lane),
                                   nccl_part(plan_, task, slice_.addresses()[member.index()], place,
                                             communicators_.at({group, task.device}), min_duration)});
      }
    }
    return !meeting.members.empty() && meetings_.emplace(id, std::move(meeting)).second;
  }

  const Slice& slice_;
  plan::Plan plan_;
  std::optional<cluster::Link> link_;
  std::shared_ptr<ranks::RankProgress> progress_;
  std::map<MemberKey, std::shared_ptr<nccl::Communicator>> communicators_;
  std::map<MeetingId, NcclMeeting> meetings_;
  std::size_t turn_ = 0;
  struct Failure {
    nccl::Disconnected error;
    Nanoseconds at;
  };
  std::optional<Failure> failed_;
};

bool NcclStreamExchange::progress() { return all_.pass(meeting_); }

}  // namespace

std::unique_ptr<StreamTransport> make_nccl_transport(const StreamTransportContext& context) {
  return std::make_unique<NcclStreamTransport>(context);
}

}  // namespace baton::cuda
