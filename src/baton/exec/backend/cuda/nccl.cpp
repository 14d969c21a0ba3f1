#include "baton/exec/backend/cuda/nccl.h"

#include <dlfcn.h>
#include <nccl.h>

#include <map>
#include <mutex>

#include "baton/base/error.h"

namespace baton::exec::cuda::nccl {
namespace {

struct Functions {
  decltype(&ncclGetErrorString) error;
  decltype(&ncclCommInitAll) init;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclGroupStart) begin;
  decltype(&ncclGroupEnd) end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclReduce) reduce;
};

Functions load() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    library = dlopen(BATON_CUDA_LIBRARIES "/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    throw usage_error("collectives between GPUs need NCCL: libnccl.so.2 is not found, add its folder to LD_LIBRARY_PATH");
  }
  const auto find = [&](auto& function, const char* name) {
    void* address = dlsym(library, name);
    if (address == nullptr) {
      throw failure("libnccl.so.2 lacks {}", name);
    }
    function = reinterpret_cast<std::decay_t<decltype(function)>>(address);
  };
  Functions loaded{};
  find(loaded.error, "ncclGetErrorString");
  find(loaded.init, "ncclCommInitAll");
  find(loaded.destroy, "ncclCommDestroy");
  find(loaded.begin, "ncclGroupStart");
  find(loaded.end, "ncclGroupEnd");
  find(loaded.all_reduce, "ncclAllReduce");
  find(loaded.broadcast, "ncclBroadcast");
  find(loaded.reduce, "ncclReduce");
  return loaded;
}

const Functions& library() {
  static const Functions loaded = load();
  return loaded;
}

void require(ncclResult_t status, std::string_view what) {
  if (status != ncclSuccess) {
    throw failure("NCCL failed at {}: {}", what, library().error(status));
  }
}

class Communicators final : public Group {
 public:
  explicit Communicators(const std::vector<int>& ordinals) : members_(ordinals.size()) {
    require(library().init(members_.data(), static_cast<int>(ordinals.size()), ordinals.data()), "joining the GPUs");
  }
  ~Communicators() override {
    for (ncclComm_t member : members_) {
      library().destroy(member);
    }
  }

  void enqueue(plan::Collective::Kind kind, int rank, std::span<const Buffer> buffers, DType element,
               cudaStream_t stream) const override {
    const ncclDataType_t type = element == DType::f64    ? ncclFloat64
                                : element == DType::bf16 ? ncclBfloat16
                                : element == DType::f16  ? ncclFloat16
                                                         : ncclFloat32;
    ncclComm_t member = members_[static_cast<std::size_t>(rank)];
    for (const Buffer& buffer : buffers) {
      const auto count = static_cast<std::size_t>(buffer.elements);
      switch (kind) {
        case plan::Collective::Kind::all_reduce:
          require(library().all_reduce(buffer.data, buffer.data, count, type, ncclSum, member, stream), "an all-reduce");
          break;
        case plan::Collective::Kind::broadcast:
          require(library().broadcast(buffer.data, buffer.data, count, type, 0, member, stream), "a broadcast");
          break;
        case plan::Collective::Kind::reduce:
          require(library().reduce(buffer.data, buffer.data, count, type, ncclSum, 0, member, stream), "a reduction");
          break;
        case plan::Collective::Kind::reduce_scatter:
        case plan::Collective::Kind::all_gather:
          throw BugError("NCCL deals no pieces here");
      }
    }
  }

 private:
  std::vector<ncclComm_t> members_;
};

}  // namespace

std::shared_ptr<Group> Group::of(const std::vector<int>& ordinals) {
  static std::mutex mutex;
  static std::map<std::vector<int>, std::weak_ptr<Group>> kept;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Group> group = kept[ordinals].lock();
  if (!group) {
    group = std::make_shared<Communicators>(ordinals);
    kept[ordinals] = group;
  }
  return group;
}

void begin_group() { require(library().begin(), "beginning a collective"); }
void end_group() { require(library().end(), "a collective"); }

}  // namespace baton::exec::cuda::nccl
