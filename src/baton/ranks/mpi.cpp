#include "baton/ranks/mpi.h"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <numeric>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/threads/backoff.h"

namespace baton::ranks {
namespace {

/// MPI counts in ints; longer contents go in several messages.
constexpr std::size_t longest_message = std::size_t{1} << 30;
constexpr int gather_tag = 1;

/// Has Open MPI send messages of the usual length over TCP at once. Beyond its own limit it first asks if a receive is posted, and
/// the answer waits for the data that the other side sends: then the two directions of a link take turns, and everything takes
/// twice as long. A value that the user has set stays.
void send_at_once() { setenv("OMPI_MCA_btl_tcp_eager_limit", std::to_string(usual_message + 4096).c_str(), 0); }

/// Other ranks may be on the same core.
threads::Backoff make_backoff() { return {200, 2000, Nanoseconds(50'000)}; }

int int_of(std::size_t size) {
  check(size <= longest_message, "{} bytes in one message", size);
  return static_cast<int>(size);
}

class MpiWorld final : public World {
 public:
  static std::unique_ptr<World> open(const Launch& launch) {
    send_at_once();
    int given = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given);
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (given < MPI_THREAD_SERIALIZED || (launch.ranks > 1 && size != launch.ranks)) {
      MPI_Finalize();
      if (given < MPI_THREAD_SERIALIZED) {
        throw failure("this MPI library does not let several threads take turns, which baton needs");
      }
      throw usage_error(
          "{} started {} ranks, but the MPI library that baton was built with sees {}: start it with that "
          "library's own mpirun, or "
          "with srun --mpi=pmix",
          launch.launcher, launch.ranks, size);
    }
    return std::unique_ptr<World>(new MpiWorld(rank, size));
  }

  ~MpiWorld() override {
    for (std::size_t i = 0; i < requests_.size(); ++i) {  // requests of a step that was given up; nobody waits for them any more
      if (awaited_[i].end == Message::End::receive) {
        MPI_Cancel(&requests_[i]);
      }
      MPI_Request_free(&requests_[i]);
    }
    MPI_Finalize();
  }

  using World::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::size_t> sizes) override {
    const std::size_t own = sizes[static_cast<std::size_t>(rank())];
    const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    check(mine.size() == own && all.size() >= total, "{} bytes gathered where {} were expected", mine.size(), own);
    if (total > longest_message) {
      gather_in_turn(mine, all, sizes);
      return;
    }
    std::vector<int> counts;
    std::vector<int> begins;
    for (const std::size_t size : sizes) {
      begins.push_back(counts.empty() ? 0 : begins.back() + counts.back());
      counts.push_back(int_of(size));
    }
    finish([&](MPI_Request& request) {
      MPI_Iallgatherv(mine.data(), int_of(mine.size()), MPI_BYTE, all.data(), counts.data(), begins.data(), MPI_BYTE, control_,
                      &request);
    });
  }

  std::vector<Blob> gather(std::span<const std::byte> mine) override {
    const auto own = static_cast<std::uint64_t>(mine.size());
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size()));
    const std::vector<std::size_t> of_a_size(sizes.size(), sizeof own);
    all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(sizes)), of_a_size);
    if (rank() != 0) {
      Blob copy(mine.begin(), mine.end());
      in_parts(copy, [&](std::byte* part, int count, MPI_Request& request) {
        MPI_Isend(part, count, MPI_BYTE, 0, gather_tag, control_, &request);
      });
      return {};
    }
    std::vector<Blob> blobs{Blob(mine.begin(), mine.end())};
    for (int r = 1; r < size(); ++r) {
      blobs.emplace_back(static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)]));
      in_parts(blobs.back(), [&](std::byte* part, int count, MPI_Request& request) {
        MPI_Irecv(part, count, MPI_BYTE, r, gather_tag, control_, &request);
      });
    }
    return blobs;
  }

  void broadcast(Blob& blob, int root) override {
    std::uint64_t count = blob.size();
    finish([&](MPI_Request& request) { MPI_Ibcast(&count, 1, MPI_UINT64_T, root, control_, &request); });
    blob.resize(static_cast<std::size_t>(count));
    in_parts(blob, [&](std::byte* part, int bytes, MPI_Request& request) {
      MPI_Ibcast(part, bytes, MPI_BYTE, root, control_, &request);
    });
  }

  int largest_tag() const override { return largest_tag_; }

  void post(const Message& message, Listener& listener, std::size_t number) override {
    const std::lock_guard lock(mutex_);
    MPI_Request request = MPI_REQUEST_NULL;
    if (message.end == Message::End::send) {
      MPI_Isend(message.data, int_of(message.size), MPI_BYTE, message.peer, message.tag, data_, &request);
    } else {
      MPI_Irecv(message.data, int_of(message.size), MPI_BYTE, message.peer, message.tag, data_, &request);
    }
    requests_.push_back(request);
    awaited_.push_back({&listener, number, message.end});
    count_.store(requests_.size(), std::memory_order_release);
  }

  bool poll() override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {
      return false;
    }
    if (requests_.empty()) {
      return true;
    }
    indices_.resize(requests_.size());
    int ended = 0;
    MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &ended, indices_.data(), MPI_STATUSES_IGNORE);
    if (ended == MPI_UNDEFINED || ended == 0) {
      return true;
    }
    ended_.clear();
    for (int i = 0; i < ended; ++i) {
      ended_.push_back(awaited_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])]);
    }
    std::size_t kept = 0;  // MPI has taken those that ended off the list
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) {
        requests_[kept] = requests_[i];
        awaited_[kept++] = awaited_[i];
      }
    }
    requests_.resize(kept);
    awaited_.resize(kept);
    for (const Awaited& one : ended_) {
      one.listener->over(one.number);
    }
    count_.store(requests_.size(), std::memory_order_release);
    return true;
  }

  bool under_way() const override { return count_.load(std::memory_order_acquire) > 0; }

  std::optional<std::vector<std::string>> gather_errors(std::string_view mine, Nanoseconds patience) override {
    const Nanoseconds limit = now() + patience;
    constexpr std::size_t longest = 4096;
    std::vector<char> own(longest, '\0');
    std::copy_n(mine.begin(), std::min(mine.size(), longest - 1), own.begin());
    std::vector<char> all(longest * static_cast<std::size_t>(size()));
    MPI_Request request = MPI_REQUEST_NULL;
    const std::lock_guard lock(mutex_);
    MPI_Iallgather(own.data(), longest, MPI_CHAR, all.data(), longest, MPI_CHAR, farewell_, &request);
    threads::Backoff waiting = make_backoff();
    for (int over = 0; over == 0; waiting.wait()) {
      MPI_Test(&request, &over, MPI_STATUS_IGNORE);
      if (over == 0 && now() > limit) {
        return std::nullopt;
      }
    }
    std::vector<std::string> words;
    for (int r = 0; r < size(); ++r) {
      words.emplace_back(all.data() + longest * static_cast<std::size_t>(r));
    }
    return words;
  }

  void abort(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 private:
  struct Awaited {
    Listener* listener;
    std::size_t number;
    Message::End end;
  };

  MpiWorld(int rank, int size) : World(rank, size) {
    // Duplicated, so that no communicator receives another's messages.
    MPI_Comm_dup(MPI_COMM_WORLD, &control_);
    MPI_Comm_dup(MPI_COMM_WORLD, &data_);
    MPI_Comm_dup(MPI_COMM_WORLD, &farewell_);
    void* value = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
    largest_tag_ = found != 0 ? *static_cast<int*>(value) : 32767;
    find_hosts();
  }

  /// Begins something with a request and waits for its end, letting other threads in between.
  template <typename Begin>
  void finish(Begin begin) {
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const std::lock_guard lock(mutex_);
      begin(request);
    }
    threads::Backoff waiting = make_backoff();
    while (true) {
      int over = 0;
      {
        const std::lock_guard lock(mutex_);
        MPI_Test(&request, &over, MPI_STATUS_IGNORE);
      }
      if (over != 0) {
        return;
      }
      progress()->look();
      waiting.wait();
    }
  }

  template <typename Begin>
  void in_parts(std::span<std::byte> bytes, Begin begin) {
    for (std::size_t at = 0; at < bytes.size(); at += longest_message) {
      finish(
          [&](MPI_Request& request) { begin(bytes.data() + at, int_of(std::min(longest_message, bytes.size() - at)), request); });
    }
  }

  /// Gathers contents that are too long for one call: each rank in its turn broadcasts its own.
  void gather_in_turn(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::size_t> sizes) {
    std::size_t at = 0;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      const std::span<std::byte> place = all.subspan(at, sizes[r]);
      if (static_cast<int>(r) == rank()) {
        std::copy(mine.begin(), mine.end(), place.begin());
      }
      in_parts(place, [&](std::byte* part, int bytes, MPI_Request& request) {
        MPI_Ibcast(part, bytes, MPI_BYTE, static_cast<int>(r), control_, &request);
      });
      at += sizes[r];
    }
  }

  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm farewell_ = MPI_COMM_NULL;
  int largest_tag_ = 0;

  std::recursive_mutex mutex_;  // around MPI; a listener posts from within `poll`
  std::vector<MPI_Request> requests_;
  std::vector<Awaited> awaited_;  // likewise
  std::vector<int> indices_;
  std::vector<Awaited> ended_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace

std::unique_ptr<World> open_mpi_world(const Launch& launch) { return MpiWorld::open(launch); }

}  // namespace baton::ranks
