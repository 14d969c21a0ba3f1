#include "baton/data/blob.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "baton/base/file.h"
#ifdef BATON_ZLIB
#include <zlib.h>
#endif

namespace baton::data {
namespace {

/// A folder may have more shards than the usual limit of open files, which a process may raise by itself.
int open_for_reading(const std::filesystem::path& path) {
  const auto attempt = [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); };
  const int file = attempt();
  rlimit limit{};
  if (file >= 0 || errno != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) {
    return file;
  }
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return attempt();
}

class FileBlob final : public Blob {
 public:
  explicit FileBlob(const std::filesystem::path& path) : path_(path), file_(open_for_reading(path)) {
    struct stat status {};
    if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) {
      throw unusable(path_, std::strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
      throw unusable(path_, "it is not a file");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }

  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    check(offset <= size_ && into.size() <= size_ - offset, "{} bytes at {} of {}", into.size(), offset, size_);
    while (!into.empty()) {
      const ssize_t got = ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got <= 0) {
        throw failure("{} can no longer be read: {}", path_.string(),
                      got < 0 ? std::strerror(errno) : "it was cut while it was in use");
      }
      into = into.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
};

class MemoryBlob final : public Blob {
 public:
  explicit MemoryBlob(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    check(offset <= bytes_.size() && into.size() <= bytes_.size() - offset, "{} bytes at {} of {}", into.size(), offset,
          bytes_.size());
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
  }

 private:
  std::vector<std::byte> bytes_;
};

#ifdef BATON_ZLIB
/// One gzipped file that is read from its beginning on.
class Unzipper {
 public:
  explicit Unzipper(const std::filesystem::path& path) : path_(path), file_(file_blob(path)) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) {  // the largest window, in gzip's wrapping
      throw std::bad_alloc();
    }
  }
  ~Unzipper() { inflateEnd(&stream_); }
  Unzipper(const Unzipper&) = delete;
  Unzipper& operator=(const Unzipper&) = delete;

  std::uint64_t packed_size() const { return file_->size(); }

  /// Returns the number of bytes read; fewer than asked for at the end.
  std::size_t read(std::span<std::byte> into) {
    std::size_t got = 0;
    while (got < into.size() && !ended_) {
      if (stream_.avail_in == 0) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(packed_.size(), file_->size() - offset_));
        if (count == 0) {
          throw unusable(path_, "it is cut");
        }
        file_->read(offset_, std::span(packed_).first(count));
        offset_ += count;
        stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
        stream_.avail_in = static_cast<uInt>(count);
      }
      const std::size_t room = std::min<std::size_t>(into.size() - got, 1U << 30);
      stream_.next_out = reinterpret_cast<Bytef*>(into.data() + got);
      stream_.avail_out = static_cast<uInt>(room);
      const int state = inflate(&stream_, Z_NO_FLUSH);
      if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR) {
        throw unusable(path_, "it is damaged, or not gzipped");
      }
      got += room - stream_.avail_out;
      ended_ = state == Z_STREAM_END;
    }
    return got;
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<const Blob> file_;
  std::array<std::byte, 1 << 15> packed_{};
  std::uint64_t offset_ = 0;
  bool ended_ = false;
  z_stream stream_{};
};
#else
[[noreturn]] void refuse_gzip(const std::filesystem::path& path) {
  throw unusable(
      path, "it is gzipped, and this program was built without zlib: unpack it with gunzip, or install zlib1g-dev and build again");
}
#endif

}  // namespace

Error unusable(const std::filesystem::path& path, std::string_view why) {
  return usage_error("{} cannot be used as data: {}", path.string(), why);
}

bool is_file(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown);
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown);
}

std::unique_ptr<const Blob> file_blob(const std::filesystem::path& path) { return std::make_unique<FileBlob>(path); }

std::unique_ptr<const Blob> memory_blob(std::vector<std::byte> bytes) { return std::make_unique<MemoryBlob>(std::move(bytes)); }

bool reads_gzip() {
#ifdef BATON_ZLIB
  return true;
#else
  return false;
#endif
}

bool is_gzipped(const std::filesystem::path& path) {
  const auto file = file_blob(path);
  std::array<std::byte, 2> magic{};
  if (file->size() < magic.size()) {
    return false;
  }
  file->read(0, magic);
  return magic == std::array{std::byte{0x1f}, std::byte{0x8b}};
}

std::vector<std::byte> gunzip_beginning([[maybe_unused]] const std::filesystem::path& path, [[maybe_unused]] std::size_t count) {
#ifdef BATON_ZLIB
  Unzipper file(path);
  std::vector<std::byte> bytes(count);
  bytes.resize(file.read(bytes));
  return bytes;
#else
  refuse_gzip(path);
#endif
}

std::vector<std::byte> gunzip([[maybe_unused]] const std::filesystem::path& path, [[maybe_unused]] std::uint64_t size) {
#ifdef BATON_ZLIB
  constexpr std::uint64_t most_packed = 1032;  // deflate packs no better than this
  Unzipper file(path);
  if (size / most_packed > file.packed_size()) {
    throw unusable(path, fmt::format("its header says that it holds {} bytes, which is more than {} packed bytes can hold", size,
                                     file.packed_size()));
  }
  std::vector<std::byte> bytes(size);
  std::array<std::byte, 1> more{};
  if (file.read(bytes) != size) {
    throw unusable(path, fmt::format("it holds fewer than the {} bytes that its header says", size));
  }
  if (file.read(more) != 0) {
    throw unusable(path, fmt::format("it holds more than the {} bytes that its header says", size));
  }
  return bytes;
#else
  refuse_gzip(path);
#endif
}

}  // namespace baton::data
