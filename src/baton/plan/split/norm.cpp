#include "baton/plan/split/norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "baton/op/signature.h"
#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

using Tensor = LogicalTensor::Tensor;

std::vector<std::int64_t> indices(std::span<const Range> at) {
  std::vector<std::int64_t> list;
  for (const Range& range : at) {
    list.insert(list.end(), {range.begin, range.end});
  }
  return list;
}

std::int64_t elements(std::span<const Range> at) {
  std::int64_t count = 1;
  for (const Range& range : at) {
    count *= range.size();
  }
  return count;
}

}  // namespace

/// The number of elements of a parameter that some parts of it have. If the plan has the first two of a row of alike parts, these
/// count for all of the row.
std::int64_t NormRules::covered(const std::vector<BufferId>& parts) const {
  std::int64_t count = 0;
  for (const BufferId part : parts) {
    count += elements(ledger_.held(part).at);
  }
  if (alike_parts_ <= 2 || parts.size() != 2) {
    return count;
  }
  const DeclaredContent& first = ledger_.held(parts[0]);
  const DeclaredContent& second = ledger_.held(parts[1]);
  for (std::size_t d = 0; d < first.at.size(); ++d) {
    const std::optional<Range> last = continued(first.at[d], second.at[d], alike_parts_ - 1);
    if (!last || last->end > ledger_.whole(first.tensor)[d]) {
      return count;
    }
  }
  return count / 2 * alike_parts_;
}

/// Finds the parts that parameters are held in; false if they are not parts of one division.
bool NormRules::list_parts(TaskId id) {
  if (std::exchange(listed_, true)) {
    return true;
  }
  const Plan& plan = ledger_.plan();
  std::map<std::uint32_t, std::vector<BufferId>> parts;
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const DeclaredContent& held = ledger_.held(BufferId(b));
    if (held.tensor.kind != Tensor::parameter || !plan.buffers()[b].persistent || plan.buffers()[b].role == Role::statistic) {
      continue;
    }
    const auto [known, added] = part_of_.try_emplace({held.tensor.id, indices(held.at)}, holder_.size());
    if (added) {
      holder_.emplace_back(b);
      all_.push_back({known->second, {0, elements(held.at)}});
      parts[held.tensor.id].emplace_back(b);
    }
  }
  for (const BufferId part : holder_) {
    const LogicalTensor& tensor = ledger_.held(part).tensor;
    if (covered(parts[tensor.id]) != ledger_.whole(tensor).elements()) {
      ledger_.breach(
          Rule::sum, {id},
          fmt::format("{} adds up squares of gradients, but the buffers that hold {} do not cover each element exactly once",
                      ledger_.name(id), ledger_.name(part)));
      return false;
    }
  }
  return true;
}

std::string NormRules::name(const Counted& counted) const {
  return fmt::format("the gradient of {}, elements {}:{}", ledger_.name(holder_[counted.part]), counted.elements.begin,
                     counted.elements.end);
}

/// Sorts and joins a count; returns false if something is in it twice.
bool NormRules::join(TaskId id, Count& count) const {
  std::sort(count.begin(), count.end(), [](const Counted& a, const Counted& b) {
    return std::tie(a.part, a.elements.begin) < std::tie(b.part, b.elements.begin);
  });
  Count joined;
  for (const Counted& next : count) {
    if (joined.empty() || joined.back().part != next.part || joined.back().elements.end < next.elements.begin) {
      joined.push_back(next);
    } else if (joined.back().elements.end == next.elements.begin) {
      joined.back().elements.end = next.elements.end;
    } else {
      ledger_.breach(Rule::sum, {id}, fmt::format("{} counts {} a second time", ledger_.name(id), name(next)));
      return false;
    }
  }
  count = std::move(joined);
  return true;
}

void NormRules::judge_sum(TaskId id, const Task& task) {
  if (!list_parts(id)) {
    return;
  }
  const auto* compute = std::get_if<Compute>(&task.action);
  if (compute == nullptr || !op::signature(compute->op).any_reads) {
    return ledger_.breach(Rule::value, {id},
                          fmt::format("{} makes the norm of the gradients, but adds up no squares", ledger_.name(id)));
  }
  Count count;
  for (const BufferId buffer : task.reads) {
    const DeclaredContent& held = ledger_.held(buffer);
    const auto part = part_of_.find({held.tensor.id, indices(held.at)});
    if (held.tensor.kind != Tensor::parameter_gradient || part == part_of_.end()) {
      return ledger_.breach(
          Rule::value, {id},
          fmt::format("{} counts {} in the norm, but no update takes that gradient", ledger_.name(id), ledger_.name(buffer)));
    }
    if (!ledger_.readable(id, buffer)) {
      return;
    }
    count.push_back({part->second, held.piece.size() > 0 ? held.piece : Range{0, elements(held.at)}});
  }
  if (join(id, count)) {
    counts_[task.writes[0]] = std::move(count);
    ledger_.state(task.writes[0]) = {.written = true};
  }
}

void NormRules::judge_meeting(std::span<const TaskId> members) {
  const Plan& plan = ledger_.plan();
  const TaskId first = members[0];
  Count sum;
  for (const TaskId id : members) {
    const auto* collective = std::get_if<Collective>(&plan[id].action);
    const std::span<const BufferId> brought = payload(plan[id]);
    if (collective == nullptr || collective->kind != Move::all_reduce || brought.size() != 1 ||
        ledger_.held(brought[0]).tensor.kind != Tensor::squared_norm) {
      return ledger_.breach(Rule::value, {id},
                            fmt::format("{} moves {}, which devices only add up", ledger_.name(id), ledger_.names(brought)));
    }
    const Count& own = counts_[brought[0]];
    sum.insert(sum.end(), own.begin(), own.end());
  }
  if (!join(first, sum)) {
    return;
  }
  for (const TaskId id : members) {
    counts_[payload(plan[id])[0]] = sum;
  }
}

bool NormRules::check_whole(TaskId id, BufferId buffer) const {
  const auto own = counts_.find(buffer);
  if (ledger_.held(buffer).tensor.kind != Tensor::squared_norm || own == counts_.end()) {
    ledger_.breach(Rule::update, {id},
                   fmt::format("{} clips by {} instead of the norm of the gradients", ledger_.name(id), ledger_.name(buffer)));
    return false;
  }
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (i >= own->second.size() || !(own->second[i] == all_[i])) {
      ledger_.breach(Rule::sum, {id},
                     fmt::format("{} clips by a norm that does not count all of {}", ledger_.name(id), name(all_[i])));
      return false;
    }
  }
  return true;
}

}  // namespace baton::plan
