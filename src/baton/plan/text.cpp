#include "baton/plan/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::plan {
namespace {

constexpr std::string_view heading = "baton-plan 1";
constexpr std::string_view persistent_word = "persistent";
constexpr std::array<std::string_view, 9> role_names{"input",           "target",        "activation", "parameter", "gradient",
                                                     "optimizer_state", "communication", "loss",       "statistic"};

// ---- printing

/// Prints fields as ` name=value`, leaving out those at their default.
struct PrintFields {
  std::string& out;
  void operator()(std::string_view name, bool value) const {
    if (value) {
      out += fmt::format(" {}=1", name);
    }
  }
  void operator()(std::string_view name, double value) const {
    if (value != 0) {
      out += fmt::format(" {}={}", name, value);
    }
  }
  void operator()(std::string_view name, std::int64_t value) const { out += fmt::format(" {}={}", name, value); }
};

/// Settings of an optimizer that are 0 are left out.
struct PrintOptimizer {
  std::string& out;
  void operator()(std::string_view name, const auto& value) const {
    if (value != 0) {
      PrintFields{out}(name, value);
    }
  }
};

void print_ids(std::string& out, std::string_view name, char letter, const auto& ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    out += i == 0 ? fmt::format(" {}={}{}", name, letter, ids[i].value) : fmt::format(",{}{}", letter, ids[i].value);
  }
}

void print_ranges(std::string& out, const Ranges& at) {
  for (std::size_t d = 0; d < at.size(); ++d) {
    out += fmt::format("{}{}:{}", d == 0 ? " at=" : ",", at[d].begin, at[d].end);
  }
}

void print_content(std::string& out, const Buffer& buffer) {
  if (const auto* rows = std::get_if<BatchRows>(&buffer.content)) {
    out += fmt::format(" rows={}:{}", rows->begin, rows->end);
    if (rows->axis != 0) {
      out += fmt::format(" axis={} first={}", rows->axis, rows->first);
    }
    if (rows->value.valid()) {
      out += fmt::format(" value=v{}", rows->value.value);
    }
  } else if (const auto* part = std::get_if<ParameterPart>(&buffer.content)) {
    out += fmt::format(" of={} ordinal={} fan_in={}", part->name, part->ordinal, part->fan_in);
    if (part->axis != 0 || part->begin != 0 || part->end != part->whole[0] || part->piece_end != 0 || part->whole != buffer.shape) {
      out += fmt::format(" whole={} axis={} range={}:{}", to_text(part->whole), part->axis, part->begin, part->end);
    }
    if (part->piece_end != 0) {
      out += fmt::format(" piece={}:{}", part->piece_begin, part->piece_end);
    }
    if (part->slot != 0) {
      out += fmt::format(" slot={}", part->slot);
    }
  } else if (const auto* state = std::get_if<LossScaler>(&buffer.content)) {
    out += fmt::format(" initial_scale={}", state->initial);
  } else if (const auto* held = std::get_if<ValuePart>(&buffer.content)) {
    out += fmt::format(" {}=v{}", held->gradient ? "gradient" : "value", held->value.value);
    print_ranges(out, held->at);
    if (held->terms > 1) {
      out += fmt::format(" term={} terms={}", held->term, held->terms);
    }
    PrintFields{out}("unfinished", held->unfinished);
  } else if (const auto* terms = std::get_if<LossTerms>(&buffer.content)) {
    out += fmt::format(" terms_of=v{}", terms->loss.value);
    print_ranges(out, terms->at);
    out += fmt::format(" parts={}", terms->parts);
  } else if (std::holds_alternative<NonFiniteCount>(buffer.content)) {
    out += " non_finite=1";
  } else if (std::holds_alternative<SquaredNorm>(buffer.content)) {
    out += " squared_norm=1";
  }
}

