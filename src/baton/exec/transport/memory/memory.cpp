#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "baton/base/error.h"
#include "baton/cost/link_time.h"
#include "baton/exec/clock.h"
#include "baton/exec/transport.h"

namespace baton::exec {
namespace {

using plan::Collective;

/// A run of elements that is moved or summed in one go: small enough to stay in the first cache of a core.
struct Chunk {
  std::size_t buffer;
  std::int64_t begin;
  std::int64_t count;
  std::size_t piece = 0;         // of the pieces that its share's member holds,
  std::int64_t piece_begin = 0;  // where in it
};

constexpr std::int64_t chunk_elements = 8192;

/// The chunks that fall to one member. Others may take some off it when they have nothing else to do.
struct alignas(64) Share {
  std::atomic<std::size_t> next{0};
  std::vector<Chunk> chunks;
  std::size_t target = 0;  // of a broadcast: whom these chunks are for
  Bytes moved;             // all chunks together, once
};

enum class Move : std::uint8_t { copy, broadcast, all_reduce, reduce, reduce_scatter, all_gather };

Move move_of(const Collective* collective) {
  if (collective == nullptr) {
    return Move::copy;
  }
  switch (collective->kind) {
    case Collective::Kind::all_reduce:
      return Move::all_reduce;
    case Collective::Kind::broadcast:
      return Move::broadcast;
    case Collective::Kind::reduce:
      return Move::reduce;
    case Collective::Kind::reduce_scatter:
      return Move::reduce_scatter;
    case Collective::Kind::all_gather:
      return Move::all_gather;
  }
  throw BugError("a collective of no kind");
}

/// What the members of one transfer or collective share.
class Meeting {
 public:
  Meeting(Move move, DType dtype, std::size_t members) : move_(move), dtype_(dtype), buffers_(members), shares_(members) {}

  // Set up before the first step.
  Move move_;
  DType dtype_;
  std::vector<std::vector<std::byte*>> buffers_;  // by rank (of a copy: source, target), then by buffer
  std::vector<std::vector<std::byte*>> parameters_;  // likewise, where the sum is applied and not kept
  std::vector<std::vector<std::byte*>> pieces_;  // by rank, where members hold pieces
  double sgd_rate_ = 0;
  bool accumulate_ = false;
  SharedRounding rounding_;
  std::vector<Share> shares_;                     // by rank
  std::size_t chunk_count_ = 0;
  std::vector<Doorbell*> doorbells_;
  Nanoseconds least_;  // emulated duration

  // Changed within a step.
  alignas(64) std::atomic<std::size_t> arrived_{0};
  std::atomic<bool> met_{false};
  alignas(64) std::atomic<std::size_t> finished_{0};
  std::atomic<std::int64_t> over_at_{0};

