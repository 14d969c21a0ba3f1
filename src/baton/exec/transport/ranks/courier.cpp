#include "baton/exec/transport/ranks/courier.h"

#include <ctime>

namespace baton::exec {
namespace {

constexpr timespec nap{0, 50'000};

}  // namespace

Courier::~Courier() {
  stopping_ = true;
  bell_.ring();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Courier::start() {
  thread_ = std::thread([this] { run(); });
}

bool Courier::work() {
  bool worked = false;
  for (const std::atomic<RankMeeting*>& lane : lanes_) {
    if (RankMeeting* meeting = lane.load(std::memory_order_acquire); meeting != nullptr && meeting->ready() > 0) {
      meeting->work();
      worked = true;
    }
  }
  return worked;
}

void Courier::run() {
  while (!stopping_) {
    const std::uint32_t seen = bell_.rings();
    // What has waited for a nap: its device has been busy all the time.
    if (!work() && !world_.under_way()) {
      bell_.wait(seen, 0, Nanoseconds(1'000'000'000));
      continue;
    }
    world_.poll();
    nanosleep(&nap, nullptr);
  }
}

}  // namespace baton::exec
