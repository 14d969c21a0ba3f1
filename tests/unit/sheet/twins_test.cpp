#include "baton/sheet/twins.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/usage_sentence.h"

namespace baton::sheet {
namespace {

using test::says;
using test::usage_sentence;

bool has_no(const std::string& field) {
  const std::vector<std::string>& names = fields_without_twin();
  return std::find(names.begin(), names.end(), field) != names.end();
}

TEST(Twins, HaveNoFlagThatSplitsWorkInAWayOfBatonsOwn) {
  for (const char* field : {"dp", "pp", "tp", "sp", "zero", "schedule", "chunks", "balance", "recompute", "cluster", "software"}) {
    EXPECT_TRUE(has_no(field)) << field;
  }
  for (const char* field : {"model", "strategy", "devices", "batch", "split", "micro-batches", "bucket-mb", "precision", "delay"}) {
    EXPECT_FALSE(has_no(field)) << field;
  }
  job::JobSpec spec;
  spec.sp = true;
  EXPECT_EQ(usage_sentence([&] { training_twin(spec, {}); }), "a PyTorch twin has no --sp: leave it out");
}

std::string processes(const job::DeviceList& devices) {
  job::JobSpec spec;
  spec.strategy = "ddp";
  spec.devices = devices;
  const std::string launch = twin_launch(spec, "ddp.py");
  const std::size_t equals = launch.find('=') + 1;
  return launch.substr(equals, launch.find(' ', equals) - equals);
}

TEST(Twins, HaveAProcessPerDeviceHoweverDevicesAreNamed) {
  EXPECT_EQ(processes(std::int64_t{4}), "4");
  EXPECT_EQ(processes("4"), "4");
  EXPECT_EQ(processes("cpu"), "1");
  EXPECT_EQ(processes("cpu:3"), "3");
  EXPECT_EQ(processes("cpu:0-3,4-7"), "2");
  EXPECT_EQ(processes(cluster::CpuNames{.count = 3}), "3");
  EXPECT_EQ(processes(cluster::CoreSets{{{0}, {1}}}), "2");
  EXPECT_EQ(processes("cuda"), "gpu");
  EXPECT_EQ(processes("cuda:0,2"), "2");
  EXPECT_TRUE(says(usage_sentence([] { processes("cuda:0/4"); }), "PyTorch has no parts of a GPU"));
  EXPECT_TRUE(says(usage_sentence([] { processes(std::int64_t{0}); }), "--devices is '0'"));
  EXPECT_TRUE(says(usage_sentence([] { processes("tpu"); }), "unknown device 'tpu'"));
}

TEST(Twins, OfTheFourWaySplitHaveTheSizesOfTheModel) {
  const std::string script = four_way_split_twin("resnet:50,image=128,classes=10", 8, "split.py");
  EXPECT_TRUE(says(script, "IMAGE = 128 "));
  EXPECT_TRUE(says(script, "CLASSES = 10\n"));
  EXPECT_TRUE(says(script, "WIDTH = 64 "));
  EXPECT_TRUE(says(four_way_split_twin("toy-4", 8, "split.py"), "IMAGE = 224 "));
}

}  // namespace
}  // namespace baton::sheet
