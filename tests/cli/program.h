#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/contents.h"
#include "support/own_folder.h"

namespace baton::test {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// Runs the program in a folder of the test's own, which also has what it keeps between calls.
class Cli : public OwnFolder {
 protected:
  Outcome run(const std::string& arguments) const { return run_with("", arguments); }

  /// With further settings in its environment, as "NAME=VALUE".
  Outcome run_with(const std::string& settings, const std::string& arguments) const {
    const std::string command = "cd '" + folder_.string() + "' && XDG_CACHE_HOME='" + folder_.string() + "/cache' " + settings +
                                " '" BATON_PROGRAM "' " + arguments + " >'" + (folder_ / "out").string() + "' 2>'" +
                                (folder_ / "err").string() + "' </dev/null";
    const int status = std::system(command.c_str());
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(folder_ / "out"), contents(folder_ / "err")};
    std::filesystem::remove(folder_ / "out");
    std::filesystem::remove(folder_ / "err");
    return outcome;
  }
};

}  // namespace baton::test
