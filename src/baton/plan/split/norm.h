#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "baton/plan/split/ledger.h"

namespace baton::plan {

/// The rules of the norm that gradients are clipped by: each part of every parameter is counted once, and the norm that an update
/// reads counts all of them. Parts are those in which the parameters are held from step to step.
class NormRules {
 public:
  /// With more than two alike parts the plan has the first two, which are counted as all (`Limits::alike_parts`).
  NormRules(Ledger& ledger, std::int64_t alike_parts) : ledger_(ledger), alike_parts_(alike_parts) {}

  /// A device adds up the squares of some gradients.
  void judge_sum(TaskId id, const Task& task);
  /// Devices add up their sums.
  void judge_meeting(std::span<const TaskId> members);
  /// True if a buffer holds the norm of all gradients; false after a breach.
  bool check_whole(TaskId id, BufferId buffer) const;

 private:
  /// Elements of one of the parts, as they lie in memory.
  struct Counted {
    std::size_t part;
    Range elements;
    bool operator==(const Counted&) const = default;
  };
  /// The counted parts in the order of their parts and elements; neighbours are joined.
  using Count = std::vector<Counted>;

  bool list_parts(TaskId id);
  std::int64_t covered(const std::vector<BufferId>& parts) const;
  bool join(TaskId id, Count& count) const;
  std::string name(const Counted& counted) const;

  Ledger& ledger_;
  std::int64_t alike_parts_;
  bool listed_ = false;
  std::map<std::pair<std::uint32_t, std::vector<std::int64_t>>, std::size_t> part_of_;  // by parameter and indices
  std::vector<BufferId> holder_;                                                        // by part: one of those that hold it
  Count all_;
  std::map<BufferId, Count> counts_;
};

}  // namespace baton::plan
