#include <gtest/gtest.h>

#include <cstdio>

#include "ranks/ranks.h"

namespace baton::test {
namespace {

std::shared_ptr<ranks::World> opened;

/// Says which rank a failure is of: all ranks run all tests, and only rank 0 reports those that pass.
class Failures final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      std::printf("rank %d: %s:%d: %s\n", opened->rank(), result.file_name() == nullptr ? "" : result.file_name(),
                  result.line_number(), result.message());
    }
  }
};

}  // namespace

ranks::World& world() { return *opened; }
const std::shared_ptr<ranks::World>& shared_world() { return opened; }

}  // namespace baton::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  baton::test::opened = baton::ranks::open_world();
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (baton::test::world().rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new baton::test::Failures);
  }
  const int code = RUN_ALL_TESTS();
  baton::test::opened.reset();
  return code;
}
