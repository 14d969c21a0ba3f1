#include "baton/plan/split/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

using Tensor = LogicalTensor::Tensor;

}  // namespace

Ledger::Ledger(const Plan& plan, const Report& report)
    : plan_(plan),
      report_(report),
      graph_(plan.graph()),
      parameters_(count_parameters()),
      derivations_(graph_is_sound_ ? graph_ : no_graph_, parameters_.size()) {}

std::size_t Ledger::count_parameters() {
  std::size_t count = 0;
  for (const Buffer& buffer : plan_.buffers()) {
    if (const auto* part = std::get_if<ParameterPart>(&buffer.content)) {
      count = std::max<std::size_t>(count, std::size_t{part->ordinal} + 1);
    }
    if (std::holds_alternative<LossScaler>(buffer.content)) {
      scalers_.push_back(buffer.device);
    }
  }
  for (const Graph::Node& node : graph_.nodes) {
    for (const std::uint32_t parameter : node.parameters) {
      graph_is_sound_ = graph_is_sound_ && parameter < count;
    }
  }
  return count;
}

bool Ledger::open() {
  if (!graph_is_sound_) {
    breach(Rule::value, {}, "the plan's graph names a parameter that no buffer holds");
    return false;
  }
  std::size_t dimensions = 0;
  for (const Buffer& buffer : plan_.buffers()) {
    const auto* part = std::get_if<ParameterPart>(&buffer.content);
    dimensions += part == nullptr ? buffer.shape.rank() : part->whole.rank();
  }
  ranges_.reserve(dimensions);  // so that what is held stays where it is
  held_.reserve(plan_.buffers().size());
  states_.reserve(plan_.buffers().size());
  for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
    if (!hold(BufferId(b))) {
      return false;
    }
  }
  return true;
}

void Ledger::hold_rows(DeclaredContent& held, const BatchRows& rows, const Shape& shape) {
  held.tensor = {Tensor::value, rows.value.value};
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    ranges_.push_back(d == rows.axis  ? Range{rows.begin, rows.end}
                      : d < rows.axis ? Range{rows.first, rows.first + shape[d]}
                                      : Range{0, shape[d]});
  }
  held.at = std::span(ranges_).last(shape.rank());
}

bool Ledger::hold(BufferId id) {
  const Buffer& buffer = plan_[id];
  DeclaredContent& held = held_.emplace_back();
  if (const auto* part = std::get_if<ParameterPart>(&buffer.content)) {
    ParameterPart& known = parameters_[part->ordinal];
    if (known.name.empty()) {
      known = *part;
    }
    held.tensor = {buffer.role == Role::optimizer_state ? Tensor::state
                   : buffer.role == Role::gradient      ? Tensor::parameter_gradient
                                                        : Tensor::parameter,
                   part->ordinal, part->slot};
    for (std::size_t d = 0; d < part->whole.rank(); ++d) {
      ranges_.push_back(d == part->axis ? Range{part->begin, part->end} : Range{0, part->whole[d]});
    }
    held.at = std::span(ranges_).last(part->whole.rank());
    held.piece = {part->piece_begin, part->piece_end};
    if (part->whole != known.whole || part->name != known.name) {
      breach(Rule::value, {}, fmt::format("b{} is part of another parameter {} than others are", id.value, part->ordinal));
      return false;
    }
  } else if (const auto* value = std::get_if<ValuePart>(&buffer.content)) {
    held.tensor = derivations_.canonical({value->gradient     ? Tensor::gradient
                                          : value->unfinished ? Tensor::unfinished
                                                              : Tensor::value,
                                          value->value.value});
    held.at = value->at;
  } else if (const auto* terms = std::get_if<LossTerms>(&buffer.content)) {
    held.tensor = {Tensor::loss_terms, terms->loss.value};
    held.at = terms->at;
    held.parts = terms->parts;
  } else if (const auto* rows = std::get_if<BatchRows>(&buffer.content); rows != nullptr && rows->value.valid()) {
    hold_rows(held, *rows, buffer.shape);
  } else if (std::holds_alternative<LossScaler>(buffer.content)) {
    held.tensor = {Tensor::scaler};
  } else if (std::holds_alternative<NonFiniteCount>(buffer.content)) {
    held.tensor = {Tensor::non_finite};
  } else if (std::holds_alternative<SquaredNorm>(buffer.content)) {
    held.tensor = {Tensor::squared_norm};
  }
  states_.emplace_back().written = buffer.persistent;
  return fits(id);
}

