#include "baton/job/reserved.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "baton/cost/caching_allocator.h"
#include "baton/job/reserved_graph.h"
#include "baton/schedule/flaw.h"
#include "baton/strategy/stages.h"

namespace baton::job {
namespace {

enum Cause : std::uint8_t { parameters, states, gradients, gathered, kept, passing, loss, messages, causes };
constexpr std::array<const char*, causes> cause_names{"parameters",          "optimizer states",       "gradients",
                                                      "gathered parameters", "kept activations",       "activations in passing",
                                                      "scores and loss",     "messages between stages"};
enum Stream : std::uint8_t { compute, gather, scatter };

/// Memory by cause, and the causes at its peak.
class Ledger {
 public:
  explicit Ledger(std::int64_t capacity) : allocator_(capacity) {}

  class Entry {
   public:
    Entry(Ledger& ledger, std::int64_t bytes, Cause cause, Stream stream) : ledger_(ledger), bytes_(bytes), cause_(cause) {
      block_ = ledger.allocator_.take(bytes, stream);
      ledger.now_[cause] += bytes;
      if (ledger.allocator_.used() > ledger.most_used_) {
        ledger.most_used_ = ledger.allocator_.used();
        ledger.fullest_ = ledger.now_;
      }
    }
    ~Entry() {
      ledger_.allocator_.give(block_);
      ledger_.now_[cause_] -= bytes_;
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Ledger& ledger_;
    std::int64_t bytes_;
    Cause cause_;
    cost::CachingAllocator::BlockId block_;
  };
  using Allocation = std::shared_ptr<Entry>;

  Allocation take(std::int64_t bytes, Cause cause, Stream stream = compute) {
    return std::make_shared<Entry>(*this, bytes, cause, stream);
  }
  void forget_the_most() {
    allocator_.forget_the_most();
    most_used_ = 0;
  }
  Reserved result(std::int64_t stage) const {
    Reserved reserved{.stage = stage, .causes = {}, .total = Bytes(allocator_.most_reserved())};
    std::int64_t sum = 0;
    for (std::size_t c = 0; c < causes; ++c) {
      reserved.causes.emplace_back(cause_names[c], Bytes(fullest_[c]));
      sum += fullest_[c];
    }
    reserved.causes.emplace_back("taken, not in use", Bytes(allocator_.most_reserved() - sum));
    return reserved;
  }

 private:
  cost::CachingAllocator allocator_;
  std::array<std::int64_t, causes> now_{};
  std::array<std::int64_t, causes> fullest_{};
  std::int64_t most_used_ = 0;
};
using Allocation = Ledger::Allocation;

/// Parameters that FSDP gathers and sums together: of a layer, or of all that is in no layer.
struct Group {
  std::vector<std::int64_t> elements;
  std::vector<std::int64_t> gathered_bytes;
  std::vector<Allocation> own;    // this device's pieces in float32, and the optimizer's states of them
  std::vector<Allocation> whole;  // gathered
  std::vector<Allocation> whole_gradients;
  std::vector<Allocation> summed;  // sums of several micro-batches, in float32
  Allocation gradient;             // this device's piece

  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t one : elements) {
      sum += one;
    }
    return sum;
  }
};

/// The values that a micro-batch keeps in one layer for its backward.
using Kept = std::map<std::size_t, Allocation>;

struct Layer {
  LayerGraph graph;
  std::size_t group = 0;
  std::map<std::int32_t, Kept> kept;  // by micro-batch
};

struct Stage {
  std::vector<Layer> layers;  // with what stands before and after them
  bool first = false;
  bool last = false;
  std::vector<Group> groups;  // the first of those outside of layers
  std::map<std::int32_t, Allocation> output;
  std::map<std::int32_t, std::vector<Allocation>> scores;
  std::int32_t backwards = 0;
};

class Replay {
 public:
  Replay(const cost::Software& software, const strategy::Axes& axes, std::int64_t capacity)
      : software_(software.reserves), axes_(axes), ledger_(capacity) {}

  void add_stage(Stage stage, std::int64_t micro_batches) {
    for (Group& group : stage.groups) {
      for (const std::int64_t elements : group.elements) {
        group.own.push_back(ledger_.take(4 * elements / axes_.dp, parameters));
      }
    }
    const LayerGraph& front = stage.layers.front().graph;
    const LayerGraph& back = stage.layers.back().graph;
    for (std::int64_t m = 0; axes_.pp > 1 && m < micro_batches; ++m) {  // received into memory that is taken once
      if (!stage.first) {
        received_.push_back(ledger_.take(front.values[front.input].bytes, messages));
      }
      if (!stage.last) {  // the gradient of what it sends
        received_.push_back(ledger_.take(back.values[back.output].bytes, messages));
      }
    }
    stages_.push_back(std::move(stage));
  }

