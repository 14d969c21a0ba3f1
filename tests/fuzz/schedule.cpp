#include "baton/schedule/flaw.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/text.h"
#include "target.h"

using namespace baton;

/// A schedule as CSV: what is accepted prints as what it was parsed from, and either has a flaw or runs.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::tolerate([&] {
    const schedule::Grid grid = schedule::parse_csv(test::text_of(data, size));
    test::require(schedule::parse_csv(schedule::to_csv(grid)) == grid);
    schedule::to_text(grid);
    if (!schedule::flaw(grid)) {
      schedule::sequence(grid);
      schedule::in_flight(grid);
      schedule::replay(grid);
    }
  });
  return 0;
}
