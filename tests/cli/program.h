#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace baton::test {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Runs the program in a folder of the test's own, which also has what it keeps between calls.
class Cli : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "baton-cli-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Outcome run(const std::string& arguments) const { return run_with("", arguments); }

  /// With further settings in its environment, as "NAME=VALUE".
  Outcome run_with(const std::string& settings, const std::string& arguments) const {
    const std::string command = "cd '" + folder_.string() + "' && XDG_CACHE_HOME='" + folder_.string() + "/cache' " + settings +
                                " '" BATON_PROGRAM "' " + arguments + " >'" + (folder_ / "out").string() + "' 2>'" +
                                (folder_ / "err").string() + "' </dev/null";
    const int status = std::system(command.c_str());
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder_ / "out"), read_file(folder_ / "err")};
    std::filesystem::remove(folder_ / "out");
    std::filesystem::remove(folder_ / "err");
    return outcome;
  }

  std::filesystem::path folder_;
};

}  // namespace baton::test
