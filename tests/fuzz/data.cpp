#include "baton/data/arrays.h"
#include "baton/data/images.h"
#include "baton/data/picture.h"
#include "baton/data/tokenizer.h"
#include "baton/data/tokenizer_json.h"
#include "baton/data/tokens.h"
#include "memory_file.h"
#include "target.h"

using namespace baton;

namespace {

void take_tokens(const std::filesystem::path& path, std::size_t size) {
  const data::TokenFile file = data::open_token_file(path, std::nullopt);
  test::require(file.count() >= 0 && static_cast<std::size_t>(file.count()) * file.width() <= size);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.count()));
  file.read(0, tokens, 50'000);
}

void take_array(const data::Array& array, std::size_t size) {
  const auto count = static_cast<std::size_t>(array.samples() * array.each());
  test::require(count * static_cast<std::size_t>(size_of(array.type)) <= size);
  std::vector<float> numbers(count);
  array.read(0, std::span(numbers));
}

void take_images(const data::Source& source) {
  const data::Description& description = source.description();
  const auto samples = source.samples({.input = {description.sample.elements()}, .target = {}, .classes = 256}, {});
  std::vector<float> pixels(static_cast<std::size_t>(description.sample.elements()));
  samples->input({samples->count() - 1, 0}, std::span(pixels));
}

void take_tokenizer(const data::Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens;
  constexpr const char* text = "the cat's 12 hats\n\n ab\xc3\xa9";
  tokenizer.encode(text, tokens);
  test::require(tokenizer.decode(tokens) == text);
}

}  // namespace

/// Data of every format: the first byte says which one the rest is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static test::MemoryFile file;
  if (size == 0) {
    return 0;
  }
  const std::string_view rest = test::text_of(data + 1, size - 1);
  const std::filesystem::path& path = file.holding(rest);
  test::tolerate([&] {
    switch (data[0]) {
      case 't':
        return take_tokens(path, rest.size());
      case 'n':
        return take_array(data::open_npy(path), rest.size());
      case 's':
        for (const auto& [name, array] : data::open_safetensors(path)) {
          take_array(array, rest.size());
        }
        return;
      case 'i':
        return take_images(*data::open_idx(path.string(), path.string()));
      case 'g':
        data::gunzip(path, data::gunzip_beginning(path, 20).size());
        return;
      case 'c':
        return take_images(*data::open_cifar({path.string()}, data::cifar10, {}));
      case 'p': {
        const data::Picture picture = data::decode_picture(std::as_bytes(std::span(rest)), "picture");
        test::require(static_cast<std::size_t>(picture.channels * picture.height * picture.width) == picture.pixels.size());
        return;
      }
      case 'o':
        return take_tokenizer(*data::read_tokenizer(path));
      case 'v': {
        data::TokenizerListing listing;
        data::parse_vocabulary(rest, listing);
        return;
      }
      default: {
        data::TokenizerListing listing;
        data::parse_tokenizer_json(rest, listing);
      }
    }
  });
  return 0;
}
