#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "baton/plan/derivations.h"
#include "baton/plan/plan.h"
#include "baton/plan/split.h"
#include "baton/plan/terms.h"

namespace baton::plan {

/// The content that a buffer declares.
struct DeclaredContent {
  LogicalTensor tensor;
  std::span<const Range> at;  // by dimension of the whole
  Range piece;                // elements of that, as they lie in memory; empty: all
  std::int64_t parts = 1;     // for terms of a loss: the number of parts of the scores
  bool operator==(const DeclaredContent& other) const {
    return tensor == other.tensor && piece == other.piece && parts == other.parts &&
           std::equal(at.begin(), at.end(), other.at.begin(), other.at.end());
  }
};

/// The state of a buffer at one point of the plan.
struct State {
  bool written = false;
  bool complete = true;
  bool updated = false;  // a parameter or a statistic, by this step
  Terms terms;           // if it is not complete
};

/// Tracks the contents of every buffer of a plan while its tasks are followed, and has what is common to the rules that
/// follow them. After the first breach nothing more is checked, since further breaches could be consequences of it.
class Ledger {
 public:
  Ledger(const Plan& plan, const Report& report);

  /// Reads what the buffers are said to hold; false if it makes no sense.
  bool open();

  const Plan& plan() const { return plan_; }
  const Graph& graph() const { return graph_; }
  const Derivations& derivations() const { return derivations_; }
  const DeclaredContent& held(BufferId id) const { return held_[id.index()]; }
  State& state(BufferId id) { return states_[id.index()]; }
  /// The samples of a value that ops with statistics of it have read on a device.
  Terms& samples(DeviceId device, const LogicalTensor& value) { return samples_[{device, value.id}]; }
  /// The shape of the whole tensor.
  const Shape& whole(const LogicalTensor& tensor) const;
  /// True if the step has a loss scale, and on which devices.
  bool scaled() const { return !scalers_.empty(); }
  const std::vector<DeviceId>& scalers() const { return scalers_; }

  std::string name(BufferId id) const;
  std::string names(std::span<const BufferId> ids) const;
  std::string name(TaskId id) const { return plan_.describe(id); }

  void breach(Rule rule, std::vector<TaskId> tasks, std::string text);
  bool broken() const { return broken_; }

  /// Checks that a buffer that is read is there, whole, and not yet updated. False after a breach, as those below.
  bool readable(TaskId id, BufferId buffer);
  /// Marks a parameter as updated, which happens once.
  bool update(TaskId id, BufferId parameter);
  /// A step that is taken at once is the plain one of the plan's optimizer.
  bool check_rate(TaskId id, double rate);
  /// Marks a sum of this many uses as complete if all of its terms are there.
  static void settle(State& state, std::uint32_t uses);

 private:
  std::size_t count_parameters();
  bool hold(BufferId id);
  void hold_rows(DeclaredContent& held, const BatchRows& rows, const Shape& shape);
  bool fits(BufferId id);
  std::string name(const LogicalTensor& tensor) const;

  const Plan& plan_;
  const Report& report_;
  const Graph& graph_;
  const Graph no_graph_ = {};
  bool graph_is_sound_ = true;
  bool broken_ = false;
  std::vector<DeviceId> scalers_;
  std::vector<ParameterPart> parameters_;  // by ordinal: the first that was met
  Derivations derivations_;
  std::vector<Range> ranges_;          // ranges that no buffer's content has itself
  std::vector<DeclaredContent> held_;  // by buffer
  std::vector<State> states_;          // likewise
  std::map<std::pair<DeviceId, std::uint32_t>, Terms> samples_;
};

}  // namespace baton::plan
