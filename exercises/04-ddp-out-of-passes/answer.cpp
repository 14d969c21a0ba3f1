#include "exercise.h"

using namespace baton;

plan::Draft ddp(const strategy::Request& request) {
  // To do: one replica on device 0 has the whole batch; the other devices do nothing.
  strategy::Placement placement;
  placement.replicas.push_back({{0, request.step.global_batch}, std::vector<DeviceId>(request.model.blocks().size(), DeviceId(0))});
  placement.devices.push_back(request.cluster.device(DeviceId(0)).name);
  plan::Draft draft = strategy::training_step(request.model, request.step, placement);
  return strategy::add_updates(std::move(draft), request.step.optimizer);
}
