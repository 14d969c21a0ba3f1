#include "baton/exercise/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace baton::exercise {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t own_architecture = 0;
#endif

/// Sanitizers take terabytes of address space.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool limits_memory = false;
#else
constexpr bool limits_memory = true;
#endif

/// A program for the kernel, put together without allocating.
class Filter {
 public:
  void add(sock_filter instruction) { program_[size_++] = instruction; }
  void load(std::size_t offset) { add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset))); }
  void answer(std::uint32_t what) { add(BPF_STMT(BPF_RET | BPF_K, what)); }
  /// Skips this many instructions unless the loaded number is `value`.
  void unless(std::uint32_t value, std::uint8_t skip) { add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)); }
  void allow(long call) {
    unless(static_cast<std::uint32_t>(call), 1);
    answer(SECCOMP_RET_ALLOW);
  }
  /// Allows the call if (argument & mask) is `value`; otherwise it fails.
  void allow_if(long call, std::size_t argument, std::uint32_t mask, std::uint32_t value) {
    unless(static_cast<std::uint32_t>(call), 5);
    load(offsetof(seccomp_data, args) + argument * sizeof(std::uint64_t));
    add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    unless(value, 1);
    answer(SECCOMP_RET_ALLOW);
    answer(SECCOMP_RET_ERRNO | EPERM);
  }
  /// Allows the call if the argument is a null pointer; otherwise it fails.
  void allow_if_null(long call, std::size_t argument) {
    const std::size_t at = offsetof(seccomp_data, args) + argument * sizeof(std::uint64_t);
    unless(static_cast<std::uint32_t>(call), 6);
    load(at);
    unless(0, 3);
    load(at + sizeof(std::uint32_t));
    unless(0, 1);
    answer(SECCOMP_RET_ALLOW);
    answer(SECCOMP_RET_ERRNO | EPERM);
  }
  bool install() {
    const sock_fprog whole{static_cast<unsigned short>(size_), program_.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0;
  }

 private:
  std::array<sock_filter, 256> program_{};
  std::size_t size_ = 0;
};

constexpr std::array allowed{
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_lseek,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_futex,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_exit,
    SYS_exit_group,
    SYS_execve,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_uname,
    SYS_getcwd,
    SYS_faccessat,
    SYS_readlinkat,
    SYS_sysinfo,
    SYS_getrusage,
    SYS_restart_syscall,
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef SYS_statx
    SYS_statx,
#endif
#ifdef SYS_arch_prctl
    SYS_arch_prctl,
#endif
#ifdef SYS_access
    SYS_access,
    SYS_readlink,
#endif
#ifdef SYS_time
    SYS_time,
#endif
};

bool filter_calls() {
  if (own_architecture == 0) {
    return false;
  }
  constexpr std::uint32_t writing = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
  Filter filter;
  filter.load(offsetof(seccomp_data, arch));
  filter.unless(own_architecture, 1);
  filter.add(BPF_STMT(BPF_JMP | BPF_JA, 1));
  filter.answer(SECCOMP_RET_KILL_PROCESS);
  filter.load(offsetof(seccomp_data, nr));
  for (const long call : allowed) {
    filter.allow(call);
  }
#ifdef SYS_clone3
  filter.unless(SYS_clone3, 1);  // its flags are out of a filter's reach; the C library then takes clone
  filter.answer(SECCOMP_RET_ERRNO | ENOSYS);
#endif
  filter.allow_if(SYS_clone, 0, CLONE_THREAD, CLONE_THREAD);
  filter.allow_if(SYS_openat, 2, writing, 0);
#ifdef SYS_open
  filter.allow_if(SYS_open, 1, writing, 0);
#endif
  filter.allow_if(SYS_tgkill, 0, ~0U, static_cast<std::uint32_t>(getpid()));
  filter.allow_if_null(SYS_prlimit64, 2);  // limits may be asked for, and not set
  filter.answer(SECCOMP_RET_ERRNO | EPERM);
  return filter.install();
}

void limit(__rlimit_resource what, std::int64_t most) {
  const rlimit both{static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  setrlimit(what, &both);
}

}  // namespace

bool confine(const Limits& limits) {
  if (limits_memory) {
    limit(RLIMIT_AS, limits.memory);
  }
  limit(RLIMIT_CPU, static_cast<std::int64_t>(limits.all_seconds) + 1);
  limit(RLIMIT_FSIZE, limits.output);
  limit(RLIMIT_CORE, 0);
  return filter_calls();
}

bool can_filter() {
  static const bool can = [] {
    const pid_t child = fork();
    if (child == 0) {
      _exit(filter_calls() ? 0 : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }();
  return can;
}

}  // namespace baton::exercise
