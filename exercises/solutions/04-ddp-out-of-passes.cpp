#include "exercise.h"

using namespace baton;

plan::Draft ddp(const strategy::Request& request) {
  strategy::Placement placement;
  std::int64_t begin = 0;
  for (const std::int64_t rows :
       strategy::even_split(request.step.global_batch, static_cast<std::int64_t>(request.cluster.size()))) {
    const DeviceId device(placement.replicas.size());
    placement.replicas.push_back({{begin, begin + rows}, std::vector<DeviceId>(request.model.blocks().size(), device)});
    placement.devices.push_back(request.cluster.device(device).name);
    begin += rows;
  }
  plan::Draft draft = strategy::training_step(request.model, request.step, placement);
  draft = strategy::all_reduce_gradients(std::move(draft), request.layout.first_bucket, request.layout.bucket);
  return strategy::add_updates(std::move(draft), request.step.optimizer);
}
