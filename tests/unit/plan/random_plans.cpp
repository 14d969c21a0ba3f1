#include "unit/plan/random_plans.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "baton/model/builder.h"
#include "baton/model/parse.h"
#include "baton/op/traits.h"
#include "baton/plan/target.h"
#include "baton/schedule/schedule.h"
#include "support/devices.h"
#include "support/tiled_weights.h"

namespace baton::plan::test {
namespace {

using model::BlockBuilder;
using model::Dims;

/// x + Linear(GELU(Linear(LayerNorm(x)))).
model::Block gelu_block(const std::string& name, const Dims& stream) {
  BlockBuilder block(name, stream);
  const std::size_t wide = block.linear(block.layer_norm(block.in(), "norm"), "up", {'f', 5});
  const std::size_t hidden = block.apply(op::Gelu{}, {wide}, {}, block.dims(wide));
  return block.finish(block.add(block.in(), block.linear(hidden, "down", stream.back())));
}

/// x + x + Linear(ReLU(Linear(x))), the first with a weight that other blocks share.
model::Block tied_block(const std::string& name, const Dims& stream) {
  BlockBuilder block(name, stream);
  const std::size_t inner = block.relu(block.linear(block.in(), "tied.weight", name + ".bias", stream.back()));
  const std::size_t hidden = block.relu(block.linear(inner, "up", {'f', 6}));
  const std::size_t once = block.add(block.in(), block.linear(hidden, "down", stream.back()));
  return block.finish(block.add(once, block.in()));
}

class Drawing {
 public:
  explicit Drawing(std::mt19937& random) : random_(random) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <typename T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(list.size()) - 1))];
  }

  std::string model() {
    switch (between(0, 9)) {
      case 0: {
        std::string text = fmt::format("mlp:{}", between(1, 7));
        for (std::int64_t layer = between(1, 8); layer > 0; --layer) {
          text += fmt::format("-{}", between(1, 7));
        }
        return text;
      }
      case 1:
        return fmt::format("residual:dim={},hidden={},depth={}{}", between(1, 5), between(1, 7), between(1, 5), sequence());
      case 2:
        return fmt::format("tokens:vocabulary={},dim={},hidden={},depth={},sequence={}", between(2, 11), between(1, 5),
                           between(1, 7), between(1, 4), between(1, 6));
      case 3: {
        const std::int64_t heads = between(1, 3);
        return fmt::format("gpt:depth={},heads={},dim={},context={},vocab={}", between(1, 3), heads, heads * between(1, 2),
                           between(1, 5), between(2, 9));
      }
      case 4: {
        const std::int64_t groups = between(1, 3);
        const std::int64_t heads = groups * between(1, 2);
        return fmt::format("llama:depth={},heads={},kv-heads={},dim={},hidden={},context={},vocab={}", between(1, 2), heads, groups,
                           heads * 2 * between(1, 2), between(1, 6), between(1, 4), between(2, 9));
      }
      case 5:
        return fmt::format("cnn:{}{},image={},channels={},classes={}", between(1, 3),
                           one_in(2) ? "" : fmt::format("-{}", between(1, 2)), of<int>({4, 6, 8}), between(1, 2), between(2, 5));
      case 6:  // norms over one sample each: those over all samples of a micro-batch differ by split
        return fmt::format("resnet:18,image=8,classes={},width=1,group=1", between(2, 4));
      case 7: {
        const std::int64_t heads = between(1, 3);
        const std::int64_t patch = between(1, 3);
        return fmt::format("vit:depth={},heads={},dim={},patch={},image={},classes={}", between(1, 2), heads, heads * between(1, 2),
                           patch, patch * between(1, 2), between(2, 5));
      }
      case 8:
        return fmt::format("graph:gelu,depth={}{}", between(1, 5), sequence());
      default:
        return fmt::format("graph:tied,depth={}{}", between(1, 4), sequence());
    }
  }

  std::string sequence() { return one_in(2) ? "" : fmt::format(",sequence={}", between(1, 6)); }

  strategy::Layout layout(const strategy::Strategy& strategy, std::size_t& devices) {
    strategy::Layout layout;
    if (strategy.name() == "product" || one_in(8)) {
      layout.dp = between(1, 3);
      layout.pp = between(1, 3);
      layout.tp = between(1, 3);
      devices = static_cast<std::size_t>(layout.dp * layout.pp * layout.tp);
      if (layout.pp > 1 && strategy.name() == "product") {
        layout.schedule = of(schedule::schedules()).name;
      }
      if (layout.dp > 1 && one_in(2)) {
        layout.zero = between(0, 3);
      }
    }
    layout.sp = (layout.tp > 1 || strategy.name() == "tensor") && one_in(2);
    layout.chunks = one_in(8) ? between(1, 3) : 0;
    layout.balance = of<strategy::Balance>(
        {strategy::Balance::even, strategy::Balance::even, strategy::Balance::work, strategy::Balance::memory});
    layout.recompute = of<strategy::Recompute>({strategy::Recompute::none, strategy::Recompute::none, strategy::Recompute::light,
                                                strategy::Recompute::alternate, strategy::Recompute::all,
                                                strategy::Recompute::full});
    layout.micro_batches = one_in(2) ? 0 : between(1, 5);
    layout.bucket = Bytes(of<std::int64_t>({1, 64, 200, 25 << 20}));
    layout.first_bucket = Bytes(of<std::int64_t>({1, 40, 1 << 20}));
    return layout;
  }

  strategy::Step step(const std::string& model) {
    strategy::Step step;
    step.global_batch = between(1, 19);
    const bool scores = model.find("vocab") != std::string::npos;
    step.loss = scores ? (one_in(12) ? strategy::Loss::mean_squared_error : strategy::Loss::cross_entropy)
                       : of<strategy::Loss>({strategy::Loss::mean_squared_error, strategy::Loss::cross_entropy});
    step.optimizer = op::optimizer_by_name(of<std::string>({"sgd", "sgd", "momentum", "adam", "adamw"}));
    if (one_in(4)) {
      std::visit(
          [&](auto& optimizer) {
            optimizer.weight_decay = 0.1;
            optimizer.decay_matrices = one_in(2);
          },
          step.optimizer);
    }
    step.label_smoothing = one_in(3) ? 0.1 : 0;
    step.precision = of<strategy::Precision>({strategy::Precision::fp32, strategy::Precision::fp32, strategy::Precision::fp64,
                                              strategy::Precision::tf32, strategy::Precision::bf16, strategy::Precision::fp16});
    if (step.precision == strategy::Precision::fp16 || one_in(10)) {
      step.loss_scale = strategy::LossScale{.dynamic = one_in(2)};
    }
    if (one_in(3)) {
      std::visit([&](auto& optimizer) { optimizer.clip = of<double>({0.01, 1, 100}); }, step.optimizer);
    }
    return step;
  }

  plan::Target target() {
    plan::Target target;
    if (one_in(2)) {
      target.joined = op::joint_ops();
    }
    target.gradient_with_sgd = one_in(2);
    if (one_in(3)) {
      target.narrow_gradient_with_sgd = {DType::bf16, DType::f16};
    }
    target.all_reduce_with_sgd = one_in(2);
    target.adds = one_in(2);
    target.copies = one_in(2);
    target.overwrites = target.copies;
    if (one_in(3)) {
      target.layout = baton::test::tiled_weights;
    }
    return target;
  }

 private:
  std::mt19937& random_;
};

}  // namespace

