#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "baton/exec/transport/transport.h"
#include "baton/threads/doorbell.h"

namespace baton::exec {

/// A Load task as its device's thread sees it: a thread of its own fills the buffers while the device computes. What the thread
/// throws is thrown by `progress`.
class Loading final : public Exchange {
 public:
  /// `fill` is called once per post, and has the number of the step whose rows are wanted. `bell` is rung when it is done.
  Loading(std::function<void()> fill, threads::Doorbell& bell);
  ~Loading() override;
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  void post() override;
  bool progress(bool idle) override;
  std::optional<Nanoseconds> due() const override { return std::nullopt; }
  /// Waits until nothing is being filled, and forgets what was thrown.
  void settle();

 private:
  void work();

  std::function<void()> fill_;
  threads::Doorbell& bell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool wanted_ = false;
  bool ending_ = false;
  std::atomic<bool> done_{true};
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace baton::exec
