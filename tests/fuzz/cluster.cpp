#include "baton/cluster/blueprint.h"
#include "target.h"

using namespace baton;

/// A cluster's file: of what is accepted, devices can be taken.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::tolerate([&] {
    const cluster::Blueprint blueprint = cluster::parse_blueprint(test::text_of(data, size), "fuzzed");
    blueprint.take(3);
    blueprint.joined_by(blueprint).take(5);
  });
  return 0;
}
