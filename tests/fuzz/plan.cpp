#include "baton/plan/dot.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "target.h"

using namespace baton;

/// A plan's text: what is accepted prints as text that parses to the same plan, and can be judged, counted
/// and drawn.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::tolerate([&] {
    const plan::Plan plan = plan::parse(test::text_of(data, size));
    test::require(plan::parse(plan::to_text(plan)) == plan);
    if (plan::verify(plan).holds()) {
      plan::totals_by_device(plan);
    }
    plan::to_dot(plan);
  });
  return 0;
}
