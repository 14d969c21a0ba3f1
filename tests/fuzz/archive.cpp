#include "baton/archive/safetensors.h"
#include "memory_file.h"
#include "target.h"

using namespace baton;

/// A checkpoint: what is accepted holds as many bytes as its shapes say.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static test::MemoryFile file;
  test::tolerate([&] {
    const archive::ArchiveReader archive(file.holding(test::text_of(data, size)));
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : archive.tensors()) {
      std::vector<std::byte> contents(tensor.size());
      archive.read(name, contents);
      bytes += contents.size();
    }
    test::require(bytes < size);
  });
  return 0;
}