  void begin_step() {
    arrived_.store(0, std::memory_order_relaxed);
    met_.store(false, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    for (Share& share : shares_) {
      share.next.store(0, std::memory_order_relaxed);
    }
  }

  void ring_all() const {
    for (Doorbell* bell : doorbells_) {
      bell->ring();
    }
  }

  bool complete() const { return met_.load(std::memory_order_acquire); }
  bool finished() const { return finished_.load(std::memory_order_acquire) == chunk_count_; }

  void arrive() {
    const std::size_t before = arrived_.fetch_add(1, std::memory_order_acq_rel);
    if (before + 1 == shares_.size()) {
      if (least_.count > 0) {
        over_at_.store((now() + least_).count, std::memory_order_relaxed);
      }
      met_.store(true, std::memory_order_release);
      ring_all();
    }
  }

  /// Takes chunks of one share until there are none.
  void work_on(Share& share) {
    std::size_t done = 0;
    for (std::size_t i = share.next.fetch_add(1, std::memory_order_relaxed); i < share.chunks.size();
         i = share.next.fetch_add(1, std::memory_order_relaxed)) {
      run(share, share.chunks[i]);
      ++done;
    }
    if (done > 0 && finished_.fetch_add(done, std::memory_order_acq_rel) + done == chunk_count_) {
      ring_all();
    }
  }

 private:
  void run(const Share& share, const Chunk& chunk) {
    const std::int64_t width = size_of(dtype_);
    if (move_ == Move::all_gather) {
      for (const std::vector<std::byte*>& whole : buffers_) {
        std::memcpy(whole[chunk.buffer] + chunk.begin * width, pieces_[share.target][chunk.piece] + chunk.piece_begin * width,
                    static_cast<std::size_t>(chunk.count * width));
      }
    } else if (move_ == Move::copy || move_ == Move::broadcast) {
      std::memcpy(buffers_[share.target][chunk.buffer] + chunk.begin * width,
                  buffers_[0][chunk.buffer] + chunk.begin * width, static_cast<std::size_t>(chunk.count * width));
    } else if (is_narrow(dtype_)) {
      sum_narrow(share, chunk);
    } else if (dtype_ == DType::f32) {
      sum<float>(share, chunk);
    } else {
      sum<double>(share, chunk);
    }
  }

  /// Adds in order of rank, whoever does it, so that every run gives the same bits.
  template <typename Real>
  void sum(const Share& share, const Chunk& chunk) {
    const auto at = [&](std::size_t rank) {
      return reinterpret_cast<Real*>(buffers_[rank][chunk.buffer]) + chunk.begin;
    };
    const auto parameter = [&](std::size_t rank) {
      return reinterpret_cast<Real*>(parameters_[rank][chunk.buffer]) + chunk.begin;
    };
    const auto rate = static_cast<Real>(sgd_rate_);
    const std::size_t members = buffers_.size();
    Real* const piece = move_ == Move::reduce_scatter
                            ? reinterpret_cast<Real*>(pieces_[share.target][chunk.piece]) + chunk.piece_begin
                            : nullptr;
    if (members == 2 && sgd_rate_ > 0) {
      apply_two(at(0), at(1), parameter(0), parameter(1), rate, chunk.count);
      return;
    }
    if (members == 2 && piece == nullptr) {
      sum_two(at(0), at(1), chunk.count);
      return;
    }
    constexpr std::int64_t strip = 512;
    std::array<Real, strip> total;
    for (std::int64_t begin = 0; begin < chunk.count; begin += strip) {
      const std::int64_t count = std::min(strip, chunk.count - begin);
      std::copy_n(at(0) + begin, count, total.begin());
      for (std::size_t rank = 1; rank < members; ++rank) {
        const Real* other = at(rank) + begin;
        for (std::int64_t i = 0; i < count; ++i) {
          total[static_cast<std::size_t>(i)] += other[i];
        }
      }
      if (piece != nullptr) {
        for (std::int64_t i = 0; i < count; ++i) {
          piece[begin + i] = (accumulate_ ? piece[begin + i] : Real{0}) + total[static_cast<std::size_t>(i)];
        }
        continue;
      }
      for (std::size_t rank = 0; rank < (move_ == Move::all_reduce ? members : 1); ++rank) {
        if (sgd_rate_ > 0) {
          Real* weight = parameter(rank) + begin;
          for (std::int64_t i = 0; i < count; ++i) {
            weight[i] -= rate * total[static_cast<std::size_t>(i)];
          }
        } else {
          std::copy_n(total.begin(), count, at(rank) + begin);
        }
      }
    }
  }

  /// The same for 16-bit types: summed in float, rounded once.
  void sum_narrow(const Share& share, const Chunk& chunk) {
    const std::int64_t width = size_of(dtype_);
    const std::size_t members = buffers_.size();
    constexpr std::int64_t strip = 512;
    std::array<float, strip> total;
    std::array<float, strip> other;
    Rounding done;
    const auto add = [&](const std::byte* from, std::int64_t count) {
      widen(dtype_, from, other.data(), count);
      for (std::int64_t i = 0; i < count; ++i) {
        total[static_cast<std::size_t>(i)] += other[static_cast<std::size_t>(i)];
      }
    };
    for (std::int64_t begin = 0; begin < chunk.count; begin += strip) {
      const std::int64_t count = std::min(strip, chunk.count - begin);
      const auto at = [&](std::size_t rank) { return buffers_[rank][chunk.buffer] + (chunk.begin + begin) * width; };
      widen(dtype_, at(0), total.data(), count);
      for (std::size_t rank = 1; rank < members; ++rank) {
        add(at(rank), count);
      }
      if (move_ == Move::reduce_scatter) {
        std::byte* piece = pieces_[share.target][chunk.piece] + (chunk.piece_begin + begin) * width;
        if (accumulate_) {
          add(piece, count);
        }
        done += narrow(dtype_, total.data(), piece, count);
        continue;
      }
      done += narrow(dtype_, total.data(), at(0), count);
      for (std::size_t rank = 1; rank < (move_ == Move::all_reduce ? members : 1); ++rank) {
        std::memcpy(at(rank), at(0), static_cast<std::size_t>(count * width));
      }
    }
    rounding_.add(done);
  }

  template <typename Real>
  static void apply_two(const Real* __restrict first, const Real* __restrict second, Real* __restrict weight_0,
                        Real* __restrict weight_1, Real rate, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Real step = rate * (first[i] + second[i]);
      weight_0[i] -= step;
      weight_1[i] -= step;
    }
  }

