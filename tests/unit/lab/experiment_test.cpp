#include "baton/lab/experiment.h"

#include <gtest/gtest.h>

#include "support/usage_sentence.h"

/// Which devices an experiment takes, where the user names GPUs.
namespace baton::lab {
namespace {

using test::says;
using test::usage_sentence;

std::string on(const std::string& devices, std::int64_t count, std::int64_t most = 4) {
  return devices_for({.devices = parse_device_type(devices), .machine = {}}, count, most).text();
}

TEST(DeviceType, IsReadOnceAndPrintsAsItWasRead) {
  for (const char* text : {"cpu", "cuda", "cuda:0", "cuda:0,2", "cuda:0/4", "cuda:0/4:2"}) {
    EXPECT_EQ(to_text(parse_device_type(text)), text);
    EXPECT_EQ(parse_device_type(text).gpus.has_value(), std::string(text) != "cpu");
    EXPECT_EQ(device_list(parse_device_type(text)).text(), text);
  }
  EXPECT_EQ(parse_device_type("CPU"), DeviceType{});
  EXPECT_EQ(to_text(DeviceType{}), "cpu");
  EXPECT_TRUE(says(usage_sentence([] { parse_device_type("cuda:x"); }), "is 'x'"));
}

TEST(DeviceType, IsRefusedIfItSaysHowMany) {
  EXPECT_TRUE(
      says(usage_sentence([] { parse_device_type("cpu:2"); }), "--devices is 'cpu:2', but the laboratory takes only the type"));
  EXPECT_EQ(find_device_type("cpu:2"), std::nullopt);
  EXPECT_EQ(find_device_type("tpu"), std::nullopt);
}

TEST(DevicesFor, PartsOfAGpuAreAsManyAsAreNeeded) {
  EXPECT_EQ(on("cuda:0/4", 3), "cuda:0/4:3");
  EXPECT_EQ(on("cuda:1", 2), "cuda:1/4:2");
  EXPECT_TRUE(says(usage_sentence([] { on("cuda:0/4", 5); }), "--devices cuda:0/4 has too few parts, this takes 5"));
}

TEST(DevicesFor, OfAListOfGpusTheFirstAreTaken) {
  EXPECT_EQ(on("cuda:0,1", 1), "cuda:0");
  EXPECT_EQ(on("cuda:3,1,2", 2), "cuda:3,1");
  EXPECT_TRUE(says(usage_sentence([] { on("cuda:0,1", 4); }), "--devices cuda:0,1 names 2 GPUs, but this takes 4"));
}

TEST(DevicesFor, ACountOfPartsIsTheMostThatAreTaken) {
  EXPECT_EQ(on("cuda:0/4:2", 1), "cuda:0/4:1");
  EXPECT_EQ(on("cuda:0/4:2", 2), "cuda:0/4:2");
  EXPECT_TRUE(says(usage_sentence([] { on("cuda:0/4:2", 3); }), "write cuda:0/4 without a count"));
}

}  // namespace
}  // namespace baton::lab
