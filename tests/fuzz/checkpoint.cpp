#include "baton/checkpoint/safetensors.h"
#include "memory_file.h"
#include "target.h"

using namespace baton;

/// A checkpoint: what is accepted holds as many bytes as its shapes say.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static test::MemoryFile file;
  test::tolerate([&] {
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : checkpoint::read_archive(file.holding(test::text_of(data, size))).tensors) {
      test::require(tensor.bytes.size() == static_cast<std::size_t>(tensor.shape.elements() * size_of(tensor.dtype)));
      bytes += tensor.bytes.size();
    }
    test::require(bytes < size);
  });
  return 0;
}
