#include "baton/plan/split.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/plan/split/compute.h"
#include "baton/plan/split/ledger.h"
#include "baton/plan/split/meetings.h"
#include "baton/plan/split/norm.h"
#include "baton/plan/split/updates.h"
#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

/// Walks the tasks in order and gives each to its rules.
class Split {
 public:
  Split(const Plan& plan, const Ordering& ordering, std::int64_t alike_parts, const Report& report)
      : plan_(plan),
        alike_parts_(alike_parts),
        ordering_(ordering),
        ledger_(plan, report),
        compute_(ledger_),
        norm_(ledger_, alike_parts),
        updates_(ledger_, norm_),
        meetings_(ledger_, alike_parts) {}

  void check() {
    if (!ledger_.open()) {
      return;
    }
    std::vector<bool> met(plan_.meeting_count(), false);
    for (const TaskId id : ordering_.sequence) {
      const MeetingId meeting = meeting_of(plan_[id]);
      if (!meeting.valid()) {
        judge(id);
      } else if (!met[meeting.index()]) {
        met[meeting.index()] = true;
        judge_meeting(plan_.members(meeting));
      }
      if (ledger_.broken()) {
        return;
      }
    }
    check_end();
  }

 private:
  using Tensor = LogicalTensor::Tensor;

  void judge(TaskId id) {
    const Task& task = plan_[id];
    if (const auto* update = std::get_if<Update>(&task.action)) {
      updates_.judge(id, task, *update);
    } else if (std::holds_alternative<Load>(task.action)) {
      for (const BufferId buffer : task.writes) {
        if (!ledger_.update(id, buffer)) {
          return;
        }
      }
      loads_ = true;
    } else if (std::holds_alternative<Take>(task.action)) {
      for (std::size_t i = 0; i < task.reads.size() && ledger_.readable(id, task.reads[i]); ++i) {
        ledger_.state(task.writes[i]).written = true;
      }
    } else if (const auto* compute = std::get_if<Compute>(&task.action)) {
      const Tensor written = ledger_.held(task.writes[0]).tensor.kind;
      if (written == Tensor::non_finite) {
        updates_.judge_count(id, task);
      } else if (written == Tensor::scaler) {
        updates_.judge_adjustment(id, task);
      } else if (written == Tensor::squared_norm) {
        norm_.judge_sum(id, task);
      } else {
        compute_.judge(id, task, compute->op);
      }
    }
  }

  void judge_meeting(std::span<const TaskId> members) {
    const std::span<const BufferId> brought = payload(plan_[members[0]]);
    const bool norm = std::any_of(brought.begin(), brought.end(),
                                  [&](BufferId id) { return ledger_.held(id).tensor.kind == Tensor::squared_norm; });
    norm ? norm_.judge_meeting(members) : meetings_.judge(members);
  }

  /// At the end of the step parameters are updated, and losses are complete and those of all rows.
  void check_end() {
    std::vector<std::vector<BufferId>> losses_of_device(plan_.devices().size());
    for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
      const BufferId id(b);
      const Buffer& buffer = plan_[id];
      const LogicalTensor& tensor = ledger_.held(id).tensor;
      const State& state = ledger_.state(id);
      const bool kept = buffer.persistent &&
                        (tensor.kind == Tensor::parameter || tensor.kind == Tensor::state || tensor.kind == Tensor::scaler);
      const bool due = buffer.role == Role::statistic ? !ledger_.derivations().of(tensor).empty()
                                                      : plan_.graph().optimizer.has_value();
      if (kept && due && !state.updated) {
        return ledger_.breach(Rule::update, {},
                              fmt::format("nothing updates {} on {}", ledger_.name(id), plan_.devices()[buffer.device.index()]));
      }
      if (loads_ && buffer.persistent && !state.updated && (buffer.role == Role::input || buffer.role == Role::target)) {
        return ledger_.breach(
            Rule::update, {},
            fmt::format("nothing loads {} for the next step on {}", ledger_.name(id), plan_.devices()[buffer.device.index()]));
      }
      if (kept && buffer.role == Role::statistic && due &&
          !(state.terms == ledger_.samples(buffer.device, ledger_.derivations().of(tensor)[0].reads[0]))) {
        return ledger_.breach(Rule::update, {}, fmt::format("{} is not of all samples that its device has", ledger_.name(id)));
      }
      if (buffer.role == Role::loss && tensor.kind == Tensor::value) {
        if (!state.complete || !state.written) {
          return ledger_.breach(Rule::sum, {}, fmt::format("{} is not complete at the end", ledger_.name(id)));
        }
        losses_of_device[buffer.device.index()].push_back(id);
      }
    }
    Terms losses;
    for (std::size_t device = 0; device < losses_of_device.size(); ++device) {
      for (std::size_t i = 0; i < losses_of_device[device].size(); ++i) {
        const TermBox rows = rows_of(losses_of_device[device][i]);
        losses.add(rows);  // several devices may have the same
        if (alike_parts_ > 2 && device % 2 == 1) {
          const TermBox first = rows_of(losses_of_device[device - 1].at(i));
          for (std::int64_t k = 2; k < alike_parts_; ++k) {
            TermBox further = first;
            if (further.continue_to(rows, k)) {
              losses.add(further);
            }
          }
        }
      }
    }
    const bool judged = std::any_of(losses_of_device.begin(), losses_of_device.end(),
                                    [](const auto& list) { return !list.empty(); });
    if (judged && !losses.complete(1)) {
      ledger_.breach(Rule::value, {}, "no device computes some of the losses");
    }
  }

  /// The rows of a loss.
  TermBox rows_of(BufferId loss) const {
    const DeclaredContent& held = ledger_.held(loss);
    TermBox rows;
    for (std::size_t d = 0; d < held.at.size(); ++d) {
      rows.add({held.at[d], ledger_.whole(held.tensor)[d]});
    }
    return rows;
  }

  const Plan& plan_;
  std::int64_t alike_parts_;
  const Ordering& ordering_;
  Ledger ledger_;
  ComputeRules compute_;
  NormRules norm_;
  UpdateRules updates_;
  MeetingRules meetings_;
  bool loads_ = false;  // rows of the next step
};

}  // namespace

void check_split(const Plan& plan, const Ordering& ordering, std::int64_t alike_parts, const Report& report) {
  if (!plan.graph().empty()) {
    Split(plan, ordering, alike_parts, report).check();
  }
}

}  // namespace baton::plan
