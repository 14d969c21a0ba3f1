#include "baton/cost/software.h"

#include <gtest/gtest.h>

#include "baton/base/error.h"
#include "baton/cost/roofline.h"

namespace baton::cost {
namespace {

TEST(Software, EveryProfileThatIsBuiltInIsKnownByName) {
  EXPECT_FALSE(software_profiles().empty());
  for (const Software& one : software_profiles()) {
    EXPECT_EQ(software_by_name(one.name).summary, one.summary);
    EXPECT_FALSE(one.summary.empty()) << one.name;
  }
}

TEST(Software, AMisspeltKeyAndABadValueAreNamed) {
  const auto sentence = [](const char* text) {
    try {
      parse_software(text, "mine");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(sentence("[host]\nforwards = \"1us\"\n").find("'forwards'"), std::string::npos);
  EXPECT_NE(sentence("[hosts]\n").find("'hosts'"), std::string::npos);
  EXPECT_NE(sentence("[memory]\nloss = -1\n").find("'loss'"), std::string::npos);
  EXPECT_NE(sentence("[products]\nfp8 = 1\n").find("true or false"), std::string::npos);
}

TEST(Software, ADeviceMayHaveKernelsOfItsOwn) {
  const Software one = parse_software("[kernels]\nproducts = 0.9\n[kernels.H100]\nproducts = 0.5\n", "mine");
  EXPECT_EQ(one.on("A100:3").products, 0.9);
  EXPECT_EQ(one.on("H100:3").products, 0.5);
}

TEST(Software, ChangesStandBehindTheName) {
  EXPECT_TRUE(software_by_name("torchtitan+fp8").fp8);
  EXPECT_EQ(software_by_name("torchtitan+keep").recomputed_products, 0);
  EXPECT_THROW(software_by_name("torchtitan+fp7"), Error);
}

TEST(ProductTime, PassesInWholeWavesOfTiles) {
  const cluster::Speed speed{.multiprocessors = 10};
  const double ten = product_time(speed, 1e12, 256 * 10, 128, 4096);
  EXPECT_DOUBLE_EQ(product_time(speed, 1e12, 256 * 20, 128, 4096), 2 * ten) << "two full waves";
  EXPECT_GT(product_time(speed, 1e12, 256 * 11, 128, 4096), ten * 1.1) << "a last wave that is nearly empty";
}

}  // namespace
}  // namespace baton::cost