/// True if its declared content has the buffer's shape and lies in the whole.
bool Ledger::fits(BufferId id) {
  const DeclaredContent& held = held_[id.index()];
  if (held.at.empty()) {
    return true;
  }
  const Shape& all = whole(held.tensor);
  const Shape& shape = plan_[id].shape;
  const bool terms = held.tensor.kind == Tensor::loss_terms;  // several per row, and the rows once for each part
  const bool piece = held.piece.size() > 0;
  bool good = held.at.size() == all.rank() && (piece || shape.rank() == held.at.size() + (terms ? 1 : 0));
  std::int64_t elements = 1;
  for (std::size_t d = 0; good && d < held.at.size(); ++d) {
    const Range& range = held.at[d];
    good = range.begin >= 0 && range.begin < range.end && range.end <= all[d] &&
           (piece || range.size() * (terms && d == 0 ? held.parts : 1) == shape[d]);
    elements *= range.size();
  }
  good = good && (!piece || (held.piece.end <= elements && shape.elements() == held.piece.size()));
  if (!good) {
    breach(Rule::value, {}, fmt::format("{} cannot be held in {}", name(id), to_text(shape)));
  }
  return good;
}

const Shape& Ledger::whole(const LogicalTensor& tensor) const {
  return tensor.kind == Tensor::parameter || tensor.kind == Tensor::parameter_gradient || tensor.kind == Tensor::state
             ? parameters_[tensor.id].whole
             : graph_.values[tensor.id].shape;
}

std::string Ledger::name(const LogicalTensor& tensor) const {
  switch (tensor.kind) {
    case Tensor::value:
      return graph_.values[tensor.id].name;
    case Tensor::unfinished:
      return fmt::format("the sum of {}", graph_.values[tensor.id].name);
    case Tensor::loss_terms:
      return fmt::format("terms of {}", graph_.values[tensor.id].name);
    case Tensor::gradient:
      return fmt::format("the gradient of {}", graph_.values[tensor.id].name);
    case Tensor::parameter:
      return parameters_[tensor.id].name;
    case Tensor::parameter_gradient:
      return fmt::format("the gradient of {}", parameters_[tensor.id].name);
    case Tensor::state:
      return fmt::format("state {} of {}", tensor.slot, parameters_[tensor.id].name);
    case Tensor::scaler:
      return "the loss scale";
    case Tensor::non_finite:
      return "the count of gradients that are not finite";
    case Tensor::squared_norm:
      return "the norm of the gradients";
    case Tensor::none:
      break;
  }
  return "nothing that the plan computes";
}

std::string Ledger::name(BufferId id) const {
  const DeclaredContent& held = held_[id.index()];
  std::string text = fmt::format("b{} ({}", id.value, name(held.tensor));
  for (std::size_t d = 0; d < held.at.size(); ++d) {
    text += fmt::format("{}{}:{}", d == 0 ? " at " : ", ", held.at[d].begin, held.at[d].end);
  }
  return text + (held.piece.size() > 0 ? fmt::format(", elements {}:{})", held.piece.begin, held.piece.end) : ")");
}

std::string Ledger::names(std::span<const BufferId> ids) const {
  std::string text;
  for (const BufferId id : ids) {
    text += (text.empty() ? "" : " and ") + name(id);
  }
  return text.empty() ? "nothing" : text;
}

void Ledger::breach(Rule rule, std::vector<TaskId> tasks, std::string text) {
  broken_ = true;
  report_(rule, std::move(tasks), std::move(text));
}

bool Ledger::readable(TaskId id, BufferId buffer) {
  const State& state = states_[buffer.index()];
  if (state.updated) {
    breach(Rule::update, {id}, fmt::format("{} reads {} after it was updated", name(id), name(buffer)));
  } else if (!state.complete) {
    breach(Rule::sum, {id}, fmt::format("{} reads {}, which holds some terms of the sum only", name(id), name(buffer)));
  }
  return !broken_;
}

bool Ledger::update(TaskId id, BufferId parameter) {
  if (std::exchange(states_[parameter.index()].updated, true)) {
    breach(Rule::update, {id}, fmt::format("{} updates {} a second time", name(id), name(parameter)));
  }
  return !broken_;
}

bool Ledger::check_rate(TaskId id, double rate) {
  const op::Sgd* sgd = graph_.optimizer ? std::get_if<op::Sgd>(&*graph_.optimizer) : nullptr;
  if (sgd == nullptr || *sgd != op::Sgd{.rate = rate} || scaled()) {
    breach(Rule::update, {id}, fmt::format("{} takes another step than the plan's optimizer", name(id)));
  }
  return !broken_;
}

void Ledger::settle(State& state, std::uint32_t uses) {
  if (state.terms.complete(uses)) {
    state = {.written = true};
  }
}

}  // namespace baton::plan