void print_action(std::string& out, const Task& task) {
  out += fmt::format(" {}", verb(task));
  struct {
    std::string& out;
    void operator()(const Compute& compute) const {
      op::Op copy = compute.op;
      op::Op plain = op::all()[copy.index()];
      std::vector<std::string_view> zeros;  // numbers that are 0 where nothing is said
      op::attributes(plain, [&](std::string_view name, auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::int64_t>) {
          if (value == 0) {
            zeros.push_back(name);
          }
        }
      });
      op::attributes(copy, [&](std::string_view name, auto& value) {
        if (value != 0 || std::find(zeros.begin(), zeros.end(), name) == zeros.end()) {
          PrintFields{out}(name, value);
        }
      });
    }
    void operator()(const Transfer& transfer) const {
      out += fmt::format(" meeting=m{} peer=d{}", transfer.meeting.value, transfer.peer.value);
    }
    void operator()(const Collective& collective) const {
      out += fmt::format(" meeting=m{} rank={} size={}", collective.meeting.value, collective.rank, collective.size);
      PrintFields{out}("sgd_rate", collective.sgd_rate);
      PrintFields{out}("accumulate", collective.accumulate);
      if (collective.row != 1) {
        PrintFields{out}("row", collective.row);
      }
    }
    void operator()(const Update& update) const {
      op::Optimizer copy = update.optimizer;
      op::attributes(copy, PrintOptimizer{out});
      PrintFields{out}("scaled", update.scaled);
      PrintFields{out}("copies", update.copies);
    }
    void operator()(const Delay& delay) const { out += fmt::format(" ns={}", delay.duration.count); }
    void operator()(const Load&) const {}
    void operator()(const Take&) const {}
  } visitor{out};
  std::visit(visitor, task.action);
}

// ---- parsing

using Fields = std::map<std::string, std::string, std::less<>>;

/// One line being read: its words, and its `name=value` fields, each of which must be used.
class Line {
 public:
  Line(std::size_t number, std::string_view text) : number_(number) {
    const std::size_t quote = text.find(" \"");
    if (quote != std::string_view::npos) {
      if (!text.ends_with('"') || text.size() < quote + 3) {
        fail("has a label without an end");
      }
      label_ = text.substr(quote + 2, text.size() - quote - 3);
      text = text.substr(0, quote);
    }
    for (const std::string_view word : split(text, ' ')) {
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos) {
        words_.emplace_back(word);
      } else if (!fields_.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
        fail(fmt::format("says {} twice", word.substr(0, equals)));
      }
    }
  }

  [[noreturn]] void fail(std::string_view why) const { throw usage_error("line {} of the plan {}", number_, why); }

  bool has(std::string_view name) const { return fields_.find(name) != fields_.end(); }
  std::size_t word_count() const { return words_.size(); }
  const std::string& word(std::size_t i) const {
    if (i >= words_.size()) {
      fail("ends too early");
    }
    return words_[i];
  }
  const std::string& label() const { return label_; }

  std::optional<std::string> take(std::string_view name) {
    const auto found = fields_.find(name);
    if (found == fields_.end()) {
      return std::nullopt;
    }
    std::string value = std::move(found->second);
    fields_.erase(found);
    return value;
  }
  std::string need(std::string_view name) {
    if (auto value = take(name)) {
      return *value;
    }
    fail(fmt::format("lacks {}", name));
  }
  /// Everything must have been understood.
  void end(std::size_t words) const {
    if (words_.size() != words) {
      fail(fmt::format("has {} words where {} belong", words_.size(), words));
    }
    if (!fields_.empty()) {
      fail(fmt::format("has {}, which means nothing here", fields_.begin()->first));
    }
  }

  template <typename Number = std::int64_t>
  Number number(std::string_view text) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      fail(fmt::format("has '{}' where a number belongs", text));
    }
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(value)) {
        fail(fmt::format("has '{}' where a finite number belongs", text));
      }
    }
    return value;
  }
  template <typename AnyId>
  AnyId id(std::string_view text, char letter, std::size_t count) const {
    if (text.empty() || text[0] != letter) {
      fail(fmt::format("has '{}' where something like {}0 belongs", text, letter));
    }
    const auto value = number<std::uint32_t>(text.substr(1));
    if (value >= count) {
      fail(fmt::format("names {}, which is not there", text));
    }
    return AnyId(value);
  }
  template <typename AnyId>
  std::vector<AnyId> ids(std::string_view name, char letter, std::size_t count) {
    std::vector<AnyId> list;
    if (const auto value = take(name)) {
      for (const std::string_view word : split(*value, ',')) {
        list.push_back(id<AnyId>(word, letter, count));
      }
    }
    return list;
  }
  std::pair<std::int64_t, std::int64_t> range(std::string_view text) const {
    const std::vector<std::string_view> ends = split(text, ':');
    if (ends.size() != 2) {
      fail(fmt::format("has '{}' where a range like 0:32 belongs", text));
    }
    const std::int64_t begin = number(ends[0]);
    const std::int64_t end = number(ends[1]);
    if (begin < 0 || end < begin) {
      fail(fmt::format("has the range '{}', which runs backwards", text));
    }
    return {begin, end};
  }
  Shape shape(std::string_view text) const {
    std::vector<std::int64_t> extents;
    std::int64_t elements = 1;
    for (const std::string_view extent : split(text, 'x')) {
      extents.push_back(number(extent));
      if (extents.back() < 1 || extents.back() > (std::int64_t{1} << 48) / elements) {
        fail(fmt::format("has the shape '{}', which no tensor has", text));
      }
      elements *= extents.back();
    }
    return Shape(extents);
  }

 private:
  std::size_t number_;
  std::vector<std::string> words_;
  Fields fields_;
  std::string label_;
};

