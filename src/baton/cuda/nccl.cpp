#include "baton/cuda/nccl.h"

#include <nccl.h>

#include <cstring>
#include <map>
#include <mutex>

#include "baton/cuda/library.h"
#include "baton/cuda/status.h"

namespace baton::cuda::nccl {
namespace {

struct Functions {
  decltype(&ncclGetErrorString) error;
  decltype(&ncclGetLastError) last_words;  // null before NCCL 2.13, which has none
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitAll) init_all;
  decltype(&ncclCommInitRank) init_rank;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclGroupStart) begin;
  decltype(&ncclGroupEnd) end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclReduce) reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

const Library& opened() {
  static const Library library("libnccl.so.2");
  return library;
}

Functions load() {
  if (!opened().found()) {
    throw usage_error("collectives between GPUs need NCCL: {} is not found, add its folder to LD_LIBRARY_PATH", opened().name());
  }
  const auto find = [](auto& function, const char* name) { opened().find(function, name); };
  Functions loaded{};
  find(loaded.error, "ncclGetErrorString");
  opened().look_up(loaded.last_words, "ncclGetLastError");
  find(loaded.unique_id, "ncclGetUniqueId");
  find(loaded.init_all, "ncclCommInitAll");
  find(loaded.init_rank, "ncclCommInitRank");
  find(loaded.destroy, "ncclCommDestroy");
  find(loaded.abort, "ncclCommAbort");
  find(loaded.async_error, "ncclCommGetAsyncError");
  find(loaded.begin, "ncclGroupStart");
  find(loaded.end, "ncclGroupEnd");
  find(loaded.all_reduce, "ncclAllReduce");
  find(loaded.broadcast, "ncclBroadcast");
  find(loaded.reduce, "ncclReduce");
  find(loaded.reduce_scatter, "ncclReduceScatter");
  find(loaded.all_gather, "ncclAllGather");
  find(loaded.send, "ncclSend");
  find(loaded.receive, "ncclRecv");
  return loaded;
}

const Functions& library() {
  static const Functions loaded = load();
  return loaded;
}

void require(ncclResult_t status, std::string_view what) {
  if (status == ncclSuccess) {
    return;
  }
  const char* words = library().last_words == nullptr ? nullptr : library().last_words(nullptr);
  const std::string sentence = fmt::format("NCCL failed at {}: {}{}{}", what, library().error(status),
                                           words == nullptr || *words == '\0' ? "" : ": ", words == nullptr ? "" : words);
  if (status == ncclRemoteError || status == ncclSystemError || status == ncclInternalError) {
    throw Disconnected(Error::Kind::failure, sentence);
  }
  throw Error(Error::Kind::failure, sentence);
}

ncclDataType_t type_of(DType type) {
  switch (type) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
  }
  throw BugError("a type that NCCL has no word for");
}

class RealCommunicator final : public Communicator {
 public:
  explicit RealCommunicator(ncclComm_t handle) : handle_(handle) {}
  ~RealCommunicator() override {
    if (handle_ != nullptr) {
      library().destroy(handle_);
    }
  }

  void all_reduce(std::byte* data, std::int64_t elements, DType type, cudaStream_t stream) const override {
    require(library().all_reduce(data, data, count(elements), type_of(type), ncclSum, handle_, stream), "an all-reduce");
  }
  void broadcast(std::byte* data, std::int64_t elements, DType type, int root, cudaStream_t stream) const override {
    require(library().broadcast(data, data, count(elements), type_of(type), root, handle_, stream), "a broadcast");
  }
  void reduce(const std::byte* from, std::byte* to, std::int64_t elements, DType type, int root,
              cudaStream_t stream) const override {
    require(library().reduce(from, to, count(elements), type_of(type), ncclSum, root, handle_, stream), "a reduction");
  }
  void reduce_scatter(const std::byte* from, std::byte* to, std::int64_t elements, DType type, cudaStream_t stream) const override {
    require(library().reduce_scatter(from, to, count(elements), type_of(type), ncclSum, handle_, stream), "a reduce-scatter");
  }
  void all_gather(const std::byte* from, std::byte* to, std::int64_t elements, DType type, cudaStream_t stream) const override {
    require(library().all_gather(from, to, count(elements), type_of(type), handle_, stream), "an all-gather");
  }
  void send(const std::byte* data, std::int64_t bytes, int peer, cudaStream_t stream) const override {
    require(library().send(data, count(bytes), ncclInt8, peer, handle_, stream), "a transfer");
  }
  void receive(std::byte* data, std::int64_t bytes, int peer, cudaStream_t stream) const override {
    require(library().receive(data, count(bytes), ncclInt8, peer, handle_, stream), "a transfer");
  }

  void require_health() const override {
    ncclResult_t status = ncclSuccess;
    require(library().async_error(handle_, &status), "asking how it fares");
    if (status != ncclInProgress) {
      require(status, "a message");
    }
  }
  void abort() noexcept override {
    if (handle_ != nullptr) {
      library().abort(handle_);
      handle_ = nullptr;
    }
  }

 private:
  static std::size_t count(std::int64_t number) { return static_cast<std::size_t>(number); }

  ncclComm_t handle_;
};

std::vector<std::shared_ptr<Communicator>> keep(const std::vector<ncclComm_t>& handles) {
  std::vector<std::shared_ptr<Communicator>> list;
  for (ncclComm_t handle : handles) {
    list.push_back(std::make_shared<RealCommunicator>(handle));
  }
  return list;
}

}  // namespace

void begin_group() { require(library().begin(), "beginning a collective"); }
void end_group() { require(library().end(), "a collective"); }

bool is_available() { return opened().found(); }

std::vector<std::shared_ptr<Communicator>> join_here(const std::vector<int>& ordinals) {
  static std::mutex mutex;
  static std::map<std::vector<int>, std::vector<std::weak_ptr<Communicator>>> kept;
  const std::lock_guard lock(mutex);
  std::vector<std::shared_ptr<Communicator>> list;
  for (const std::weak_ptr<Communicator>& one : kept[ordinals]) {
    if (std::shared_ptr<Communicator> held = one.lock()) {
      list.push_back(std::move(held));
    }
  }
  if (list.size() != ordinals.size()) {
    std::vector<ncclComm_t> handles(ordinals.size());
    require(library().init_all(handles.data(), static_cast<int>(ordinals.size()), ordinals.data()), "joining the GPUs");
    list = keep(handles);
    kept[ordinals].assign(list.begin(), list.end());
  }
  return list;
}

ranks::Blob make_id() {
  ncclUniqueId id{};
  require(library().unique_id(&id), "naming a set of GPUs");
  ranks::Blob blob(sizeof id);
  std::memcpy(blob.data(), &id, sizeof id);
  return blob;
}

std::vector<std::shared_ptr<Communicator>> join(const ranks::Blob& id, int size, std::span<const GpuMember> members) {
  ncclUniqueId name{};
  check(id.size() == sizeof name, "a set of GPUs is named by {} bytes", id.size());
  std::memcpy(&name, id.data(), sizeof name);
  std::vector<ncclComm_t> handles(members.size());
  in_group([&] {
    for (std::size_t i = 0; i < members.size(); ++i) {
      cuda::require(cudaSetDevice(members[i].ordinal), "selecting it");
      require(library().init_rank(&handles[i], size, name, members[i].member), "joining the GPUs");
    }
  });
  return keep(handles);
}

}  // namespace baton::cuda::nccl
