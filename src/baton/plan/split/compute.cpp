#include "baton/plan/split/compute.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/op/traits.h"
#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

using Tensor = LogicalTensor::Tensor;

/// The number of operands that an op reads after those of the model's op: the tensors that it adds to, the term that it adds, or
/// the loss scale.
std::size_t operands_behind(const op::Op& op, const op::Signature& signature, const Task& task) {
  const std::size_t added_to = signature.in_place ? task.writes.size() - signature.copies : signature.adds ? 1 : 0;
  const bool scaled = op::is_loss(op) && signature.reads.back().type == op::Type::state;
  return std::min(task.reads.size(), added_to + (scaled ? 1 : 0));
}

}  // namespace

void ComputeRules::judge(TaskId id, const Task& task, const op::Op& op) {
  const op::Signature& signature = op::signature(op);
  const bool steps = op::takes_step(op);
  const std::size_t behind = operands_behind(op, signature, task);
  const std::span<const BufferId> reads(task.reads.data(), task.reads.size() - behind);
  const Derivation* derivation = find(task, op::plain(op), reads, steps);
  if (derivation == nullptr) {
    return signature.linear && !signature.in_place ? add_up(id, task, task.reads, task.writes[0]) : not_the_models(id, task, reads);
  }
  if (op::is_loss(op) && (behind > 0) != ledger_.scaled()) {
    return ledger_.breach(Rule::value, {id},
                          fmt::format("{} {} its gradient by the loss scale, unlike the updates", ledger_.name(id),
                                      behind > 0 ? "multiplies" : "does not multiply"));
  }
  if (op::is_loss(op) && behind > 0 && ledger_.held(task.reads.back()).tensor.kind != Tensor::scaler) {
    return ledger_.breach(Rule::value, {id},
                          fmt::format("{} multiplies its gradient by {} instead of the loss scale", ledger_.name(id),
                                      ledger_.name(task.reads.back())));
  }
  for (const BufferId buffer : signature.in_place || signature.adds ? reads : std::span<const BufferId>(task.reads)) {
    if (!ledger_.readable(id, buffer)) {
      return;
    }
  }
  if (bind(id, task, signature) && check_numbers(id, op, signature) && check_groups(id, op)) {
    write(id, task, op, signature, *derivation, steps);
  }
  const std::size_t made = task.writes.size() - signature.copies;
  for (std::size_t w = made; w < task.writes.size() && !ledger_.broken(); ++w) {
    copy(id, task, task.writes[w - made], task.writes[w], steps);
  }
}

/// A copy has the content that the task has just written.
void ComputeRules::copy(TaskId id, const Task& task, BufferId from, BufferId to, bool steps) {
  if (!steps) {
    return add_up(id, task, {&from, 1}, to);
  }
  if (!(ledger_.held(to) == ledger_.held(from))) {
    return ledger_.breach(Rule::value, {id},
                          fmt::format("{} writes a copy of {} to {}", ledger_.name(id), ledger_.name(from), ledger_.name(to)));
  }
  ledger_.update(id, to);
}

void ComputeRules::not_the_models(TaskId id, const Task& task, std::span<const BufferId> reads) {
  ledger_.breach(Rule::value, {id},
                 fmt::format("{} makes {} of {}, which is not how the model makes it", ledger_.name(id),
                             ledger_.name(task.writes[0]), ledger_.names(reads)));
}

/// The derivation that a task carries out; nullptr if there is none.
const Derivation* ComputeRules::find(const Task& task, const op::Op& op, std::span<const BufferId> reads, bool steps) const {
  const std::span<const BufferId> made = std::span(task.writes).first(task.writes.size() - copy_count(task));
  LogicalTensor first = ledger_.held(task.writes[0]).tensor;
  if (steps) {
    if (first.kind != Tensor::parameter) {
      return nullptr;
    }
    first.kind = Tensor::parameter_gradient;
  }
  for (const Derivation& derivation : ledger_.derivations().of(first)) {
    const auto holds = [&](BufferId buffer, const LogicalTensor& tensor) { return ledger_.held(buffer).tensor == tensor; };
    const auto writes = [&](BufferId buffer, LogicalTensor tensor) {
      if (steps && tensor.kind == Tensor::parameter_gradient) {
        tensor.kind = Tensor::parameter;
      }
      return holds(buffer, tensor);
    };
    if (derivation.op == op && std::equal(reads.begin(), reads.end(), derivation.reads.begin(), derivation.reads.end(), holds) &&
        std::equal(made.begin(), made.end(), derivation.writes.begin(), derivation.writes.end(), writes)) {
      return &derivation;
    }
  }
  return nullptr;
}

