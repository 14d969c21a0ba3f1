#include <algorithm>
#include <ctime>
#include <map>
#include <thread>
#include <utility>

#include "baton/base/error.h"
#include "baton/cost/link_time.h"
#include "baton/exec/clock.h"
#include "baton/exec/memory_arena.h"
#include "baton/exec/transport.h"
#include "baton/exec/transport/ranks/meeting.h"

namespace baton::exec {
namespace {

/// What one message carries: large enough that the messages of a bucket are few, small enough that sums begin early.
constexpr std::int64_t chunk_elements = 65536;
/// Below are tags of messages that belong to no meeting.
constexpr int first_tag = 16;
constexpr long nap_nanoseconds = 50'000;
constexpr std::size_t alignment = 64;

/// Hands out places in a stretch of memory; or, without one, only counts how much would be needed.
class Staging {
 public:
  explicit Staging(std::byte* base) : base_(base) {}

  std::byte* take(std::size_t bytes) {
    std::byte* const place = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + alignment - 1) / alignment * alignment;
    return place;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

/// A member of a meeting as this rank sees it.
struct Participant {
  int rank = 0;                         // that runs it
  std::optional<MemberMemory> memory;  // where that is this one
};

/// Writes this rank's part of one meeting. All ranks number its messages alike, since all deal its elements alike.
class Author {
 public:
  Author(RankMeeting& meeting, const plan::Task& first, DType type, const std::vector<Participant>& members, int first_message,
         Staging staging)
      : meeting_(meeting),
        move_(move_of(first)),
        type_(type),
        members_(members),
        next_tag_(first_message),
        staging_(staging) {
    if (const auto* collective = std::get_if<plan::Collective>(&first.action)) {
      rate_ = collective->sgd_rate;
      accumulate_ = collective->accumulate;
    }
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (members[m].memory) {
        local_.push_back(m);
      } else if (std::find(others_.begin(), others_.end(), members[m].rank) == others_.end()) {
        others_.push_back(members[m].rank);
      }
    }
  }

  void write(const std::vector<Share>& shares) {
    for (std::size_t owner = 0; owner < shares.size(); ++owner) {
      for (const Chunk& chunk : shares[owner].chunks) {
        write(owner, chunk);
        next_tag_ += static_cast<int>(members_.size()) + 1;
      }
    }
  }

  /// Each rank tells the others when its members have come; from when all have, the meeting lasts `least`.
  void slow_down(Nanoseconds least) {
    RankMeeting::After all;
    for (const int other : others_) {
      meeting_.add(Message{Message::End::send, other, next_tag_, nullptr, 0});
      all.push_back(meeting_.add(Message{Message::End::receive, other, next_tag_, nullptr, 0}));
    }
    meeting_.slow_down(least, std::move(all));
  }

  std::size_t staging() const { return staging_.used(); }

 private:
  using After = RankMeeting::After;

  bool is_local(std::size_t member) const { return members_[member].memory.has_value(); }
  const MemberMemory& memory(std::size_t member) const { return *members_[member].memory; }
  std::size_t bytes(const Chunk& chunk) const { return static_cast<std::size_t>(chunk.count * size_of(type_)); }

  /// The part that `member` gives to the one who sums,
  int part_tag(std::size_t member) const { return next_tag_ + static_cast<int>(member); }
  /// and what that one, or the only one who has it, gives to each rank.
  int result_tag() const { return next_tag_ + static_cast<int>(members_.size()); }

  std::size_t send(int rank, int tag, std::byte* from, const Chunk& chunk, After after = {}) {
    return meeting_.add(Message{Message::End::send, rank, tag, from, bytes(chunk)}, std::move(after));
  }
  std::size_t receive(int rank, int tag, std::byte* to, const Chunk& chunk, After after = {}) {
    return meeting_.add(Message{Message::End::receive, rank, tag, to, bytes(chunk)}, std::move(after));
  }
  std::size_t operate(Operation::Kind kind, const Chunk& chunk, std::vector<std::byte*> from, std::vector<std::byte*> to,
                      After after = {}) {
    return meeting_.add(Operation{kind, type_, chunk.count, std::move(from), std::move(to), rate_}, std::move(after));
  }

