#include "baton/lab/conditions.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace baton::lab {
namespace {

namespace fs = std::filesystem;

Settings simulated(const std::string& cluster, const std::string& what_if = "") {
  Settings settings;
  settings.cluster = cluster;
  settings.what_if = job::parse_what_if(what_if);
  return settings;
}

std::string name(const Settings& settings, const std::vector<Point>& points = {}, const std::optional<std::string>& toml = {}) {
  return conditions_name(experiment_conditions(settings, points, toml));
}

TEST(Basis, IsTheSameForTheSame) {
  EXPECT_EQ(name(simulated("pcie-5")), name(simulated("pcie-5")));
  EXPECT_EQ(name(Settings{}), name(Settings{}));
  EXPECT_EQ(conditions_name(Json::object()), "");
}

TEST(Basis, IsAnotherForAnythingThatChangesNumbers) {
  const Settings usual;
  Settings other = usual;
  other.precise = true;
  EXPECT_NE(name(other), name(usual));
  other = usual;
  other.time_limit = Nanoseconds(1);
  EXPECT_NE(name(other), name(usual));
  other = usual;
  other.devices = parse_device_type("cuda");
  EXPECT_NE(name(other), name(usual));
  other = usual;
  other.preset = Preset::full;
  EXPECT_NE(name(other), name(usual));
  other = usual;
  other.machine.cpu = "another";
  EXPECT_NE(name(other), name(usual));
  EXPECT_NE(name(simulated("pcie-5")), name(simulated("dgx-a100")));
  EXPECT_NE(name(simulated("pcie-5")), name(simulated("pcie-5", "compute=10x")));
  EXPECT_NE(name(simulated("pcie-5")), name(usual));
}

TEST(Basis, OfAnotherMachineSimulatedDoesNotDependOnThisOne) {
  Settings other = simulated("pcie-5");
  other.machine.cpu = "another";
  EXPECT_EQ(name(other), name(simulated("pcie-5")));
  other = simulated("machine");
  other.machine.cpu = "another";
  EXPECT_NE(name(other), name(simulated("machine")));
}

TEST(Basis, HasTheJobOfASpecButNotItsAxes) {
  const auto spec = [](const char* job, const char* axes) { return std::string("[job]\n") + job + "\n[axes]\n" + axes + "\n"; };
  const std::string small = name({}, {}, spec("model = 'mlp:dim=64,depth=2'", "batch = [16, 32]"));
  EXPECT_NE(small, name({}, {}, spec("model = 'mlp:dim=1024,depth=2'", "batch = [16, 32]")));
  EXPECT_EQ(small, name({}, {}, spec("model = 'mlp:dim=64,depth=2'", "batch = [16, 32, 64]")));
}

TEST(Basis, HasTheContentsOfFilesThatAreNamed) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_basis";
  fs::create_directories(folder);
  const std::string file = (folder / "mine.toml").string();
  std::ofstream(file) << "one";
  const std::string before = name(simulated(file));
  const std::string joined = name(simulated(file + "+ethernet-10"));
  const std::string point = name({}, {{{"schedule", file}}});
  std::ofstream(file) << "two";
  EXPECT_NE(before, name(simulated(file)));
  EXPECT_NE(joined, name(simulated(file + "+ethernet-10")));
  EXPECT_NE(point, name({}, {{{"schedule", file}}}));
  fs::remove_all(folder);
}

TEST(Differences, AreNamedWithBothValues) {
  EXPECT_EQ(differences({{"cluster", "pcie-5"}, {"what-if", "none"}}, {{"cluster", "dgx-a100"}, {"what-if", "none"}}),
            std::vector<std::string>{"cluster (pcie-5, now dgx-a100)"});
  EXPECT_EQ(differences({{"program", "1"}}, {{"program", "2"}}), std::vector<std::string>{"program"});
  EXPECT_EQ(differences({{"contents of a.csv", "1"}}, {{"contents of a.csv", "2"}}), std::vector<std::string>{"contents of a.csv"});
  EXPECT_EQ(differences({{"contents of a.csv", "1"}}, {{"contents of b.csv", "1"}}),
            (std::vector<std::string>{"choice of files (b.csv is new)", "choice of files (a.csv is no longer used)"}));
  EXPECT_TRUE(differences({{"a", "1"}}, {{"a", "1"}}).empty());
}

TEST(Differences, OfWordsThatAreNotGivenNameTheDefault) {
  EXPECT_EQ(differences({{"[job] batch", "16"}}, Json::object()), std::vector<std::string>{"[job] batch (16, now 64 by default)"});
  EXPECT_EQ(differences(Json::object(), {{"[job] strategy", "ddp"}}),
            std::vector<std::string>{"[job] strategy (the default, now ddp)"});
}

TEST(Differences, OfRunsSayWhatBothHave) {
  for (const std::string& one : differences(run_conditions(simulated("machine")), run_conditions(simulated("pcie-5")))) {
    EXPECT_EQ(one.find("default"), std::string::npos) << one;
    EXPECT_EQ(one.find("not given"), std::string::npos) << one;
  }
  EXPECT_EQ(differences(run_conditions(simulated("machine")), run_conditions(simulated("pcie-5"))).size(), 2U);
}

TEST(Basis, IsTheSameForADefaultThatIsSpeltOut) {
  EXPECT_EQ(name({}, {}, "[job]\nbatch = 64\n[axes]\nseed = [1]\n"), name({}, {}, "[job]\n[axes]\nseed = [1]\n"));
  EXPECT_NE(name({}, {}, "[job]\nbatch = 32\n[axes]\nseed = [1]\n"), name({}, {}, "[job]\n[axes]\nseed = [1]\n"));
}

}  // namespace
}  // namespace baton::lab
