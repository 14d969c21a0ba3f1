#include "baton/exec/fingerprint.h"

#include <array>
#include <fstream>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/hash.h"
#include "baton/exec/backend.h"
#include "baton/plan/text.h"
#include "baton/ranks/pack.h"
#include "baton/ranks/world.h"

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
std::string list(const std::vector<int>& ranks) { return ranks::name_ranks(ranks) + (ranks.size() == 1 ? " has" : " have"); }

/// By rank: the texts that it packed.
std::vector<std::vector<std::string>> gather_texts(ranks::World& world, const std::vector<std::string>& mine) {
  ranks::Packer packer;
  for (const std::string& text : mine) {
    packer.add_text(text);
  }
  std::vector<std::vector<std::string>> all;
  for (const ranks::Blob& blob : world.all_gather(packer.span())) {
    ranks::Unpacker unpacker(blob);
    std::vector<std::string>& texts = all.emplace_back();
    while (!unpacker.empty() && unpacker.good()) {
      texts.push_back(unpacker.take_text());
    }
  }
  return all;
}

/// By rank, the text of that number.
std::vector<std::string> texts_of(const std::vector<std::vector<std::string>>& all, std::size_t number) {
  std::vector<std::string> texts;
  for (const std::vector<std::string>& one : all) {
    texts.push_back(number < one.size() ? one[number] : std::string());
  }
  return texts;
}

/// The ranks whose text is this one.
std::vector<int> ranks_with(const std::vector<std::string>& texts, const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (texts[r] == text) {
      ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks;
}

/// The ranks whose text of that number is not rank 0's.
std::vector<int> differing(const std::vector<std::vector<std::string>>& all, std::size_t number) {
  const std::vector<std::string> texts = texts_of(all, number);
  std::vector<int> ranks;
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] != texts[0]) {
      ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks;
}

/// By rank, the unit that computes 16-bit types; none on a rank whose plan has no such type.
void require_same_bits(const std::vector<std::string>& units) {
  for (const std::string& unit : units) {
    if (unit.empty() || units[0].empty() || gives_bits_of(unit, units[0])) {
      continue;  // a plan without the type is another plan
    }
    const std::vector<int> ranks = ranks_with(units, unit);
    throw usage_error("{} bf16 by {} and rank 0 by {}: set BATON_AMX to the same word, off or portable, for all ranks",
                      ranks::name_ranks(ranks) + (ranks.size() == 1 ? " multiplies" : " multiply"), unit, units[0]);
  }
}

}  // namespace

Fingerprint fingerprint(const plan::Plan& plan, const DataOptions& data, std::string arithmetic) {
  Hash of_plan;
  of_plan.add(plan::to_text(plan));
  Hash of_data;
  of_data.add(data.seed);
  of_data.add(static_cast<std::uint64_t>(data.samples));
  of_data.add(data.feed == nullptr ? 0 : data.feed->fingerprint());
  return {of_plan.value(), of_data.value(), BATON_VERSION, hash_program(), std::move(arithmetic)};
}

void require_same(ranks::World& world, const std::vector<Setting>& mine) {
  std::vector<std::string> values;
  for (const Setting& setting : mine) {
    values.push_back(setting.value);
  }
  const std::vector<std::vector<std::string>> all = gather_texts(world, values);
  for (std::size_t s = 0; s < mine.size(); ++s) {
    if (const std::vector<int> differ = differing(all, s); !differ.empty()) {
      throw usage_error("{} another {} than rank 0: start all ranks with the same command", list(differ), mine[s].flag);
    }
  }
}

void require_agreement(ranks::World& world, const Fingerprint& mine) {
  const std::vector<std::vector<std::string>> all = gather_texts(
      world, {std::to_string(mine.plan), std::to_string(mine.data), mine.version, std::to_string(mine.program), mine.arithmetic});
  constexpr std::array<std::string_view, 4> names{"another plan", "other data", "another version of baton",
                                                  "another build of baton"};
  constexpr std::array<std::string_view, 4> remedies{"start all ranks with the same command",
                                                     "start all ranks with the same --seed, --samples and --data",
                                                     "install the same version everywhere", "copy one program to all hosts"};
  const auto require_equal = [&](std::size_t what) {
    if (const std::vector<int> differ = differing(all, what); !differ.empty()) {
      throw usage_error("{} {} than rank 0: {}", list(differ), names[what], remedies[what]);
    }
  };
  // The cause before what it leads to: another version may well make another plan, and so does another unit.
  require_equal(2);
  require_equal(3);
  require_same_bits(texts_of(all, 4));
  require_equal(0);
  require_equal(1);
}

}  // namespace baton::exec
