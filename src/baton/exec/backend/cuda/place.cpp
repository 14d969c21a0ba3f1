#include "baton/exec/backend/cuda/place.h"

#include <map>

#include "baton/base/error.h"
#include "baton/exec/backend/cuda/driver.h"
#include "baton/exec/backend/cuda/status.h"

namespace baton::exec::cuda {
namespace {

/// Messages go before computations that became ready at the same time: others wait for them.
int priority(std::size_t lane) { return static_cast<plan::Lane>(lane) == plan::Lane::communication ? -1 : 0; }

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  require(cudaDeviceGetAttribute(&value, which, ordinal), "reading what it is");
  return value;
}

int multiprocessors_of(CUgreenCtx partition) {
  CUdevResource resource{};
  require(driver().get_green_resource(partition, &resource, CU_DEV_RESOURCE_TYPE_SM), "opening a part");
  return static_cast<int>(resource.sm.smCount);
}

/// Equal parts of a GPU, and what is left over of it (null where nothing is).
struct Parts {
  std::vector<CUgreenCtx> parts;
  std::shared_ptr<const Carrier> carrier;
};

/// Cuts a GPU's multiprocessors into equal groups, and gives the first `count` of them.
Parts partitions(int ordinal, int of, int count) {
  require(cudaSetDevice(ordinal), "selecting it");
  require(cudaFree(nullptr), "starting");  // the primary context must be there
  CUdevice device = 0;
  require(driver().device_get(&device, ordinal), "selecting it");
  CUdevResource all{};
  require(driver().get_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "listing its multiprocessors");
  const unsigned available = all.sm.smCount;
  std::vector<CUdevResource> groups(static_cast<std::size_t>(of));
  auto made = static_cast<unsigned>(of);
  CUdevResource rest{};
  // Groups come in steps of some multiprocessors: ask for fewer until there are enough of them.
  unsigned wanted = available / static_cast<unsigned>(of);
  for (; wanted > 0; --wanted) {
    made = static_cast<unsigned>(of);
    if (driver().split(groups.data(), &made, &all, &rest, 0, wanted) == CUDA_SUCCESS && made == static_cast<unsigned>(of)) {
      break;
    }
  }
  if (wanted == 0) {
    throw usage_error("GPU {} with its {} multiprocessors cannot be cut into {} parts: ask for fewer", ordinal, available, of);
  }
  Parts result;
  for (int i = 0; i < count; ++i) {
    CUdevResourceDesc description{};
    require(driver().describe(&description, &groups[static_cast<std::size_t>(i)], 1), "cutting it into parts");
    CUgreenCtx context = nullptr;
    require(driver().create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "cutting it into parts");
    result.parts.push_back(context);
  }
  CUdevResourceDesc description{};
  CUgreenCtx left_over = nullptr;
  if (rest.sm.smCount > 0 && driver().describe(&description, &rest, 1) == CUDA_SUCCESS &&
      driver().create(&left_over, description, device, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS) {
    result.carrier = std::make_shared<Carrier>(ordinal, left_over);
  }
  return result;
}

}  // namespace

Place::Place(int ordinal)
    : ordinal_(ordinal),
      multiprocessors_(attribute(cudaDevAttrMultiProcessorCount, ordinal)),
      capability_major_(attribute(cudaDevAttrComputeCapabilityMajor, ordinal)) {
  enter();
  for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
    require(cudaStreamCreateWithPriority(&streams_[lane], cudaStreamNonBlocking, priority(lane)), "opening a stream");
  }
}

Carrier::Carrier(int ordinal, CUgreenCtx partition)
    : ordinal_(ordinal), multiprocessors_(multiprocessors_of(partition)), partition_(partition) {}

Carrier::~Carrier() {
  cudaSetDevice(ordinal_);
  driver().destroy(partition_);
}

Place::Place(int ordinal, CUgreenCtx partition, std::shared_ptr<const Carrier> carrier)
    : ordinal_(ordinal),
      multiprocessors_(multiprocessors_of(partition)),
      capability_major_(attribute(cudaDevAttrComputeCapabilityMajor, ordinal)),
      partition_(partition),
      carrier_(std::move(carrier)) {
  require(driver().context_of(&context_, partition), "opening a part");
  enter();
  if (carrier_ != nullptr) {
    CUstream stream = nullptr;
    require(driver().create_stream(&stream, carrier_->partition(), CU_STREAM_NON_BLOCKING, 0), "opening a stream");
    carrying_ = stream;
    fork_ = std::make_unique<Event>(Event::Kind::order);
    join_ = std::make_unique<Event>(Event::Kind::order);
  }
  for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
    CUstream stream = nullptr;
    require(driver().create_stream(&stream, partition, CU_STREAM_NON_BLOCKING, priority(lane)), "opening a stream");
    streams_[lane] = stream;
  }
}

Place::~Place() {
  for (cudaStream_t stream : streams_) {
    if (stream != nullptr) {
      cudaStreamDestroy(stream);
    }
  }
  if (carrying_ != nullptr) {
    cudaStreamDestroy(carrying_);
  }
  if (partition_ != nullptr) {
    cudaSetDevice(ordinal_);
    driver().destroy(partition_);
  }
}

void Place::enter() const {
  if (partition_ == nullptr) {
    require(cudaSetDevice(ordinal_), "selecting it");
  } else {
    require(driver().set_current(context_), "selecting a part of it");
  }
}

std::vector<std::unique_ptr<Place>> open_places(const cluster::Cluster& cluster) {
  std::map<int, int> parts_of;  // by GPU, how many of its parts are used
  for (const cluster::Device& device : cluster.devices()) {
    check(device.gpu.has_value(), "{} is no GPU", device.name);
    ++parts_of[device.gpu->ordinal];
  }
  std::map<int, Parts> opened;
  std::vector<std::unique_ptr<Place>> places;
  for (const cluster::Device& device : cluster.devices()) {
    const cluster::GpuPart& part = *device.gpu;
    if (part.of == 1) {
      places.push_back(std::make_unique<Place>(part.ordinal));
      continue;
    }
    if (!opened.contains(part.ordinal)) {
      opened[part.ordinal] = partitions(part.ordinal, part.of, parts_of[part.ordinal]);
    }
    const Parts& parts = opened[part.ordinal];
    places.push_back(std::make_unique<Place>(part.ordinal, parts.parts[static_cast<std::size_t>(part.part)], parts.carrier));
  }
  return places;
}

}  // namespace baton::exec::cuda
