#include <algorithm>
#include <cmath>

#include "agree/training.h"
#include "baton/devices/backends.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/op/loss_scale.h"
#include "baton/op/traits.h"

/// 16-bit formats and the loss scaler: every strategy and backend against float32, and the scaler against its
/// rules.
namespace baton::test {
namespace {

using strategy::LossScale;
using strategy::Precision;

Case mixed(Precision precision, std::string strategy, std::string backend, std::size_t devices,
           op::Optimizer optimizer = op::Sgd{.rate = 1}) {
  Case one{.model = "mlp:9-130-70-65-20-33-3",
           .strategy = std::move(strategy),
           .backend = std::move(backend),
           .devices = devices,
           .step = {.global_batch = 13, .optimizer = std::move(optimizer), .precision = precision}};
  if (precision == Precision::fp16) {
    one.step.loss_scale = LossScale{.initial = 1024};
  }
  return one;
}

/// In units of 2⁻ᵖ, the error of a value rounded to p bits (8 for bf16, 11 for fp16). A gradient is made of
/// factors that were rounded some fifteen times on their way: six layers forward, six back, the weights'
/// copies, sums over devices. The loss feels mostly the rounding of the 39 targets. And where an activation
/// near zero is rounded to the other side of the ReLU, a whole sample drops out of some gradients, which
/// coarse rounding does often. So fp16 holds the machinery to a tight bound that both formats share, and bf16
/// to a loose one. (Seen at most: bf16 0.49 in the loss, 22 typical, 144 worst; fp16 0.30, 0.57, 2.3.)
Tolerance tolerance(Precision precision) {
  return precision == Precision::bf16 ? Tolerance{.loss = 0x1p-8, .typical = 40 * 0x1p-8, .worst = 280 * 0x1p-8}
                                      : Tolerance{.loss = 0x1p-11, .typical = 2 * 0x1p-11, .worst = 6 * 0x1p-11};
}

struct Way {
  Precision precision;
  std::string strategy;
  std::string backend;
};

std::vector<Way> ways() {
  std::vector<Way> list;
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (const strategy::Strategy& strategy : strategy::strategies()) {
      for (const std::string& backend : devices::backend_names()) {
        list.push_back({precision, strategy.name(), backend});
      }
    }
  }
  return list;
}

class MixedPrecision : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(EveryStrategy, MixedPrecision, testing::ValuesIn(ways()), [](const auto& one) {
  std::string name = std::string(strategy::to_text(one.param.precision)) + "_" + one.param.strategy + "_" + one.param.backend;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(MixedPrecision, TenStepsStayNearThoseOfFloat32) {
  const auto& [precision, strategy, backend] = GetParam();
  const op::Optimizer momentum = op::Sgd{.rate = 0.2, .momentum = 0.9};
  for (const auto& [optimizer, devices, pieces] : {std::tuple<op::Optimizer, std::size_t, std::int64_t>{op::Sgd{.rate = 1}, 2, 0},
                                                   {op::Sgd{.rate = 1}, 3, 3},
                                                   {momentum, 3, 0}}) {
    const Outcome expected = train(mixed(Precision::fp32, "single", "reference", 1, optimizer));
    ASSERT_LT(expected.losses.back(), 0.999 * expected.losses.front());
    Case one = mixed(precision, strategy, backend, devices, optimizer);
    one.layout.micro_batches = pieces;
    EXPECT_TRUE(close(expected, train(one), tolerance(precision))) << to_text(one) << ", " << pieces << " micro-batches";
  }
}

/// Operands lose the bits below the tenth, a product up to 2⁻⁹ of itself and always towards zero, so that gradients of the first of
/// six layers, behind twelve products, feel it twelve times; and an activation near zero may fall to the other side of the ReLU, as
/// with bf16. (Seen: 8.7 typical, 77 worst.)
TEST(Tf32, TenStepsStayNearThoseOfFloat32) {
  if (std::ranges::find(devices::backend_names(), "cuda") == devices::backend_names().end()) {
    GTEST_SKIP() << "there is no NVIDIA GPU here";
  }
  for (const std::string model : {"mlp:9-130-70-65-20-33-3", "mlp:dim=64,depth=6", "mlp:dim=512,depth=3"}) {
    Case one = mixed(Precision::fp32, "single", "reference", 1);
    one.model = model;
    const Outcome expected = train(one);
    for (const std::string strategy : {"single", "ddp", "layers"}) {
      one.backend = "cuda";
      one.strategy = strategy;
      one.devices = strategy == "single" ? 1 : 2;
      one.step.precision = Precision::tf32;
      EXPECT_TRUE(close(expected, train(one), {.loss = 0x1p-9, .typical = 16 * 0x1p-9, .worst = 280 * 0x1p-9})) << to_text(one);
      one.backend = "reference";
      one.step.precision = Precision::fp32;
    }
  }
}

/// The two sum in float32 and in float64, so that now and then a value between two neighbours is rounded the
/// other way. Where a backend takes a step without rounding the gradient, the reference does the same.
TEST_P(MixedPrecision, BackendsStayNearerToEachOtherThanToFloat32) {
  const auto& [precision, strategy, backend] = GetParam();
  if (backend == "reference") {
    return;
  }
  auto reference = std::make_unique<WrappedBackend>("reference", [](const plan::Task&, std::int64_t) {});
  const std::vector<DType> fused = devices::make_backend(backend)->target().narrow_gradient_with_sgd;
  reference->steps_fused = std::find(fused.begin(), fused.end(), precision == Precision::bf16 ? DType::bf16 : DType::f16) !=
                           fused.end();
  const Outcome expected = train(mixed(precision, strategy, "reference", 2), 10, {}, std::move(reference));
  const double unit = precision == Precision::bf16 ? 0x1p-8 : 0x1p-11;
  EXPECT_TRUE(
      close(expected, train(mixed(precision, strategy, backend, 2)), {.loss = 0.02 * unit, .typical = 0.2 * unit, .worst = unit}));
}

TEST_P(MixedPrecision, CopiesOfWeightsThatLiveOnLeaveTheBitsOfCasts) {
  const auto& [precision, strategy, backend] = GetParam();
  if (backend != "reference") {
    return;
  }
  for (const std::size_t devices : {2, 3}) {
    auto keeps = std::make_unique<WrappedBackend>("reference", [](const plan::Task&, std::int64_t) {});
    keeps->copies_kept = true;
    const Case one = mixed(precision, strategy, backend, devices);
    EXPECT_TRUE(same_bits(train(one), train(one, 10, {}, std::move(keeps)))) << to_text(one);
  }
}

TEST_P(MixedPrecision, RoundsSomething) {
  const auto& [precision, strategy, backend] = GetParam();
  Case one = mixed(precision, strategy, backend, 2);
  Case plain = one;
  plain.step.precision = Precision::fp32;
  plain.step.loss_scale = {};
  EXPECT_FALSE(same_bits(train(plain, 2).losses, train(one, 2).losses));
}

TEST_P(MixedPrecision, TheSamePlanRunAgainLeavesTheSameBitsWhateverTheTeamsSize) {
  const auto& [precision, strategy, backend] = GetParam();
  Case one = mixed(precision, strategy, backend, 3, op::Adam{});
  const Outcome first = train(one, 4);
  for (const std::size_t cores : {1U, 2U, 3U}) {
    one.cores_per_device = cores;
    EXPECT_TRUE(same_bits(first, train(one, 4))) << to_text(one);
  }
}

TEST_P(MixedPrecision, OnOneDeviceAndInLayersItIsASingleDeviceToTheBit) {
  const auto& [precision, strategy, backend] = GetParam();
  const auto of_four = [&, precision = precision, backend = backend](const std::string& name, std::size_t devices) {
    Case one = mixed(precision, name, backend, devices);
    one.parts = 4;  // parts of a GPU that have another size round otherwise
    return one;
  };
  const Outcome single = train(of_four("single", 1), 4);
  Case one = of_four(strategy, 1);
  one.layout.micro_batches = 1;  // pipelines would take two
  EXPECT_TRUE(same_bits(single, train(one, 4)));
  if (strategy == "layers") {
    for (const std::size_t devices : {2U, 3U, 4U}) {
      EXPECT_TRUE(same_bits(single, train(of_four(strategy, devices), 4)));
    }
  }
}

TEST_P(MixedPrecision, ParametersThatLiveOnAreFloat32AndEverythingElseButTheLossHasSixteenBits) {
  const auto& [precision, strategy, backend] = GetParam();
  const Training training(mixed(precision, strategy, backend, 2, op::Adam{}));
  for (const plan::Buffer& buffer : training.plan().buffers()) {
    const bool of_scaler = buffer.label == "loss scale" || buffer.label == "gradients that are not finite";
    const bool wide = buffer.persistent && !plan::is_kept_copy(buffer) &&
                      (buffer.role == plan::Role::parameter || buffer.role == plan::Role::optimizer_state);
    EXPECT_EQ(is_narrow(buffer.dtype), !wide && buffer.role != plan::Role::loss && !of_scaler) << buffer.label;
  }
}

TEST(MixedPrecision, ProductsOfStrategiesAgreeWithFloat32Too) {
  using enum strategy::Recompute;
  for (const Product& product : std::vector<Product>{{2, 2, 2, 1, "1f1b", 4, none},
                                                     {2, 2, 1, 2, "gpipe", 4, all},
                                                     {2, 2, 2, 3, "1f1b", 3, none},
                                                     {2, 1, 2, 2, "naive", 2, alternate},
                                                     {2, 2, 1, 1, "zb-v", 4, none},
                                                     {1, 2, 3, 0, "zb-h1", 4, none}}) {
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      for (const std::string& backend : devices::backend_names()) {
        Case one = mixed(precision, "product", backend, product.devices());
        one.layout = layout_of(product);
        const Outcome expected = train(mixed(Precision::fp32, "single", "reference", 1));
        EXPECT_TRUE(close(expected, train(one), tolerance(precision)))
            << to_text(one) << " in " << strategy::to_text(precision) << ", " << product.schedule << " with ZeRO " << product.zero;
      }
    }
  }
}

// ---- what is counted

exec::Rounding rounded(const exec::RunResult& result, std::optional<plan::Role> role = {}) {
  return exec::total_rounding(result.roundings, role);
}

class Counting : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backend, Counting, testing::ValuesIn(backends_that_count()), [](const auto& one) { return one.param; });

Case deep(std::string backend) {
  Case one = mixed(Precision::fp16, "single", std::move(backend), 1, op::Sgd{});
  one.model = "mlp:dim=32,depth=20";
  one.step.global_batch = 64;
  one.step.loss_scale = {};
  return one;
}

TEST_P(Counting, NothingIsRoundedInFloat32) {
  Training training(mixed(Precision::fp32, "ddp", GetParam(), 2));
  EXPECT_TRUE(training.run(3).roundings.empty());
}

TEST_P(Counting, GradientsVanishInFp16AndComeBackWhenTheLossIsScaled) {
  // Deep, and divided by many elements: the first layers' gradients lie below 2⁻²⁵.
  Case one = deep(GetParam());
  Training bare(one);
  const exec::Rounding lost = rounded(bare.run(2), plan::Role::gradient);
  EXPECT_GT(lost.underflows, lost.values / 20) << lost.underflows << " of " << lost.values;

  one.step.loss_scale = LossScale{.initial = 65536};
  Training scaled(one);
  const exec::Rounding kept = rounded(scaled.run(2), plan::Role::gradient);
  EXPECT_LT(kept.underflows, lost.underflows / 20) << kept.underflows << " of " << kept.values;
  EXPECT_EQ(kept.overflows, 0);

  one.step.precision = Precision::bf16;
  one.step.loss_scale = {};
  Training brain(one);
  EXPECT_EQ(rounded(brain.run(2)).underflows, 0) << "bf16 has float32's range";
}

TEST_P(Counting, AScaleThatIsTooHighOverflowsAndIsCounted) {
  Case one = mixed(Precision::fp16, "single", GetParam(), 1);
  one.step.loss_scale = LossScale{.initial = 0x1p40};
  Training training(one);
  EXPECT_GT(rounded(training.run(1), plan::Role::gradient).overflows, 0);
}

TEST_P(Counting, EachRunTellsOfItsOwnStepsByPhaseBlockAndKind) {
  Training training(mixed(Precision::bf16, "ddp", GetParam(), 2, op::Sgd{}));
  const exec::RunResult first = training.run(3);
  const exec::RunResult second = training.run(3);
  const exec::RunResult longer = training.run(6);
  bool activations = false;
  bool gradients = false;
  for (const exec::RoundingTally& tally : first.roundings) {
    activations = activations || (tally.role == plan::Role::activation && tally.phase == plan::Phase::forward);
    gradients = gradients || (tally.role == plan::Role::gradient && tally.phase == plan::Phase::backward && tally.block == 1);
  }
  EXPECT_TRUE(activations && gradients);
  const auto values = [](const exec::RunResult& result) { return static_cast<double>(rounded(result).values); };
  EXPECT_NEAR(values(second), values(first), 0.05 * values(first));
  EXPECT_NEAR(values(longer), 2 * values(first), 0.1 * values(first));
}

/// The reference on plans that are fused as the cpu backend's are: a ReLU's zeros then stand before the
/// rounding on both.
class FusedReference final : public exec::HostBackend {
 public:
  std::string_view name() const override { return inner_->name(); }
  plan::Target target() const override { return {.joined = op::joint_relus()}; }
  std::vector<exec::MemoryLayout> layouts() const override { return inner_->layouts(); }
  bool has_kernel(const plan::Plan& plan, const plan::Task& task) const override { return inner_->has_kernel(plan, task); }
  int team_size(int cores) const override { return inner_->team_size(cores); }
  std::unique_ptr<exec::Kernel> prepare(plan::Plan plan, TaskId task, const exec::Addresses& addresses, int team) const override {
    return inner_->prepare(std::move(plan), task, addresses, team);
  }

