#pragma once

#include <functional>
#include <optional>
#include <type_traits>

namespace baton::python {

/// Runs `work` on a thread of its own, without the GIL, while this one looks for signals. Once a handler of Python's raises, as
/// that of Ctrl-C does, the work is asked to stop: it may end its step for 0.4 s, then it is given up, as the program does it. What
/// the handler raised is thrown when the work has ended, otherwise what the work has thrown.
void run_outside(const std::function<void()>& work);

/// The same on this thread, for work that starts no threads and leaves this one as it was: a short call costs nothing more. On the
/// main thread SIGINT asks it to stop, and what Python's handler raises is thrown when it has ended.
void run_here(const std::function<void()>& work);

/// Either with a result.
template <typename Work>
auto outside(const Work& work, void (*run)(const std::function<void()>&) = run_outside) {
  using Value = std::invoke_result_t<Work>;
  if constexpr (std::is_void_v<Value>) {
    run(work);
  } else {
    std::optional<Value> value;
    run([&] { value.emplace(work()); });
    return std::move(*value);
  }
}

}  // namespace baton::python