std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoll(text);
}

model::Model model_of(const std::string& text) {
  if (!text.starts_with("graph:")) {
    return model::parse_model(text);
  }
  const auto number = [&](const std::string& name) -> std::int64_t {
    const std::size_t at = text.find("," + name + "=");
    return at == std::string::npos ? 0 : std::stoll(text.substr(at + name.size() + 2));
  };
  Dims stream{model::batch, {'c', 4}};
  if (const std::int64_t positions = number("sequence"); positions > 0) {
    stream.insert(stream.begin(), {'t', positions});
  }
  std::vector<model::Block> blocks;
  for (std::int64_t i = 0; i < number("depth"); ++i) {
    const std::string name = fmt::format("block{}", i);
    blocks.push_back(text.starts_with("graph:gelu") ? gelu_block(name, stream) : tied_block(name, stream));
  }
  return model::Model(text, std::move(blocks));
}

DrawnRequest draw_request(std::mt19937& random) {
  Drawing draw(random);
  const strategy::Strategy& strategy = draw.of(strategy::strategies());
  const std::string name = draw.model();
  std::size_t devices = strategy.name() == "single" ? 1 : static_cast<std::size_t>(draw.between(1, 6));
  const strategy::Layout layout = draw.layout(strategy, devices);
  strategy::Request request{.model = model_of(name),
                            .cluster = cluster::Cluster(baton::test::cpus(devices, devices)),
                            .strategy = strategy.name(),
                            .step = draw.step(name),
                            .layout = layout,
                            .target = draw.target()};
  if (draw.one_in(6)) {
    request.delays = {{Phase::backward, -1, Nanoseconds(5000)}, {Phase::update, 0, Nanoseconds(7)}};
  }
  std::string text = fmt::format(
      "{} of {} on {} devices (dp {}, pp {}, tp {}, {}{}{} micro-batches, zero {}, recompute {}), batch {}, {}, {}, {}",
      strategy.name(), name, devices, layout.dp, layout.pp, layout.tp, layout.sp ? "sp, " : "",
      layout.schedule.empty() ? "" : layout.schedule + ", ", layout.micro_batches, layout.zero.value_or(0),
      static_cast<int>(layout.recompute), request.step.global_batch, strategy::to_text(request.step.loss),
      op::name(request.step.optimizer), strategy::to_text(request.step.precision));
  return {std::move(request), std::move(text)};
}

}  // namespace baton::plan::test
