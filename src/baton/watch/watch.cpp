#include "baton/watch/watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/ranks/pack.h"
#include "baton/watch/rendezvous.h"
#include "baton/watch/wire.h"

namespace baton::watch {
namespace {

enum Message : std::uint8_t { beat, ask, failed, bye, done, ending, stop };

constexpr Nanoseconds millisecond(1'000'000);
/// The time in which the other ranks may reach the place where they wait, before that is reported.
constexpr Nanoseconds grace = millisecond * 250;
/// The time for which the others wait for rank 0 when it has to say that all end: a launcher that sees them end may end it too.
constexpr Nanoseconds last_hearing = millisecond * 1000;
constexpr std::size_t most_lines = 16;

std::string pack(const ranks::ProgressSnapshot& snapshot) {
  ranks::Packer packer;
  packer.add(snapshot.activity)
      .add(snapshot.gatherings)
      .add(snapshot.looks)
      .add(snapshot.worked)
      .add(static_cast<std::uint32_t>(snapshot.devices.size()));
  for (const ranks::DeviceProgress::Counts& counts : snapshot.devices) {
    packer.add(counts);
  }
  return packer.bytes();
}

std::optional<ranks::ProgressSnapshot> unpack_snapshot(std::string_view bytes) {
  ranks::Unpacker unpacker(bytes);
  ranks::ProgressSnapshot snapshot;
  snapshot.activity = unpacker.take<ranks::Activity>();
  snapshot.gatherings = unpacker.take<std::uint64_t>();
  snapshot.looks = unpacker.take<std::uint64_t>();
  snapshot.worked = unpacker.take<Nanoseconds>();
  const auto devices = unpacker.take<std::uint32_t>();
  for (std::uint32_t d = 0; d < devices && unpacker.good(); ++d) {
    snapshot.devices.push_back(unpacker.take<ranks::DeviceProgress::Counts>());
  }
  return unpacker.good() ? std::optional(snapshot) : std::nullopt;
}

std::string pack(const Ending& given) {
  ranks::Packer packer;
  packer.add_text(given.text).add(static_cast<std::uint32_t>(given.lost.size()));
  for (const LostRank& lost : given.lost) {
    packer.add(lost.rank).add(lost.cause).add(lost.since).add_text(lost.words).add(lost.code);
  }
  return packer.bytes();
}

Ending unpack_ending(std::string_view bytes) {
  ranks::Unpacker unpacker(bytes);
  Ending given;
  given.text = unpacker.take_text();
  const auto count = unpacker.take<std::uint32_t>();
  for (std::uint32_t l = 0; l < count && unpacker.good(); ++l) {
    LostRank lost;
    lost.rank = unpacker.take<int>();
    lost.cause = unpacker.take<LostRank::Cause>();
    lost.since = unpacker.take<Nanoseconds>();
    lost.words = unpacker.take_text();
    lost.code = unpacker.take<int>();
    given.lost.push_back(std::move(lost));
  }
  return given;
}

Nanoseconds processor_time(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return Nanoseconds(time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec);
}

std::string seconds(Nanoseconds time) { return fmt::format("{:.1f} s", static_cast<double>(time.count) * 1e-9); }

}  // namespace

/// A rank's thread and its connections: rank 0 has one to each other rank, the others one to rank 0.
class Watch::HeartbeatThread {
 public:
  HeartbeatThread(WatchOptions options, std::shared_ptr<const ranks::RankProgress> progress,
                  std::function<void(const Ending&)> over)
      : options_(std::move(options)),
        progress_(std::move(progress)),
        over_(std::move(over)),
        interval_(std::clamp(options_.patience.count / 50, millisecond.count * 10, millisecond.count * 500)),
        limit_(options_.patience.count - 8 * interval_.count),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        peers_(static_cast<std::size_t>(options_.size)) {
    check(options_.patience.count > 0 && options_.size > 0, "a watch over {} ranks with no patience", options_.size);
    if (!wake_.open()) {
      throw failure("the watch over the ranks cannot be started: no file descriptor is free");
    }
    std::vector<PeerConnection> met = rendezvous(options_.rank, options_.size, options_.broadcast);
    moved_at_ = now();
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      peers_[r].connection = std::move(met[r].connection);
      peers_[r].name = std::move(met[r].name);
      peers_[r].heard = moved_at_;
    }
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "baton-watch");
      run();
    });
  }

  ~HeartbeatThread() { part(); }

  void part() {
    if (thread_.joinable()) {
      finishing_ = true;
      wake();
      thread_.join();
    }
  }

  void judge_by(std::shared_ptr<const StallDiagnosis> diagnosis) {
    const std::lock_guard lock(mutex_);
    diagnosis_ = std::move(diagnosis);
    judged_from_ = now();
  }

  void allow_exit(Nanoseconds longest) { longest_exit_ = longest.count; }

  void give_up(const std::string& why, int code) {
    std::unique_lock lock(mutex_);
    own_failure_ = LostRank{options_.rank, LostRank::Cause::failed, {}, why, code};
    wake();
    condition_.wait_for(lock, std::chrono::nanoseconds((last_hearing * 2).count), [this] { return end_confirmed_; });
  }

  void stop_all(int signal) {
    stop_for_ = signal;
    wake();
  }

  void end_all() {
    end_requested_ = true;
    wake();
  }

 private:
  struct Peer {
    Connection connection;
    std::string name;  // "rank 2 (pid 4711 on node1)"
    Nanoseconds heard;
    Nanoseconds closed;  // when its connection was found closed; 0: it is not
    ranks::ProgressSnapshot snapshot;
    std::uint64_t earlier_looks = 0;  // the number of its looks some heartbeats ago
    Nanoseconds earlier_worked;       // how long it had worked by then
    Nanoseconds earlier_at;           // when that was
    Nanoseconds waited;               // when it was last seen to look while it waited as a whole
    std::vector<Nanoseconds> looked;  // by device: when it was last seen to look or to move
    bool finished = false;            // has said that it is done
    std::optional<LostRank> failure;  // has said that it cannot go on
  };

  bool leads() const { return options_.rank == 0; }

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  // The watch itself.

  void run() {
    Nanoseconds last = moved_at_;  // since the peers were met: this process may have been stopped before its thread ran
    Nanoseconds next_beat = last;
    while (!at_end()) {
      wait_until(next_beat);
      const Nanoseconds time = now();
      if (time - last > interval_ * 2) {
        forgive(time - last);
      }
      last = time;
      if (time >= next_beat) {
        send_beats();
        next_beat = time + interval_;
      }
      listen(time);
      if (end_acknowledged_) {
        return;
      }
      look_for_losses(time);
      if (!lost_.empty() && conclude(time)) {
        return;
      }
    }
  }

  void wait_until(Nanoseconds time) {
    std::vector<pollfd> waiting{{wake_.get(), POLLIN, 0}};
    for (const Peer& peer : peers_) {
      if (peer.connection.open()) {
        waiting.push_back({peer.connection.descriptor(), static_cast<short>(POLLIN | (peer.connection.unsent() ? POLLOUT : 0)), 0});
      }
    }
    Nanoseconds longest = time - now();
    if (!lost_.empty()) {
      longest = std::min(longest, millisecond * 20);
    }
    poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(0, longest.count / millisecond.count + 1)));
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t count = read(wake_.get(), &rings, sizeof(rings));
  }

  /// This process itself was stopped for a while, so the others' heartbeats could not be received.
  void forgive(Nanoseconds gap) {
    for (Peer& peer : peers_) {
      peer.heard += gap;
      peer.waited += gap;
      for (Nanoseconds& looked : peer.looked) {
        looked += gap;
      }
    }
    moved_at_ += gap;
  }

  /// The progress of this rank; its processor time excludes that of this thread.
  ranks::ProgressSnapshot own_snapshot() const {
    ranks::ProgressSnapshot snapshot = progress_->snapshot();
    snapshot.worked = processor_time(CLOCK_PROCESS_CPUTIME_ID) - processor_time(CLOCK_THREAD_CPUTIME_ID);
    return snapshot;
  }

  void send_beats() {
    const std::string snapshot = pack(own_snapshot());
    for (Peer& peer : peers_) {
      if (peer.connection.open()) {
        peer.connection.send(beat, leads() ? std::string_view() : snapshot);
      }
    }
  }

  void listen(Nanoseconds time) {
    if (leads()) {
      note(peers_[0], own_snapshot(), time);
      peers_[0].heard = time;
    }
    if (const int signal = stop_for_.exchange(0); signal != 0) {
      spread_stop(signal);
    }
    for (Peer& peer : peers_) {
      if (!peer.connection.open()) {
        continue;
      }
      peer.connection.flush();
      peer.connection.receive();
      while (const std::optional<Frame> frame = peer.connection.next()) {
        peer.heard = time;
        hear(peer, *frame, time);
      }
      if (!peer.connection.open()) {
        peer.closed = time;
      }
    }
    if (finishing_ && !finish_sent_) {
      finish_sent_ = true;
      if (!leads()) {
        peers_[0].connection.send(bye);
      }
    }
  }

  void hear(Peer& peer, const Frame& frame, Nanoseconds time) {
    switch (frame.kind) {
      case beat:
        if (const std::optional<ranks::ProgressSnapshot> snapshot = unpack_snapshot(frame.payload); leads() && snapshot) {
          note(peer, *snapshot, time);
        }
        break;
      case ask:
        peer.connection.send(beat, pack(own_snapshot()));
        break;
      case failed: {
        ranks::Unpacker unpacker(frame.payload);
        LostRank lost;
        lost.rank = unpacker.take<int>();
        lost.cause = unpacker.take<LostRank::Cause>();
        lost.words = unpacker.take_text();
        lost.code = unpacker.take<int>();
        peer.failure = std::move(lost);
        break;
      }
      case bye:
        peer.finished = true;
        break;
      case done:
        all_done_ = true;
        peer.finished = true;  // it may close before this rank has come to look
        break;
      case stop:
        spread_stop(ranks::Unpacker(frame.payload).take<int>());
        break;
      case ending:
        if (!leads()) {
          end_acknowledged_ = true;
          drain(last_hearing);
          speak(unpack_ending(frame.payload));
        }
        break;
      default:
        break;
    }
  }

  /// Rank 0 sends all ranks the signal that one of them has reported; each handles it once.
  void spread_stop(int signal) {
    if (stop_heard_) {
      return;
    }
    stop_heard_ = true;
    for (Peer& peer : peers_) {
      if (peer.connection.open()) {
        peer.connection.send(stop, ranks::Packer().add(signal).bytes());
      }
    }
    if (options_.stopping) {
      options_.stopping(signal);
    }
  }

  void note(Peer& peer, const ranks::ProgressSnapshot& snapshot, Nanoseconds time) {
    const bool at_work = works(peer, snapshot, time);
    if (at_work || snapshot.moved_since(peer.snapshot)) {
      moved_at_ = time;
    }
    peer.looked.resize(snapshot.devices.size(), time);
    for (std::size_t d = 0; d < snapshot.devices.size(); ++d) {
      if (d >= peer.snapshot.devices.size() || !(snapshot.devices[d] == peer.snapshot.devices[d])) {
        peer.looked[d] = time;
      }
    }
    if (snapshot.looks != peer.snapshot.looks || snapshot.gatherings != peer.snapshot.gatherings) {
      peer.waited = time;
    }
    peer.snapshot = snapshot;
  }

  /// True if a rank without tasks still computes, apart from polling. A fiftieth of the time since the last check is enough,
  /// because others may use its core. A rank that is ending has nothing left to compute.
  bool works(Peer& peer, const ranks::ProgressSnapshot& snapshot, Nanoseconds time) const {
    if (time - peer.earlier_at < interval_ * 2) {
      return false;
    }
    const bool worked = (snapshot.activity == ranks::Activity::starting || snapshot.activity == ranks::Activity::between) &&
                        snapshot.looks == peer.earlier_looks &&
                        (snapshot.worked - peer.earlier_worked) * 50 > time - peer.earlier_at;
    peer.earlier_looks = snapshot.looks;
    peer.earlier_worked = snapshot.worked;
    peer.earlier_at = time;
    return worked;
  }

  /// All ranks have said that they are done: rank 0 says so to all, and ends last.
  bool at_end() {
    if (!finishing_ || !lost_.empty()) {
      return false;
    }
    if (!leads()) {
      return all_done_;
    }
    const auto others = std::span(peers_).subspan(1);
    if (!all_done_ && std::all_of(others.begin(), others.end(), [](const Peer& peer) { return peer.finished; })) {
      all_done_ = true;
      for (Peer& peer : others) {
        peer.connection.send(done);
      }
    }
    return all_done_ && std::none_of(others.begin(), others.end(), [](const Peer& peer) { return peer.connection.open(); });
  }

  bool already_lost(int rank) const {
    return std::any_of(lost_.begin(), lost_.end(), [&](const LostRank& lost) { return lost.rank == rank; });
  }

  void lose(LostRank lost, Nanoseconds time) {
    if (lost_.empty()) {
      first_loss_at_ = time;
      for (Peer& peer : peers_) {
        if (leads() && peer.connection.open()) {
          peer.connection.send(ask);
        }
      }
    }
    lost_.push_back(std::move(lost));
  }

  void look_for_losses(Nanoseconds time) {
    look_at_own(time);
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      Peer& peer = peers_[r];
      const int rank = static_cast<int>(r);
      if (rank == options_.rank || (rank != 0 && !leads()) || already_lost(rank)) {
        continue;
      }
      if (peer.failure) {
        lose(*peer.failure, time);
      } else if (peer.closed.count > 0 && !peer.finished) {
        lose({rank, LostRank::Cause::closed, time - peer.closed, {}}, time);
      } else if (peer.closed.count == 0 && time - peer.heard > longest_silence(peer)) {
        lose({rank, LostRank::Cause::silent, time - peer.heard, {}}, time);
      }
    }
    if (leads() && lost_.empty() && time - moved_at_ > limit_) {
      look_for_hangs(time);
    }
  }

  /// The longest silence of a rank: if all are done, a rank that is done only has to exit.
  Nanoseconds longest_silence(const Peer& peer) const {
    return peer.finished && all_done_ ? std::max(limit_, Nanoseconds(longest_exit_)) : limit_;
  }

  void look_at_own(Nanoseconds time) {
    std::optional<LostRank> own;
    {
      const std::lock_guard lock(mutex_);
      own = std::exchange(own_failure_, std::nullopt);
    }
    if (!own && end_requested_.exchange(false)) {
      own = LostRank{options_.rank, LostRank::Cause::ended, {}, {}, 0};
    }
    if (!own || already_lost(options_.rank)) {
      return;
    }
    if (leads()) {
      lose(*own, time);
    } else {
      peers_[0].connection.send(failed, ranks::Packer().add(own->rank).add(own->cause).add_text(own->words).add(own->code).bytes());
    }
  }

  void look_for_hangs(Nanoseconds time) {
    std::vector<ranks::ProgressSnapshot> snapshots;
    std::vector<std::vector<bool>> still;  // by rank and device
    std::vector<int> away;                 // ranks that do not wait for others as a whole
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      const Peer& peer = peers_[r];
      if (time - peer.heard > interval_ * 4 || peer.closed.count > 0) {
        return;  // its position is not known well enough
      }
      const auto silent_since = [&](Nanoseconds looked) {
        const bool parted = r == 0 ? finish_sent_ : peer.finished;
        return !parted && time - looked > limit_ - interval_ * 2;
      };
      snapshots.push_back(peer.snapshot);
      still.emplace_back();
      for (const Nanoseconds looked : peer.looked) {
        const bool gathers = peer.snapshot.gatherings % 2 == 1 || peer.snapshot.activity != ranks::Activity::training;
        still.back().push_back(silent_since(gathers ? peer.waited : looked));
      }
      if (silent_since(peer.waited)) {
        away.push_back(static_cast<int>(r));
      }
    }
    const std::shared_ptr<const StallDiagnosis> diagnosis = judge();
    std::optional<StallDiagnosis::Stall> stall = diagnosis ? diagnosis->stall(snapshots, still, limit_) : std::nullopt;
    if (!stall) {
      stall = at_start(snapshots, away);
    }
    const Nanoseconds still_for = stood_still(time);
    if (!stall || still_for < stall->allowed) {
      return;
    }
    for (const int rank : stall->ranks) {
      lose({rank, LostRank::Cause::hung, still_for, {}}, time);
    }
    if (stall->ranks.empty()) {
      lose({-1, LostRank::Cause::hung, still_for, {}}, time);
    }
  }

  /// Before all have a plan: the ranks that cause the stall if all are starting and some do not arrive.
  std::optional<StallDiagnosis::Stall> at_start(std::span<const ranks::ProgressSnapshot> snapshots,
                                                const std::vector<int>& away) const {
    const bool all_start = std::all_of(snapshots.begin(), snapshots.end(), [](const ranks::ProgressSnapshot& snapshot) {
      return snapshot.activity == ranks::Activity::starting;
    });
    return all_start ? std::optional(
                           StallDiagnosis::Stall{away.size() == snapshots.size() ? std::vector<int>() : away, options_.slow_start})
                     : std::nullopt;
  }

  /// Returns true when everything is reported.
  bool conclude(Nanoseconds time) {
    const LostRank::Cause cause = lost_.front().cause;
    const bool sudden = cause != LostRank::Cause::silent && cause != LostRank::Cause::hung;
    if (leads() && sudden && cause != LostRank::Cause::ended && time - first_loss_at_ < grace) {
      return false;  // the others come to where they wait
    }
    if (leads() && !sudden) {  // those that went with it, a host or a network, are nearly as long silent
      for (std::size_t r = 1; r < peers_.size(); ++r) {
        const bool silent = peers_[r].closed.count == 0 && time - peers_[r].heard > limit_ - interval_ * 4;
        if (silent && !already_lost(static_cast<int>(r))) {
          lost_.push_back({static_cast<int>(r), LostRank::Cause::silent, time - peers_[r].heard, {}});
        }
      }
    }
    Ending given{lost_, words(), true};
    if (leads()) {
      const std::string packed = pack(given);
      for (std::size_t r = 0; r < peers_.size(); ++r) {
        peers_[r].connection.send(ending, packed);
        if (already_lost(static_cast<int>(r))) {
          peers_[r].connection.close();  // it may hear it or not
        }
      }
    }
    speak(std::move(given));
    return true;
  }

  /// Waits until the others have closed, for a while at most.
  void drain(Nanoseconds longest) {
    const Nanoseconds end = now() + longest;
    const auto hears = [](const Peer& peer) { return peer.connection.open(); };
    while (now() < end && std::any_of(peers_.begin(), peers_.end(), hears)) {
      std::vector<pollfd> waiting;
      for (Peer& peer : peers_) {
        if (peer.connection.open()) {
          peer.connection.flush();
          peer.connection.receive();
          while (peer.connection.next()) {  // read and dropped, so that they do not block later ones
          }
          waiting.push_back({peer.connection.descriptor(), POLLIN, 0});
        }
      }
      poll(waiting.data(), waiting.size(), 10);
    }
  }

  std::shared_ptr<const StallDiagnosis> judge() {
    const std::lock_guard lock(mutex_);
    return diagnosis_;
  }

  /// The time for which no rank has moved, as far as that can be judged.
  Nanoseconds stood_still(Nanoseconds time) {
    const std::lock_guard lock(mutex_);
    return time - std::max(moved_at_, judged_from_);
  }

  std::string name_of(int rank) const {
    return rank == options_.rank || rank < 0 ? fmt::format("rank {}", rank) : peers_[static_cast<std::size_t>(rank)].name;
  }

  std::string sentence(const LostRank& lost) const {
    switch (lost.cause) {
      case LostRank::Cause::closed:
        return fmt::format("{} is gone: it was killed, or ended without saying why", name_of(lost.rank));
      case LostRank::Cause::silent:
        return fmt::format("{} has not been heard from for {}: it is stopped, or its host or network is gone", name_of(lost.rank),
                           seconds(lost.since));
      case LostRank::Cause::hung:
        return lost.rank < 0
                   ? fmt::format("no rank has made progress for {}, although none is gone", seconds(lost.since))
                   : fmt::format("{} hangs: it is alive, but has made no progress for {}", name_of(lost.rank), seconds(lost.since));
      case LostRank::Cause::failed:
        return fmt::format("{} failed: {}", name_of(lost.rank), lost.words);
      case LostRank::Cause::ended:
        return fmt::format("{} was told to end by a signal", name_of(lost.rank));
    }
    throw BugError("a loss of no cause");
  }

  /// The error that all ranks have in common, which is reported once: nobody waited for another.
  std::optional<std::string> common_failure() const {
    for (const LostRank& lost : lost_) {
      if (lost.cause != LostRank::Cause::failed || lost.words != lost_.front().words) {
        return std::nullopt;
      }
    }
    return lost_.size() == peers_.size() ? std::optional(lost_.front().words) : std::nullopt;
  }

  std::string words() {
    if (const std::optional<std::string> said = common_failure()) {
      return *said + "\n";
    }
    std::string text;
    for (const LostRank& lost : lost_) {
      text += sentence(lost) + "\n";
    }
    const std::shared_ptr<const StallDiagnosis> diagnosis = judge();
    if (!leads()) {
      return text;
    }
    std::vector<ranks::ProgressSnapshot> snapshots;
    for (const Peer& peer : peers_) {
      snapshots.push_back(peer.snapshot);
    }
    const auto say = [&](int rank) {
      return diagnosis ? diagnosis->describe(snapshots, rank) : describe(snapshots[static_cast<std::size_t>(rank)].activity);
    };
    for (const LostRank& lost : lost_) {
      text += lost.rank < 0 ? ""
                            : fmt::format("  rank {} {}{}\n", lost.rank, say(lost.rank),
                                          lost.cause == LostRank::Cause::hung ? "" : ", when last heard from");
    }
    std::size_t lines = 0;
    std::size_t left_out = 0;
    for (int rank = 0; rank < options_.size; ++rank) {
      if (already_lost(rank)) {
        continue;
      }
      if (lines++ < most_lines) {
        text += fmt::format("  rank {} {}\n", rank, say(rank));
      } else {
        ++left_out;
      }
    }
    return text + (left_out == 0 ? "" : fmt::format("  and {} other ranks\n", left_out));
  }

  void speak(Ending given) {
    over_(given);
    const std::lock_guard lock(mutex_);
    end_confirmed_ = true;
    condition_.notify_all();
  }

  WatchOptions options_;
  std::shared_ptr<const ranks::RankProgress> progress_;
  std::function<void(const Ending&)> over_;
  Nanoseconds interval_;  // from beat to beat
  Nanoseconds limit_;     // the longest silence: a little less than the patience, since it was heard from a little before
                          // it fell silent
  Socket wake_;
  std::vector<Peer> peers_;     // by rank; on rank 0 its own snapshot too, on others only rank 0
  Nanoseconds moved_at_;        // when some rank was last seen to move
  std::vector<LostRank> lost_;  // in the order in which they were found
  Nanoseconds first_loss_at_;
  bool finish_sent_ = false;
  bool all_done_ = false;          // all have said that they are done, and know it of each other
  bool end_acknowledged_ = false;  // rank 0 has said that all end
  std::atomic<bool> finishing_{false};
  std::atomic<bool> end_requested_{false};
  std::atomic<int> stop_for_{0};               // a signal that all are to hear of
  bool stop_heard_ = false;                    // they have been told
  std::atomic<std::int64_t> longest_exit_{0};  // nanoseconds
  std::mutex mutex_;
  std::condition_variable condition_;
  bool end_confirmed_ = false;
  std::optional<LostRank> own_failure_;
  std::shared_ptr<const StallDiagnosis> diagnosis_;
  Nanoseconds judged_from_;  // when it came to be known
  std::thread thread_;
};

Watch::Watch(WatchOptions options, std::shared_ptr<const ranks::RankProgress> progress, std::function<void(const Ending&)> over)
    : heartbeat_(std::make_unique<HeartbeatThread>(std::move(options), std::move(progress), std::move(over))) {}

Watch::~Watch() = default;

void Watch::part() { heartbeat_->part(); }

void Watch::judge_by(std::shared_ptr<const StallDiagnosis> diagnosis) { heartbeat_->judge_by(std::move(diagnosis)); }

void Watch::allow_exit(Nanoseconds longest) { heartbeat_->allow_exit(longest); }

void Watch::give_up(const std::string& why, int code) { heartbeat_->give_up(why, code); }

void Watch::stop_all(int signal) { heartbeat_->stop_all(signal); }

void Watch::end_all() { heartbeat_->end_all(); }

}  // namespace baton::watch
