#pragma once

#include <map>
#include <vector>

#include "baton/plan/split/ledger.h"
#include "baton/plan/split/norm.h"

namespace baton::plan {

/// The rules of updates and of the loss scale: parameters are updated once, by complete gradients; a scale that losses are
/// multiplied by is taken back, and adjusted by the count of all devices.
class UpdateRules {
 public:
  UpdateRules(Ledger& ledger, const NormRules& norm) : ledger_(ledger), norm_(norm) {}

  void judge(TaskId id, const Task& task, const Update& update);
  /// A device counts its gradients that are not finite.
  void judge_count(TaskId id, const Task& task);
  /// The loss scale is made that of the next step.
  void judge_adjustment(TaskId id, const Task& task);

 private:
  bool counts_all(TaskId id, BufferId buffer);

  Ledger& ledger_;
  const NormRules& norm_;
  std::map<DeviceId, std::vector<BufferId>> counted_;  // by a device's check for what is not finite
};

}  // namespace baton::plan
