#include "baton/measure/calibration.h"

#include "target.h"

using namespace baton;

/// The file of times that is kept between calls: whatever it holds, what is taken from it are times.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string created;
  for (const auto& [name, times] : measure::parse_calibration(test::text_of(data, size), "m", created)) {
    for (const auto& [key, time] : times) {
      test::require(time.count >= 0);
    }
  }
  return 0;
}
