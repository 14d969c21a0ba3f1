#include "baton/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "baton/base/error.h"

namespace baton {
namespace {

constexpr std::string_view temporary_ending = ".tmp";

/// Zero, or what went wrong.
int write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return written == 0 ? EIO : errno;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

int write_flushed(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) {
    return errno;
  }
  for (const std::span<const std::byte> part : parts) {
    if (const int error = write_all(file.get(), part); error != 0) {
      return error;
    }
  }
  return ::fsync(file.get()) != 0 ? errno : file.close();
}

}  // namespace

Descriptor::~Descriptor() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

int Descriptor::close() { return ::close(std::exchange(file_, -1)) == 0 ? 0 : errno; }

bool read_exactly(int file, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::read(file, into.data(), into.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

std::string read_file(const std::filesystem::path& path, std::string_view what, Bytes most) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    throw usage_error("{} cannot be read: {}", what, std::strerror(errno));
  }
  const auto too_large = [&] {
    return usage_error("{} is larger than {}, which none that is meant has to be", what, to_text(most));
  };
  const auto limit = static_cast<std::size_t>(most.count);
  if (status.st_size > most.count) {
    throw too_large();
  }
  std::string text;
  // What says no size of its own, as a pipe, is read piece by piece.
  std::size_t piece = S_ISREG(status.st_mode) ? static_cast<std::size_t>(status.st_size) + 1 : 4096;
  while (true) {
    const std::size_t known = text.size();
    text.resize(std::min(known + piece, limit + 1));
    const ssize_t got = ::read(file.get(), text.data() + known, text.size() - known);
    const int error = errno;
    text.resize(known + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error != EINTR) {
      throw usage_error("{} cannot be read: {}", what, std::strerror(error));
    }
    if (text.size() > limit) {
      throw too_large();
    }
    if (got == 0) {
      return text;
    }
    piece = std::max<std::size_t>(4096, text.size() / 2);
  }
}

bool is_device(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

void write_whole(const std::filesystem::path& path, std::string_view what, std::span<const std::span<const std::byte>> parts) {
  if (is_device(path)) {
    Descriptor device(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    int error = device.get() < 0 ? errno : 0;
    for (std::size_t p = 0; p < parts.size() && error == 0; ++p) {
      error = write_all(device.get(), parts[p]);
    }
    error = error == 0 ? device.close() : error;
    if (error != 0) {
      throw failure("{} cannot be written: {}", what, std::strerror(error));
    }
    return;
  }
  const std::string temporary = fmt::format("{}.{}{}", path.string(), ::getpid(), temporary_ending);
  int error = write_flushed(temporary, parts);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(temporary.c_str());
    throw failure("{} cannot be written: {}", what, std::strerror(error));
  }
  // The name too must survive a loss of power.
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || (::fsync(directory.get()) != 0 && errno != EINVAL)) {  // some file systems cannot flush folders
    throw failure("{} is written, but its folder cannot be flushed: {}", what, std::strerror(errno));
  }
}

void write_whole(const std::filesystem::path& path, std::string_view text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  write_whole(path, path.string(), std::span(&bytes, 1));
}

void append_line(const std::filesystem::path& path, std::string_view line) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  int error = file.get() < 0 ? errno : 0;
  if (error == 0) {
    char last = '\n';
    const off_t size = ::lseek(file.get(), 0, SEEK_END);
    const bool cut = size > 0 && ::pread(file.get(), &last, 1, size - 1) == 1 && last != '\n';
    const std::string text = fmt::format("{}{}\n", cut ? "\n" : "", line);
    error = write_all(file.get(), std::as_bytes(std::span(text)));
    if (error != 0 && ::ftruncate(file.get(), std::max<off_t>(size, 0)) != 0) {
      // Then part of a line stays, which the next one ends and readers pass over.
    }
    error = error == 0 ? file.close() : error;
  }
  if (error != 0) {
    throw failure("{} cannot be written: {}", path.string(), std::strerror(error));
  }
}

bool is_leftover(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.ends_with(temporary_ending)) {
    return false;
  }
  const std::string_view rest = std::string_view(name).substr(0, name.size() - temporary_ending.size());
  const std::string_view digits = rest.substr(rest.rfind('.') + 1);
  pid_t writer = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), writer);
  return error == std::errc() && end == digits.data() + digits.size() && writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH;
}

}  // namespace baton
