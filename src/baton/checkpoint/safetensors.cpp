#include "baton/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/checkpoint/header.h"

namespace baton::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::uint64_t longest_header = 100'000'000;  // as other readers have it
constexpr const char* checksum_key = "baton.checksum";

/// FNV-1a over words of eight bytes, and over single bytes at the end: enough to tell damage from contents.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    mix(bytes.size());
    while (bytes.size() >= 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), 8);
      mix(word);
      bytes = bytes.subspan(8);
    }
    for (const std::byte byte : bytes) {
      mix(std::to_integer<std::uint64_t>(byte));
    }
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::string text() const { return fmt::format("{:016x}", sum_); }

 private:
  void mix(std::uint64_t word) {
    sum_ = (sum_ ^ word) * 0x100000001b3ULL;
    sum_ ^= sum_ >> 29;  // so that high bits of a word reach low bits of the sum
  }
  std::uint64_t sum_ = 0xcbf29ce484222325ULL;
};

/// Over all that the file holds: tensors with their names, types and shapes, and what is remarked beside them.
std::string checksum(const Archive& archive) {
  Checksum sum;
  for (const auto& [name, tensor] : archive.tensors) {
    sum.add(name);
    sum.add(std::string_view(type_name(tensor.dtype)));
    sum.add(std::as_bytes(std::span(tensor.shape.extents())));
    sum.add(tensor.bytes);
  }
  for (const auto& [key, value] : archive.metadata) {
    if (key != checksum_key) {
      sum.add(key);
      sum.add(value);
    }
  }
  return sum.text();
}

std::string header_of(const Archive& archive) {
  Json header = Json::object();
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : archive.tensors) {
    check(static_cast<std::int64_t>(tensor.bytes.size()) == tensor.shape.elements() * size_of(tensor.dtype),
          "{} has {} bytes for a tensor of {}", name, tensor.bytes.size(), to_text(tensor.shape));
    header[name] = {{"dtype", type_name(tensor.dtype)},
                    {"shape", tensor.shape.extents()},
                    {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  header["__metadata__"] = archive.metadata;
  header["__metadata__"][checksum_key] = checksum(archive);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors are aligned
  return text;
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw usage_error("the checkpoint {} cannot be used: {}", path.string(), why);
}

}  // namespace

void write_archive(const fs::path& path, const Archive& archive) {
  const std::string header = header_of(archive);
  const std::uint64_t length = header.size();
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(header))};
  for (const auto& [name, tensor] : archive.tensors) {
    parts.emplace_back(tensor.bytes);
  }
  write_whole(path, fmt::format("the checkpoint {}", path.string()), parts);
}

Archive read_archive(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    refuse(path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(path, "it is no file");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t length = 0;
  if (size < sizeof length || !read_exactly(file.get(), std::as_writable_bytes(std::span(&length, 1))) || length > longest_header ||
      length > size - sizeof length) {
    refuse(path, "it is cut, or no safetensors file");
  }
  Header header;
  {
    std::string text(length, ' ');
    if (!read_exactly(file.get(), std::as_writable_bytes(std::span(text)))) {
      refuse(path, "it is cut");
    }
    if (const std::string wrong = parse_header(text, header); !wrong.empty()) {
      refuse(path, wrong);
    }
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  Archive archive;
  archive.metadata = std::move(header.metadata);
  std::uint64_t next = 0;
  const std::uint64_t available = size - sizeof length - length;
  for (Entry& entry : header.entries) {
    // Only now is it certain that the file is as long as this says.
    if (entry.begin != next || entry.end < entry.begin || entry.end > available ||
        entry.end - entry.begin != entry.elements * static_cast<std::uint64_t>(size_of(entry.dtype))) {
      refuse(path, fmt::format("{} does not lie where its header says: the file is cut or corrupt", entry.name));
    }
    Tensor tensor{entry.dtype, Shape(std::move(entry.shape)), std::vector<std::byte>(entry.end - entry.begin)};
    next = entry.end;
    if (!read_exactly(file.get(), tensor.bytes)) {
      refuse(path, "it is cut");
    }
    if (!archive.tensors.emplace(entry.name, std::move(tensor)).second) {
      refuse(path, fmt::format("it holds {} twice", entry.name));
    }
  }
  if (next != available) {
    refuse(path, "it holds more than its header says");
  }
  if (const auto said = archive.metadata.find(checksum_key); said != archive.metadata.end()) {
    if (said->second != checksum(archive)) {
      refuse(path, "its checksum is not that of its contents, so it is damaged");
    }
    archive.metadata.erase(said);
  }
  return archive;
}

}  // namespace baton::checkpoint
