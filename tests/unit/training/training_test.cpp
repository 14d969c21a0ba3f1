#include "baton/exec/backend/host_backends.h"
#include "baton/training/training_json.h"
#include "support/machine.h"
#include "support/usage_sentence.h"
#include "support/variable.h"
#include "unit/training/simulated.h"

namespace baton::training {
namespace {

using job::Json;

using baton::test::says;
using baton::test::small_machine;
using baton::test::usage_sentence;
using test::spec_on;

TEST(Training, TellsWhatItsPrecisionDid) {
  JobSpec spec;
  spec.model = "mlp:dim=32,depth=20";
  spec.precision = strategy::Precision::fp16;
  spec.loss_scale = {.mode = job::LossScaling::Mode::none};
  Training bare(spec, small_machine());
  bare.run(3, 1);
  const Json lost = result_json(bare, "");
  EXPECT_EQ(lost["precision"], "fp16");
  EXPECT_EQ(lost["emulated"], true);
  EXPECT_GT(lost["underflows"], 0);
  EXPECT_EQ(lost["overflows"], 0);
  EXPECT_EQ(lost["skipped_steps"], 0);
  EXPECT_TRUE(lost["final_scale"].is_null());
  EXPECT_FALSE(lost["roundings"].empty());

  spec.loss_scale = {.mode = job::LossScaling::Mode::fixed, .scale = 1e20};  // so high that every step overflows
  Training high(spec, small_machine());
  high.run(3, 1);
  const Json skipped = result_json(high, "");
  EXPECT_EQ(skipped["skipped_steps"], 3);
  EXPECT_GT(skipped["overflows"], 0);
  EXPECT_NEAR(skipped["final_scale"].get<double>(), 1e20, 1e14);

  spec.precision = strategy::Precision::fp32;
  spec.loss_scale = {};
  Training plain(spec, small_machine());
  plain.run(3, 1);
  const Json exact = result_json(plain, "");
  EXPECT_EQ(exact["emulated"], false);
  EXPECT_EQ(exact["underflows"], 0);
  EXPECT_TRUE(exact["roundings"].empty());
  EXPECT_TRUE(exact["final_scale"].is_null());
}

TEST(Training, TellsWhichProductsAreEmulatedAndByWhatTheOthersAreComputed) {
  const baton::test::Variable variable("BATON_AMX", "portable");
  const auto told = [](const std::string& model, strategy::Precision precision) {
    JobSpec spec;
    spec.model = model;
    spec.batch = 4;
    spec.precision = precision;
    Training training(spec, small_machine());
    training.run(2, 1);
    return result_json(training, "");
  };
  const std::string mlp = "mlp:dim=16,depth=2";
  const std::string cnn = "cnn:4,image=8,channels=1,classes=3";
  const Json plain = told(mlp, strategy::Precision::bf16);
  EXPECT_EQ(plain["arithmetic"], "portable");
  EXPECT_EQ(plain["emulated"], true) << "a model of the hardware is slow";
  EXPECT_FALSE(plain.contains("emulated_products"));
  const Json images = told(cnn, strategy::Precision::bf16);
  EXPECT_EQ(images["arithmetic"], "portable");
  EXPECT_EQ(images["emulated"], true);
  EXPECT_EQ(images["emulated_products"], "convolutions");
  const Json half = told(cnn, strategy::Precision::fp16);
  EXPECT_FALSE(half.contains("arithmetic"));
  EXPECT_EQ(half["emulated_products"], "convolutions, linear layers");
  const Json full = told(cnn, strategy::Precision::fp32);
  EXPECT_EQ(full["emulated"], false);
  EXPECT_FALSE(full.contains("emulated_products"));
}

TEST(Training, BuffersByThemselvesTakeWhatThePlanTakesWithoutWorkspaces) {
  JobSpec spec;
  spec.model = "mlp:dim=32,depth=4";
  spec.precision = strategy::Precision::bf16;
  const Training training(spec, small_machine());
  EXPECT_LT(training.buffer_bytes()[0], training.peak()[0]);
  spec.backend = "reference";  // which needs none
  const Training reference(spec, small_machine());
  EXPECT_EQ(reference.buffer_bytes()[0], reference.peak()[0]);
}

TEST(Training, WhereAStepWentAddsUpToIt) {
  JobSpec spec;
  spec.model = "mlp:dim=64,depth=4";
  spec.strategy = "layers";
  spec.devices = "2";
  spec.cluster = "pcie-4";
  Training training(spec, small_machine());
  training.run(1, 0);
  const trace::DeviceTime mean = training.mean_time();
  EXPECT_NEAR(static_cast<double>((mean.busy + mean.idle).count), static_cast<double>(training.timed()[0].count), 1);
  const Nanoseconds busy = training.device_times()[0].busy + training.device_times()[1].busy;
  EXPECT_NEAR(static_cast<double>(mean.busy.count), static_cast<double>(busy.count) / 2, 1);
  EXPECT_GT(mean.waiting, Nanoseconds(0));
}

/// The reference backend under another name. It counts the kernels that it prepares.
class Counting final : public exec::HostBackend {
 public:
  std::string_view name() const override { return "counting"; }
  plan::Target target() const override { return lender_->target(); }
  bool has_kernel(const plan::Plan& plan, const plan::Task& task) const override { return lender_->has_kernel(plan, task); }
  int team_size(int cores) const override { return lender_->team_size(cores); }
  std::unique_ptr<exec::Kernel> prepare(plan::Plan plan, TaskId task, const exec::Addresses& addresses, int team) const override {
    ++prepared;
    return lender_->prepare(std::move(plan), task, addresses, team);
  }
  mutable int prepared = 0;