  template <typename Real>
  void sum_two(Real* __restrict first, Real* __restrict second, std::int64_t count) const {
    if (move_ == Move::all_reduce) {
      for (std::int64_t i = 0; i < count; ++i) {
        const Real total = first[i] + second[i];
        first[i] = total;
        second[i] = total;
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        first[i] += second[i];
      }
    }
  }
};

class MemoryExchange final : public Exchange, private TeamWork {
 public:
  MemoryExchange(Meeting& meeting, std::size_t rank, Team* team, Bytes sent, Bytes received)
      : meeting_(meeting), rank_(rank), team_(team), sent_(sent), received_(received) {}

  void post() override { meeting_.arrive(); }

  bool progress(bool idle) override {
    if (!meeting_.complete()) {
      return false;
    }
    if (left(meeting_.shares_[rank_])) {
      share_ = &meeting_.shares_[rank_];
      work();
    }
    if (idle) {
      for (Share& share : meeting_.shares_) {
        if (left(share)) {
          share_ = &share;
          work();
        }
      }
    }
    return meeting_.finished() && (meeting_.least_.count == 0 || now() >= over_at());
  }

  std::optional<Nanoseconds> due() const override {
    if (meeting_.least_.count == 0 || !meeting_.complete() || !meeting_.finished()) {
      return std::nullopt;
    }
    return over_at();
  }

  Bytes sent() const override { return sent_; }
  Bytes received() const override { return received_; }
  Rounding rounding() const override { return rank_ == 0 ? meeting_.rounding_.total() : Rounding{}; }

 private:
  static bool left(const Share& share) { return share.next.load(std::memory_order_relaxed) < share.chunks.size(); }
  /// Said by the last to arrive, before anybody can tell that all have.
  Nanoseconds over_at() const { return Nanoseconds(meeting_.over_at_.load(std::memory_order_relaxed)); }

  void work() {
    if (team_->size() > 1 && share_->chunks.size() >= 8) {
      team_->run(*this);
    } else {
      meeting_.work_on(*share_);
    }
  }
  void run(const Member&) override { meeting_.work_on(*share_); }

  Meeting& meeting_;
  std::size_t rank_;
  Team* team_;
  Bytes sent_;
  Bytes received_;
  Share* share_ = nullptr;
};

class MemoryTransport final : public Transport {
 public:
  explicit MemoryTransport(Crossing crossing) : crossing_(std::move(crossing)) {
    for (std::size_t m = 0; m < crossing_.plan.meeting_count(); ++m) {
      meetings_.push_back(crossing_.plan.members(MeetingId(m)).empty() ? nullptr : open(MeetingId(m)));
    }
  }

  std::unique_ptr<Exchange> prepare(TaskId id) override {
    const plan::Task& task = crossing_.plan[id];
    Meeting& meeting = *meetings_[meeting_of(task).index()];
    const std::size_t rank = rank_of(task);
    Bytes sent;
    Bytes received;
    for (std::size_t r = 0; r < meeting.shares_.size(); ++r) {
      count(meeting, r, rank, sent, received);
    }
    return std::make_unique<MemoryExchange>(meeting, rank, crossing_.teams[task.device.index()], sent, received);
  }

  void begin_step() override {
    for (const std::unique_ptr<Meeting>& meeting : meetings_) {
      if (meeting) {
        meeting->begin_step();
      }
    }
  }

 private:
  /// Of a transfer: 0 is the sender, 1 the receiver.
  static std::size_t rank_of(const plan::Task& task) {
    if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
      return transfer->end == plan::Transfer::End::send ? 0 : 1;
    }
    return std::get<Collective>(task.action).rank;
  }

  /// What crosses into or out of `rank` when the chunks of share `r` are done.
  static void count(const Meeting& meeting, std::size_t r, std::size_t rank, Bytes& sent, Bytes& received) {
    const Share& share = meeting.shares_[r];
    const auto others = static_cast<std::int64_t>(meeting.shares_.size()) - 1;
    switch (meeting.move_) {
      case Move::copy:
      case Move::broadcast:
        sent += rank == 0 ? share.moved : Bytes(0);
        received += rank != 0 && rank == share.target ? share.moved : Bytes(0);
        break;
      case Move::reduce:
        sent += rank == 0 ? Bytes(0) : share.moved;
        received += rank == 0 ? share.moved * others : Bytes(0);
        break;
      case Move::all_reduce:
        // The one whose share it is takes it from the others and hands the sum back to each.
        sent += r == rank ? share.moved * others : share.moved;
        received += r == rank ? share.moved * others : share.moved;
        break;
      case Move::reduce_scatter:
        (r == rank ? received : sent) += r == rank ? share.moved * others : share.moved;
        break;
      case Move::all_gather:
        (r == rank ? sent : received) += r == rank ? share.moved * others : share.moved;
        break;
    }
  }