struct ParseFields {
  Line& line;
  void operator()(std::string_view name, bool& value) const {
    if (const auto text = line.take(name)) {
      value = line.number(*text) != 0;
    }
  }
  void operator()(std::string_view name, double& value) const {
    const auto text = line.take(name);
    value = text ? line.number<double>(*text) : 0;
  }
  /// One that is 0 by default may be left out.
  void operator()(std::string_view name, std::int64_t& value) const {
    const auto text = value == 0 ? line.take(name) : std::optional(line.need(name));
    value = text ? line.number(*text) : 0;
  }
};

/// A name without characters that separate words here: they are escaped, a space as %20.
std::string one_word(std::string_view name) {
  std::string word;
  for (const char c : name) {
    const bool parts = static_cast<unsigned char>(c) <= ' ' || c == 0x7f || c == '"' || c == '=' || c == '%';
    word += parts ? fmt::format("%{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return word;
}

std::string from_one_word(const Line& line) {
  const std::string& word = line.word(2);
  std::string name;
  for (std::size_t i = 0; i < word.size(); ++i) {
    unsigned code = 0;
    if (word[i] != '%') {
      name += word[i];
      continue;
    }
    const char* digits = word.data() + i + 1;
    const bool there = i + 2 < word.size();
    if (!there || std::from_chars(digits, digits + 2, code, 16).ptr != digits + 2) {
      line.fail("has a name with a % that two hexadecimal digits should follow");
    }
    name += static_cast<char>(code);
    i += 2;
  }
  return name;
}

Ranges parse_ranges(Line& line) {
  Ranges at;
  const std::string ranges = line.need("at");
  for (const std::string_view range : split(ranges, ',')) {
    const auto [begin, end] = line.range(range);
    at.push_back({begin, end});
  }
  return at;
}

LossTerms parse_loss_terms(Line& line, const Shape& shape, std::size_t values) {
  LossTerms terms{.loss = line.id<ValueId>(line.need("terms_of"), 'v', values), .at = parse_ranges(line)};
  terms.parts = line.number(line.need("parts"));
  bool fits = terms.parts >= 1 && terms.at.size() + 1 == shape.rank();
  for (std::size_t d = 0; fits && d < terms.at.size(); ++d) {
    fits = terms.at[d].size() == (d == 0 ? shape[d] / terms.parts : shape[d]);
  }
  if (!fits || shape[0] % terms.parts != 0) {
    line.fail("holds terms of a part of a loss that does not fit its shape");
  }
  return terms;
}

ValuePart parse_value_part(Line& line, const Shape& shape, std::size_t values) {
  ValuePart part;
  part.gradient = line.has("gradient");
  part.value = line.id<ValueId>(line.need(part.gradient ? "gradient" : "value"), 'v', values);
  part.at = parse_ranges(line);
  bool fits = part.at.size() == shape.rank();
  for (std::size_t d = 0; fits && d < part.at.size(); ++d) {
    fits = part.at[d].size() == shape[d];
  }
  if (!fits) {
    line.fail("holds a part of a value that does not fit its shape");
  }
  if (const auto term = line.take("term")) {
    part.term = line.number<std::uint32_t>(*term);
    part.terms = line.number<std::uint32_t>(line.need("terms"));
    if (part.terms < 2 || part.term >= part.terms) {
      line.fail("holds a term that its sum does not have");
    }
  }
  ParseFields{line}("unfinished", part.unfinished);
  return part;
}

Role parse_role(const Line& line, std::string_view word) {
  const auto found = std::find(role_names.begin(), role_names.end(), word);
  if (found == role_names.end()) {
    line.fail(fmt::format("has an unknown role or type: {} {}", word, line.word(4)));
  }
  return static_cast<Role>(found - role_names.begin());
}

DType parse_type(const Line& line, std::string_view word) {
  const std::optional<DType> type = dtype_by_name(word);
  if (!type) {
    line.fail(fmt::format("has an unknown role or type: {} {}", line.word(3), word));
  }
  return *type;
}

BatchRows parse_batch_rows(Line& line, std::string_view rows, const Shape& shape, std::size_t values) {
  const auto [begin, end] = line.range(rows);
  BatchRows content{begin, end};
  if (const auto axis = line.take("axis")) {
    content.axis = line.number<std::uint32_t>(*axis);
    content.first = line.number(line.need("first"));
  }
  if (content.axis > 1 || content.axis >= shape.rank() || end - begin != shape[content.axis]) {
    line.fail(fmt::format("holds rows {} in a buffer of {}", rows, to_text(shape)));
  }
  if (const auto value = line.take("value")) {
    content.value = line.id<ValueId>(*value, 'v', values);
  }
  return content;
}

ParameterPart parse_parameter_part(Line& line, const std::string& name, const Shape& shape) {
  ParameterPart part{.name = name, .whole = shape, .end = shape[0]};
  part.ordinal = line.number<std::uint32_t>(line.need("ordinal"));
  part.fan_in = line.number(line.need("fan_in"));
  if (const auto whole = line.take("whole")) {
    part.whole = line.shape(*whole);
    part.axis = line.number<std::uint32_t>(line.need("axis"));
    std::tie(part.begin, part.end) = line.range(line.need("range"));
  }
  if (part.axis >= part.whole.rank() || part.end > part.whole[part.axis]) {
    line.fail("is a part that its parameter does not have");
  }
  if (const auto piece = line.take("piece")) {
    std::tie(part.piece_begin, part.piece_end) = line.range(*piece);
    if (part.piece_end - part.piece_begin != shape.elements() || part.piece_end > part.shape().elements()) {
      line.fail("is a piece that its part does not have");
    }
  }
  if (const auto slot = line.take("slot")) {
    part.slot = line.number<std::uint32_t>(*slot);
  }
  return part;
}

/// The content of a buffer of that shape; empty if the line does not say it.
Content parse_content(Line& line, const Shape& shape, std::size_t values) {
  const auto require_one = [&](std::string_view name, const std::string& value) {
    if (value != "1") {
      line.fail(fmt::format("has {} with a value other than 1", name));
    }
  };
  if (const auto rows = line.take("rows")) {
    return parse_batch_rows(line, *rows, shape, values);
  }
  if (const auto name = line.take("of")) {
    return parse_parameter_part(line, *name, shape);
  }
  if (const auto scale = line.take("initial_scale")) {
    return LossScaler{line.number<double>(*scale)};
  }
  if (line.has("value") || line.has("gradient")) {
    return parse_value_part(line, shape, values);
  }
  if (line.has("terms_of")) {
    return parse_loss_terms(line, shape, values);
  }
  if (const auto flag = line.take("non_finite")) {
    require_one("non_finite", *flag);
    return NonFiniteCount{};
  }
  if (const auto norm = line.take("squared_norm")) {
    require_one("squared_norm", *norm);
    return SquaredNorm{};
  }
  return {};
}

Buffer parse_buffer(Line& line, std::size_t devices, std::size_t values) {
  Buffer buffer;
  buffer.device = line.id<DeviceId>(line.word(2), 'd', devices);
  buffer.role = parse_role(line, line.word(3));
  buffer.dtype = parse_type(line, line.word(4));
  buffer.shape = line.shape(line.word(5));
  std::size_t words = 6;
  if (line.word_count() > words && is_layout_name(line.word(words))) {
    buffer.layout = line.word(words);
    ++words;
  }
  if (line.word_count() > words && line.word(words) == persistent_word) {
    buffer.persistent = true;
    ++words;
  }
  buffer.content = parse_content(line, buffer.shape, values);
  if (!buffer.layout.empty() && !std::holds_alternative<ParameterPart>(buffer.content)) {
    line.fail(fmt::format("has the memory layout {}, but is not part of a parameter", buffer.layout));
  }
  buffer.label = line.label();
  line.end(words);
  return buffer;
}

Action parse_action(Line& line, const std::string& verb, std::size_t devices) {
  constexpr std::size_t any = Id<void>::invalid;
  if (auto op = op::by_name(verb)) {
    op::attributes(*op, ParseFields{line});
    return Compute{*op};
  }
  if (verb == "send" || verb == "receive") {
    return Transfer{verb == "send" ? Transfer::End::send : Transfer::End::receive,
                    line.id<MeetingId>(line.need("meeting"), 'm', any), line.id<DeviceId>(line.need("peer"), 'd', devices)};
  }
  for (const MoveRule& rule : move_rules) {
    if (rule.move != Move::copy && verb == rule.name) {
      Collective collective{rule.move, line.id<MeetingId>(line.need("meeting"), 'm', any),
                            line.number<std::uint32_t>(line.need("rank")), line.number<std::uint32_t>(line.need("size"))};
      ParseFields{line}("sgd_rate", collective.sgd_rate);
      ParseFields{line}("accumulate", collective.accumulate);
      if (const auto row = line.take("row")) {
        collective.row = line.number(*row);
        if (collective.row < 1) {
          line.fail(fmt::format("has rows of {} elements", collective.row));
        }
      }
      return collective;
    }
  }
  if (verb == "sgd" || verb == "adam") {
    op::Optimizer optimizer = verb == "sgd" ? op::Optimizer(op::Sgd{}) : op::Optimizer(op::Adam{});
    op::attributes(optimizer, ParseFields{line});
    Update update{optimizer};
    ParseFields{line}("scaled", update.scaled);
    ParseFields{line}("copies", update.copies);
    return update;
  }
  if (verb == "delay") {
    const Delay delay{Nanoseconds(line.number(line.need("ns")))};
    if (delay.duration.count < 0) {
      line.fail("has a delay that ends before it begins");
    }
    return delay;
  }
  if (verb == "load") {
    return Load{};
  }
  if (verb == "take") {
    return Take{};
  }
  line.fail(fmt::format("has the unknown action '{}'", verb));
}

Task parse_task(Line& line, std::size_t devices, std::size_t buffers, std::size_t tasks) {
  Task task;
  task.device = line.id<DeviceId>(line.word(2), 'd', devices);
  bool known = false;
  for (const Lane lane : {Lane::compute, Lane::communication, Lane::host}) {
    if (line.word(3) == to_text(lane)) {
      task.lane = lane;
      known = true;
    }
  }
  bool phase_known = false;
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::update}) {
    if (line.word(4) == to_text(phase)) {
      task.labels.phase = phase;
      phase_known = true;
    }
  }
  if (!known || !phase_known) {
    line.fail(fmt::format("has an unknown lane or phase: {} {}", line.word(3), line.word(4)));
  }
  const auto label = [&](std::string_view name) {
    const auto text = line.take(name);
    const std::int32_t value = text ? line.number<std::int32_t>(*text) : -1;
    if (text && value < 0) {
      line.fail(fmt::format("has the {} {}", name, value));
    }
    return value;
  };
  task.labels.block = label("block");
  task.labels.micro_batch = label("micro_batch");
  task.labels.stage = label("stage");
  task.action = parse_action(line, line.word(5), devices);
  if (const auto workspace = line.take("workspace")) {
    task.workspace = Bytes(line.number(*workspace));
    if (task.workspace.count < 0 || task.workspace.count > (std::int64_t{1} << 48)) {
      line.fail("has a workspace of a size that no task needs");
    }
  }
  task.reads = line.ids<BufferId>("reads", 'b', buffers);
  task.writes = line.ids<BufferId>("writes", 'b', buffers);
  task.after = line.ids<TaskId>("after", 't', tasks);
  if (!line.label().empty()) {
    line.fail("has a label, but a task has none");
  }
  line.end(6);
  return task;
}

