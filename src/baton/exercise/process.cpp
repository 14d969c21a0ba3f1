#include "baton/exercise/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "baton/base/error.h"
#include "baton/exercise/message.h"

namespace baton::exercise {
namespace {

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

/// A file that has no name.
Descriptor nameless_file() {
  Descriptor file(memfd_create("printed", MFD_CLOEXEC));
  if (file.get() < 0) {
    throw failure("no file for what a program prints can be made: {}", std::strerror(errno));
  }
  return file;
}

std::string contents(int file, std::size_t most) {
  std::string text(most, '\0');
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

/// The first steps of a child: its input is empty, its output and errors go to `output`, it gets its own group, and it ends with
/// its parent.
void settle_child(pid_t parent, int output, int when_parent_ends) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, when_parent_ends);
  if (getppid() != parent) {
    _exit(127);
  }
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) {
    std::signal(signal, SIG_DFL);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // output beyond the limit is lost, no more
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(output, 1);
  dup2(output, 2);
}

std::string name_of_signal(int number) {
  std::string name = strsignal(number);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return fmt::format("signal {} ({})", number, name);
}

}  // namespace

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Ended run_command(const std::vector<std::string>& words, double seconds, std::int64_t memory,
                  const std::function<bool()>& given_up) {
  const Descriptor output = nameless_file();
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    throw failure("no further process can be started: {}", std::strerror(errno));
  }
  if (pid == 0) {
    settle_child(parent, output.get(), SIGTERM);  // it may have files to remove
    const rlimit space{static_cast<rlim_t>(memory), static_cast<rlim_t>(memory)};
    const rlimit time{static_cast<rlim_t>(seconds) + 1, static_cast<rlim_t>(seconds) + 1};
    if (memory > 0) {
      setrlimit(RLIMIT_AS, &space);
    }
    setrlimit(RLIMIT_CPU, &time);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  setpgid(pid, pid);
  Ended ended;
  const auto deadline = after(seconds);
  int status = 0;
  for (int pause = 1; waitpid(pid, &status, WNOHANG) == 0; pause = std::min(pause * 2, 20)) {
    if (Clock::now() > deadline || (given_up && given_up())) {
      ended.late = true;
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    poll(nullptr, 0, pause);
  }
  kill(-pid, SIGKILL);
  ended.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  ended.printed = contents(output.get(), std::size_t{1} << 20);
  return ended;
}

Process::Process(const std::filesystem::path& program, const Limits& limits) : output_(nameless_file()) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw failure("no channel to a program can be made: {}", std::strerror(errno));
  }
  channel_ = Descriptor(ends[0]);
  const Descriptor theirs(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const std::string path = program.string();
  std::array<char*, 2> arguments{const_cast<char*>(path.c_str()), nullptr};
  std::array<std::string, 2> settings;  // the folders of libraries, and nothing else of the environment
  std::array<char*, 3> environment{};
  std::size_t count = 0;
  for (const char* name : {"LD_LIBRARY_PATH", "ASAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) {
      settings[count] = fmt::format("{}={}", name, value);
      environment[count] = settings[count].data();
      ++count;
    }
  }
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    throw failure("no further process can be started: {}", std::strerror(errno));
  }
  if (pid_ == 0) {
    settle_child(parent, output_.get(), SIGKILL);
    // The other file of this number may be the channel's own end.
    const int end = fcntl(theirs.get(), F_DUPFD, 10);
    dup2(end, exercise::channel);
    close_range(exercise::channel + 1, ~0U, 0);
    confine(limits);
    execve(arguments[0], arguments.data(), environment.data());
    _exit(127);
  }
  setpgid(pid_, pid_);
}

Process::~Process() { end(); }

void Process::tell(const std::string& message, Clock::time_point deadline) {
  const std::string frame = std::to_string(message.size()) + "\n" + message;
  for (std::size_t done = 0; done < frame.size();) {
    const ssize_t sent = send(channel_.get(), frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
    if (sent > 0) {
      done += static_cast<std::size_t>(sent);
      continue;
    }
    pollfd writable{channel_.get(), POLLOUT, 0};
    if (sent == 0 || errno != EAGAIN || poll(&writable, 1, milliseconds_until(deadline)) <= 0) {
      return;
    }
  }
}

void Process::pump() {
  std::array<char, 65536> piece;
  while (!ended_ && arrived_.size() <= most_message + 32) {
    const ssize_t got = recv(channel_.get(), piece.data(), piece.size(), 0);
    if (got > 0) {
      arrived_.append(piece.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      ended_ = true;
    } else {
      return;
    }
  }
}

std::optional<std::string> Process::take() {
  const std::size_t head = arrived_.find('\n');
  if (babbles_ || (head == std::string::npos && arrived_.size() < 9)) {
    return std::nullopt;
  }
  const bool digits = head != std::string::npos && head > 0 && head < 9 &&
                      std::all_of(arrived_.begin(), arrived_.begin() + static_cast<std::ptrdiff_t>(head),
                                  [](char c) { return c >= '0' && c <= '9'; });
  const std::size_t size = digits ? std::stoul(arrived_.substr(0, head)) : most_message + 1;
  if (size > most_message) {
    babbles_ = true;
    return std::nullopt;
  }
  if (arrived_.size() < head + 1 + size) {
    return std::nullopt;
  }
  std::string message = arrived_.substr(head + 1, size);
  arrived_.erase(0, head + 1 + size);
  return message;
}

std::optional<std::string> Process::hear(Clock::time_point deadline) {
  while (true) {
    pump();
    if (auto message = take()) {
      return message;
    }
    pollfd readable{channel_.get(), POLLIN, 0};
    if (ended_ || babbles_ || poll(&readable, 1, milliseconds_until(deadline)) <= 0) {
      return std::nullopt;
    }
  }
}

std::string Process::end() {
  if (pid_ < 0) {
    return "";
  }
  int status = 0;
  pid_t gone = 0;
  // A child that has closed its channel is about to end: its own exit code or signal is reported.
  for (int tries = 0; ended_ && gone == 0 && tries < 100; ++tries) {
    gone = waitpid(pid_, &status, WNOHANG);
    if (gone == 0) {
      poll(nullptr, 0, 10);
    }
  }
  if (gone == 0) {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  if (gone == 0) {
    return "";
  }
  return WIFSIGNALED(status) ? "was ended by " + name_of_signal(WTERMSIG(status))
                             : fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

std::string Process::printed() const { return contents(output_.get(), 4096); }

}  // namespace baton::exercise
