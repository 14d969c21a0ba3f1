/// Every exercise can be solved, its skeleton earns few points, and each plausible mistake costs the points that it should. With
/// BATON_SEEDS=50 solutions and mistakes are asked the cases of the seeds 1 to 50, too.

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "baton/exercise/exercises.h"
#include "baton/job/json.h"
#include "program.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

class Answers : public Cli, public testing::WithParamInterface<exercise::Exercise> {
 protected:
  static fs::path source() { return BATON_SOURCE; }
  /// The points that each part of the exercise gives a file.
  std::vector<int> earned(const fs::path& file, int seed) {
    const Outcome outcome = run(fmt::format("check '{}' --exercise {} --seed {} --json -", file.string(), GetParam().name, seed));
    said_ = outcome.out + outcome.err;
    const job::Json json = job::Json::parse(outcome.out, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << said_;
    std::vector<int> list;
    points_ = 0;
    for (const job::Json& part : json.is_discarded() ? job::Json::array() : json.at("parts")) {
      list.push_back(part.at("earned"));
      points_ += part.at("points").get<int>();
    }
    EXPECT_EQ(outcome.code, json.is_discarded() || json.at("earned") == json.at("points") ? 0 : 1);
    return list;
  }

  static int more_seeds() {
    const char* count = std::getenv("BATON_SEEDS");
    return count == nullptr ? 0 : std::atoi(count);
  }

  std::string said_;
  int points_ = 0;
};

TEST_P(Answers, OfTheSolutionEarnAllPointsWithAnySeed) {
  std::vector<int> seeds{0, 20261116};
  for (int seed = 1; seed <= more_seeds(); ++seed) {
    seeds.push_back(seed);
  }
  for (const int seed : seeds) {
    const std::vector<int> points = earned(source() / "exercises/solutions" / (GetParam().name + ".cpp"), seed);
    EXPECT_EQ(std::accumulate(points.begin(), points.end(), 0), 10) << "with seed " << seed << "\n" << said_;
    EXPECT_EQ(points_, 10);
  }
}

TEST_P(Answers, OfTheSkeletonEarnFewPointsAndSayWhatIsMissing) {
  const std::vector<int> points = earned(source() / "exercises" / GetParam().name, 1);
  EXPECT_LE(std::accumulate(points.begin(), points.end(), 0), 3) << said_;
  EXPECT_NE(said_.find("Wrong in"), std::string::npos) << said_;
  EXPECT_EQ(said_.find("does not compile"), std::string::npos) << said_;
}

/// The first line of a wrong answer says what it earns: `// earns: 4 0 1 0`, part by part.
TEST_P(Answers, ThatAreWrongLoseThePointsOfWhatIsWrong) {
  int mistakes = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(source() / "tests/exercises/wrong" / GetParam().name)) {
    std::ifstream text(file.path());
    std::string line;
    std::getline(text, line);
    ASSERT_TRUE(line.starts_with("// earns: ")) << file.path();
    std::istringstream numbers(line.substr(10));
    const std::vector<int> wanted{std::istream_iterator<int>(numbers), {}};
    EXPECT_EQ(earned(file.path(), 2), wanted) << file.path() << "\n" << said_;
    EXPECT_LT(std::accumulate(wanted.begin(), wanted.end(), 0), 10) << "it is wrong";
    for (int seed = 1; seed <= more_seeds(); ++seed) {
      const std::vector<int> points = earned(file.path(), seed);
      EXPECT_LT(std::accumulate(points.begin(), points.end(), 0), 10) << file.path() << " passes with seed " << seed;
    }
    ++mistakes;
  }
  EXPECT_GE(mistakes, 1);
}

INSTANTIATE_TEST_SUITE_P(To, Answers, testing::ValuesIn(exercise::exercises()), [](const auto& exercise) {
  std::string name = exercise.param.name;
  std::erase_if(name, [](char c) { return c == '-'; });
  return name;
});

TEST(Exercises, HaveAllThatTheyPromise) {
  int number = 0;
  for (const exercise::Exercise& one : exercise::exercises()) {
    EXPECT_LT(number, std::stoi(one.name.substr(0, 2))) << "in order";
    number = std::stoi(one.name.substr(0, 2));
    for (const char* file : {"README.md", "answer.cpp", "check.cpp", "exercise.h", "program.cpp"}) {
      EXPECT_TRUE(fs::exists(fs::path(BATON_SOURCE) / "exercises" / one.name / file)) << one.name << "/" << file;
    }
    const std::string text = contents(fs::path(BATON_SOURCE) / "exercises" / one.name / "README.md");
    EXPECT_NE(text.find("./baton check exercises/" + one.name), std::string::npos) << one.name;
    for (const char* heading : {"**Task.**", "**Given.**", "**How it is checked.**", "| points | for |"}) {
      EXPECT_NE(text.find(heading), std::string::npos) << one.name << " lacks " << heading;
    }
  }
  EXPECT_GT(number, 2);
}

}  // namespace
}  // namespace baton::test
