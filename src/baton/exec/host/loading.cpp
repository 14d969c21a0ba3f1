#include "baton/exec/host/loading.h"

#include <utility>

namespace baton::exec {

Loading::Loading(std::function<void()> fill, threads::Doorbell& bell)
    : fill_(std::move(fill)), bell_(bell), thread_([this] { work(); }) {}

Loading::~Loading() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loading::post() {
  done_.store(false, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  changed_.notify_all();
}

bool Loading::progress(bool /*idle*/) {
  if (!done_.load(std::memory_order_acquire)) {
    return false;
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  return true;
}

void Loading::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !wanted_; });
  failure_ = nullptr;
}

void Loading::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return wanted_ || ending_; });
    if (ending_) {
      return;
    }
    lock.unlock();
    try {
      fill_();
    } catch (...) {
      failure_ = std::current_exception();
    }
    lock.lock();
    wanted_ = false;
    done_.store(true, std::memory_order_release);
    changed_.notify_all();
    bell_.ring();
  }
}

}  // namespace baton::exec
