#include "agree/thread_world.h"

#include <atomic>
#include <barrier>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "baton/base/error.h"

namespace baton::test {
namespace {

using ranks::Blob;
using ranks::Listener;
using ranks::Message;

struct Posted {
  Message message;
  Listener* listener;
  std::size_t number;
};

struct Heard {
  Listener* listener;
  std::size_t number;
};

/// What one rank is to be told the next time it looks.
struct Inbox {
  std::vector<Heard> heard;
  std::atomic<int> under_way{0};
};

struct Shared {
  explicit Shared(int ranks) : everyone(ranks), slots(static_cast<std::size_t>(ranks)), inboxes(static_cast<std::size_t>(ranks)) {}

  std::barrier<> everyone;
  std::vector<Blob> slots;
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, std::deque<Posted>> sends;  // by sender, receiver and tag
  std::map<std::tuple<int, int, int>, std::deque<Posted>> receives;
  std::vector<Inbox> inboxes;  // by rank
};

class ThreadWorld final : public ranks::World {
 public:
  ThreadWorld(int rank, int size, std::shared_ptr<Shared> shared) : World(rank, size), shared_(std::move(shared)) { find_hosts(); }

  using World::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::size_t> sizes) override {
    shared_->slots[static_cast<std::size_t>(rank())].assign(mine.begin(), mine.end());
    shared_->everyone.arrive_and_wait();
    std::size_t at = 0;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      check(shared_->slots[r].size() == sizes[r], "rank {} has {} bytes", r, shared_->slots[r].size());
      std::copy(shared_->slots[r].begin(), shared_->slots[r].end(), all.begin() + static_cast<std::ptrdiff_t>(at));
      at += shared_->slots[r].size();
    }
    shared_->everyone.arrive_and_wait();
  }
  std::vector<Blob> gather(std::span<const std::byte> mine) override {
    std::vector<Blob> all = all_gather(mine);
    return rank() == 0 ? std::move(all) : std::vector<Blob>{};
  }
  void broadcast(Blob& blob, int root) override {
    if (rank() == root) {
      shared_->slots[0] = blob;
    }
    shared_->everyone.arrive_and_wait();
    blob = shared_->slots[0];
    shared_->everyone.arrive_and_wait();
  }

  int largest_tag() const override { return 1 << 30; }
  void post(const Message& message, Listener& listener, std::size_t number) override {
    const std::lock_guard lock(shared_->mutex);
    inbox().under_way.fetch_add(1);
    const bool sends = message.end == Message::End::send;
    const std::tuple way{sends ? rank() : message.peer, sends ? message.peer : rank(), message.tag};
    std::deque<Posted>& waiting = (sends ? shared_->receives : shared_->sends)[way];
    if (waiting.empty()) {
      (sends ? shared_->sends : shared_->receives)[way].push_back({message, &listener, number});
      return;
    }
    const Posted other = waiting.front();
    waiting.pop_front();
    check(other.message.size == message.size, "a message of {} bytes meets one of {}", message.size, other.message.size);
    if (message.size > 0) {
      std::memcpy(sends ? other.message.data : message.data, sends ? message.data : other.message.data, message.size);
    }
    inbox().heard.push_back({&listener, number});
    shared_->inboxes[static_cast<std::size_t>(message.peer)].heard.push_back({other.listener, other.number});
  }
  bool poll() override {
    const std::unique_lock mine(polling_, std::try_to_lock);
    if (!mine) {
      return false;
    }
    std::vector<Heard> heard;
    {
      const std::lock_guard lock(shared_->mutex);
      heard.swap(inbox().heard);
    }
    for (const Heard& one : heard) {
      one.listener->over(one.number);
    }
    inbox().under_way.fetch_sub(static_cast<int>(heard.size()));
    return true;
  }
  bool under_way() const override { return shared_->inboxes[static_cast<std::size_t>(rank())].under_way.load() > 0; }

  std::optional<std::vector<std::string>> gather_errors(std::string_view, Nanoseconds) override { return std::nullopt; }
  void abort(int) override { std::abort(); }

 private:
  Inbox& inbox() { return shared_->inboxes[static_cast<std::size_t>(rank())]; }

  std::shared_ptr<Shared> shared_;
  std::mutex polling_;
};

}  // namespace

void run_as_ranks(int ranks, const std::function<void(ranks::World& world)>& rank) {
  run_as_ranks(ranks, [&](const std::shared_ptr<ranks::World>& world) { rank(*world); });
}

void run_as_ranks(int ranks, const std::function<void(const std::shared_ptr<ranks::World>& world)>& rank) {
  const auto shared = std::make_shared<Shared>(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { rank(std::make_shared<ThreadWorld>(r, ranks, shared)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace baton::test
