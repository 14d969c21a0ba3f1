#include "baton/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace baton {
namespace {

using Domain = RandomStream::Domain;

/// The numbers that a second implementation, in numpy, gives.
const nlohmann::json& oracle() {
  static const nlohmann::json data = nlohmann::json::parse(
      std::ifstream(std::string(BATON_TEST_DATA) + "/oracle/data/random.json"));
  return data;
}

RandomStream stream_of(const nlohmann::json& entry) {
  return RandomStream(entry.at("seed"), static_cast<Domain>(entry.at("domain").get<std::uint32_t>()), entry.at("index"));
}

TEST(Random, PhiloxGivesThePublishedKnownAnswers) {
  ASSERT_EQ(oracle().at("philox").size(), 3U);
  for (const nlohmann::json& entry : oracle().at("philox")) {
    const auto words = philox(entry.at("counter").get<std::array<std::uint32_t, 4>>(),
                              entry.at("key").get<std::array<std::uint32_t, 2>>());
    EXPECT_EQ(words, (entry.at("words").get<std::array<std::uint32_t, 4>>()));
  }
}

TEST(Random, UniformStreamsGiveTheOraclesValues) {
  ASSERT_GE(oracle().at("uniform").size(), 10U);
  for (const nlohmann::json& entry : oracle().at("uniform")) {
    double value = 0;
    stream_of(entry).uniform(std::span(&value, 1), entry.at("position"), 1.0);
    EXPECT_EQ(value, 2 * entry.at("value").get<double>() - 1) << entry;  // the oracle's lie in [0, 1)
  }
}

TEST(Random, NormalStreamsGiveTheOraclesValues) {
  ASSERT_GE(oracle().at("normal").size(), 10U);
  for (const nlohmann::json& entry : oracle().at("normal")) {
    float value = 0;
    stream_of(entry).normal(std::span(&value, 1), entry.at("position"));
    EXPECT_FLOAT_EQ(value, entry.at("value").get<float>()) << entry;
  }
}

TEST(Random, ParametersStartAtTheOraclesValues) {
  for (const nlohmann::json& entry : oracle().at("parameter")) {
    float value = 0;
    const RandomStream stream(entry.at("seed"), Domain::parameter, entry.at("ordinal"));
    stream.uniform(std::span(&value, 1), entry.at("position"), 1 / std::sqrt(entry.at("fan_in").get<double>()));
    EXPECT_FLOAT_EQ(value, entry.at("value").get<float>()) << entry;
  }
}

TEST(Random, LabelsAreTheOracles) {
  for (const nlohmann::json& entry : oracle().at("label")) {
    const RandomStream stream(entry.at("seed"), Domain::label, entry.at("sample"));
    EXPECT_EQ(stream.word(0) % entry.at("classes").get<std::uint32_t>(), entry.at("value").get<std::uint32_t>()) << entry;
  }
}

TEST(Random, ValuesDoNotDependOnHowARangeIsSplit) {
  const RandomStream stream(7, Domain::input, 3);
  constexpr std::size_t count = 41;
  constexpr std::uint64_t from = 1001;
  std::vector<float> uniform(count);
  std::vector<float> normal(count);
  stream.uniform(std::span(uniform), from, 0.25);
  stream.normal(std::span(normal), from);
  for (std::size_t cut = 0; cut <= count; ++cut) {
    std::vector<float> pieces(count);
    stream.uniform(std::span(pieces).first(cut), from, 0.25);
    stream.uniform(std::span(pieces).subspan(cut), from + cut, 0.25);
    EXPECT_EQ(pieces, uniform) << "cut at " << cut;
    stream.normal(std::span(pieces).first(cut), from);
    stream.normal(std::span(pieces).subspan(cut), from + cut);
    EXPECT_EQ(pieces, normal) << "cut at " << cut;
  }
}

TEST(Random, FloatsAreTheRoundedDoubles) {
  const RandomStream stream(1, Domain::target, 0);
  std::vector<float> narrow(100);
  std::vector<double> wide(100);
  stream.normal(std::span(narrow), 0);
  stream.normal(std::span(wide), 0);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(narrow[i], static_cast<float>(wide[i]));
  }
}

TEST(Random, SeedDomainAndIndexEachChangeTheStream) {
  const auto first = [](std::uint64_t seed, Domain domain, std::uint64_t index) {
    return RandomStream(seed, domain, index).word(0);
  };
  const std::uint32_t here = first(1, Domain::input, 1);
  EXPECT_EQ(here, first(1, Domain::input, 1));
  EXPECT_NE(here, first(2, Domain::input, 1));
  EXPECT_NE(here, first(1 + (std::uint64_t{1} << 32), Domain::input, 1));
  EXPECT_NE(here, first(1, Domain::target, 1));
  EXPECT_NE(here, first(1, Domain::input, 2));
  EXPECT_NE(here, first(1, Domain::input, 1 + (std::uint64_t{1} << 32)));
}

TEST(Random, UniformStaysInItsBoundsAndNormalHasUnitVariance) {
  const RandomStream stream(0, Domain::parameter, 0);
  std::vector<double> values(1 << 16);
  stream.uniform(std::span(values), 0, 0.5);
  double sum = 0;
  for (const double value : values) {
    ASSERT_GE(value, -0.5);
    ASSERT_LT(value, 0.5);
    sum += value;
  }
  EXPECT_NEAR(sum / static_cast<double>(values.size()), 0, 0.01);
  stream.normal(std::span(values), 0);
  double squares = 0;
  for (const double value : values) {
    squares += value * value;
  }
  EXPECT_NEAR(squares / static_cast<double>(values.size()), 1, 0.03);
}

}  // namespace
}  // namespace baton
