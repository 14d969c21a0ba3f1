#include "baton/archive/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "baton/archive/header.h"
#include "baton/base/error.h"

namespace baton::archive {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::uint64_t longest_header = 100'000'000;  // the limit of other readers too
constexpr const char* checksum_key = "baton.checksum";
constexpr std::size_t most_at_once = std::size_t{1} << 20;

/// Over all that the file holds: tensors with their names, types and shapes, and the metadata.
void add_name(Checksum& sum, const std::string& name, const TensorInfo& tensor) {
  sum.add(name);
  sum.add(tensor.dtype.name());
  sum.add(std::as_bytes(std::span(tensor.shape.extents())));
  sum.begin(tensor.size());
}

void add_metadata(Checksum& sum, const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    if (key != checksum_key) {
      sum.add(key);
      sum.add(value);
    }
  }
}

/// With a checksum that is filled in when the tensors are written.
std::string header_of(const Tensors& tensors, const Metadata& metadata) {
  Json header = Json::object();
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {
        {"dtype", tensor.dtype.name()}, {"shape", tensor.shape.extents()}, {"data_offsets", {offset, offset + tensor.size()}}};
    offset += tensor.size();
  }
  header["__metadata__"] = metadata;
  header["__metadata__"][checksum_key] = Checksum().text();
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors are aligned
  return text;
}

}  // namespace

void require_readable(const Tensors& tensors, const Metadata& metadata) {
  const std::string text = header_of(tensors, metadata);
  Header header;
  const std::string wrong = text.size() > longest_header ? "its header is too long" : parse_header(text, header);
  if (!wrong.empty()) {
    throw usage_error("no checkpoint of this model can be saved, because it could not be read back: {}", wrong);
  }
}

ArchiveWriter::ArchiveWriter(fs::path path, Tensors tensors, Metadata metadata)
    : path_(std::move(path)),
      tensors_(std::move(tensors)),
      metadata_(std::move(metadata)),
      next_(tensors_.begin()),
      file_(path_, fmt::format("the checkpoint {}", path_.string())) {
  const std::string header = header_of(tensors_, metadata_);
  const std::uint64_t length = header.size();
  const std::string before = fmt::format("\"{}\":\"", checksum_key);
  checksum_at_ = sizeof length + header.find(before) + before.size();
  file_.append(std::as_bytes(std::span(&length, 1)));
  file_.append(std::as_bytes(std::span(header)));
}

void ArchiveWriter::append(std::span<const std::byte> bytes) {
  check(next_ != tensors_.end() && bytes.size() == next_->second.size(), "{} bytes for a tensor that has others", bytes.size());
  add_name(sum_, next_->first, next_->second);
  sum_.go_on(bytes);
  file_.append(bytes);
  ++next_;
}

void ArchiveWriter::commit() {
  check(next_ == tensors_.end(), "a checkpoint without {}", next_ == tensors_.end() ? "" : next_->first);
  add_metadata(sum_, metadata_);
  const std::string sum = sum_.text();
  file_.overwrite(checksum_at_, std::as_bytes(std::span(sum)));
  file_.commit();
}

void ArchiveReader::refuse(const std::string& why) const {
  throw usage_error("{} {} cannot be used: {}", what_, path_.string(), why);
}

ArchiveReader::ArchiveReader(fs::path path, std::string what)
    : path_(std::move(path)), what_(std::move(what)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) {
    refuse(std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse("it is not a file");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t length = 0;
  if (size < sizeof length || !read_exactly(file_.get(), std::as_writable_bytes(std::span(&length, 1))) ||
      length > longest_header || length > size - sizeof length) {
    refuse("it is cut, or no safetensors file");
  }
  Header header;
  {
    std::string text(length, ' ');
    if (!read_exactly(file_.get(), std::as_writable_bytes(std::span(text)))) {
      refuse("it is cut");
    }
    if (const std::string wrong = parse_header(text, header); !wrong.empty()) {
      refuse(wrong);
    }
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  metadata_ = std::move(header.metadata);
  std::uint64_t next = 0;
  const std::uint64_t available = size - sizeof length - length;
  for (Entry& entry : header.entries) {
    // Only now is it certain that the file is as long as this says.
    if (entry.begin != next || entry.end < entry.begin || entry.end > available ||
        entry.end - entry.begin != entry.elements * static_cast<std::uint64_t>(size_of(entry.dtype))) {
      refuse(fmt::format("{} does not lie where its header says: the file is cut or corrupt", entry.name));
    }
    next = entry.end;
    begin_[entry.name] = sizeof length + length + entry.begin;
    if (!tensors_.emplace(entry.name, TensorInfo{entry.dtype, Shape(entry.shape)}).second) {
      refuse(fmt::format("it holds {} twice", entry.name));
    }
  }
  if (next != available) {
    refuse("it holds more than its header says");
  }
  if (const auto said = metadata_.find(checksum_key); said != metadata_.end()) {
    if (said->second != checksum()) {
      refuse("its checksum is not that of its contents, so it is damaged");
    }
    metadata_.erase(said);
  }
}

void ArchiveReader::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      refuse("it is cut");
    }
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

std::string ArchiveReader::checksum() const {
  Checksum sum;
  std::vector<std::byte> run;
  for (const auto& [name, tensor] : tensors_) {
    add_name(sum, name, tensor);
    for (std::size_t done = 0; done < tensor.size(); done += run.size()) {
      run.resize(std::min(most_at_once, tensor.size() - done));
      read_at(begin_.at(name) + done, run);
      sum.go_on(run);
    }
  }
  add_metadata(sum, metadata_);
  return sum.text();
}

void ArchiveReader::read(const std::string& name, std::span<std::byte> into) const {
  check(into.size() == tensors_.at(name).size(), "{} bytes for {}", into.size(), name);
  read_at(begin_.at(name), into);
}

void ArchiveReader::read(const std::string& name, std::uint64_t begin, std::span<std::byte> into) const {
  const std::uint64_t size = tensors_.at(name).size();
  check(begin <= size && into.size() <= size - begin, "{} bytes at {} of {}", into.size(), begin, name);
  read_at(begin_.at(name) + begin, into);
}

}  // namespace baton::archive
