// A library to be loaded ahead of others (LD_PRELOAD). It counts every open, write, fsync, rename, unlink and
// close of files under a folder, and lets one of them go wrong.
//
//   BATON_FAULT_UNDER=FOLDER   whose files count
//   BATON_FAULT_AT=N           which of the operations goes wrong, from 1 on
//   BATON_FAULT=WHAT           kill: the process is killed before it; torn: a write is half done and the
//   process killed; short: a write
//                              is half done and says so; ENOSPC, EIO: it fails
//   BATON_FAULT_COUNT=FILE     gets the names of the operations, a line each, in order

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int most_files = 4096;
std::atomic<bool> watched[most_files];
std::atomic<long> operations{0};

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_under(const char* path) {
  const char* folder = setting("BATON_FAULT_UNDER");
  return folder[0] != '\0' && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

void note(const char* operation) {
  const char* path = setting("BATON_FAULT_COUNT");
  if (path[0] == '\0') {
    return;
  }
  static const auto real_open = next<int (*)(const char*, int, ...)>("open");
  static const auto real_write = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  static const auto real_close = next<int (*)(int)>("close");
  const int file = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  char line[32];
  const int length = std::snprintf(line, sizeof line, "%s\n", operation);
  if (real_write(file, line, static_cast<std::size_t>(length)) != length) {
    _exit(99);
  }
  real_close(file);
}

enum class Fault { none, torn, half, error };

/// What is to go wrong with this operation.
Fault fault(const char* operation) {
  const bool now = operations.fetch_add(1) + 1 == std::atol(setting("BATON_FAULT_AT"));
  note(operation);
  if (!now) {
    return Fault::none;
  }
  const char* what = setting("BATON_FAULT");
  if (std::strcmp(what, "kill") == 0) {
    raise(SIGKILL);
  }
  if (std::strcmp(what, "torn") == 0) {
    return Fault::torn;
  }
  if (std::strcmp(what, "short") == 0) {
    return Fault::half;
  }
  errno = std::strcmp(what, "ENOSPC") == 0 ? ENOSPC : EIO;
  return Fault::error;
}

int open_watched(const char* name, const char* path, int flags, mode_t mode) {
  const auto real = next<int (*)(const char*, int, ...)>(name);
  const bool counts = is_under(path);
  if (counts && fault("open") == Fault::error) {
    return -1;
  }
  const int file = real(path, flags, mode);
  if (file >= 0 && file < most_files) {
    watched[file] = counts;
  }
  return file;
}

mode_t mode_of(int flags, va_list list) { return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_watched("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_watched("open64", path, flags, mode);
}

ssize_t write(int file, const void* data, std::size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  if (file < 0 || file >= most_files || !watched[file]) {
    return real(file, data, size);
  }
  switch (fault("write")) {
    case Fault::none:
      return real(file, data, size);
    case Fault::error:
      return -1;
    case Fault::half:
      return real(file, data, (size + 1) / 2);
    case Fault::torn:
      break;
  }
  if (real(file, data, size / 2) >= 0) {
    raise(SIGKILL);
  }
  return -1;
}

int fsync(int file) {
  static const auto real = next<int (*)(int)>("fsync");
  const bool counts = file >= 0 && file < most_files && watched[file];
  return counts && fault("fsync") == Fault::error ? -1 : real(file);
}

int close(int file) {
  static const auto real = next<int (*)(int)>("close");
  const bool counts = file >= 0 && file < most_files && watched[file].exchange(false);
  if (counts && fault("close") == Fault::error) {
    const int error = errno;
    real(file);  // what a failed close leaves behind is closed all the same
    errno = error;
    return -1;
  }
  return real(file);
}

int rename(const char* from, const char* to) {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return is_under(to) && fault("rename") == Fault::error ? -1 : real(from, to);
}

int unlink(const char* path) {
  static const auto real = next<int (*)(const char*)>("unlink");
  return is_under(path) && fault("unlink") == Fault::error ? -1 : real(path);
}

int remove(const char* path) {
  static const auto real = next<int (*)(const char*)>("remove");
  return is_under(path) && fault("unlink") == Fault::error ? -1 : real(path);
}

}  // extern "C"
