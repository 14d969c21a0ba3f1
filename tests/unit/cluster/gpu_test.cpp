#include "baton/cluster/gpu.h"

#include <gtest/gtest.h>

#include "support/usage_sentence.h"

namespace baton::cluster {
namespace {

using test::says;
using test::usage_sentence;

/// Two GPUs, whatever the tests run on.
const std::vector<Gpu> pair{{"a GPU", Bytes(8000), 132}, {"a smaller GPU", Bytes(6000), 66}};

TEST(GpuDevices, CudaAloneIsEveryGpu) {
  const std::vector<Device> devices = parse_gpu_devices("cuda", pair);
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0].name, "cuda:0");
  EXPECT_EQ(devices[1].name, "cuda:1");
  EXPECT_EQ(devices[1].memory, Bytes(6000));
  EXPECT_TRUE(devices[1].cores.empty());
  EXPECT_EQ(devices[1].gpu, (GpuPart{1, 0, 1, 66, 1}));
}

TEST(GpuDevices, NumbersChooseGpusInTheirOrder) {
  const std::vector<Device> devices = parse_gpu_devices("CUDA:1,0", pair);
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0].gpu->ordinal, 1);
  EXPECT_EQ(devices[1].gpu->ordinal, 0);
}

TEST(GpuDevices, ASlashCutsOneGpuIntoEqualParts) {
  const std::vector<Device> devices = parse_gpu_devices("cuda:0/4", pair);
  ASSERT_EQ(devices.size(), 4U);
  for (int part = 0; part < 4; ++part) {
    const Device& device = devices[static_cast<std::size_t>(part)];
    EXPECT_EQ(device.name, "cuda:0." + std::to_string(part));
    EXPECT_EQ(device.memory, Bytes(2000));
    EXPECT_EQ(device.gpu, (GpuPart{0, part, 4, 33}));
  }
}

TEST(GpuDevices, SomeOfThePartsAreAsLargeAsAllOfThem) {
  const std::vector<Device> devices = parse_gpu_devices("cuda:0/4:2", pair);
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1].gpu, (GpuPart{0, 1, 4, 33}));
  EXPECT_EQ(devices[1].memory, Bytes(2000));
}

TEST(GpuDevices, MemoryIsWhatIsAskedForOrAShare) { EXPECT_EQ(parse_gpu_devices("cuda:0/2", pair, Bytes(77))[1].memory, Bytes(77)); }

TEST(GpuDevices, ShareNoCores) { EXPECT_FALSE(Cluster(parse_gpu_devices("cuda:0/5", pair)).oversubscribed()); }

TEST(GpuDevices, BadTextIsRefusedInASentence) {
  const std::vector<std::pair<std::string, std::string>> cases{{"cuda:", "a GPU's number"},
                                                               {"cuda:2", "there is no GPU 2 here: there are 2, from 0"},
                                                               {"cuda:x", "cuda:0/4 (four parts of one)"},
                                                               {"cuda:0,0", "names GPU 0 twice"},
                                                               {"cuda:0/0", "from 1 to 16"},
                                                               {"cuda:0/99", "from 1 to 16"},
                                                               {"cuda:0/4:5", "from 1 to 4"},
                                                               {"cuda:0/4:2:1", "is not a part of a GPU"},
                                                               {"cuda:7/2", "there is no GPU 7"},
                                                               {"cuda:0/2,1", "the number of parts of a GPU"}};
  for (const auto& [text, part] : cases) {
    EXPECT_TRUE(says(usage_sentence([&] { parse_gpu_devices(text, pair); }), part)) << text;
  }
}

TEST(GpuDevices, NamesAreReadAndWritten) {
  const std::vector<std::pair<std::string, GpuNames>> cases{{"cuda", {}},
                                                            {"cuda:1,0", {.numbers = {1, 0}}},
                                                            {"cuda:2/4", {.numbers = {2}, .parts = 4}},
                                                            {"cuda:0/4:2", {.numbers = {0}, .parts = 4, .used = 2}}};
  for (const auto& [text, names] : cases) {
    EXPECT_EQ(parse_gpu_names(text), names) << text;
    EXPECT_EQ(to_text(names), text);
  }
}

TEST(GpuDevices, NumbersThatNoTextWouldHaveAreRefused) {
  EXPECT_TRUE(says(usage_sentence([] { gpu_devices({.numbers = {0}, .parts = 17}, pair); }), "at most 16 parts"));
  EXPECT_TRUE(says(usage_sentence([] { gpu_devices({.numbers = {0}, .parts = 4, .used = 5}, pair); }), "cuda:0/4:5"));
}

TEST(GpuDevices, OfSeveralRanksEachHasAGpuInTurnUnlessTheNamesSayWhich) {
  const auto of_rank = [](const char* text, std::size_t rank) { return to_text(gpus_of_rank(parse_gpu_names(text), 2, rank)); };
  EXPECT_EQ(of_rank("cuda", 0), "cuda:0");
  EXPECT_EQ(of_rank("cuda", 1), "cuda:1");
  EXPECT_EQ(of_rank("cuda", 2), "cuda:0");
  EXPECT_EQ(of_rank("cuda:1", 0), "cuda:1");
  EXPECT_EQ(of_rank("cuda:0/4:1", 3), "cuda:0/4:1");
}

TEST(GpuDevices, HowManyRanksShareAGpuIsCountedByGpuAndNotByDevice) {
  std::vector<Device> devices = parse_gpu_devices("cuda:0/4", pair);
  EXPECT_EQ(Cluster(devices).most_ranks_on_a_gpu(), 1U);
  devices[3].rank = 1;
  EXPECT_EQ(Cluster(devices).most_ranks_on_a_gpu(), 2U);
  devices[3].gpu->unit = 1;
  EXPECT_EQ(Cluster(devices).most_ranks_on_a_gpu(), 1U) << "the same number in another process is another GPU";
  EXPECT_EQ(Cluster({Device{"cpu:0", {0}, Bytes(1)}}).most_ranks_on_a_gpu(), 0U);
}

}  // namespace
}  // namespace baton::cluster