  Reserved run(const std::vector<std::optional<schedule::Action>>& row, const std::vector<std::size_t>& own_stage,
               std::int64_t micro_batches, std::int64_t device) {
    for (int step = 0; step < 3; ++step) {
      ledger_.forget_the_most();
      for (Stage& stage : stages_) {
        stage.backwards = 0;
        for (Group& group : stage.groups) {
          group.gradient.reset();  // zero_grad
        }
      }
      for (const std::optional<schedule::Action>& action : row) {
        if (!action || action->kind == schedule::Computation::backward_weight) {
          continue;
        }
        Stage& stage = stages_[own_stage[static_cast<std::size_t>(action->stage)]];
        if (action->kind == schedule::Computation::forward) {
          forward(stage, action->micro_batch);
        } else {
          ++stage.backwards;
          backward(stage, action->micro_batch, stage.backwards == micro_batches);
        }
      }
      update(step == 0);
    }
    return ledger_.result(device);
  }

 private:
  bool keeps_gathered() const { return axes_.pp > 1; }  // per micro-batch it would be gathered again

  void unshard(Group& group) {
    if (!group.whole.empty() || group.elements.empty()) {
      return;
    }
    std::int64_t bytes = 0;
    for (const std::int64_t one : group.gathered_bytes) {
      bytes += one;
    }
    const Allocation buffer = axes_.dp > 1 ? ledger_.take(bytes, gathered, gather) : nullptr;
    for (const std::int64_t one : group.gathered_bytes) {
      group.whole.push_back(ledger_.take(one, gathered));
    }
    last_gathered_ = buffer;  // the one before is freed only now
  }

  void forward(Stage& stage, std::int32_t micro_batch) {
    unshard(stage.groups[0]);
    Allocation stream;
    for (std::size_t i = 0; i < stage.layers.size(); ++i) {
      Layer& layer = stage.layers[i];
      Group& group = stage.groups[layer.group];
      unshard(group);
      stream = forward(layer, micro_batch, std::move(stream));
      const bool last_layer = i + 2 >= stage.layers.size();  // only the head, or nothing, comes after it
      if (layer.group != 0 && !last_layer && !keeps_gathered()) {
        group.whole.clear();
      }
    }
    if (stage.last) {
      score(stage, micro_batch, std::move(stream));
    } else {
      stage.output[micro_batch] = std::move(stream);
    }
  }

