#include "baton/cuda/gpu_place.h"

#include <map>
#include <set>

#include "baton/base/error.h"
#include "baton/cuda/driver.h"
#include "baton/cuda/status.h"

namespace baton::cuda {
namespace {

/// Messages go before computations that became ready at the same time: others wait for them.
int priority(std::size_t lane) { return static_cast<plan::Lane>(lane) == plan::Lane::communication ? -1 : 0; }

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  require(cudaDeviceGetAttribute(&value, which, ordinal), "reading what it is");
  return value;
}

CUdevice device_of(int ordinal) {
  CUdevice device = 0;
  require(driver().cuDeviceGet(&device, ordinal), "selecting it");
  return device;
}

/// Equal parts of a GPU, each until a place takes it, and the rest of it (null if there is none).
struct Parts {
  std::vector<std::unique_ptr<Partition>> parts;
  std::shared_ptr<const Partition> carrier;
};

/// Cuts a GPU's multiprocessors into equal groups, and gives those that are wanted; the others are null.
Parts partitions(int ordinal, int of, const std::set<int>& wanted_parts) {
  require(cudaSetDevice(ordinal), "selecting it");
  require(cudaFree(nullptr), "starting");  // the primary context must be there
  CUdevResource all{};
  require(driver().cuDeviceGetDevResource(device_of(ordinal), &all, CU_DEV_RESOURCE_TYPE_SM), "listing its multiprocessors");
  const unsigned available = all.sm.smCount;
  std::vector<CUdevResource> groups(static_cast<std::size_t>(of));
  auto made = static_cast<unsigned>(of);
  CUdevResource rest{};
  // Groups come in steps of some multiprocessors: ask for fewer until there are enough of them.
  unsigned wanted = available / static_cast<unsigned>(of);
  for (; wanted > 0; --wanted) {
    made = static_cast<unsigned>(of);
    if (driver().cuDevSmResourceSplitByCount(groups.data(), &made, &all, &rest, 0, wanted) == CUDA_SUCCESS &&
        made == static_cast<unsigned>(of)) {
      break;
    }
  }
  if (wanted == 0) {
    throw usage_error("GPU {} with its {} multiprocessors cannot be cut into {} parts: ask for fewer", ordinal, available, of);
  }
  Parts result;
  for (int i = 0; i < of; ++i) {
    result.parts.push_back(wanted_parts.contains(i) ? std::make_unique<Partition>(ordinal, groups[static_cast<std::size_t>(i)])
                                                    : nullptr);
  }
  if (rest.sm.smCount > 0) {
    try {
      result.carrier = std::make_shared<Partition>(ordinal, rest);
    } catch (const Error&) {
      // Too few to be a part of their own: messages go by the parts' multiprocessors.
    }
  }
  return result;
}

}  // namespace

Partition::Partition(int ordinal, CUdevResource multiprocessors)
    : ordinal_(ordinal), multiprocessors_(static_cast<int>(multiprocessors.sm.smCount)) {
  CUdevResourceDesc description{};
  require(driver().cuDevResourceGenerateDesc(&description, &multiprocessors, 1), "cutting it into parts");
  require(driver().cuGreenCtxCreate(&context_, description, device_of(ordinal), CU_GREEN_CTX_DEFAULT_STREAM),
          "cutting it into parts");
}

Partition::~Partition() {
  cudaSetDevice(ordinal_);
  driver().cuGreenCtxDestroy(context_);
}

Stream::Stream(const Partition* partition, int priority) {
  if (partition == nullptr) {
    require(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority), "opening a stream");
  } else {
    require(driver().cuGreenCtxStreamCreate(&stream_, partition->get(), CU_STREAM_NON_BLOCKING, priority), "opening a stream");
  }
}

GpuPlace::GpuPlace(int ordinal) : ordinal_(ordinal), multiprocessors_(attribute(cudaDevAttrMultiProcessorCount, ordinal)) {
  enter();
  open_streams();
}

GpuPlace::GpuPlace(int ordinal, std::unique_ptr<Partition> partition, std::shared_ptr<const Partition> carrier)
    : ordinal_(ordinal),
      multiprocessors_(partition->multiprocessors()),
      partition_(std::move(partition)),
      carrier_(std::move(carrier)) {
  require(driver().cuCtxFromGreenCtx(&context_, partition_->get()), "opening a part");
  enter();
  if (carrier_ != nullptr) {
    carrying_ = std::make_unique<Stream>(carrier_.get(), 0);
    fork_ = std::make_unique<Event>(Event::Purpose::order);
    join_ = std::make_unique<Event>(Event::Purpose::order);
  }
  open_streams();
}

void GpuPlace::open_streams() {
  for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
    streams_[lane] = std::make_unique<Stream>(partition_.get(), priority(lane));
  }
}

void GpuPlace::enter() const {
  if (partition_ == nullptr) {
    require(cudaSetDevice(ordinal_), "selecting it");
  } else {
    require(driver().cuCtxSetCurrent(context_), "selecting a part of it");
  }
}

bool GpuPlace::try_enter() const noexcept {
  return partition_ == nullptr ? cudaSetDevice(ordinal_) == cudaSuccess : driver().cuCtxSetCurrent(context_) == CUDA_SUCCESS;
}

std::vector<std::unique_ptr<GpuPlace>> open_places(const cluster::Cluster& cluster, int rank) {
  std::map<int, std::set<int>> parts_of;  // by GPU, those of its parts that are used
  for (const cluster::Device& device : cluster.devices()) {
    check(device.gpu.has_value(), "{} is not a GPU", device.name);
    if (device.rank == rank) {
      parts_of[device.gpu->ordinal].insert(device.gpu->part);
    }
  }
  std::map<int, Parts> opened;
  std::vector<std::unique_ptr<GpuPlace>> places;
  for (const cluster::Device& device : cluster.devices()) {
    const cluster::GpuPart& part = *device.gpu;
    if (device.rank != rank) {
      places.push_back(nullptr);
      continue;
    }
    if (part.of == 1) {
      places.push_back(std::make_unique<GpuPlace>(part.ordinal));
      continue;
    }
    if (!opened.contains(part.ordinal)) {
      opened[part.ordinal] = partitions(part.ordinal, part.of, parts_of[part.ordinal]);
    }
    Parts& parts = opened[part.ordinal];
    places.push_back(
        std::make_unique<GpuPlace>(part.ordinal, std::move(parts.parts[static_cast<std::size_t>(part.part)]), parts.carrier));
  }
  return places;
}

}  // namespace baton::cuda