void print_graph(std::string& out, const Graph& graph) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    out += fmt::format("value v{} {}{} \"{}\"\n", v, to_text(graph.values[v].shape), graph.values[v].wide ? " wide=1" : "",
                       graph.values[v].name);
  }
  for (const Graph::Node& node : graph.nodes) {
    out += fmt::format("node {}", op::name(node.op));
    op::Op copy = node.op;
    op::attributes(copy, PrintFields{out});
    print_ids(out, "reads", 'v', node.reads);
    for (std::size_t p = 0; p < node.parameters.size(); ++p) {
      out += fmt::format("{}p{}", p == 0 ? " parameters=" : ",", node.parameters[p]);
    }
    print_ids(out, "writes", 'v', node.writes);
    out += '\n';
  }
  if (graph.optimizer) {
    op::Optimizer copy = *graph.optimizer;
    out += fmt::format("optimizer {}", op::name(copy));
    op::attributes(copy, PrintOptimizer{out});
    out += '\n';
  }
}

/// A line of the graph; false if it is not one.
bool parse_graph_line(Line& line, Graph& graph) {
  const std::string& kind = line.word(0);
  if (kind == "value") {
    if (line.word(1) != fmt::format("v{}", graph.values.size())) {
      line.fail(fmt::format("should be v{}", graph.values.size()));
    }
    graph.values.push_back({line.label(), line.shape(line.word(2))});
    ParseFields{line}("wide", graph.values.back().wide);
    line.end(3);
    return true;
  }
  if (kind == "node") {
    auto op = op::by_name(line.word(1));
    if (!op) {
      line.fail(fmt::format("has the unknown op '{}'", line.word(1)));
    }
    op::attributes(*op, ParseFields{line});
    Graph::Node node{*op, line.ids<ValueId>("reads", 'v', graph.values.size()), {}, {}};
    for (const Id<void> parameter : line.ids<Id<void>>("parameters", 'p', Id<void>::invalid)) {
      node.parameters.push_back(parameter.value);
    }
    node.writes = line.ids<ValueId>("writes", 'v', graph.values.size());
    graph.nodes.push_back(std::move(node));
    line.end(2);
    return true;
  }
  if (kind == "optimizer") {
    if (graph.optimizer) {
      line.fail("is a second optimizer");
    }
    if (line.word(1) != "sgd" && line.word(1) != "adam") {
      line.fail(fmt::format("has the unknown optimizer '{}'", line.word(1)));
    }
    graph.optimizer = line.word(1) == "sgd" ? op::Optimizer(op::Sgd{}) : op::Optimizer(op::Adam{});
    op::attributes(*graph.optimizer, ParseFields{line});
    line.end(2);
    return true;
  }
  return false;
}

}  // namespace

