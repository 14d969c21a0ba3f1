#include "baton/exec/devices.h"

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/gpu.h"
#include "baton/exec/backend/cuda/cuda.h"

namespace baton::exec {

std::vector<cluster::Device> open_devices(std::string_view text, const cluster::Machine& machine,
                                          std::optional<Bytes> memory) {
  return cluster::names_gpus(text) ? cluster::parse_gpu_devices(text, find_gpus(), memory)
                                   : cluster::parse_devices(text, machine, memory);
}

std::string backend_for(const std::vector<cluster::Device>& devices, const std::string& wanted) {
  const bool gpu = devices.front().gpu.has_value();
  if (wanted.empty()) {
    return gpu ? "cuda" : "cpu";
  }
  if ((canonical(wanted) == "cuda") != gpu) {
    throw usage_error("the {} backend does not run on {}: choose --devices {}", wanted, devices.front().name,
                      gpu ? "cpu" : "cuda");
  }
  return wanted;
}

}  // namespace baton::exec