  /// Returns the layer's output.
  Allocation forward(Layer& layer, std::int32_t micro_batch, Allocation input) {
    const LayerGraph& graph = layer.graph;
    Kept& keeps = layer.kept[micro_batch];
    std::map<std::size_t, Allocation> live;
    std::vector<std::size_t> last_reader(graph.values.size(), 0);
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const std::size_t value : graph.nodes[n].reads) {
        last_reader[value] = n;
      }
    }
    live[graph.input] = input ? std::move(input) : ledger_.take(graph.values[graph.input].bytes, kept);
    keeps[graph.input] = live[graph.input];
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const std::size_t value : graph.nodes[n].writes) {
        const bool stays = graph.values[value].kept || value == graph.output;
        live[value] = ledger_.take(graph.values[value].bytes, stays ? kept : passing);
        if (graph.values[value].kept) {
          keeps[value] = live[value];
        }
      }
      for (const std::size_t value : graph.nodes[n].reads) {
        if (last_reader[value] == n && value != graph.output) {
          live.erase(value);
        }
      }
    }
    return live[graph.output];
  }

  /// F.cross_entropy: scores as float32, and the logarithm of their softmax, which is kept.
  void score(Stage& stage, std::int32_t micro_batch, Allocation scores) {
    const std::int64_t wide = 2 * stage.layers.back().graph.values[stage.layers.back().graph.output].bytes;
    Allocation as_float = ledger_.take(wide, loss);
    scores.reset();
    const Allocation shifted = axes_.tp > 1 ? ledger_.take(wide, loss) : nullptr;
    if (axes_.tp > 1) {
      ledger_.take(wide, loss);  // the exponential
    }
    stage.scores[micro_batch] = {ledger_.take(wide, loss)};
    if (axes_.pp > 1) {
      stage.scores[micro_batch].push_back(std::move(as_float));  // a pipeline keeps what its stages give
    }
  }

  void backward(Stage& stage, std::int32_t micro_batch, bool last_time) {
    Allocation gradient;
    if (stage.last) {
      gradient = loss_gradient(stage, micro_batch);
    } else {
      const LayerGraph& graph = stage.layers.back().graph;
      gradient = ledger_.take(graph.values[graph.output].bytes, passing);
    }
    stage.output.erase(micro_batch);
    for (std::size_t i = stage.layers.size(); i-- > 0;) {
      Layer& layer = stage.layers[i];
      unshard(stage.groups[layer.group]);
      if (i > 0 && stage.layers[i - 1].group != 0) {
        unshard(stage.groups[stage.layers[i - 1].group]);  // prefetched
      }
      gradient = backward(layer, stage.groups[layer.group], micro_batch, std::move(gradient));
      if (layer.group != 0) {
        sum(stage.groups[layer.group], last_time);
      }
    }
    gradient.reset();
    sum(stage.groups[0], last_time);
    if (last_time) {
      pending_sum_.reset();
      last_gathered_.reset();
    }
  }

  Allocation loss_gradient(Stage& stage, std::int32_t micro_batch) {
    const std::int64_t narrow = stage.layers.back().graph.values[stage.layers.back().graph.output].bytes;
    std::vector<Allocation> wide;
    const double count = axes_.tp > 1 ? software_.loss_gradients_divided : software_.loss_gradients;
    for (int i = 0; i < static_cast<int>(count); ++i) {
      wide.push_back(ledger_.take(2 * narrow, loss));
    }
    stage.scores.erase(micro_batch);
    wide.erase(wide.begin(), wide.empty() ? wide.end() : wide.end() - 1);
    return ledger_.take(narrow, loss);
  }

  /// Takes the gradient of the layer's output, and returns that of its input.
  Allocation backward(Layer& layer, Group& group, std::int32_t micro_batch, Allocation output_gradient) {
    const LayerGraph& graph = layer.graph;
    std::map<std::size_t, Allocation> values = std::move(layer.kept[micro_batch]);
    layer.kept.erase(micro_batch);
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].remade) {
        values[v] = ledger_.take(graph.values[v].bytes, passing);
      }
    }
    std::map<std::size_t, std::size_t> first_reader;
    for (std::size_t n = graph.nodes.size(); n-- > 0;) {
      for (const std::size_t value : graph.nodes[n].backward_reads) {
        first_reader[value] = n;
      }
    }
    std::map<std::size_t, Allocation> flow{{graph.output, std::move(output_gradient)}};
    for (std::size_t n = graph.nodes.size(); n-- > 0;) {
      const LayerGraph::Node& node = graph.nodes[n];
      for (std::size_t i = 0; i < node.reads.size(); ++i) {
        const std::size_t value = node.reads[i];
        if (graph.values[value].token) {
          continue;
        }
        const bool same = std::find(node.passed_on.begin(), node.passed_on.end(), i) != node.passed_on.end();
        Allocation made = same ? flow[node.writes[0]] : ledger_.take(graph.values[value].bytes, passing);
        Allocation& sum = flow[value];
        sum = sum ? ledger_.take(graph.values[value].bytes, passing) : std::move(made);
      }
      for (const std::size_t parameter : node.parameters) {
        group.whole_gradients.push_back(ledger_.take(2 * graph.parameters[parameter], gradients));
      }
      for (const std::size_t value : node.writes) {
        flow.erase(value);
      }
      for (const std::size_t value : node.backward_reads) {
        if (first_reader[value] == n) {
          values.erase(value);
        }
      }
    }
    return flow[graph.input];
  }

  /// Gradients of all replicas are summed in float32, and each keeps its piece; or, before the last micro-batch of a pipeline,
  /// added to those of the others.
  void sum(Group& group, bool last_time) {
    if (group.elements.empty()) {
      return;
    }
    const bool at_once = axes_.pp == 1;
    if (!at_once && group.summed.empty()) {
      for (const std::int64_t elements : group.elements) {
        group.summed.push_back(ledger_.take(4 * elements, gradients));
      }
    }
    if (at_once || last_time) {
      pending_sum_ = axes_.dp > 1 ? ledger_.take(4 * group.total(), gradients) : nullptr;  // the one before is freed only now
      const Allocation piece = ledger_.take(4 * group.total() / axes_.dp, gradients, scatter);
      group.gradient = group.gradient ? group.gradient : piece;
      group.summed.clear();
      group.whole.clear();
    }
    group.whole_gradients.clear();
  }

  void update(bool first) {
    for (Stage& stage : stages_) {
      for (Group& group : stage.groups) {
        const std::size_t count = group.elements.size();
        for (std::size_t i = 0; first && i < 2 * count; ++i) {
          group.own.push_back(ledger_.take(4 * group.elements[i % count] / axes_.dp, states));
        }
      }
    }
    std::vector<Allocation> copies;
    for (int c = 0; c < static_cast<int>(software_.update_copies); ++c) {
      for (Stage& stage : stages_) {
        for (Group& group : stage.groups) {
          for (const std::int64_t elements : group.elements) {
            copies.push_back(ledger_.take(4 * elements / axes_.dp, passing));
          }
        }
      }
    }
  }

  const cost::Reserves& software_;
  const strategy::Axes& axes_;
  Ledger ledger_;
  std::vector<Allocation> received_;
  Allocation last_gathered_;
  Allocation pending_sum_;
  std::vector<Stage> stages_;
};

