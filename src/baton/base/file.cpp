#include "baton/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "baton/base/error.h"

namespace baton {
namespace {

constexpr std::string_view temporary_ending = ".tmp";

/// Returns zero, or the number of the error.
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

/// The names under which this process writes at the moment.
std::mutex temporaries_mutex;
std::set<std::string>& temporaries() {
  static std::set<std::string> names;
  return names;
}

void note_temporary(const std::string& name) {
  const std::lock_guard lock(temporaries_mutex);
  temporaries().insert(name);
}

void forget_temporary(const std::string& name) {
  const std::lock_guard lock(temporaries_mutex);
  temporaries().erase(name);
}

std::string temporary_beside(const std::filesystem::path& path) {
  return fmt::format("{}.{}{}", path.string(), ::getpid(), temporary_ending);
}

bool is_pipe(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
}

/// A named pipe, opened without waiting for a reader; -1 and ENXIO if there is none.
Descriptor open_pipe(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() >= 0 && ::fcntl(file.get(), F_SETFL, 0) != 0) {  // writing then waits for the reader
    file = Descriptor(-1);
  }
  return file;
}

/// Named pipes that are held open until they are written.
std::mutex held_mutex;
std::map<std::string, Descriptor>& held_pipes() {
  static std::map<std::string, Descriptor> pipes;
  return pipes;
}

/// Waits a second for a reader, which may be about to start.
Descriptor held_or_opened(const std::filesystem::path& path) {
  {
    const std::lock_guard lock(held_mutex);
    if (auto found = held_pipes().extract(path.string()); !found.empty()) {
      return std::move(found.mapped());
    }
  }
  constexpr int tries = 100;
  Descriptor pipe = open_pipe(path);
  for (int i = 0; i < tries && pipe.get() < 0 && errno == ENXIO; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    pipe = open_pipe(path);
  }
  return pipe;
}

std::string why_not_written(const std::filesystem::path& path, int error) {
  return error == ENXIO && is_pipe(path) ? "it is a pipe that nobody reads" : std::strerror(error);
}

/// The number of an open file of this process, of whose folder in /proc the path is an entry; -1 if it is not such an entry.
int own_descriptor(const std::filesystem::path& folder, const std::string& name) {
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && folder == fmt::format("/proc/{}/fd", ::getpid()) ? number : -1;
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
  const auto too_large = [&] { return usage_error("{} is larger than {}, the most that is read", what, to_text(most)); };
  const auto limit = static_cast<std::size_t>(most.count);
  if (status.st_size > most.count) {
    throw too_large();
  }
  std::string text;
  // A file without a known size, such as a pipe, is read piece by piece.
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

Destination destination_of(const std::filesystem::path& path) {
  constexpr int most_links = 40;
  Destination to{path};
  struct stat status {};
  for (int links = 0; ::lstat(to.path.c_str(), &status) == 0 && S_ISLNK(status.st_mode); ++links) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::canonical(to.path.has_parent_path() ? to.path.parent_path() : ".", error);
    if (error || links == most_links) {
      to.written_into = true;  // opening it says why it cannot be
      return to;
    }
    to.descriptor = own_descriptor(folder, to.path.filename().string());
    to.written_into = folder.string().starts_with("/proc/");
    if (to.descriptor >= 0 || to.written_into) {
      return to;
    }
    const std::filesystem::path target = std::filesystem::read_symlink(to.path, error);
    if (error) {
      return to;
    }
    to.path = folder / target;
  }
  to.written_into = ::stat(to.path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
  return to;
}

WholeFile::WholeFile(const std::filesystem::path& path, std::string what) : to_(destination_of(path)), what_(std::move(what)) {
  if (to_.descriptor >= 0) {
    std::fflush(stdout);  // earlier output comes first
    file_ = Descriptor(::fcntl(to_.descriptor, F_DUPFD_CLOEXEC, 0));
  } else if (is_pipe(to_.path)) {
    file_ = held_or_opened(to_.path);
  } else if (to_.written_into) {
    file_ = Descriptor(::open(to_.path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  } else {
    temporary_ = temporary_beside(to_.path);
    note_temporary(temporary_);
    file_ = Descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    struct stat before {};
    if (file_.get() >= 0 && ::stat(to_.path.c_str(), &before) == 0 && ::fchmod(file_.get(), before.st_mode & 07777) != 0) {
      // Then it gets the rights of a new file.
    }
  }
  if (file_.get() < 0) {
    fail(errno);
  }
}

WholeFile::~WholeFile() {
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    forget_temporary(temporary_);
  }
}

void WholeFile::fail(int error) {
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    forget_temporary(std::exchange(temporary_, {}));
  }
  throw failure("{} cannot be written: {}", what_, why_not_written(to_.path, error));
}

void WholeFile::append(std::span<const std::byte> bytes) {
  if (const int error = write_all(file_.get(), bytes); error != 0) {
    fail(error);
  }
}

void WholeFile::overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (::lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) {
    fail(errno);
  }
  append(bytes);
  if (::lseek(file_.get(), 0, SEEK_END) < 0) {
    fail(errno);
  }
}

void WholeFile::commit() {
  if (temporary_.empty()) {
    if (const int error = file_.close(); error != 0) {
      fail(error);
    }
    return;
  }
  if (::fsync(file_.get()) != 0) {
    fail(errno);
  }
  if (const int error = file_.close(); error != 0) {
    fail(error);
  }
  if (std::rename(temporary_.c_str(), to_.path.c_str()) != 0) {
    fail(errno);
  }
  forget_temporary(std::exchange(temporary_, {}));
  // The name too must survive a loss of power.
  const std::filesystem::path folder = to_.path.has_parent_path() ? to_.path.parent_path() : std::filesystem::path(".");
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || (::fsync(directory.get()) != 0 && errno != EINVAL)) {  // some file systems cannot flush folders
    throw failure("{} is written, but its folder cannot be flushed: {}", what_, std::strerror(errno));
  }
}

