#include "outside.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
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

/// State of the signal handler: the previous handler of SIGINT, the call under way (0: none), and the call that is told to stop.
struct sigaction before {};
std::atomic<std::uint64_t> under_way{0};
std::atomic<std::uint64_t> asked_in{0};
sem_t asked;

void hear(int signal) {
  ask_to_stop(Stop::after_the_step);
  asked_in = under_way.load();
  sem_post(&asked);
  before.sa_handler(signal);  // Python's, which notes it
}

void give_up_later() {
  while (true) {
    if (sem_wait(&asked) == 0) {
      std::this_thread::sleep_for(grace);
      if (const std::uint64_t call = asked_in; call != 0 && call == under_way) {
        ask_to_stop(Stop::at_once);
      }
    }
  }
}

/// While it lives, SIGINT asks the call on the main thread to stop.
class Hearing {
 public:
  Hearing() {
    if (getpid() != gettid() || under_way != 0 || sigaction(SIGINT, nullptr, &before) != 0 || before.sa_handler == SIG_DFL ||
        before.sa_handler == SIG_IGN || (before.sa_flags & SA_SIGINFO) != 0) {
      return;
    }
    static const bool started = [] {
      sem_init(&asked, 0, 0);
      std::thread(give_up_later).detach();
      return true;
    }();
    static std::uint64_t calls = 0;
    under_way = ++calls;
    struct sigaction own = before;
    own.sa_handler = hear;
    hears_ = started && sigaction(SIGINT, &own, nullptr) == 0;
  }
  ~Hearing() {
    if (hears_) {
      sigaction(SIGINT, &before, nullptr);
      const bool stopped = asked_in == under_way;
      under_way = 0;
      if (stopped) {
        forget_stop();
      }
    }
  }
  Hearing(const Hearing&) = delete;
  Hearing& operator=(const Hearing&) = delete;

 private:
  bool hears_ = false;
};

/// True if a signal's handler has raised; then what it raised is Python's current error.
bool handler_raised() { return PyErr_CheckSignals() != 0; }

}  // namespace

void run_here(const std::function<void()>& work) {
  std::exception_ptr thrown;
  {
    const py::gil_scoped_release release;
    const Hearing hearing;
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  if (handler_raised()) {
    throw py::error_already_set();
  }
  if (thrown) {
    std::rethrow_exception(thrown);
  }
}

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
