#pragma once

#include "cli/program.h"

// What the sanitizers bring along cannot be loaded behind another library.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BATON_PRELOADS 0
#else
#define BATON_PRELOADS 1
#endif

namespace baton::test {

/// Runs the program with a library loaded ahead of its own; skipped in builds with sanitizers, which come first themselves.
class Preloaded : public Cli {
 protected:
  void SetUp() override {
    if (BATON_PRELOADS == 0) {
      GTEST_SKIP() << "sanitizers bring files and allocations of their own, and come first";
    }
    Cli::SetUp();
  }
  void TearDown() override {
    if (!folder_.empty()) {
      Cli::TearDown();
    }
  }
};

}  // namespace baton::test
