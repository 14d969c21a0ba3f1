#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "baton/cuda/cuda.h"
#include "baton/cuda/nccl.h"
#include "baton/cuda/routes.h"
#include "baton/cuda/status.h"
#include "cuda/typed_array.h"
#include "ranks/ranks.h"

/// Each call of NCCL by itself, in each type, between ranks that share a GPU as hosts of their own. Skipped if there is no GPU
/// or no NCCL.
namespace baton::test {
namespace {

using cuda::nccl::Communicator;

class NcclBetweenRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::has_gpu() || !cuda::has_nccl()) {
      GTEST_SKIP() << "there is no GPU or no NCCL here";
    }
    for (const auto& [name, value] : cuda::host_variables(world())) {
      setenv(name.c_str(), value.c_str(), 0);
    }
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream != nullptr) {
      cudaStreamDestroy(stream);
    }
  }

  static std::shared_ptr<Communicator> join() {
    ranks::Blob id = world().rank() == 0 ? cuda::nccl::make_id() : ranks::Blob();
    world().broadcast(id, 0);
    const std::array<cuda::nccl::GpuMember, 1> member{{{world().rank(), 0}}};
    return cuda::nccl::join(id, world().size(), member)[0];
  }

  cudaStream_t stream = nullptr;
};

/// What each rank has before a call. Sums of as many ranks as are tested are exact in every type.
double value(int rank, std::int64_t i, int round) { return static_cast<double>((7 * i + 3 * rank + 5 * round) % 31); }

struct Call {
  std::string name;
  int from;  // how many times the elements each gives, as the ranks, or once
  int to;    // likewise, what each gets; 0: in place
  std::function<void(const Communicator&, std::byte* from, std::byte* to, std::int64_t elements, DType, cudaStream_t)> enqueue;
  std::function<double(std::int64_t i, std::int64_t elements, int round)> left;
  bool at_root_only = false;
};

std::vector<Call> calls() {
  const int size = world().size();
  const int me = world().rank();
  const int root = size - 1;
  const int next = (me + 1) % size;
  const int last = (me + size - 1) % size;
  const auto sum = [size](std::int64_t i, int round) {
    double total = 0;
    for (int rank = 0; rank < size; ++rank) {
      total += value(rank, i, round);
    }
    return total;
  };
  return {
      {"all_reduce", 1, 0,
       [](const auto& to_all, std::byte* from, std::byte*, auto elements, DType type, cudaStream_t stream) {
         to_all.all_reduce(from, elements, type, stream);
       },
       [sum](std::int64_t i, std::int64_t, int round) { return sum(i, round); }},
      {"broadcast", 1, 0,
       [root](const auto& to_all, std::byte* from, std::byte*, auto elements, DType type, cudaStream_t stream) {
         to_all.broadcast(from, elements, type, root, stream);
       },
       [root](std::int64_t i, std::int64_t, int round) { return value(root, i, round); }},
      {"reduce", 1, 1,
       [root, me](const auto& to_all, std::byte* from, std::byte* to, auto elements, DType type, cudaStream_t stream) {
         to_all.reduce(from, me == root ? to : nullptr, elements, type, root, stream);
       },
       [sum](std::int64_t i, std::int64_t, int round) { return sum(i, round); }, true},
      {"reduce in place", 1, 0,
       [root, me](const auto& to_all, std::byte* from, std::byte*, auto elements, DType type, cudaStream_t stream) {
         to_all.reduce(from, me == root ? from : nullptr, elements, type, root, stream);
       },
       [sum](std::int64_t i, std::int64_t, int round) { return sum(i, round); }, true},
      {"reduce_scatter", size, 1,
       [](const auto& to_all, std::byte* from, std::byte* to, auto elements, DType type, cudaStream_t stream) {
         to_all.reduce_scatter(from, to, elements, type, stream);
       },
       [sum, me](std::int64_t i, std::int64_t elements, int round) { return sum(me * elements + i, round); }},
      {"all_gather", 1, size,
       [](const auto& to_all, std::byte* from, std::byte* to, auto elements, DType type, cudaStream_t stream) {
         to_all.all_gather(from, to, elements, type, stream);
       },
       [](std::int64_t i, std::int64_t elements, int round) { return value(static_cast<int>(i / elements), i % elements, round); }},
      {"send and receive", 1, 1,
       [next, last](const auto& to_all, std::byte* from, std::byte* to, auto elements, DType type, cudaStream_t stream) {
         to_all.send(from, elements * size_of(type), next, stream);
         to_all.receive(to, elements * size_of(type), last, stream);
       },
       [last](std::int64_t i, std::int64_t, int round) { return value(last, i, round); }},
  };
}