/// Gives the signature's letters the indices that the operands hold.
bool ComputeRules::bind(TaskId id, const Task& task, const op::Signature& signature) {
  static const op::Axes rows{"*"};
  indices_.clear();
  const auto one = [&](BufferId buffer, const op::Axes& axes) {
    const DeclaredContent& held = ledger_.held(buffer);
    if (held.tensor.kind == Tensor::scaler) {
      return true;
    }
    const bool terms = held.tensor.kind == Tensor::loss_terms;  // they are for rows, whatever the signature says of their shape
    if (held.piece.size() > 0 || !indices_.bind(terms ? rows : axes, held.at, ledger_.whole(held.tensor))) {
      ledger_.breach(
          Rule::value, {id},
          fmt::format("{} cannot take {} together with {}", ledger_.name(id), ledger_.name(buffer), ledger_.names(task.reads)));
    }
    return !ledger_.broken();
  };
  for (std::size_t i = 0; i < task.reads.size(); ++i) {
    if (!one(task.reads[i], signature.reads[i])) {
      return false;
    }
  }
  for (std::size_t i = 0; i < task.writes.size(); ++i) {
    if (!one(task.writes[i], signature.writes[i])) {
      return false;
    }
  }
  return true;
}

/// An op that tells indices apart by number must have been given the numbers of those that its operands hold.
bool ComputeRules::check_numbers(TaskId id, const op::Op& op, const op::Signature& signature) {
  if (signature.numbered == 0) {
    return true;
  }
  const op::DimensionPart said = op::part_of(op);
  indices_.each([&](char letter, std::span<const Indices::Bound> bounds) {
    const Indices::Bound& held = bounds[0];
    const bool right = said.of == 0 ? held.is_whole() : said.first == held.range.begin && said.of == held.extent;
    if (letter == signature.numbered && !right) {
      ledger_.breach(Rule::value, {id},
                     fmt::format("{} takes {}:{} of {} indices for those from {} on, of {}", ledger_.name(id), held.range.begin,
                                 held.range.end, held.extent, said.first, said.of));
    }
  });
  return !ledger_.broken();
}

/// Samples that an op takes together are all there. (An op that takes all of its samples together needs no check.)
bool ComputeRules::check_groups(TaskId id, const op::Op& op) {
  const std::int64_t together = op::samples_together(op);
  indices_.each([&](char letter, std::span<const Indices::Bound> bounds) {
    const Range& samples = bounds[0].range;
    if (letter == 'b' && together > 1 && (samples.begin % together != 0 || samples.end % together != 0)) {
      ledger_.breach(Rule::value, {id},
                     fmt::format("{} takes {} samples together, but has samples {}:{}, which divides such a group",
                                 ledger_.name(id), together, samples.begin, samples.end));
    }
  });
  return !ledger_.broken();
}

void ComputeRules::write(TaskId id, const Task& task, const op::Op& op, const op::Signature& signature,
                         const Derivation& derivation, bool steps) {
  for (std::size_t w = 0; w < task.writes.size() - signature.copies && !ledger_.broken(); ++w) {
    TermBox box(derivation.use[w]);
    bool all = true;
    indices_.each([&](char letter, std::span<const Indices::Bound> bounds) {
      const op::Along along = op::along(signature, letter, w);
      const bool whole = std::all_of(bounds.begin(), bounds.end(), [](const auto& bound) { return bound.is_whole(); });
      if (along == op::Along::sum) {
        std::for_each(bounds.begin(), bounds.end(), [&](const Indices::Bound& bound) { box.add(bound); });
        all = all && whole;
      } else if ((along == op::Along::merge || along == op::Along::whole) && !whole) {
        ledger_.breach(Rule::value, {id}, fmt::format("{} needs all of a dimension that it has in part", ledger_.name(id)));
      }
    });
    if (!all && !signature.once.empty()) {
      return ledger_.breach(Rule::sum, {id},
                            fmt::format("{} adds {} to a term of a sum, so that it counts once per term", ledger_.name(id),
                                        ledger_.name(task.reads[signature.once[0]])));
    }
    if (op::tracks(op)) {
      track(id, task.writes[w]);
      continue;
    }
    if (signature.adds) {
      put_sum(id, task, box);
      continue;
    }
    put(id, task.writes[w], derivation.writes[w], box, all, signature.in_place && !steps, steps);
  }
  if (steps && !ledger_.broken()) {
    ledger_.check_rate(id, op::sgd_rate(op));
  }
  if (const std::optional<op::EvaluationForm> form = op::evaluation_form(op); form && form->statistics > 0) {
    ledger_.samples(task.device, derivation.reads[0]).add(samples());  // those that are computed again are there already
  }
}

