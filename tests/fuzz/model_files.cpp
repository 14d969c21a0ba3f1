#include <memory>

#include "baton/model/huggingface.h"
#include "baton/model/onnx.h"
#include "baton/model/zoo.h"
#include "target.h"

using namespace baton;

/// A model from outside: text that begins as JSON is a config.json, anything else an ONNX file. What is accepted can be built, and
/// a configuration can be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = test::text_of(data, size);
  test::tolerate([&] {
    if (!text.starts_with('{')) {
      const model::OnnxModel onnx = model::parse_onnx(std::make_shared<const std::string>(text), "net.onnx");
      for (const auto& [name, weight] : onnx.weights) {
        test::require(weight.place(weight.tensor.shape.elements() - 1) < static_cast<std::int64_t>(weight.tensor.bytes.size()));
      }
      return;
    }
    // Large models take long to build; what is fuzzed is the reading.
    const model::FolderModel folder = model::read_config(text, "", "config.json");
    test::require(!folder.model.empty());
  });
  return 0;
}
