// The split rule of Task 3 as a strategy of Baton: layer i of depth goes to device i * n / depth.
#pragma once

#include <baton/strategy/passes.h>
#include <baton/strategy/strategy.h>
#include <baton/strategy/training_step.h>

inline baton::plan::Draft spread_evenly(const baton::strategy::Request& request) {
  const std::size_t depth = request.model.blocks().size();
  const std::size_t n = request.cluster.size();
  baton::strategy::Placement placement;
  placement.replicas.push_back({.rows = {0, request.step.global_batch}, .device_of_block = {}});
  for (std::size_t i = 0; i < depth; ++i) {
    placement.replicas[0].device_of_block.push_back(baton::DeviceId(i * n / depth));
  }
  for (const baton::cluster::Device& device : request.cluster.devices()) {
    placement.devices.push_back(device.name);
  }
  baton::plan::Draft draft = baton::strategy::training_step(request.model, request.step, placement);
  return baton::strategy::add_updates(baton::strategy::add_transfers(std::move(draft)), request.step.optimizer);
}