  void write(std::size_t owner, const Chunk& chunk) {
    switch (move_) {
      case Move::copy:
      case Move::broadcast:
        hand_out(owner, chunk);
        break;
      case Move::all_gather:
        gather(owner, chunk);
        break;
      case Move::reduce:
      case Move::reduce_scatter:
      case Move::all_reduce:
        is_local(owner) ? sum_here(owner, chunk) : sum_there(owner, chunk);
        break;
    }
  }

  /// From member 0 to `target`. A rank is sent it once, for the first of its members, and copies it to the others.
  void hand_out(std::size_t target, const Chunk& chunk) {
    const bool leads = lead_of(members_[target].rank) == target;
    if (is_local(0) && is_local(target)) {
      operate(Operation::Kind::copy, chunk, {memory(0).at(chunk)}, {memory(target).at(chunk)});
    } else if (is_local(0) && leads) {
      send(members_[target].rank, result_tag(), memory(0).at(chunk), chunk);
    } else if (is_local(target) && leads) {
      copy_on(chunk, receive(members_[0].rank, result_tag(), memory(target).at(chunk), chunk), {});
    }
  }

  void gather(std::size_t owner, const Chunk& chunk) {
    if (!is_local(owner)) {
      copy_on(chunk, receive(members_[owner].rank, result_tag(), memory(local_[0]).at(chunk), chunk), {});
      return;
    }
    operate(Operation::Kind::copy, chunk, {memory(owner).piece_at(chunk)}, places(chunk));
    for (const int other : others_) {
      send(other, result_tag(), memory(owner).piece_at(chunk), chunk);
    }
  }

  /// A member of this rank takes the others' parts and sums them up.
  void sum_here(std::size_t owner, const Chunk& chunk) {
    std::vector<std::byte*> from;
    After parts;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      from.push_back(is_local(m) ? memory(m).at(chunk) : staging_.take(bytes(chunk)));
      if (!is_local(m)) {
        parts.push_back(receive(members_[m].rank, part_tag(m), from.back(), chunk));
      }
    }
    if (move_ == Move::reduce_scatter) {
      operate(accumulate_ ? Operation::Kind::add : Operation::Kind::sum, chunk, std::move(from), {memory(owner).piece_at(chunk)},
              std::move(parts));
      return;
    }
    if (move_ == Move::reduce) {
      operate(Operation::Kind::sum, chunk, std::move(from), {memory(owner).at(chunk)}, std::move(parts));
      return;
    }
    const bool applies = rate_ > 0;
    std::byte* const total = applies ? staging_.take(bytes(chunk)) : memory(owner).at(chunk);
    std::vector<std::byte*> to = applies ? std::vector<std::byte*>{total} : places(chunk);
    const std::size_t summed = operate(Operation::Kind::sum, chunk, std::move(from), std::move(to), std::move(parts));
    for (const int other : others_) {
      send(other, result_tag(), total, chunk, {summed});
    }
    if (applies) {
      operate(Operation::Kind::apply, chunk, {total}, parameters(chunk), {summed});
    }
  }

  /// One of another rank does: each member of this one gives its part.
  void sum_there(std::size_t owner, const Chunk& chunk) {
    After sent;
    for (const std::size_t m : local_) {
      sent.push_back(send(members_[owner].rank, part_tag(m), memory(m).at(chunk), chunk));
    }
    if (move_ != Move::all_reduce) {
      return;
    }
    if (rate_ > 0) {
      std::byte* const total = staging_.take(bytes(chunk));
      const std::size_t came = receive(members_[owner].rank, result_tag(), total, chunk);
      operate(Operation::Kind::apply, chunk, {total}, parameters(chunk), {came});
      return;
    }
    // Where a part was sent from, the sum comes in.
    const std::size_t came = receive(members_[owner].rank, result_tag(), memory(local_[0]).at(chunk), chunk, {sent[0]});
    copy_on(chunk, came, After(sent.begin() + 1, sent.end()));
  }

  /// What the first member of this rank has got, to its others.
  void copy_on(const Chunk& chunk, std::size_t came, After after) {
    if (local_.size() == 1) {
      return;
    }
    std::vector<std::byte*> to = places(chunk);
    to.erase(to.begin());
    after.push_back(came);
    operate(Operation::Kind::copy, chunk, {memory(local_[0]).at(chunk)}, std::move(to), std::move(after));
  }

  /// Where the chunk lies in the members of this rank.
  std::vector<std::byte*> places(const Chunk& chunk) const {
    std::vector<std::byte*> list;
    for (const std::size_t m : local_) {
      list.push_back(memory(m).at(chunk));
    }
    return list;
  }
  std::vector<std::byte*> parameters(const Chunk& chunk) const {
    std::vector<std::byte*> list;
    for (const std::size_t m : local_) {
      list.push_back(memory(m).parameter_at(chunk));
    }
    return list;
  }

