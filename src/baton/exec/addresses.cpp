#include "baton/exec/addresses.h"

#include <algorithm>
#include <iterator>

namespace baton::exec {

Addresses addresses_of(const plan::Task& task, std::byte* workspace, const std::function<std::byte*(BufferId)>& address) {
  Addresses list;
  std::transform(task.reads.begin(), task.reads.end(), std::back_inserter(list.reads), address);
  std::transform(task.writes.begin(), task.writes.end(), std::back_inserter(list.writes), address);
  list.workspace = workspace;
  return list;
}

}  // namespace baton::exec
