#include "baton/exec/transport/ranks/meeting_builder.h"

#include <algorithm>

namespace baton::exec {
namespace {

class MeetingBuilder {
 public:
  MeetingBuilder(RankMeeting& meeting, const plan::Task& first, DType type, const std::vector<Participant>& members, int first_tag,
                 Staging& staging)
      : meeting_(meeting), move_(move_of(first)), type_(type), members_(members), next_tag_(first_tag), staging_(staging) {
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
      for (const ElementRun& run : shares[owner].runs) {
        write(owner, run);
        next_tag_ += static_cast<int>(members_.size()) + 1;
      }
    }
  }

  /// Each rank tells the others when its members have arrived; after all have, the meeting lasts `min_duration`.
  void slow_down(Nanoseconds min_duration) {
    RankMeeting::After all;
    for (const int other : others_) {
      meeting_.add(ranks::Message{ranks::Message::End::send, other, next_tag_, nullptr, 0});
      all.push_back(meeting_.add(ranks::Message{ranks::Message::End::receive, other, next_tag_, nullptr, 0}));
    }
    meeting_.slow_down(min_duration, std::move(all));
  }

 private:
  using After = RankMeeting::After;

  bool is_local(std::size_t member) const { return members_[member].memory.has_value(); }
  const MemberMemory& memory(std::size_t member) const { return *members_[member].memory; }
  std::size_t bytes(const ElementRun& run) const { return static_cast<std::size_t>(run.count * size_of(type_)); }

  /// The tag of the part that `member` sends to the member that sums.
  int part_tag(std::size_t member) const { return next_tag_ + static_cast<int>(member); }
  /// The tag of the result, which that member, or the only one that has it, sends to each rank.
  int result_tag() const { return next_tag_ + static_cast<int>(members_.size()); }

  std::size_t send(int rank, int tag, std::byte* from, const ElementRun& run, After after = {}) {
    return meeting_.add(ranks::Message{ranks::Message::End::send, rank, tag, from, bytes(run)}, std::move(after));
  }
  std::size_t receive(int rank, int tag, std::byte* to, const ElementRun& run, After after = {}) {
    return meeting_.add(ranks::Message{ranks::Message::End::receive, rank, tag, to, bytes(run)}, std::move(after));
  }
  std::size_t operate(Operation::Function kind, const ElementRun& run, std::vector<std::byte*> from, std::vector<std::byte*> to,
                      After after = {}) {
    return meeting_.add(Operation{kind, type_, run.count, std::move(from), std::move(to), rate_}, std::move(after));
  }

  void write(std::size_t owner, const ElementRun& run) {
    switch (move_) {
      case Move::copy:
      case Move::broadcast:
        hand_out(owner, run);
        break;
      case Move::all_gather:
        gather(owner, run);
        break;
      case Move::reduce:
      case Move::reduce_scatter:
      case Move::all_reduce:
        is_local(owner) ? sum_here(owner, run) : sum_there(owner, run);
        break;
    }
  }

  /// From member 0 to `target`. A rank is sent it once, for the first of its members, and copies it to the
  /// others.
  void hand_out(std::size_t target, const ElementRun& run) {
    const bool leads = lead_of(members_[target].rank) == target;
    if (is_local(0) && is_local(target)) {
      operate(Operation::Function::copy, run, {memory(0).at(run)}, {memory(target).at(run)});
    } else if (is_local(0) && leads) {
      send(members_[target].rank, result_tag(), memory(0).at(run), run);
    } else if (is_local(target) && leads) {
      copy_on(run, receive(members_[0].rank, result_tag(), memory(target).at(run), run), {});
    }
  }

  void gather(std::size_t owner, const ElementRun& run) {
    if (!is_local(owner)) {
      copy_on(run, receive(members_[owner].rank, result_tag(), memory(local_[0]).at(run), run), {});
      return;
    }
    operate(Operation::Function::copy, run, {memory(owner).piece_at(run)}, places(run));
    for (const int other : others_) {
      send(other, result_tag(), memory(owner).piece_at(run), run);
    }
  }

