#include "baton/strategy/training_step.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/op/gradient.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Draft;
using plan::Phase;
using plan::Role;

class Writer {
 public:
  Writer(const model::Model& model, const Step& step, const Placement& placement)
      : model_(model), step_(step), placement_(placement) {
    draft_.devices = placement.devices;
    for (const Placement::Replica& replica : placement.replicas) {
      replicas_.emplace_back(model.blocks().size(), replica.rows, placement.micro_batches);
    }
  }

  Draft write() {
    const std::size_t blocks = model_.blocks().size();
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      open(r);
    }
    for (std::size_t m = 0; m < static_cast<std::size_t>(placement_.micro_batches); ++m) {
      for (std::size_t b = 0; b < blocks; ++b) {
        for (std::size_t r = 0; r < replicas_.size(); ++r) {
          forward(r, m, b);
        }
      }
      for (std::size_t r = 0; r < replicas_.size(); ++r) {
        loss(r, m);
      }
      // Block by block over all replicas, so that a gradient's last copy comes soon after its first.
      for (std::size_t b = blocks; b-- > 0;) {
        for (std::size_t r = 0; r < replicas_.size(); ++r) {
          backward(r, m, b);
        }
      }
    }
    return std::move(draft_);
  }

 private:
  /// The buffers of one micro-batch as they come to be.
  struct MicroBatch {
    plan::BatchRows rows;
    std::vector<std::vector<BufferId>> values;  // by block: its input, then what each node wrote
    BufferId target;
    BufferId gradient;  // of the last value whose backward is not written yet

    std::int64_t row_count() const { return rows.end - rows.begin; }
  };

  struct Replica {
    Replica(std::size_t blocks, plan::BatchRows rows, std::int64_t micro_batches)
        : parameters(blocks), gradients(blocks) {
      std::int64_t begin = rows.begin;
      for (const std::int64_t count : even_split(rows.end - rows.begin, micro_batches)) {
        micro.push_back({{begin, begin + count}, std::vector<std::vector<BufferId>>(blocks), {}, {}});
        begin += count;
      }
    }
    std::vector<std::vector<BufferId>> parameters;  // by block
    std::vector<std::vector<BufferId>> gradients;   // of them
    std::vector<MicroBatch> micro;
  };

  DeviceId device_of(std::size_t r, std::size_t b) const { return placement_.replicas[r].device_of_block[b]; }

  BufferId add(DeviceId device, Role role, Shape shape, std::string label) {
    return draft_.add({.device = device, .role = role, .dtype = step_.dtype, .shape = std::move(shape),
                       .content = {}, .label = std::move(label)});
  }

  void task(plan::Action action, DeviceId device, Phase phase, std::size_t block, std::size_t micro,
            std::vector<BufferId> reads, std::vector<BufferId> writes) {
    draft_.tasks.push_back(
        {.action = std::move(action),
         .device = device,
         .labels = {.phase = phase,
                    .block = static_cast<std::int32_t>(block),
                    .micro_batch = placement_.micro_batches > 1 ? static_cast<std::int32_t>(micro) : -1},
         .reads = std::move(reads),
         .writes = std::move(writes),
         .after = {}});
  }

  /// Inputs, targets and parameters: what is there before the step begins.
  void open(std::size_t r) {
    Replica& replica = replicas_[r];
    const std::size_t blocks = model_.blocks().size();
    const DeviceId first = placement_.owner.value_or(device_of(r, 0));
    const DeviceId last = placement_.owner.value_or(device_of(r, blocks - 1));
    const bool labels = step_.loss == Loss::cross_entropy;
    for (MicroBatch& micro : replica.micro) {
      const std::int64_t rows = micro.row_count();
      const BufferId input = add(first, Role::input, model_.input().batched(rows), "x");
      draft_.buffers[input.index()].persistent = true;
      draft_.buffers[input.index()].content = micro.rows;
      micro.values[0].push_back(input);
      micro.target = add(last, Role::target, labels ? Shape{rows} : model_.output().batched(rows),
                         labels ? "labels" : "target");
      Buffer& target = draft_.buffers[micro.target.index()];
      target.persistent = true;
      target.content = micro.rows;
      target.dtype = labels ? DType::i32 : step_.dtype;
    }
    for (std::size_t b = 0; b < blocks; ++b) {
      replica.gradients[b].resize(model_.blocks()[b].parameters.size());
      if (placement_.owner && r > 0) {
        replica.parameters[b] = replicas_[0].parameters[b];
        continue;
      }
      for (std::size_t p = 0; p < model_.blocks()[b].parameters.size(); ++p) {
        replica.parameters[b].push_back(parameter_buffer(b, p, placement_.owner.value_or(device_of(r, b)),
                                                         Role::parameter, ""));
        draft_.buffers.back().persistent = true;
      }
    }
  }

  BufferId parameter_buffer(std::size_t b, std::size_t p, DeviceId device, Role role, std::string_view prefix) {
    const model::Parameter& parameter = model_.blocks()[b].parameters[p];
    const BufferId id = add(device, role, parameter.shape, fmt::format("{}{}", prefix, parameter.name));
    draft_.buffers[id.index()].content =
        plan::ParameterPart{.name = parameter.name,
                            .ordinal = static_cast<std::uint32_t>(model_.first_parameter(b) + p),
                            .fan_in = parameter.fan_in,
                            .whole = parameter.shape,
                            .end = parameter.shape[0]};
    return id;
  }

  void forward(std::size_t r, std::size_t m, std::size_t b) {
    Replica& replica = replicas_[r];
    MicroBatch& micro = replica.micro[m];
    const model::Block& block = model_.blocks()[b];
    if (b > 0) {
      micro.values[b].push_back(micro.values[b - 1].back());
    }
    for (const model::Node& node : block.nodes) {
      std::vector<BufferId> reads{micro.values[b].back()};
      for (const std::size_t p : node.parameters) {
        reads.push_back(replica.parameters[b][p]);
      }
      const BufferId output = add(device_of(r, b), Role::activation, node.output.batched(micro.row_count()),
                                  fmt::format("{}.{}", block.name, op::name(node.op)));
      task(plan::Compute{node.op}, device_of(r, b), Phase::forward, b, m, std::move(reads), {output});
      micro.values[b].push_back(output);
    }
  }

  void loss(std::size_t r, std::size_t m) {
    MicroBatch& micro = replicas_[r].micro[m];
    const std::size_t last = model_.blocks().size() - 1;
    const DeviceId device = placement_.owner.value_or(device_of(r, last));
    const BufferId loss = add(device, Role::loss, Shape{micro.row_count()}, "loss");
    draft_.buffers[loss.index()].dtype = DType::f64;
    draft_.buffers[loss.index()].content = micro.rows;
    micro.gradient = add(device, Role::gradient, model_.output().batched(micro.row_count()), "d output");
    const std::int64_t elements = step_.global_batch * model_.output().elements();
    const op::Op op = step_.loss == Loss::mean_squared_error ? op::Op(op::MeanSquaredError{elements})
                                                             : op::Op(op::CrossEntropy{step_.global_batch});
    task(plan::Compute{op}, device, Phase::forward, last, m, {micro.values[last].back(), micro.target},
         {loss, micro.gradient});
  }

  void backward(std::size_t r, std::size_t m, std::size_t b) {
    Replica& replica = replicas_[r];
    MicroBatch& micro = replica.micro[m];
    const model::Block& block = model_.blocks()[b];
    const DeviceId device = device_of(r, b);
    for (std::size_t n = block.nodes.size(); n-- > 0;) {
      const model::Node& node = block.nodes[n];
      const BufferId input = micro.values[b][n];
      BufferId input_gradient;
      const auto buffer_of = [&](const op::Ref& ref) {
        switch (ref.kind) {
          case op::Ref::Kind::input:
            return input;
          case op::Ref::Kind::output:
            return micro.values[b][n + 1];
          case op::Ref::Kind::parameter:
            return replica.parameters[b][node.parameters[ref.index]];
          case op::Ref::Kind::output_gradient:
            return micro.gradient;
          case op::Ref::Kind::input_gradient:
            if (!input_gradient.valid()) {
              input_gradient = add(device, Role::gradient, draft_[input].shape, fmt::format("d {}", draft_[input].label));
            }
            return input_gradient;
          case op::Ref::Kind::parameter_gradient: {
            BufferId& gradient = replica.gradients[b][node.parameters[ref.index]];
            if (!gradient.valid()) {
              gradient = parameter_buffer(b, node.parameters[ref.index], device, Role::gradient, "d ");
            }
            return gradient;
          }
        }
        throw BugError("a reference of no kind");
      };
      for (const op::BackwardCall& call : op::gradient(node.op)) {
        if (b == 0 && n == 0 && !call.of_parameters) {
          continue;  // nobody asks for the gradient of the data
        }
        std::vector<BufferId> reads;
        std::vector<BufferId> writes;
        for (const op::Ref& ref : call.reads) {
          reads.push_back(buffer_of(ref));
        }
        for (const op::Ref& ref : call.writes) {
          writes.push_back(buffer_of(ref));
        }
        const bool adds = call.of_parameters && m > 0;
        if (adds) {
          reads.insert(reads.end(), writes.begin(), writes.end());
        }
        task(plan::Compute{adds ? op::accumulating(call.op) : call.op}, device, Phase::backward, b, m, std::move(reads),
             std::move(writes));
      }
      micro.gradient = input_gradient;
    }
  }

  const model::Model& model_;
  const Step& step_;
  const Placement& placement_;
  std::vector<Replica> replicas_;
  Draft draft_;
};

}  // namespace

plan::Draft training_step(const model::Model& model, const Step& step, const Placement& placement) {
  std::int64_t covered = 0;
  for (const Placement::Replica& replica : placement.replicas) {
    check(replica.rows.begin == covered && replica.rows.end > replica.rows.begin,
          "a replica has rows {} to {} where {} come next", replica.rows.begin, replica.rows.end, covered);
    check(replica.device_of_block.size() == model.blocks().size(), "{} blocks are placed, but there are {}",
          replica.device_of_block.size(), model.blocks().size());
    check(replica.rows.end - replica.rows.begin >= placement.micro_batches, "{} rows in {} micro-batches",
          replica.rows.end - replica.rows.begin, placement.micro_batches);
    covered = replica.rows.end;
  }
  check(covered == step.global_batch, "replicas cover {} of {} rows", covered, step.global_batch);
  return Writer(model, step, placement).write();
}

std::vector<std::int64_t> even_split(std::int64_t total, std::int64_t parts) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), total / parts);
  for (std::int64_t i = 0; i < total % parts; ++i) {
    ++sizes[static_cast<std::size_t>(i)];
  }
  return sizes;
}

}  // namespace baton::strategy
