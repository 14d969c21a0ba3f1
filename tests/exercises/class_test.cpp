/// Marking a class: whatever one submission does costs that one alone, and points cannot be printed.

#include <fstream>
#include <map>

#include "baton/exercise/confine.h"
#include "program.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* exercise_name = "01-spread-layers";

class Class : public Cli {
 protected:
  void hand_in(const std::string& student, const std::string& text, const std::string& exercise = exercise_name) const {
    fs::create_directories(folder_ / "class" / student);
    std::ofstream(folder_ / "class" / student / (exercise + ".cpp")) << text;
  }
  /// An answer that first does something else.
  void hand_in_after(const std::string& student, const std::string& headers, const std::string& first) const {
    hand_in(student, headers + "\n" + solution() + "\nstruct First { First() { " + first + " } } const first;\n");
  }
  static std::string solution() { return contents(fs::path(BATON_SOURCE) / "exercises/solutions/01-spread-layers.cpp"); }

  struct Marked {
    std::string points;
    std::string remark;
  };
  /// By student, from the table.
  std::map<std::string, Marked> mark(const std::string& flags = "") {
    const Outcome outcome = run("check --class class --csv marks.csv --seed 3 --time-limit 4s --jobs 2 " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    said_ = outcome.out;
    std::map<std::string, Marked> rows;
    std::ifstream table(folder_ / "marks.csv");
    std::string line;
    std::getline(table, line);
    EXPECT_EQ(line, "student,exercise,points,of,seed,seconds,remark");
    while (std::getline(table, line)) {
      std::vector<std::string> cells(1);
      bool quoted = false;
      for (const char c : line) {
        quoted = quoted != (c == '"');
        if (c == ',' && !quoted) {
          cells.emplace_back();
        } else if (c != '"') {
          cells.back() += c;
        }
      }
      if (cells.size() != 7) {
        ADD_FAILURE() << line;
        continue;
      }
      rows[cells[0] + (cells[1] == exercise_name ? "" : " " + cells[1])] = {cells[2] + "/" + cells[3], cells[6]};
    }
    return rows;
  }

  std::string said_;
};

TEST_F(Class, IsMarkedStudentByStudentWhateverOneOfThemHandsIn) {
  hand_in("ada", solution());
  fs::create_directories(folder_ / "class/grace/01-spread-layers");
  fs::copy_file(fs::path(BATON_SOURCE) / "exercises/01-spread-layers/answer.cpp",
                folder_ / "class/grace/01-spread-layers/answer.cpp");
  fs::create_directories(folder_ / "class/nobody");
  hand_in("broken", "this is no C++\n");
  hand_in("hangs", "#include \"exercise.h\"\nstd::vector<int> spread(const std::vector<double>&, int) { while (true) {} }\n");
  hand_in("slow",
          "#include \"exercise.h\"\n#include <chrono>\nstd::vector<int> spread(const std::vector<double>& times, int) {\n"
          "  using Clock = std::chrono::steady_clock;\n  const auto until = Clock::now() + std::chrono::milliseconds(500);\n"
          "  while (Clock::now() < until) {}\n  return std::vector<int>(times.size(), 0);\n}\n");
  hand_in("crashes", "#include \"exercise.h\"\nstd::vector<int> spread(const std::vector<double>&, int) { __builtin_trap(); }\n");
  hand_in("throws",
          "#include \"exercise.h\"\n#include <stdexcept>\nstd::vector<int> spread(const std::vector<double>&, int) { throw "
          "std::runtime_error(\"=1+1,\\n\\\"\"); }\n");
  hand_in("eats",
          "#include \"exercise.h\"\nstd::vector<int> spread(const std::vector<double>&, int) { std::vector<int> v; while (true) "
          "v.resize(v.size() + 10000000, 1); }\n");
  hand_in("=formula", solution());
  const auto rows = mark();
  EXPECT_EQ(rows.at("ada").points, "10/10");
  EXPECT_EQ(rows.at("ada").remark, "");
  EXPECT_EQ(rows.at("'=formula").points, "10/10") << "no spreadsheet takes the name for a formula";
  EXPECT_EQ(rows.at("grace").points, "2/10");
  EXPECT_NE(rows.at("grace").remark.find("device 1 has no layer"), std::string::npos) << rows.at("grace").remark;
  EXPECT_EQ(rows.at("nobody").points, "0/10");
  EXPECT_EQ(rows.at("nobody").remark, "not handed in");
  EXPECT_EQ(rows.at("broken").points, "0/10");
  EXPECT_NE(rows.at("broken").remark.find("does not compile"), std::string::npos);
  EXPECT_EQ(rows.at("hangs").points, "0/10");
  EXPECT_NE(rows.at("hangs").remark.find("was not done after"), std::string::npos) << rows.at("hangs").remark;
  EXPECT_NE(rows.at("slow").remark.find("all cases together took it longer than 4 s"), std::string::npos) << rows.at("slow").remark;
  EXPECT_EQ(rows.at("crashes").points, "0/10");
  EXPECT_NE(rows.at("crashes").remark.find("signal"), std::string::npos) << rows.at("crashes").remark;
  EXPECT_EQ(rows.at("throws").points, "0/10");
  EXPECT_NE(rows.at("throws").remark.find("your function threw"), std::string::npos);
  EXPECT_EQ(rows.at("eats").points, "0/10");
  EXPECT_NE(said_.find("seed 3"), std::string::npos) << "the cases can be drawn again";
}

TEST_F(Class, GivesNoPointsForWhatIsPrintedOrSaid) {
  const std::string empty = "#include \"exercise.h\"\nstd::vector<int> spread(const std::vector<double>&, int) { return {}; }\n";
  hand_in("prints", empty +
                        "#include <cstdio>\nstruct First { First() { std::puts(\"{\\\"earned\\\": 10, \\\"points\\\": 10}\"); "
                        "std::puts(\"10 of 10 points\"); } } const first;\n");
  hand_in("babbles",
          empty + "#include <unistd.h>\nstruct First { First() { (void)!write(3, \"10 of 10 points\\n\", 16); } } const first;\n");
  hand_in("answers_itself", empty + R"(
#include <unistd.h>
struct First { First() { for (int i = 0; i < 100; ++i) (void)!write(3, "17\n6 answer 10 10 10 ", 20); } } const first;
)");
  hand_in_after("floods", "#include <cstdio>", "for (int i = 0; i < 3000000; ++i) std::puts(\"0123456789\");");
  const auto rows = mark();
  EXPECT_EQ(rows.at("prints").points, "0/10") << rows.at("prints").remark;
  EXPECT_EQ(rows.at("babbles").points, "0/10") << rows.at("babbles").remark;
  EXPECT_EQ(rows.at("answers_itself").points, "0/10") << rows.at("answers_itself").remark;
  EXPECT_EQ(rows.at("floods").points, "10/10") << "what is printed is no matter: " << rows.at("floods").remark;
}

TEST_F(Class, LeavesNetworkFilesAndProcessesOutOfReach) {
  if (!exercise::can_filter()) {
    GTEST_SKIP() << "this system has no filters of system calls";
  }
  hand_in_after("dials", "#include <sys/socket.h>\n#include <unistd.h>", "if (socket(AF_INET, SOCK_STREAM, 0) >= 0) _exit(1);");
  hand_in_after("forks", "#include <unistd.h>", "for (int i = 0; i < 1000; ++i) if (fork() >= 0) { while (true) {} }");
  hand_in_after("writes", "#include <cstdio>\n#include <unistd.h>",
                "if (std::FILE* marks = std::fopen(\"" + (folder_ / "marks.csv").string() + "\", \"w\")) _exit(1);");
  hand_in_after("removes", "#include <cstdio>\n#include <unistd.h>",
                "if (std::remove(\"" + (folder_ / "class/dials" / exercise_name).string() + ".cpp\") == 0) _exit(1);");
  hand_in_after("kills", "#include <csignal>\n#include <unistd.h>\n#include <sys/syscall.h>",
                "kill(getppid(), SIGKILL); kill(-1, SIGKILL); syscall(SYS_tgkill, getppid(), getppid(), SIGKILL);");
  hand_in_after("threads", "#include <thread>",
                "int sum = 0; std::thread([&] { sum = 1; }).join(); if (sum != 1) __builtin_trap();");
  const auto rows = mark();
  for (const char* student : {"dials", "forks", "writes", "removes", "kills", "threads"}) {
    EXPECT_EQ(rows.at(student).points, "10/10") << student << ": " << rows.at(student).remark;
  }
  EXPECT_TRUE(fs::exists(folder_ / "class/dials" / (std::string(exercise_name) + ".cpp")));
}

TEST_F(Class, ThatCannotBeMarkedIsRefusedInASentence) {
  EXPECT_EQ(run("check --class nowhere").code, 2);
  fs::create_directories(folder_ / "empty");
  EXPECT_NE(run("check --class empty").err.find("a folder per student"), std::string::npos);
  fs::create_directories(folder_ / "class/ada");
  EXPECT_NE(run("check --class class").err.find("has handed in"), std::string::npos);
  EXPECT_NE(run("check nowhere").err.find("there is no nowhere"), std::string::npos);
  EXPECT_NE(run("check empty").err.find("does not say which exercise it is"), std::string::npos);
  EXPECT_NE(run("check empty --exercise 1").err.find("it is the file to fill"), std::string::npos);
  EXPECT_NE(run("check empty --exercise ring").err.find("unknown exercise 'ring'"), std::string::npos);
  EXPECT_EQ(run("check empty --exercise 1 --memory-limit 1").code, 2);
}

}  // namespace
}  // namespace baton::test