  std::size_t lead_of(int rank) const {
    return static_cast<std::size_t>(
        std::find_if(members_.begin(), members_.end(), [&](const Participant& one) { return one.rank == rank; }) - members_.begin());
  }

  RankMeeting& meeting_;
  Move move_;
  DType type_;
  const std::vector<Participant>& members_;
  double rate_ = 0;
  bool accumulate_ = false;
  std::vector<std::size_t> local_;  // members that this rank runs
  std::vector<int> others_;         // the other ranks that run some
  int next_tag_;
  Staging staging_;
};

class RankExchange final : public Exchange, private TeamWork {
 public:
  RankExchange(RankMeeting& meeting, World& world, Doorbell& courier, Team* team, MemberTraffic traffic, bool first, bool slowed)
      : meeting_(meeting), world_(world), courier_(courier), team_(team), traffic_(traffic), first_(first), slowed_(slowed) {}

  void post() override {
    meeting_.arrive();
    courier_.ring();
  }

  bool progress(bool) override {
    if (!meeting_.met()) {
      return false;
    }
    world_.poll();
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

  Bytes sent() const override { return traffic_.sent; }
  Bytes received() const override { return traffic_.received; }
  Rounding rounding() const override { return first_ ? meeting_.rounding() : Rounding{}; }

 private:
  void run(const Member&) override { meeting_.work(); }

  RankMeeting& meeting_;
  World& world_;
  Doorbell& courier_;
  Team* team_;
  MemberTraffic traffic_;
  bool first_;  // of the members that this rank runs
  bool slowed_;
};

class RankTransport final : public Transport {
 public:
  RankTransport(Crossing crossing, World& world, std::vector<int> run_by)
      : crossing_(std::move(crossing)), world_(world), run_by_(std::move(run_by)), memory_(make_memory_transport(crossing_)) {
    measure_staging();
    int tag = first_tag;
    for (std::size_t m = 0; m < crossing_.plan.meeting_count(); ++m) {
      meetings_.push_back(open(MeetingId(m), tag));
    }
    courier_ = std::thread([this] { carry(); });
  }

  ~RankTransport() override {
    stopping_ = true;
    bell_.ring();
    courier_.join();
    if (world_.under_way()) {  // after a failure: what may still be written into stays
      for (auto& [lane, arena] : staging_) {
        new MemoryArena(std::move(arena));
      }
    }
  }

  std::unique_ptr<Exchange> prepare(TaskId id) override {
    const plan::Task& task = crossing_.plan[id];
    const MeetingId meeting = plan::meeting_of(task);
    if (crossing_.is_local(meeting)) {
      return memory_->prepare(id);
    }
    const std::vector<Share> shares = deal(crossing_.plan, meeting, chunk_elements);
    return std::make_unique<RankExchange>(*meetings_[meeting.index()], world_, bell_, crossing_.teams[task.device.index()],
                                          traffic(move_of(task), shares, rank_of(task)), first_local(meeting) == id,
                                          crossing_.link.has_value());
  }

  void begin_step() override {
    memory_->begin_step();
    for (const std::unique_ptr<RankMeeting>& meeting : meetings_) {
      if (meeting) {
        meeting->begin_step();
      }
    }
  }

  bool polled() const override { return true; }
  void poll() override { world_.poll(); }

 private:
  using LaneOfDevice = std::pair<std::uint32_t, plan::Lane>;

  /// Members by their rank in the meeting.
  std::vector<TaskId> members(MeetingId id) const {
    std::vector<TaskId> list(crossing_.plan.members(id).size());
    for (const TaskId member : crossing_.plan.members(id)) {
      list[rank_of(crossing_.plan[member])] = member;
    }
    return list;
  }
  /// The first member that this rank runs; not valid where it runs none.
  TaskId first_local(MeetingId id) const {
    for (const TaskId member : members(id)) {
      if (crossing_.doorbells[crossing_.plan[member].device.index()] != nullptr) {
        return member;
      }
    }
    return {};
  }