/// The memory of one call, and what is to be in it.
class Tried {
 public:
  Tried(const Call& call, DType type, std::int64_t elements)
      : call_(call),
        type_(type),
        elements_(elements),
        from_(type, static_cast<std::size_t>(call.from * elements)),
        to_(type, static_cast<std::size_t>(call.to * elements)) {}

  void fill(int round) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < call_.from * elements_; ++i) {
      values.push_back(value(world().rank(), i, round));
    }
    const TypedArray fresh(type_, values);
    EXPECT_EQ(
        cudaMemcpy(from_.data(), fresh.data(), values.size() * static_cast<std::size_t>(size_of(type_)), cudaMemcpyDeviceToDevice),
        cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  void enqueue(const Communicator& communicator, cudaStream_t stream) {
    cuda::nccl::in_group(
        [&] { call_.enqueue(communicator, from_.as<std::byte>(), to_.as<std::byte>(), elements_, type_, stream); });
  }

  void expect_left(int round, cudaStream_t stream) const {
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    if (call_.at_root_only && world().rank() != world().size() - 1) {
      return;
    }
    const std::vector<double> values = (call_.to == 0 ? from_ : to_).values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], call_.left(static_cast<std::int64_t>(i), elements_, round))
          << call_.name << " of " << elements_ << " " << to_text(type_) << " at " << i << " in round " << round;
    }
  }

 private:
  const Call& call_;
  DType type_;
  std::int64_t elements_;
  TypedArray from_;
  TypedArray to_;
};

TEST_F(NcclBetweenRanks, EveryCallInEveryTypeLeavesWhatItIsToAlsoWhenAGraphRepeatsIt) {
  const std::shared_ptr<Communicator> communicator = join();
  for (const Call& call : calls()) {
    for (const DType type : all_dtypes) {
      for (const std::int64_t elements : {1, 1003, 100'003}) {
        Tried tried(call, type, elements);
        tried.fill(0);
        tried.enqueue(*communicator, stream);
        tried.expect_left(0, stream);
        if (elements != 1003) {
          continue;
        }
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        tried.enqueue(*communicator, stream);
        ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
        ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
        for (int round = 1; round <= 2; ++round) {
          tried.fill(round);
          ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
          tried.expect_left(round, stream);
        }
        cudaGraphExecDestroy(ready);
        cudaGraphDestroy(graph);
      }
    }
  }
  communicator->require_health();
  world().barrier();
}

/// Operations of two communicators in one stream wait for rank 0, which aborts.
TEST_F(NcclBetweenRanks, WhatWaitsForARankThatAbortsFailsAndIsAbortedInOneGroup) {
  const std::array<std::shared_ptr<Communicator>, 2> both{join(), join()};
  TypedArray data(DType::f32, std::vector<double>(1000, 1));
  for (const std::shared_ptr<Communicator>& one : both) {  // connects them
    cuda::nccl::in_group([&] { one->all_reduce(data.as<std::byte>(), 1000, DType::f32, stream); });
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
  world().barrier();
  const auto begun = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); };
  bool told = false;
  if (world().rank() != 0) {
    for (const std::shared_ptr<Communicator>& one : both) {
      cuda::nccl::in_group([&] { one->all_reduce(data.as<std::byte>(), 1000, DType::f32, stream); });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "rank 0 has not come";
    while (!told && passed() < 10) {
      try {
        both[0]->require_health();
        both[1]->require_health();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } catch (const cuda::nccl::Disconnected&) {
        told = true;
      }
    }
    EXPECT_TRUE(told) << "no error is found in 10 s";
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  }
  cuda::nccl::in_group([&] {  // in the other order than the stream's
    both[1]->abort();
    both[0]->abort();
  });
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_LT(passed(), 5) << "from the abort of rank 0, after 0.4 s, to the end of all";
  world().barrier();
}

}  // namespace
}  // namespace baton::test