  std::unique_ptr<Meeting> open(MeetingId id) {
    const plan::Plan& plan = crossing_.plan;
    const std::span<const TaskId> members = plan.members(id);
    const plan::Task& first = plan[members[0]];
    const auto* collective = std::get_if<Collective>(&first.action);
    const Move move = move_of(collective);
    const std::span<const BufferId> buffers = plan::payload(first);
    auto meeting = std::make_unique<Meeting>(move, plan[buffers[0]].dtype, members.size());
    for (const TaskId member : members) {
      const plan::Task& task = plan[member];
      const Addresses& addresses = crossing_.addresses[member.index()];
      meeting->buffers_[rank_of(task)] =
          task.reads.empty() || move == Move::all_gather ? addresses.writes : addresses.reads;
      if (move == Move::reduce_scatter || move == Move::all_gather) {
        meeting->pieces_.resize(members.size());
        meeting->pieces_[rank_of(task)] = move == Move::all_gather ? addresses.reads : addresses.writes;
        meeting->accumulate_ = collective->accumulate;
      }
      if (collective != nullptr && collective->sgd_rate > 0) {
        check(!is_narrow(meeting->dtype_), "an all-reduce applies gradients of {}", to_text(meeting->dtype_));
        meeting->sgd_rate_ = collective->sgd_rate;
        meeting->parameters_.resize(members.size());
        meeting->parameters_[rank_of(task)] = addresses.writes;
      }
      meeting->doorbells_.push_back(crossing_.doorbells[task.device.index()]);
    }
    divide(*meeting, plan, buffers);
    if (crossing_.link) {
      meeting->least_ = cost::link_time(plan, id, *crossing_.link);
    }
    return meeting;
  }

  /// Deals the elements out to the members' shares and cuts each share into chunks.
  static void divide(Meeting& meeting, const plan::Plan& plan, std::span<const BufferId> buffers) {
    std::int64_t total = 0;
    for (const BufferId id : buffers) {
      total += plan[id].shape.elements();
      check(plan[id].dtype == meeting.dtype_, "buffer {} of a collective is of another type", id.value);
    }
    const auto members = static_cast<std::int64_t>(meeting.shares_.size());
    for (std::int64_t rank = 0; rank < members; ++rank) {
      Share& share = meeting.shares_[static_cast<std::size_t>(rank)];
      if (!meeting.pieces_.empty()) {
        deal_pieces(meeting, plan, buffers, static_cast<std::uint32_t>(rank));
        meeting.chunk_count_ += share.chunks.size();
        continue;
      }
      std::int64_t begin = 0;
      std::int64_t end = 0;
      switch (meeting.move_) {
        case Move::all_reduce:
          begin = rank * total / members;
          end = (rank + 1) * total / members;
          break;
        case Move::copy:
        case Move::broadcast:
          end = rank == 0 ? 0 : total;
          share.target = static_cast<std::size_t>(rank);
          break;
        case Move::reduce:
          end = rank == 0 ? total : 0;
          break;
        case Move::reduce_scatter:
        case Move::all_gather:
          break;  // dealt above
      }
      share.moved = Bytes((end - begin) * size_of(meeting.dtype_));
      std::int64_t start = 0;  // of the buffer, in the run of all buffers
      for (std::size_t b = 0; b < buffers.size(); ++b) {
        const std::int64_t extent = plan[buffers[b]].shape.elements();
        for (std::int64_t at = std::max(begin, start); at < std::min(end, start + extent); at += chunk_elements) {
          share.chunks.push_back({b, at - start, std::min({chunk_elements, end - at, start + extent - at})});
        }
        start += extent;
      }
      meeting.chunk_count_ += share.chunks.size();
    }
  }

  /// To each member its own pieces.
  static void deal_pieces(Meeting& meeting, const plan::Plan& plan, std::span<const BufferId> buffers, std::uint32_t rank) {
    Share& share = meeting.shares_[rank];
    share.target = rank;
    std::size_t piece = 0;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const plan::Piece range =
          plan::piece_of(plan[buffers[b]].shape.elements(), rank, static_cast<std::uint32_t>(meeting.shares_.size()));
      for (std::int64_t at = range.begin; at < range.end; at += chunk_elements) {
        share.chunks.push_back({b, at, std::min(chunk_elements, range.end - at), piece, at - range.begin});
      }
      piece += range.size() > 0 ? 1 : 0;
      share.moved += Bytes(range.size() * size_of(meeting.dtype_));
    }
  }

  Crossing crossing_;
  std::vector<std::unique_ptr<Meeting>> meetings_;
};

}  // namespace

std::unique_ptr<Transport> make_memory_transport(Crossing crossing) {
  return std::make_unique<MemoryTransport>(std::move(crossing));
}

}  // namespace baton::exec
