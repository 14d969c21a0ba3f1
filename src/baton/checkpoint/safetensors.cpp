#include "baton/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "baton/base/error.h"

namespace baton::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::uint64_t longest_header = 100'000'000;  // as other readers have it
constexpr const char* checksum_key = "baton.checksum";

struct TypeName {
  DType dtype;
  const char* name;
};
constexpr std::array<TypeName, 3> type_names{{{DType::f32, "F32"}, {DType::f64, "F64"}, {DType::i32, "I32"}}};

const char* name_of(DType dtype) {
  for (const TypeName& type : type_names) {
    if (type.dtype == dtype) {
      return type.name;
    }
  }
  throw BugError(fmt::format("no checkpoint holds {}", to_text(dtype)));
}

/// FNV-1a over words of eight bytes, and over single bytes at the end: enough to tell damage from contents.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
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
  std::string text() const { return fmt::format("{:016x}", sum_); }

 private:
  void mix(std::uint64_t word) {
    sum_ = (sum_ ^ word) * 0x100000001b3ULL;
    sum_ ^= sum_ >> 29;  // so that high bits of a word reach low bits of the sum
  }
  std::uint64_t sum_ = 0xcbf29ce484222325ULL;
};

/// An open file that is closed whatever happens.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor() {
    if (file_ >= 0) {
      ::close(file_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return file_; }
  int close() { return ::close(std::exchange(file_, -1)); }

 private:
  int file_;
};

bool write_all(int file, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file, at, size);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    at += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

bool read_all(int file, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::read(file, at, size);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

std::string header_of(const Archive& archive) {
  Json header = Json::object();
  Checksum checksum;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : archive.tensors) {
    check(static_cast<std::int64_t>(tensor.bytes.size()) == tensor.shape.elements() * size_of(tensor.dtype),
          "{} has {} bytes for a tensor of {}", name, tensor.bytes.size(), to_text(tensor.shape));
    header[name] = {{"dtype", name_of(tensor.dtype)},
                    {"shape", tensor.shape.extents()},
                    {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
    checksum.add(tensor.bytes);
  }
  header["__metadata__"] = archive.metadata;
  header["__metadata__"][checksum_key] = checksum.text();
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors are aligned
  return text;
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw usage_error("the checkpoint {} cannot be used: {}", path.string(), why);
}

/// One tensor's entry of the header, checked against the bytes there are.
Tensor parse_entry(const fs::path& path, const std::string& name, const Json& entry, std::uint64_t expected_begin,
                   std::uint64_t available) {
  const auto whole = [](const Json& value) { return value.is_number_unsigned(); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
      !entry["shape"].is_array() || !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2 || !whole(entry["data_offsets"][0]) || !whole(entry["data_offsets"][1])) {
    refuse(path, fmt::format("its entry of {} is not one", name));
  }
  Tensor tensor;
  const TypeName* known = nullptr;
  for (const TypeName& type : type_names) {
    known = entry["dtype"] == type.name ? &type : known;
  }
  if (known == nullptr) {
    refuse(path, fmt::format("{} is of the type {}, which is not known here", name, entry["dtype"].get<std::string>()));
  }
  tensor.dtype = known->dtype;
  std::vector<std::int64_t> extents;
  std::uint64_t elements = 1;
  for (const Json& extent : entry["shape"]) {
    if (!whole(extent) || extent.get<std::uint64_t>() > (std::uint64_t{1} << 48) / std::max<std::uint64_t>(1, elements)) {
      refuse(path, fmt::format("{} has a shape that no tensor has", name));
    }
    elements *= extent.get<std::uint64_t>();
    extents.push_back(extent.get<std::int64_t>());
  }
  tensor.shape = Shape(std::move(extents));
  const auto begin = entry["data_offsets"][0].get<std::uint64_t>();
  const auto end = entry["data_offsets"][1].get<std::uint64_t>();
  if (begin != expected_begin || end < begin || end > available ||
      end - begin != elements * static_cast<std::uint64_t>(size_of(tensor.dtype))) {
    refuse(path, fmt::format("{} does not lie where its header says: the file is cut or corrupt", name));
  }
  tensor.bytes.resize(end - begin);
  return tensor;
}

}  // namespace

void write_archive(const fs::path& path, const Archive& archive) {
  const std::string temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  const std::string header = header_of(archive);
  const std::uint64_t length = header.size();
  const auto fail = [&](int error) {
    ::unlink(temporary.c_str());
    throw failure("the checkpoint {} cannot be written: {}", path.string(), std::strerror(error));
  };
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) {
    fail(errno);
  }
  bool good = write_all(file.get(), &length, sizeof length) && write_all(file.get(), header.data(), header.size());
  for (const auto& [name, tensor] : archive.tensors) {
    good = good && write_all(file.get(), tensor.bytes.data(), tensor.bytes.size());
  }
  if (!good || ::fsync(file.get()) != 0 || file.close() != 0 || std::rename(temporary.c_str(), path.c_str()) != 0) {
    fail(errno);
  }
  // The name too must survive a loss of power.
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) {
    ::fsync(directory.get());
  }
}

Archive read_archive(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    refuse(path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(path, "it is no file");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t length = 0;
  if (size < sizeof length || !read_all(file.get(), &length, sizeof length) || length > longest_header ||
      length > size - sizeof length) {
    refuse(path, "it is cut, or no safetensors file");
  }
  std::string text(length, ' ');
  if (!read_all(file.get(), text.data(), text.size())) {
    refuse(path, "it is cut");
  }
  const Json header = Json::parse(text, nullptr, false);
  if (!header.is_object()) {
    refuse(path, "its header is not JSON");
  }
  Archive archive;
  std::vector<std::pair<std::uint64_t, std::string>> order;
  for (auto entry = header.begin(); entry != header.end(); ++entry) {
    if (entry.key() == "__metadata__") {
      for (auto remark = entry.value().begin(); remark != entry.value().end(); ++remark) {
        if (!remark.value().is_string()) {
          refuse(path, "its remarks are no texts");
        }
        archive.metadata[remark.key()] = remark.value().get<std::string>();
      }
      continue;
    }
    const Json& offsets = entry.value().is_object() ? entry.value().value("data_offsets", Json()) : Json();
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned()) {
      refuse(path, fmt::format("its entry of {} is not one", entry.key()));
    }
    order.emplace_back(offsets[0].get<std::uint64_t>(), entry.key());
  }
  std::sort(order.begin(), order.end());
  Checksum checksum;
  std::uint64_t next = 0;
  const std::uint64_t available = size - sizeof length - length;
  for (const auto& [begin, name] : order) {
    Tensor tensor = parse_entry(path, name, header[name], next, available);
    next += tensor.bytes.size();
    if (!read_all(file.get(), tensor.bytes.data(), tensor.bytes.size())) {
      refuse(path, "it is cut");
    }
    archive.tensors.emplace(name, std::move(tensor));
  }
  if (next != available) {
    refuse(path, "it holds more than its header says");
  }
  for (const auto& [name, tensor] : archive.tensors) {
    checksum.add(tensor.bytes);
  }
  if (const auto said = archive.metadata.find(checksum_key); said != archive.metadata.end()) {
    if (said->second != checksum.text()) {
      refuse(path, "its checksum is not that of its contents, so it is damaged");
    }
    archive.metadata.erase(said);
  }
  return archive;
}

}  // namespace baton::checkpoint
