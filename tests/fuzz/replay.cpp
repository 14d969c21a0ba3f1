// Gives a fuzzer's function every file of the folders named, then this many changed ones: cut, with bytes
// turned, left out, doubled, put together from two. The same numbers every time, so what fails once fails
// again. It replaces libFuzzer if that is not built.
//
//   fuzz_schedule FOLDER... [--changes 20000]

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "target.h"

namespace {

namespace fs = std::filesystem;

std::string changed(std::string text, const std::vector<std::string>& corpus, std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : static_cast<std::size_t>(random() % limit); };
  const std::size_t times = 1 + below(4);
  for (std::size_t i = 0; i < times; ++i) {
    const std::size_t at = below(text.size());
    const std::size_t length = below(std::min<std::size_t>(text.size() - at, 40) + 1);
    switch (below(7)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        if (!text.empty()) {
          text[at] = static_cast<char>(random());
        }
        break;
      case 4:
        text.insert(at, 1, "0123456789-.,:;=\"{}[]()x\n\\/ eE+"[below(32)]);
        break;
      case 5: {
        const std::string& other = corpus[below(corpus.size())];
        text.replace(at, length, other.substr(below(other.size()), below(60)));
        break;
      }
      default:
        text.replace(at, length, std::to_string(random() >> below(64)));
    }
  }
  return text;
}

void give(const std::string& text) { LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()); }

}  // namespace

int main(int argc, char** argv) {
  std::size_t changes = 20'000;
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--changes") == 0 && i + 1 < argc) {
      changes = std::stoul(argv[++i]);
      continue;
    }
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      std::ifstream stream(file, std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "there is no file to begin with\n");
    return 1;
  }
  for (const std::string& text : corpus) {
    give(text);
  }
  std::mt19937_64 random(1);
  std::string text;
  for (std::size_t i = 0; i < changes; ++i) {
    text = changed(corpus[random() % corpus.size()], corpus, random);
    give(text);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%zu files and %zu changes of them; at most %ld KiB of memory\n", corpus.size(), changes, usage.ru_maxrss);
  return 0;
}
