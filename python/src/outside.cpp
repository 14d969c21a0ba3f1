#include "outside.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "baton/base/stop.h"
#include "bindings.h"

namespace baton::python {
namespace {

constexpr std::chrono::milliseconds between_looks(20);
constexpr std::chrono::milliseconds grace(400);

/// Whether a signal's handler has raised; then what it raised is Python's current error.
bool handler_raised() { return PyErr_CheckSignals() != 0; }

}  // namespace

void run_outside(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::exception_ptr thrown;
  std::exception_ptr raised;
  Clock::time_point since;
  {
    const py::gil_scoped_release release;
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    std::thread worker([&] {
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      done = true;
      ended.notify_one();
    });
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, between_looks, [&] { return done; })) {
      lock.unlock();
      if (!raised) {
        const py::gil_scoped_acquire acquire;
        if (handler_raised()) {
          raised = std::make_exception_ptr(py::error_already_set());
          since = Clock::now();
          ask_to_stop(Stop::after_the_step);
        }
      } else if (Clock::now() - since > grace) {
        ask_to_stop(Stop::at_once);
      }
      lock.lock();
    }
    lock.unlock();
    worker.join();
  }
  if (raised) {
    forget_stop();
    thrown = nullptr;
    std::rethrow_exception(raised);
  }
  if (thrown) {
    std::rethrow_exception(thrown);
  }
}

}  // namespace baton::python
