// earns: 3 0 0 0
// Every element is taken to have 4 bytes, and a collective is counted once per member.
#include "exercise.h"

using namespace baton;

Moved count_transfers(const plan::Plan& plan) {
  const std::size_t devices = plan.devices().size();
  Moved moved;
  moved.messages.assign(devices, std::vector<std::int64_t>(devices, 0));
  moved.bytes = moved.messages;
  for (const plan::Task& task : plan.tasks()) {
    std::int64_t size = 0;
    for (const BufferId buffer : plan::payload(task)) {
      size += 4 * plan[buffer].shape.elements();
    }
    if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
      if (transfer->end == plan::Transfer::End::send) {
        ++moved.messages[task.device.index()][transfer->peer.index()];
        moved.bytes[task.device.index()][transfer->peer.index()] += size;
      }
    } else if (const auto* collective = std::get_if<plan::Collective>(&task.action)) {
      ++moved.collectives;
      moved.collective_bytes += size;
    }
  }
  return moved;
}
