#include "baton/exec/ranks/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "baton/base/error.h"
#include "baton/base/hash.h"
#include "baton/base/text.h"
#include "baton/exec/watch/stall_diagnosis.h"
#include "baton/plan/text.h"

namespace baton::exec {

std::uint64_t hash_program() {
  Hash hash;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::array<char, 1 << 16> block{};
  while (file.read(block.data(), block.size()) || file.gcount() > 0) {
    hash.add(std::string_view(block.data(), static_cast<std::size_t>(file.gcount())));
  }
  return hash.value();
}

namespace {

/// "rank 2 has", "ranks 1 and 3 have".
std::string list(const std::vector<int>& ranks) { return name_ranks(ranks) + (ranks.size() == 1 ? " has" : " have"); }

/// The ranks whose line of that number is not rank 0's.
std::vector<int> differing(const std::vector<Blob>& all, std::size_t line) {
  const std::string zero = to_text(all[0]);
  std::vector<int> ranks;
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::string text = to_text(all[r]);
    if (split(text, '\n').at(line) != split(zero, '\n').at(line)) {
      ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks;
}

}  // namespace

Fingerprint fingerprint(const plan::Plan& plan, const DataOptions& data) {
  Hash of_plan;
  of_plan.add(plan::to_text(plan));
  Hash of_data;
  of_data.add(data.seed);
  of_data.add(static_cast<std::uint64_t>(data.samples));
  of_data.add(data.feed == nullptr ? 0 : data.feed->fingerprint());
  return {of_plan.value(), of_data.value(), BATON_VERSION, hash_program()};
}

void require_same(World& world, const std::vector<Setting>& mine) {
  std::string text;
  for (const Setting& setting : mine) {
    std::string line = setting.value;
    std::replace(line.begin(), line.end(), '\n', ' ');
    text += line + '\n';
  }
  const std::vector<Blob> all = world.all_gather(to_blob(text));
  for (std::size_t s = 0; s < mine.size(); ++s) {
    if (const std::vector<int> differ = differing(all, s); !differ.empty()) {
      throw usage_error("{} another {} than rank 0: start all ranks with the same command", list(differ), mine[s].flag);
    }
  }
}

void require_agreement(World& world, const Fingerprint& mine) {
  const std::vector<Blob> all = world.all_gather(
      to_blob(fmt::format("{:016x}\n{:016x}\n{}\n{:016x}", mine.plan, mine.data, mine.version, mine.program)));
  constexpr std::array<std::string_view, 4> names{"another plan", "other data", "another version of baton",
                                                  "another build of baton"};
  constexpr std::array<std::string_view, 4> remedies{"start all ranks with the same command",
                                                     "start all ranks with the same --seed, --samples and --data",
                                                     "install the same version everywhere", "copy one program to all hosts"};
  // The cause before what it leads to: another version may well make another plan.
  for (const std::size_t what : {2U, 3U, 0U, 1U}) {
    if (const std::vector<int> differ = differing(all, what); !differ.empty()) {
      throw usage_error("{} {} than rank 0: {}", list(differ), names[what], remedies[what]);
    }
  }
}

}  // namespace baton::exec