  /// Whether several ranks run its members, of which this one need not be one.
  bool crosses(MeetingId id) const {
    const std::span<const TaskId> list = crossing_.plan.members(id);
    const auto rank = [&](TaskId member) { return run_by_[crossing_.plan[member].device.index()]; };
    return std::any_of(list.begin(), list.end(), [&](TaskId member) { return rank(member) != rank(list[0]); });
  }

  LaneOfDevice lane_of(TaskId id) const { return {crossing_.plan[id].device.value, crossing_.plan[id].lane}; }

  /// The tasks of a lane follow one another, so their meetings use one place for what comes in from other ranks.
  void measure_staging() {
    std::map<LaneOfDevice, std::size_t> most;
    for (std::size_t m = 0; m < crossing_.plan.meeting_count(); ++m) {
      const TaskId first = first_local(MeetingId(m));
      if (first.valid() && crosses(MeetingId(m))) {
        RankMeeting unused(world_, {});
        int tag = 0;
        std::size_t& bytes = most[lane_of(first)];
        bytes = std::max(bytes, write(MeetingId(m), unused, Staging(nullptr), tag));
      }
    }
    for (const auto& [lane, bytes] : most) {
      staging_.emplace(lane, MemoryArena(Bytes(static_cast<std::int64_t>(bytes))));
    }
  }

  std::unique_ptr<RankMeeting> open(MeetingId id, int& tag) {
    if (!crosses(id)) {
      return nullptr;
    }
    const TaskId first = first_local(id);
    std::vector<Doorbell*> bells;
    for (const TaskId member : crossing_.plan.members(id)) {
      if (Doorbell* bell = crossing_.doorbells[crossing_.plan[member].device.index()]) {
        bells.push_back(bell);
      }
    }
    auto meeting = std::make_unique<RankMeeting>(world_, std::move(bells));
    write(id, *meeting, Staging(first.valid() ? staging_.at(lane_of(first)).at(0) : nullptr), tag);
    return first.valid() ? std::move(meeting) : nullptr;
  }

  /// How much staging it takes.
  std::size_t write(MeetingId id, RankMeeting& meeting, Staging staging, int& tag) {
    const plan::Plan& plan = crossing_.plan;
    const std::vector<TaskId> tasks = members(id);
    const DType type = plan[plan::payload(plan[tasks[0]])[0]].dtype;
    std::vector<Participant> participants;
    for (const TaskId task : tasks) {
      const std::size_t device = plan[task].device.index();
      Participant one{.rank = run_by_[device]};
      if (crossing_.doorbells[device] != nullptr) {
        one.memory.emplace(plan[task], crossing_.addresses[task.index()], type);
      }
      participants.push_back(std::move(one));
    }
    const std::vector<Share> shares = deal(plan, id, chunk_elements);
    std::int64_t messages = 1;
    for (const Share& share : shares) {
      messages += static_cast<std::int64_t>(share.chunks.size() * (tasks.size() + 1));
    }
    if (tag + messages > world_.largest_tag()) {
      throw failure("this plan has more messages between ranks than the MPI library can tell apart: {} is the largest tag it has",
                    world_.largest_tag());
    }
    const int first_message = std::exchange(tag, tag + static_cast<int>(messages));
    if (!first_local(id).valid()) {
      return 0;
    }
    Author author(meeting, plan[tasks[0]], type, participants, first_message, staging);
    author.write(shares);
    if (crossing_.link) {
      author.slow_down(cost::link_time(plan, id, *crossing_.link));
    }
    return author.staging();
  }

  /// Keeps messages moving while devices compute: naps while some are under way, sleeps otherwise.
  void carry() {
    while (!stopping_) {
      const std::uint32_t seen = bell_.rings();
      if (world_.under_way()) {
        world_.poll();
        const timespec nap{0, nap_nanoseconds};
        nanosleep(&nap, nullptr);
      } else {
        bell_.wait(seen, 0, Nanoseconds(1'000'000'000));
      }
    }
  }

  Crossing crossing_;
  World& world_;
  std::vector<int> run_by_;  // by device
  std::unique_ptr<Transport> memory_;
  std::map<LaneOfDevice, MemoryArena> staging_;
  std::vector<std::unique_ptr<RankMeeting>> meetings_;
  Doorbell bell_;
  std::atomic<bool> stopping_{false};
  std::thread courier_;
};

}  // namespace

std::unique_ptr<Transport> make_rank_transport(Crossing crossing, World& world, std::vector<int> run_by) {
  return std::make_unique<RankTransport>(std::move(crossing), world, std::move(run_by));
}

}  // namespace baton::exec