void write_whole(const std::filesystem::path& path, std::string_view text) {
  WholeFile file(path, path.string());
  file.append(std::as_bytes(std::span<const char>(text)));
  file.commit();
}

void require_writable(const std::filesystem::path& path) {
  const Destination to = destination_of(path);
  const auto refuse = [&](int error) { throw failure("{} cannot be written: {}", path.string(), why_not_written(to.path, error)); };
  struct stat status {};
  const bool there = ::stat(to.path.c_str(), &status) == 0;
  if (to.descriptor >= 0) {
    const int flags = ::fcntl(to.descriptor, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
      refuse(EBADF);
    }
    return;
  }
  if (there && S_ISDIR(status.st_mode)) {
    refuse(EISDIR);
  }
  if (there && ::access(to.path.c_str(), W_OK) != 0) {
    refuse(errno);
  }
  if (there && S_ISFIFO(status.st_mode)) {
    Descriptor pipe = held_or_opened(to.path);
    if (pipe.get() < 0) {
      refuse(errno);
    }
    const std::lock_guard lock(held_mutex);
    held_pipes().insert_or_assign(to.path.string(), std::move(pipe));
    return;
  }
  if (!to.written_into) {
    const std::string temporary = temporary_beside(to.path);
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.get() < 0) {
      refuse(errno);
    }
    ::unlink(temporary.c_str());
  }
}

void remove_temporaries() {
  const std::lock_guard lock(temporaries_mutex);
  for (const std::string& name : temporaries()) {
    ::unlink(name.c_str());
  }
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
      // Then part of a line remains, which the next line ends and readers skip.
    }
    error = error == 0 ? file.close() : error;
  }
  if (error != 0) {
    throw failure("{} cannot be written: {}", path.string(), std::strerror(error));
  }
}

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& taken) {
  // The folder itself is locked, so that no file remains; if the file system cannot lock folders, a file in it is locked.
  const auto lock = [&](Descriptor file) {
    file_ = std::move(file);
    return file_.get() >= 0 && ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  };
  int locked = lock(Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (locked != 0 && locked != EWOULDBLOCK) {
    locked = lock(Descriptor(::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)));
  }
  for (int tries = 0; locked == EWOULDBLOCK && tries < 10; ++tries) {  // a run that is just ending
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    locked = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  }
  if (locked == EWOULDBLOCK) {
    throw usage_error("{}", taken);
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