std::string_view to_text(Role role) { return role_names[static_cast<std::size_t>(role)]; }

bool is_layout_name(std::string_view name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && is_letter(name[0]) && name != persistent_word &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

std::string to_text(const Plan& plan) {
  std::string out = fmt::format("{}\ntitle \"{}\"\n", heading, plan.title());
  for (std::size_t d = 0; d < plan.devices().size(); ++d) {
    out += fmt::format("device d{} {}\n", d, one_word(plan.devices()[d]));
  }
  print_graph(out, plan.graph());
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const Buffer& buffer = plan.buffers()[b];
    out += fmt::format("buffer b{} d{} {} {} {}{}{}", b, buffer.device.value, to_text(buffer.role), to_text(buffer.dtype),
                       to_text(buffer.shape), buffer.layout.empty() ? "" : fmt::format(" {}", buffer.layout),
                       buffer.persistent ? fmt::format(" {}", persistent_word) : "");
    print_content(out, buffer);
    out += buffer.label.empty() ? "\n" : fmt::format(" \"{}\"\n", buffer.label);
  }
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const Task& task = plan.tasks()[t];
    out += fmt::format("task t{} d{} {} {}", t, task.device.value, to_text(task.lane), to_text(task.labels.phase));
    print_action(out, task);
    for (const auto& [name, value] :
         {std::pair{"block", task.labels.block}, {"micro_batch", task.labels.micro_batch}, {"stage", task.labels.stage}}) {
      if (value >= 0) {
        out += fmt::format(" {}={}", name, value);
      }
    }
    if (task.workspace.count > 0) {
      out += fmt::format(" workspace={}", task.workspace.count);
    }
    print_ids(out, "reads", 'b', task.reads);
    print_ids(out, "writes", 'b', task.writes);
    print_ids(out, "after", 't', task.after);
    out += '\n';
  }
  return out;
}