 private:
  std::unique_ptr<exec::HostBackend> lender_ = exec::make_reference_backend();
};

TEST(Training, RunsOnABackendOfTheCallersOwnInPlaceOfTheOneThatIsNamed) {
  JobSpec spec;
  spec.model = "mlp:dim=8,depth=2";
  spec.batch = 8;
  spec.backend = "reference";
  Training expected(spec, small_machine());
  expected.run(4, 1);
  spec.backend = "cpu";
  const auto backend = std::make_shared<Counting>();
  Training own(spec, small_machine(), {}, nullptr, {}, {.backend = backend});
  own.run(4, 1);
  EXPECT_GT(backend->prepared, 0);
  EXPECT_EQ(own.losses(), expected.losses());
  EXPECT_EQ(own.job().spec().backend, "counting");
  EXPECT_EQ(result_json(own, "")["backend"], "counting");
}

TEST(Training, GoesOnWhereItStopped) {
  JobSpec spec;
  spec.model = "mlp:dim=8,depth=2";
  spec.batch = 8;
  Training whole(spec, small_machine());
  whole.run(6, 1);
  Training parts(spec, small_machine());
  parts.run(2, 1);
  parts.run(4, 0);
  EXPECT_EQ(whole.losses(), parts.losses());
  EXPECT_EQ(parts.losses().size(), 6U);
  EXPECT_EQ(parts.timed().size(), 5U);
  EXPECT_EQ(parts.warmup(), 1);
}

TEST(SimulatedTraining, IsOneStepWithoutLossesAndSaysThatItIsSimulated) {
  Training run(spec_on("dgx-a100", "ddp", "4"), small_machine());
  ASSERT_TRUE(run.simulated());
  run.run(30, 5);
  EXPECT_EQ(run.timed().size(), 1U);
  EXPECT_TRUE(run.losses().empty());
  const Json result = result_json(run, "command");
  EXPECT_EQ(result["origin"], "simulated");
  EXPECT_EQ(result["device_list"].size(), 4U);
  EXPECT_GT(result["time_per_step_ns"], 0);
  EXPECT_NE(result["costs"].get<std::string>().find("roofline"), std::string::npos);
  EXPECT_EQ(timeline_json(run, "t")["origin"], "simulated");
  Training again(spec_on("dgx-a100", "ddp", "4"), small_machine());
  again.run(1, 0);
  EXPECT_EQ(again.timed(), run.timed());
}

TEST(SimulatedTraining, SaysThatAPlanDoesNotFitAndByHowMuch) {
  JobSpec spec = spec_on("pcie-2", "single", "1");
  spec.model = "mlp:dim=65536,depth=4";
  const std::string sentence = usage_sentence([&] { Training(spec, small_machine()); });
  EXPECT_TRUE(says(sentence, "RTX-3090:0 needs"));
  EXPECT_TRUE(says(sentence, "has 24.0 GiB"));
}

TEST(SimulatedTraining, FoldedAndWrittenOutSayTheSame) {
  JobSpec spec = spec_on("dgx-a100", "zero-2", "32");
  spec.batch = 128;
  spec.optimizer = "adam";
  spec.fold = job::Fold::never;
  Training whole(spec, small_machine());
  whole.run(1, 0);
  spec.fold = job::Fold::always;
  Training folded(spec, small_machine());
  folded.run(1, 0);
  EXPECT_EQ(whole.copies(), 1);
  EXPECT_EQ(folded.copies(), 32);
  const Json a = result_json(whole, "");
  const Json b = result_json(folded, "");
  EXPECT_EQ(a["time_per_step_ns"], b["time_per_step_ns"]);
  EXPECT_EQ(b["device_list"].size(), 1U);
  EXPECT_EQ(b["device_list"][0]["stands_for"], 32);
  EXPECT_NEAR(a["sent_bytes"].get<double>() / b["sent_bytes"].get<double>(), 1, 0.01) << "pieces differ by an element";
  EXPECT_TRUE(says(usage_sentence([&] { set_field(spec, "fold", "sometimes"); }), "--fold"));
}

TEST(SimulatedTraining, InTf32SaysSo) {
  JobSpec spec = spec_on("dgx-a100", "ddp", "2");
  spec.precision = strategy::Precision::tf32;
  Training run(spec, small_machine());
  run.run(1, 0);
  EXPECT_EQ(result_json(run, "")["precision"], "tf32");
  EXPECT_TRUE(run.plan().title().ends_with(", tf32")) << run.plan().title();
}

TEST(SimulatedTraining, AWhatIfChangesTheStepAndItsCostsSaySo) {
  JobSpec spec = spec_on("pcie-4", "ddp", "4");
  spec.model = "mlp:dim=1024,depth=4";
  const auto step_of = [&](const std::string& what_if) {
    spec.what_if = job::parse_what_if(what_if);
    Training run(spec, small_machine());
    run.run(1, 0);
    return run.timed()[0];
  };
  const Nanoseconds plain = step_of("");
  EXPECT_LT(step_of("compute=2x"), plain);
  EXPECT_GT(step_of("link=0.1x"), plain);
  EXPECT_GT(step_of("latency=+1ms"), plain);
  spec.what_if = job::parse_what_if("link=0.1x");
  EXPECT_NE(Training(spec, small_machine()).simulation().cost_origin().find("link=0.1x"), std::string::npos);
}

}  // namespace
}  // namespace baton::training
