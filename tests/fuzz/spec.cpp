#include "baton/lab/spec.h"

#include "baton/lab/runner.h"
#include "target.h"

using namespace baton;

/// A spec of an experiment: what is accepted has points.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::tolerate([&] {
    const lab::Experiment experiment = lab::parse_spec(test::text_of(data, size), "fuzzed");
    test::require(!lab::points(experiment, lab::Preset::quick, {}).empty());
  });
  return 0;
}
