#include "baton/exec/transport/ranks/progress_thread.h"

#include <pthread.h>

#include <ctime>

namespace baton::exec {
namespace {

constexpr timespec short_nap{0, 50'000};
/// A poll takes some ten microseconds of a core, and data that arrive meanwhile (a megabit per millisecond on a link of 1 Gbit/s)
/// wait in the buffers of the system.
constexpr Nanoseconds long_nap(500'000);

}  // namespace

ProgressThread::~ProgressThread() {
  stopping_ = true;
  bell_.ring();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ProgressThread::start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "baton-progress");
    run();
  });
}

void ProgressThread::device_sleeps() {
  asleep_.fetch_add(1, std::memory_order_relaxed);
  if (sparing_) {
    hurry_.ring();
  }
}

void ProgressThread::nap() {
  const std::uint32_t seen = hurry_.rings();
  if (sparing_ && asleep_.load(std::memory_order_relaxed) == 0) {
    hurry_.wait(seen, 0, long_nap);
  } else {
    nanosleep(&short_nap, nullptr);
  }
}

bool ProgressThread::work() {
  bool worked = false;
  for (const std::atomic<RankMeeting*>& lane : lanes_) {
    if (RankMeeting* meeting = lane.load(std::memory_order_acquire); meeting != nullptr && meeting->ready() > 0) {
      meeting->work();
      worked = true;
    }
  }
  return worked;
}

void ProgressThread::run() {
  while (!stopping_) {
    const std::uint32_t seen = bell_.rings();
    // Operations may have waited for the end of a nap, while their devices were busy.
    if (!work() && !world_->under_way()) {
      bell_.wait(seen, 0, Nanoseconds(1'000'000'000));
      continue;
    }
    world_->poll();
    nap();
  }
}

}  // namespace baton::exec