Plan parse(std::string_view text) {
  if (text.substr(0, text.find('\n')) != heading) {
    throw usage_error("this is not a plan: its first line must be '{}'", heading);
  }
  std::size_t buffer_count = 0;
  std::size_t task_count = 0;
  for_each_part(text, '\n', [&](std::size_t, std::string_view line) {
    buffer_count += line.starts_with("buffer ") ? 1 : 0;
    task_count += line.starts_with("task ") ? 1 : 0;
  });
  std::string title;
  bool titled = false;
  std::vector<std::string> devices;
  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  Graph graph;
  buffers.reserve(buffer_count);
  tasks.reserve(task_count);
  for_each_part(text, '\n', [&](std::size_t number, std::string_view line_text) {
    if (line_text.empty() || number == 0) {
      return;
    }
    Line line(number + 1, line_text);
    const std::string& kind = line.word(0);
    const auto numbered = [&](char letter, std::size_t count) {
      if (line.word(1) != fmt::format("{}{}", letter, count)) {
        line.fail(fmt::format("should be {}{}", letter, count));
      }
    };
    if (kind == "title") {
      if (std::exchange(titled, true)) {
        line.fail("is a second title");
      }
      title = line.label();
      line.end(1);
    } else if (kind == "device") {
      numbered('d', devices.size());
      devices.push_back(from_one_word(line));
      line.end(3);
    } else if (kind == "buffer") {
      numbered('b', buffers.size());
      buffers.push_back(parse_buffer(line, devices.size(), graph.values.size()));
    } else if (kind == "task") {
      numbered('t', tasks.size());
      tasks.push_back(parse_task(line, devices.size(), buffers.size(), task_count));
      if (const MeetingId meeting = meeting_of(tasks.back()); meeting.valid() && meeting.index() >= task_count) {
        line.fail("has a meeting numbered beyond the tasks there are");
      }
    } else if (!parse_graph_line(line, graph)) {
      line.fail(fmt::format("begins with '{}', not with title, device, value, node, optimizer, buffer or task", kind));
    }
  });
  return Plan(std::move(title), std::move(devices), std::move(buffers), std::move(tasks), std::move(graph));
}

}  // namespace baton::plan
