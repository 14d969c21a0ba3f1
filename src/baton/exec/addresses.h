#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "baton/base/ids.h"
#include "baton/plan/task.h"

namespace baton::exec {

/// The addresses of a task's buffers, in the order of the task.
struct Addresses {
  std::vector<std::byte*> reads;
  std::vector<std::byte*> writes;
  std::byte* workspace = nullptr;  // has as many bytes as the plan gives the task
};

/// The addresses of a task's buffers, each given by `address`.
Addresses addresses_of(const plan::Task& task, std::byte* workspace, const std::function<std::byte*(BufferId)>& address);

}  // namespace baton::exec