 private:
  std::unique_ptr<exec::HostBackend> inner_ = exec::make_reference_backend();
};

TEST(Counting, BothBackendsCountTheSame) {
  Training judge(deep("reference"), {}, std::make_unique<FusedReference>());
  Training fast(deep("cpu"));
  const exec::RunResult expected = judge.run(2);
  const exec::RunResult actual = fast.run(2);
  for (const std::optional<plan::Role> role : {std::optional<plan::Role>(), std::optional(plan::Role::gradient),
                                               std::optional(plan::Role::activation), std::optional(plan::Role::parameter)}) {
    const exec::Rounding a = rounded(expected, role);
    const exec::Rounding b = rounded(actual, role);
    // Sums in float32 and in float64 now and then fall to different sides of a half.
    EXPECT_NEAR(static_cast<double>(b.values), static_cast<double>(a.values), 0.002 * static_cast<double>(a.values));
    EXPECT_NEAR(static_cast<double>(b.underflows), static_cast<double>(a.underflows), 0.002 * static_cast<double>(a.underflows));
    EXPECT_EQ(b.overflows, a.overflows);
  }
  EXPECT_GT(rounded(actual, plan::Role::gradient).underflows, 1000);
}

// ---- the scaler

op::ScaleState state(Training& training, std::size_t device = 0) {
  for (std::size_t b = 0; b < training.plan().buffers().size(); ++b) {
    const plan::Buffer& buffer = training.plan().buffers()[b];
    if (std::holds_alternative<plan::LossScaler>(buffer.content) && buffer.device == DeviceId(device)) {
      const std::vector<double> v = training.executor().read(BufferId(b));
      return {static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]), static_cast<float>(v[3])};
    }
  }
  ADD_FAILURE() << "device " << device << " has no scaler";
  return {};
}