/// The samples of the task that is checked.
TermBox ComputeRules::samples() const {
  TermBox box;
  indices_.each([&](char letter, std::span<const Indices::Bound> bounds) {
    if (letter == 'b') {
      box.add(bounds[0]);
    }
  });
  return box;
}

/// A statistic takes each sample once, those that its device has.
void ComputeRules::track(TaskId id, BufferId buffer) {
  State& state = ledger_.state(buffer);
  if (ledger_.plan()[buffer].role != Role::statistic) {
    return ledger_.breach(Rule::update, {id},
                          fmt::format("{} keeps statistics in {}, which holds none", ledger_.name(id), ledger_.name(buffer)));
  }
  if (!state.terms.add(samples())) {
    return ledger_.breach(Rule::update, {id},
                          fmt::format("{} takes samples into {} a second time", ledger_.name(id), ledger_.name(buffer)));
  }
  state.updated = true;
}

/// Puts terms into a buffer: in place of what it held, or added to it.
void ComputeRules::put(TaskId id, BufferId buffer, const LogicalTensor& made, const TermBox& box, bool all, bool adds, bool steps) {
  const std::uint32_t uses = ledger_.derivations().uses(made);
  if (steps) {
    if (!all || uses != 1) {
      return ledger_.breach(Rule::update, {id},
                            fmt::format("{} updates {} with an incomplete gradient", ledger_.name(id), ledger_.name(buffer)));
    }
    ledger_.update(id, buffer);
    return;
  }
  State& state = ledger_.state(buffer);
  if (!adds) {
    state = {.written = true, .complete = all && uses == 1};
    if (!state.complete) {
      state.terms = Terms(box);
    }
    return;
  }
  if (state.complete || !state.terms.add(box)) {
    return ledger_.breach(Rule::sum, {id},
                          fmt::format("{} adds to {} a term that it holds already", ledger_.name(id), ledger_.name(buffer)));
  }
  Ledger::settle(state, uses);
}

/// Puts the sum of a term that the task computes and of the one that it reads last into its first output.
void ComputeRules::put_sum(TaskId id, const Task& task, const TermBox& box) {
  const BufferId target = task.writes[0];
  State sum{.written = true, .complete = false, .terms = Terms(box)};
  if (add_term(id, task, task.reads.back(), target, sum)) {
    if (sum.complete) {
      return ledger_.breach(Rule::sum, {id}, fmt::format("{} adds a term to a complete sum", ledger_.name(id)));
    }
    Ledger::settle(sum, ledger_.derivations().uses(ledger_.held(target).tensor));
    ledger_.state(target) = std::move(sum);
  }
}

/// A linear op of terms of one sum: a copy, or the sum of several.
void ComputeRules::add_up(TaskId id, const Task& task, std::span<const BufferId> reads, BufferId target) {
  State sum{.written = true, .complete = false};
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (!add_term(id, task, reads[i], target, sum)) {
      return;
    }
    if (i > 0 && sum.complete) {
      return ledger_.breach(Rule::sum, {id}, fmt::format("{} adds up terms that are the same", ledger_.name(id)));
    }
  }
  if (!sum.complete) {
    Ledger::settle(sum, ledger_.derivations().uses(ledger_.held(target).tensor));
  }
  ledger_.state(target) = std::move(sum);
}

/// Adds the content of a buffer to the sum that another is to hold: terms of that sum, or all of it. Returns false after a breach.
bool ComputeRules::add_term(TaskId id, const Task& task, BufferId buffer, BufferId target, State& sum) {
  const DeclaredContent& held = ledger_.held(target);
  const DeclaredContent& read = ledger_.held(buffer);
  const State& state = ledger_.state(buffer);
  if (state.updated) {
    return ledger_.readable(id, buffer);
  }
  DeclaredContent same = read;
  same.tensor = held.tensor;
  const std::vector<std::uint32_t> passed = ledger_.derivations().passed_terms(held.tensor, read.tensor);
  if (!(same == held) || (read.tensor != held.tensor && (passed.empty() || !state.complete))) {
    not_the_models(id, task, task.reads);
    return false;
  }
  bool added = false;
  if (read.tensor != held.tensor) {
    // A value that is added to itself gets the same gradient twice.
    added = std::any_of(passed.begin(), passed.end(), [&](std::uint32_t use) { return sum.terms.add(TermBox(use)); });
  } else {
    added = sum.terms.add(state.terms);
    sum.complete = sum.complete || state.complete;
  }
  if (!added) {
    ledger_.breach(Rule::sum, {id}, fmt::format("{} adds up terms that are the same", ledger_.name(id)));
  }
  return added;
}

}  // namespace baton::plan