  /// A member of this rank takes the others' parts and sums them up.
  void sum_here(std::size_t owner, const ElementRun& run) {
    std::vector<std::byte*> from;
    After parts;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      from.push_back(is_local(m) ? memory(m).at(run) : staging_.take(bytes(run)));
      if (!is_local(m)) {
        parts.push_back(receive(members_[m].rank, part_tag(m), from.back(), run));
      }
    }
    if (move_ == Move::reduce_scatter) {
      operate(accumulate_ ? Operation::Function::add : Operation::Function::sum, run, std::move(from),
              {memory(owner).piece_at(run)}, std::move(parts));
      return;
    }
    if (move_ == Move::reduce) {
      operate(Operation::Function::sum, run, std::move(from), {memory(owner).at(run)}, std::move(parts));
      return;
    }
    const bool applies = rate_ > 0;
    std::byte* const total = applies ? staging_.take(bytes(run)) : memory(owner).at(run);
    std::vector<std::byte*> to = applies ? std::vector<std::byte*>{total} : places(run);
    const std::size_t summed = operate(Operation::Function::sum, run, std::move(from), std::move(to), std::move(parts));
    for (const int other : others_) {
      send(other, result_tag(), total, run, {summed});
    }
    if (applies) {
      operate(Operation::Function::apply, run, {total}, parameters(run), {summed});
    }
  }

  /// A member of another rank sums: each member of this one sends its part.
  void sum_there(std::size_t owner, const ElementRun& run) {
    After sent;
    for (const std::size_t m : local_) {
      sent.push_back(send(members_[owner].rank, part_tag(m), memory(m).at(run), run));
    }
    if (move_ != Move::all_reduce) {
      return;
    }
    if (rate_ > 0) {
      std::byte* const total = staging_.take(bytes(run));
      const std::size_t received = receive(members_[owner].rank, result_tag(), total, run);
      operate(Operation::Function::apply, run, {total}, parameters(run), {received});
      return;
    }
    // The sum replaces a part, so it is received after that part was sent.
    const std::size_t received = receive(members_[owner].rank, result_tag(), memory(local_[0]).at(run), run, {sent[0]});
    copy_on(run, received, After(sent.begin() + 1, sent.end()));
  }

  /// Copies the data that the first member of this rank has received to the others.
  void copy_on(const ElementRun& run, std::size_t received, After after) {
    if (local_.size() == 1) {
      return;
    }
    std::vector<std::byte*> to = places(run);
    to.erase(to.begin());
    after.push_back(received);
    operate(Operation::Function::copy, run, {memory(local_[0]).at(run)}, std::move(to), std::move(after));
  }

  /// The addresses of the run in the members of this rank.
  std::vector<std::byte*> places(const ElementRun& run) const {
    std::vector<std::byte*> list;
    for (const std::size_t m : local_) {
      list.push_back(memory(m).at(run));
    }
    return list;
  }
  std::vector<std::byte*> parameters(const ElementRun& run) const {
    std::vector<std::byte*> list;
    for (const std::size_t m : local_) {
      list.push_back(memory(m).parameter_at(run));
    }
    return list;
  }

  std::size_t lead_of(int rank) const {
    return static_cast<std::size_t>(
        std::find_if(members_.begin(), members_.end(), [&](const Participant& one) { return one.rank == rank; }) -
        members_.begin());
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
  Staging& staging_;
};

}  // namespace

void write_meeting(RankMeeting& meeting, const plan::Task& first, DType type, const std::vector<Participant>& members,
                   const std::vector<Share>& shares, int first_tag, Nanoseconds min_duration, Staging& staging) {
  MeetingBuilder builder(meeting, first, type, members, first_tag, staging);
  builder.write(shares);
  if (min_duration.count > 0) {
    builder.slow_down(min_duration);
  }
}

std::int64_t tags_of(const std::vector<Share>& shares) {
  std::size_t runs = 0;
  for (const Share& share : shares) {
    runs += share.runs.size();
  }
  return static_cast<std::int64_t>(runs * (shares.size() + 1)) + 1;  // a part of each member, a result; and one for all
}

}  // namespace baton::exec
