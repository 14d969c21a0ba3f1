#include "baton/ranks/world.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>

#include "baton/base/error.h"
#include "baton/base/host.h"
#include "baton/ranks/mpi.h"

namespace baton::ranks {
namespace {

class WorldOfOne final : public World {
 public:
  WorldOfOne() : World(0, 1) { find_hosts(); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::size_t>) override {
    std::copy(mine.begin(), mine.end(), all.begin());
  }
  std::vector<Blob> gather(std::span<const std::byte> mine) override { return {Blob(mine.begin(), mine.end())}; }
  void broadcast(Blob&, int) override {}
  int largest_tag() const override { return 0; }
  void post(const Message& message, Listener&, std::size_t) override {
    throw BugError(fmt::format("a message to rank {} in a world of one", message.peer));
  }
  bool poll() override { return true; }
  bool under_way() const override { return false; }
  std::optional<std::vector<std::string>> gather_errors(std::string_view mine, Nanoseconds) override {
    return std::vector<std::string>{std::string(mine)};
  }
  void abort(int code) override { std::_Exit(code); }
};

/// Differs between two kernels, and between two starts of one.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.empty() ? host_name() : id;
}

/// Differs between two network namespaces of one kernel.
std::string network_id() {
  std::array<char, 256> target{};
  const ssize_t length = readlink("/proc/self/ns/net", target.data(), target.size() - 1);
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : std::string();
}

/// The number of a key in the order in which they come.
int number_of(std::map<std::string, int>& known, const std::string& key) {
  return known.emplace(key, static_cast<int>(known.size())).first->second;
}

/// An exception as bytes: a letter for the kind of the error, then its sentence.
Blob packed_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return to_blob((known.kind() == Error::Kind::usage ? "u" : "f") + std::string(known.what()));
  } catch (const std::exception& other) {
    return to_blob("f" + std::string(other.what()));
  }
}

Error unpacked_error(const Blob& packed) {
  const std::string text = to_text(packed);
  return {text[0] == 'u' ? Error::Kind::usage : Error::Kind::failure, text.substr(1)};
}

}  // namespace

std::vector<Blob> World::all_gather(std::span<const std::byte> mine) {
  const auto count = static_cast<std::size_t>(size());
  const std::vector<std::size_t> of_a_size(count, sizeof(std::size_t));
  std::vector<std::size_t> sizes(count);
  const std::size_t own = mine.size();
  all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(sizes)), of_a_size);
  Blob all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  all_gather(mine, all, sizes);
  std::vector<Blob> blobs;
  auto begin = all.begin();
  for (const std::size_t size : sizes) {
    const auto end = begin + static_cast<std::ptrdiff_t>(size);
    blobs.emplace_back(begin, end);
    begin = end;
  }
  return blobs;
}

void World::find_hosts() {
  std::map<std::string, int> nodes;
  std::map<std::string, int> machines;
  const std::vector<Blob> hosts = all_gather(to_blob(host_name()));
  const std::vector<Blob> kernels = all_gather(to_blob(boot_id()));
  const std::vector<Blob> networks = all_gather(to_blob(network_id()));
  for (std::size_t r = 0; r < hosts_.size(); ++r) {
    const std::string machine = to_text(kernels[r]);
    hosts_[r].host = to_text(hosts[r]);
    hosts_[r].machine = number_of(machines, machine);
    hosts_[r].node = number_of(nodes, machine + "\n" + hosts_[r].host + "\n" + to_text(networks[r]));
  }
}

void on_rank_0(World& world, const std::function<void()>& action) {
  if (world.alone()) {
    action();
    return;
  }
  Blob sentence;
  if (world.rank() == 0) {
    try {
      action();
    } catch (...) {
      sentence = packed_error(std::current_exception());
    }
  }
  world.broadcast(sentence, 0);
  if (!sentence.empty()) {
    throw unpacked_error(sentence);
  }
}

std::exception_ptr first_error(World& world, const std::exception_ptr& mine) {
  if (world.alone()) {
    return mine;
  }
  for (const Blob& sentence : world.all_gather(mine ? packed_error(mine) : Blob())) {
    if (!sentence.empty()) {
      return std::make_exception_ptr(unpacked_error(sentence));
    }
  }
  return nullptr;
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  return text;
}

Launch find_launch(const std::function<const char*(const char*)>& variable) {
  struct Sign {
    const char* name;
    const char* launcher;
  };
  // A process that srun started also has the variables of its batch script, so the variable of a step is asked for. Open MPI says
  // how many ranks there are; MPICH's hydra and others speak PMI.
  for (const Sign& sign :
       {Sign{"OMPI_COMM_WORLD_SIZE", "mpirun"}, Sign{"PMI_SIZE", "mpiexec"}, Sign{"SLURM_STEP_NUM_TASKS", "srun"}}) {
    const char* text = variable(sign.name);
    int ranks = 0;
    if (text != nullptr && std::from_chars(text, text + std::strlen(text), ranks).ec == std::errc() && ranks > 0) {
      return {ranks, sign.launcher};
    }
  }
  return variable("PMIX_RANK") != nullptr ? Launch{0, "a launcher that speaks PMIx"} : Launch{};
}

std::unique_ptr<World> open_world() {
  const Launch launch = find_launch([](const char* name) { return std::getenv(name); });
  if (launch.ranks > 1 && launch.launcher == "srun" && std::getenv("PMIX_RANK") == nullptr && std::getenv("PMI_RANK") == nullptr) {
    throw usage_error("srun started {} tasks without telling them of each other: start them with srun --mpi=pmix", launch.ranks);
  }
  return launch.ranks == 1 ? make_world_of_one() : open_mpi_world(launch);
}

std::unique_ptr<World> make_world_of_one() { return std::make_unique<WorldOfOne>(); }

}  // namespace baton::ranks