Group group_of(const LayerGraph& graph, bool fp8) {
  Group group;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    group.elements.push_back(graph.parameters[p]);
    group.gathered_bytes.push_back((fp8 && graph.matrices[p] ? 1 : 2) * graph.parameters[p]);
  }
  return group;
}

void join(Group& group, const Group& other) {
  group.elements.insert(group.elements.end(), other.elements.begin(), other.elements.end());
  group.gathered_bytes.insert(group.gathered_bytes.end(), other.gathered_bytes.begin(), other.gathered_bytes.end());
}

/// The blocks from `begin` to `end` of the model.
Stage make_stage(const strategy::Request& request, const cost::Software& software, const Shares& shares, std::size_t begin,
                 std::size_t end) {
  const std::vector<std::size_t> firsts = layers_of(request.model);
  const std::size_t blocks = request.model.blocks().size();
  Stage stage;
  stage.first = begin == 0;
  stage.last = end == blocks;
  stage.groups.emplace_back();
  const KeptActivations of_layers = request.layout.recompute != strategy::Recompute::none ? KeptActivations::input
                                    : software.recomputed_products > 0                    ? KeptActivations::selected
                                                                                          : KeptActivations::all;
  for (std::size_t l = 0; l + 1 < firsts.size(); ++l) {
    const std::size_t from = std::max(begin, firsts[l]);
    const std::size_t to = std::min(end, firsts[l + 1]);
    if (from >= to) {
      continue;
    }
    const bool outside = firsts[l] == 0 || firsts[l + 1] == blocks;  // the embedding and the head are not layers
    Layer layer{.graph = layer_graph(request.model, from, to, shares, outside ? KeptActivations::all : of_layers,
                                     software.reserves.unread && !outside)};
    const Group group = group_of(layer.graph, software.fp8 && !outside);
    if (outside) {
      join(stage.groups[0], group);
    } else {
      layer.group = stage.groups.size();
      stage.groups.push_back(group);
    }
    stage.layers.push_back(std::move(layer));
  }
  return stage;
}

}  // namespace

std::vector<Reserved> reserved_memory(const strategy::Request& request, const cost::Software& software, Bytes memory) {
  const strategy::NamedLayout* named = request.strategy.layout();
  if (!software.reserves.counted || named == nullptr) {
    return {};
  }
  const strategy::Axes axes = *strategy::axes_of(request);
  const bool divided = axes.dp == 1 || request.layout.zero.value_or(named->zero) >= (axes.pp > 1 ? 2 : 3);
  if (!divided) {
    return {};
  }
  const schedule::Grid grid = *strategy::grid_of(request);
  const std::int64_t stages = schedule::stages(grid);
  const std::int64_t micro_batches = schedule::micro_batches(grid);
  const Shares shares{.rows = std::max<std::int64_t>(1, request.step.global_batch / axes.dp / micro_batches),
                      .tp = axes.tp,
                      .sp = request.layout.sp && axes.tp > 1};
  const std::vector<std::int64_t> split = !request.layout.split.empty()
                                              ? request.layout.split
                                              : strategy::balanced_stages(
                                                    request.model, request.layout.balance,
                                                    std::vector<strategy::StageLoad>(static_cast<std::size_t>(stages)));
  const std::vector<std::int32_t> device_of = schedule::device_of_stage(grid);
  std::vector<Reserved> list;
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    Replay replay(software, axes, memory.count);
    std::vector<std::size_t> own(static_cast<std::size_t>(stages), 0);
    std::size_t begin = 0;
    std::size_t count = 0;
    for (std::size_t s = 0; s < static_cast<std::size_t>(stages); ++s) {
      const std::size_t end = begin + static_cast<std::size_t>(split[s]);
      if (static_cast<std::size_t>(device_of[s]) == d) {
        own[s] = count++;
        replay.add_stage(make_stage(request, software, shares, begin, end), micro_batches);
      }
      begin = end;
    }
    list.push_back(replay.run(grid.rows[d], own, micro_batches, static_cast<std::int64_t>(d)));
  }
  return list;
}

const Reserved& reported(const std::vector<Reserved>& devices, const cost::Software& software) {
  return software.reserves.last_stage ? devices.back()
                                      : *std::max_element(devices.begin(), devices.end(),
                                                          [](const Reserved& a, const Reserved& b) { return a.total < b.total; });
}

}  // namespace baton::job