/// Everything that lives on but the data and the scaler: parameters and the optimizer's state.
std::vector<double> kept(Training& training) {
  std::vector<double> all;
  for (std::size_t b = 0; b < training.plan().buffers().size(); ++b) {
    const plan::Buffer& buffer = training.plan().buffers()[b];
    if (buffer.persistent && std::holds_alternative<plan::ParameterPart>(buffer.content)) {
      const std::vector<double> values = training.executor().read(BufferId(b));
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

class Scaler : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backend, Scaler, testing::ValuesIn(devices::backend_names()), [](const auto& one) { return one.param; });

Case scaled(std::string strategy, std::string backend, std::size_t devices, LossScale scale,
            op::Optimizer optimizer = op::Adam{.rate = 0.002}) {
  Case one = mixed(Precision::fp16, std::move(strategy), std::move(backend), devices, std::move(optimizer));
  one.step.loss_scale = scale;
  return one;
}

TEST_P(Scaler, ThatStartsTooHighHalvesAndSkipsUntilGradientsAreFinite) {
  for (const op::Optimizer& optimizer :
       {op::Optimizer(op::Sgd{.rate = 1}), op::Optimizer(op::Sgd{.rate = 0.2, .momentum = 0.9}), op::Optimizer(op::Adam{})}) {
    Training training(scaled("single", GetParam(), 1, {.initial = 0x1p30}, optimizer));
    const std::vector<double> before = kept(training);
    float scale = 0x1p30F;
    int skipped = 0;
    for (int step = 1; step <= 40; ++step) {
      training.run(1);
      const op::ScaleState now = state(training);
      EXPECT_EQ(now.steps, static_cast<float>(step));
      if (now.skipped_steps > static_cast<float>(skipped)) {
        ++skipped;
        scale /= 2;
        ASSERT_TRUE(same_bits(before, kept(training))) << "a skipped step changed something";
        EXPECT_EQ(now.good_steps, 0);
      } else {
        ASSERT_FALSE(same_bits(before, kept(training))) << "a good step changed nothing";
        EXPECT_EQ(now.good_steps, 1);
        EXPECT_EQ(now.scale, scale);
        break;
      }
      EXPECT_EQ(now.scale, scale);
      EXPECT_EQ(now.skipped_steps, static_cast<float>(skipped));
    }
    EXPECT_GT(skipped, 3);
    EXPECT_LT(skipped, 30);
  }
}

TEST_P(Scaler, DoublesAfterSoManyGoodSteps) {
  Training training(scaled("single", GetParam(), 1, {.initial = 8, .growth_interval = 3}));
  std::vector<float> scales;
  for (int step = 0; step < 7; ++step) {
    training.run(1);
    scales.push_back(state(training).scale);
  }
  EXPECT_EQ(scales, (std::vector<float>{8, 8, 16, 16, 16, 32, 32}));
  EXPECT_EQ(state(training).skipped_steps, 0);
}

TEST_P(Scaler, ThatIsFixedSkipsAndStaysWhereItIs) {
  Training training(scaled("single", GetParam(), 1, {.initial = 0x1p40, .growth_interval = 1, .dynamic = false}));
  const std::vector<double> before = kept(training);
  training.run(3);
  EXPECT_EQ(state(training), (op::ScaleState{.scale = 0x1p40F, .skipped_steps = 3, .steps = 3}));
  EXPECT_TRUE(same_bits(before, kept(training)));
}

TEST_P(Scaler, SkippedStepsDoNotCountInAdamsBiasCorrection) {
  Training late(scaled("single", GetParam(), 1, {.initial = 0x1p30}));
  int steps = 0;
  while (state(late).good_steps == 0 && steps < 40) {
    late.run(1);
    ++steps;
  }
  ASSERT_GT(steps, 4);
  // From there on it is as if it had begun at that scale, with the same batch every step.
  Training begun(scaled("single", GetParam(), 1, {.initial = static_cast<double>(state(late).scale)}));
  begun.run(1);
  for (int step = 0; step < 5; ++step) {
    EXPECT_TRUE(same_bits(kept(begun), kept(late))) << "after " << step << " more steps";
    EXPECT_TRUE(same_bits(begun.run(1).losses, late.run(1).losses));
  }
}

TEST_P(Scaler, DevicesSkipTheSameStepsUnderEveryStrategy) {
  for (const std::int64_t interval : {2000, 2}) {
    const LossScale scale{.initial = 0x1p30, .growth_interval = interval};
    Training single(scaled("single", GetParam(), 1, scale));
    single.run(25);
    const op::ScaleState expected = state(single);
    EXPECT_GT(expected.skipped_steps, 4);
    EXPECT_GT(expected.steps - expected.skipped_steps, 4);
    for (const strategy::Strategy& strategy : strategy::strategies()) {
      for (const std::size_t devices : {2U, 3U}) {
        if (strategy.name() == "single") {
          continue;
        }
        Training training(scaled(strategy.name(), GetParam(), devices, scale));
        training.run(25);
        for (std::size_t d = 0; d < (strategy.name() == "dp" ? 1 : devices); ++d) {
          // A scale that goes on growing comes to where sums of parts and the sum of all overflow in
          // different steps; not so on the way down, and never between devices.
          EXPECT_EQ(state(training, d), interval == 2 ? state(training, 0) : expected)
              << strategy.name() << ", device " << d << " of " << devices;
        }
      }
    }
  }
}

TEST_P(Scaler, WhereOneDeviceOverflowsNoDeviceUpdates) {
  // Over many scales, among them some at which only the last layers' gradients overflow.
  for (int power = 14; power <= 40; ++power) {
    const LossScale scale{.initial = std::ldexp(1.0, power), .dynamic = false};
    Training training(scaled("layers", GetParam(), 3, scale, op::Sgd{.rate = 1}));
    std::map<std::string, std::vector<double>> before = training.weights();
    training.run(1);
    const bool skipped = state(training).skipped_steps == 1;
    for (std::size_t d = 1; d < 3; ++d) {
      EXPECT_EQ(state(training, d), state(training, 0)) << "scale 2^" << power;
    }
    for (const auto& [name, values] : training.weights()) {
      EXPECT_EQ(static_cast<bool>(same_bits(before[name], values)), skipped) << name << " at scale 2^" << power;
    }
  }
}

TEST_P(Scaler, OfAPowerOfTwoChangesNoBitInFloat32) {
  for (const op::Optimizer& optimizer : {op::Optimizer(op::Sgd{.rate = 0.2, .momentum = 0.9}), op::Optimizer(op::Adam{})}) {
    for (const strategy::Loss loss : {strategy::Loss::mean_squared_error, strategy::Loss::cross_entropy}) {
      Case plain = mixed(Precision::fp32, "ddp", GetParam(), 2, optimizer);
      plain.step.loss = loss;
      Case scaled_case = plain;
      scaled_case.step.loss_scale = LossScale{};
      EXPECT_TRUE(same_bits(train(plain), train(scaled_case))) << to_text(plain);
    }
  }
}

}  // namespace
}  // namespace baton::test
