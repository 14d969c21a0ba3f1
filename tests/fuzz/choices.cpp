#include <fmt/format.h>

#include <string>

#include "baton/base/hash.h"
#include "baton/cuda/kept_choices.h"
#include "target.h"

using namespace baton;

/// The file of algorithms that is kept between processes, as it is and with an ending that says it is whole: what is taken from it
/// can be written and comes back.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(test::text_of(data, size));
  for (const std::string& file : {text, fmt::format("{}end {:016x}\n", text, Hash(text).value())}) {
    const cuda::Choices choices = cuda::parse_choices(file, "k");
    test::require(cuda::parse_choices(cuda::format_choices(choices, "k"), "k") == choices);
  }
  return 0;
}
