#include "baton/training/job.h"

#include "baton/devices/backends.h"
#include "support/machine.h"
#include "support/usage_sentence.h"
#include "unit/training/simulated.h"

namespace baton::training {
namespace {

using baton::test::says;
using baton::test::small_machine;
using baton::test::usage_sentence;
using test::spec_on;

// The fields of a job

TEST(JobFields, AreThoseOfASpecificationWithTheBackendsThatThereAre) {
  ASSERT_EQ(job_fields().size(), job::fields().size());
  const JobField* backend = find_field("backend");
  ASSERT_NE(backend, nullptr);
  EXPECT_EQ(backend->values(), devices::backend_names());
}

TEST(JobFields, AnUnknownNameIsRefusedWithAllThatThereAre) {
  JobSpec spec;
  const std::string sentence = usage_sentence([&] { set_field(spec, "colour", "red"); });
  EXPECT_TRUE(says(sentence, "'colour'"));
  for (const JobField& field : job_fields()) {
    EXPECT_TRUE(says(sentence, field.name));
  }
}

TEST(Job, TheLossFollowsFromWhatTheModelGivesUnlessToldOtherwise) {
  const auto loss_of = [](const std::string& model, const std::string& loss) {
    JobSpec spec;
    spec.model = model;
    set_field(spec, "loss", loss);
    return Job(spec, small_machine()).request().step.loss;
  };
  using strategy::Loss;
  EXPECT_EQ(loss_of("mlp:dim=4,depth=2", ""), Loss::mean_squared_error);
  EXPECT_EQ(loss_of("cnn:2,image=4", ""), Loss::cross_entropy);
  EXPECT_EQ(loss_of("resnet:18,image=8,width=1", ""), Loss::cross_entropy);
  EXPECT_EQ(loss_of("tokens:vocabulary=5,dim=4,depth=1,sequence=2", ""), Loss::cross_entropy);
  EXPECT_EQ(loss_of("cnn:2,image=4", "mse"), Loss::mean_squared_error);
  EXPECT_EQ(loss_of("mlp:dim=4,depth=2", "cross-entropy"), Loss::cross_entropy);
}

// Precision and loss scale

strategy::Step step_of(const std::string& precision, const std::string& scale, const std::string& growth = "2000") {
  JobSpec spec;
  set_field(spec, "precision", precision);
  set_field(spec, "loss-scale", scale);
  set_field(spec, "loss-scale-growth", growth);
  return Job(spec, small_machine()).request().step;
}

TEST(Job, ScalesTheLossOfFp16UnlessToldOtherwise) {
  using strategy::LossScale;
  EXPECT_EQ(step_of("fp16", "").loss_scale, LossScale{});
  EXPECT_EQ(step_of("mixed", "").loss_scale, LossScale{});
  EXPECT_EQ(step_of("mixed", "").precision, strategy::Precision::fp16);
  EXPECT_EQ(step_of("fp32", "").loss_scale, std::nullopt);
  EXPECT_EQ(step_of("bf16", "").loss_scale, std::nullopt);
  EXPECT_EQ(step_of("fp16", "none").loss_scale, std::nullopt);
  EXPECT_EQ(step_of("bf16", "Dynamic", "7").loss_scale, (LossScale{.growth_interval = 7}));
  EXPECT_EQ(step_of("half", "1024").loss_scale, (LossScale{.initial = 1024, .dynamic = false}));
}

TEST(Job, PrecisionsAndScalesThatMeanNothingAreRefused) {
  EXPECT_TRUE(says(usage_sentence([] { step_of("fp64", ""); }), "--backend reference computes it"));
  EXPECT_TRUE(says(usage_sentence([] { step_of("fp8", ""); }), "unknown precision 'fp8': choose fp64, fp32, tf32, bf16 or fp16"));
  EXPECT_TRUE(says(usage_sentence([] { step_of("tf32", ""); }), "tf32 is how the matrix units of a GPU"));
  for (const char* scale : {"big", "0", "-1", "inf", "1e40"}) {
    EXPECT_TRUE(says(usage_sentence([&] { step_of("fp16", scale); }), "must be none, dynamic or a number")) << scale;
  }
  EXPECT_TRUE(says(usage_sentence([] { step_of("fp16", "", "0"); }), "--loss-scale-growth"));
}

TEST(Job, IsWhatItsSpecificationSays) {
  JobSpec spec;
  spec.model = "mlp:dim=8,depth=3";
  set_field(spec, "strategy", "LAYERS");
  spec.devices = "cpu:3";
  spec.batch = 12;
  spec.optimizer = "adam";
  spec.lr = 0.5;
  spec.seed = 7;
  set_field(spec, "delay", "before=backward,device=0,ms=2;before=update,device=all,ms=1");
  const Job job(spec, small_machine());
  EXPECT_EQ(job.request().strategy.name(), "layers");
  EXPECT_EQ(job.cluster().size(), 3U);
  EXPECT_EQ(job.request().step.global_batch, 12);
  EXPECT_EQ(std::get<op::Adam>(job.request().step.optimizer).rate, 0.5);
  EXPECT_EQ(job.seed(), 7U);
  EXPECT_EQ(job.request().delays.size(), 2U);
  EXPECT_TRUE(says(job.oversubscription(), "3 devices share 1 core:"));
  EXPECT_EQ(job.compile().devices().size(), 3U);
}

TEST(Job, RefusesWhatItCannotReadOrHonour) {
  const auto refusal = [](const std::string& name, const std::string& value) {
    return usage_sentence([&] {
      JobSpec spec;
      set_field(spec, name, value);
      const Job job(spec, small_machine());
    });
  };
  EXPECT_TRUE(says(refusal("batch", "many"), "--batch"));
  EXPECT_TRUE(says(refusal("batch", "0"), "--batch"));
  EXPECT_TRUE(says(refusal("seed", "-1"), "--seed"));
  EXPECT_TRUE(says(refusal("momentum", "2"), "--momentum"));
  EXPECT_TRUE(says(refusal("clip", "-1"), "--clip is '-1', but must be a number from 0"));
  EXPECT_TRUE(says(refusal("clip", "nan"), "--clip is 'nan'"));
  EXPECT_TRUE(says(refusal("gradients", "fp16"), "--gradients"));
  EXPECT_TRUE(says(refusal("model", "gpt:depth=1,heads=2,dim=8,context=4,vocab=10,dropout=1"), "dropout of the gpt model is '1'"));
  EXPECT_TRUE(says(refusal("samples", "63"), "--samples is 63, but a batch alone takes 64"));
  EXPECT_TRUE(says(refusal("backend", "gpu"), "gpu"));
  EXPECT_TRUE(says(refusal("split", "3,x"), "--split"));
  EXPECT_TRUE(says(refusal("strategy", "magic"), "magic"));
  EXPECT_TRUE(says(refusal("fold", "bogus"), "unknown --fold 'bogus': choose auto, always or never"));
  EXPECT_TRUE(says(refusal("what-if", "nonsense"), "--what-if has 'nonsense'"));
}

TEST(Job, EveryOptimizerClips) {
  for (const std::string& optimizer : op::optimizer_names()) {
    JobSpec spec;
    spec.optimizer = optimizer;
    EXPECT_EQ(op::clip_of(Job(spec, small_machine()).request().step.optimizer), 0) << "unless it is told to";
    set_field(spec, "max-grad-norm", "0.5");
    EXPECT_EQ(op::clip_of(Job(spec, small_machine()).request().step.optimizer), 0.5) << optimizer;
  }
}

TEST(Job, GradientsAreFloat32WhereTheSpecificationSaysSo) {
  JobSpec spec;
  spec.precision = strategy::Precision::bf16;
  EXPECT_FALSE(Job(spec, small_machine()).request().step.wide_gradients);
  spec.gradients = job::GradientType::fp32;
  EXPECT_TRUE(Job(spec, small_machine()).request().step.wide_gradients);
  spec.precision = strategy::Precision::fp64;
  spec.backend = "reference";
  EXPECT_TRUE(says(usage_sentence([&] { const Job job(spec, small_machine()); }), "with --precision fp64 gradients are fp64"));
}

TEST(Job, AnotherSeedDropsOtherElements) {
  JobSpec spec;
  spec.model = "gpt:depth=1,heads=2,dim=8,context=4,vocab=10,dropout=0.1";
  spec.batch = 2;
  std::vector<std::vector<op::Op>> dropouts;
  for (const std::int64_t seed : {0, 9}) {
    spec.seed = seed;
    const Job job(spec, small_machine());
    EXPECT_EQ(job.model().name(), spec.model);
    std::vector<op::Op>& list = dropouts.emplace_back();
    for (const model::Block& block : job.model().blocks()) {
      for (const model::Node& node : block.nodes) {
        if (op::depends_on_step(node.op)) {
          list.push_back(node.op);
        }
      }
    }
  }
  ASSERT_EQ(dropouts[0].size(), 3U) << "of the embedding and of both halves of the layer";
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(dropouts[1][i], op::drawing(dropouts[0][i], 9, static_cast<std::int64_t>(i)));
    EXPECT_NE(dropouts[1][i], dropouts[0][i]);
  }
}

TEST(Job, AnOptimizerThatHasNoMomentumSaysSo) {
  JobSpec spec;
  spec.optimizer = "adam";
  spec.momentum = 0.9;
  EXPECT_TRUE(says(usage_sentence([&] { const Job job(spec, small_machine()); }), "optimizer adam has no --momentum"));
}

// On other machines

TEST(ImaginedJob, TakesSoManyDevicesOfTheCluster) {
  EXPECT_EQ(Job(spec_on("pcie-5", "ddp", "cpu"), small_machine()).cluster().size(), 5U) << "all of a node";
  EXPECT_EQ(Job(spec_on("pcie-5", "ddp", "3"), small_machine()).cluster().size(), 3U);
  EXPECT_EQ(Job(spec_on("pcie-5", "ddp", "cpu:3"), small_machine()).cluster().size(), 3U);
  EXPECT_EQ(Job(spec_on("ideal", "ddp", "7"), small_machine()).cluster().size(), 7U);
  EXPECT_TRUE(says(usage_sentence([] { Job(spec_on("pcie-5", "ddp", "6"), small_machine()); }), "5 devices"));
  EXPECT_TRUE(says(usage_sentence([] { Job(spec_on("pcie-5", "ddp", "many"), small_machine()); }), "--devices"));
  EXPECT_TRUE(says(usage_sentence([] { Job(spec_on("nowhere", "ddp", "2"), small_machine()); }), "unknown cluster 'nowhere'"));
  EXPECT_TRUE(says(usage_sentence([] { Job(spec_on("pcie-4+ethernt", "ddp", "2"), small_machine()); }),
                   "unknown network 'ethernt': choose ethernet-1, ethernet-10, ethernet-100, ethernet-25 or infiniband-400,"));
}

TEST(ImaginedJob, ALinkOrMemoryThatIsAskedForTakesThePlaceOfTheClustersOwn) {
  JobSpec spec = spec_on("dgx-a100", "ddp", "2");
  spec.link = cluster::parse_link("bandwidth=1GB/s,latency=50us");
  spec.memory = Bytes(std::int64_t{1} << 30);
  const Job job(spec, small_machine());
  EXPECT_EQ(job.cluster().wiring()->port.bandwidth, 1e9);
  EXPECT_EQ(job.cluster().wiring()->network.latency, Nanoseconds(50'000));
  EXPECT_EQ(job.cluster().devices()[0].memory, Bytes(1 << 30));
}

}  // namespace
}  // namespace baton::training
