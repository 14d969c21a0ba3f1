#include "baton/training/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <type_traits>

#include "baton/job/setup.h"
#include "baton/training/training_json.h"
#include "support/machine.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"
#include "unit/data/written.h"

namespace baton::training {
namespace {

using baton::test::says;
using baton::test::usage_sentence;

constexpr std::uint32_t trained_on = 40;
constexpr std::uint32_t tested_on = 13;

/// Writes a training and a test part: images of 6x6 in three classes, which differ in which rows are bright.
void write_images(const std::filesystem::path& folder) {
  std::mt19937 random(5);
  for (const auto& [name, count] : {std::pair("train", trained_on), std::pair("t10k", tested_on)}) {
    std::string pixels;
    std::string labels;
    for (std::uint32_t i = 0; i < count; ++i) {
      labels += static_cast<char>(random() % 3);
      for (std::uint32_t at = 0; at < 36; ++at) {
        const bool bright = at / 12 == static_cast<std::uint32_t>(labels.back());
        pixels += static_cast<char>((bright ? 120U : 0U) + random() % 120);
      }
    }
    test::write_bytes(folder / (std::string(name) + "-images-idx3-ubyte"), test::idx({count, 6, 6}, pixels));
    test::write_bytes(folder / (std::string(name) + "-labels-idx1-ubyte"), test::idx({count}, labels));
  }
}

cluster::Machine two_cores() {
  cluster::Machine machine = test::small_machine();
  machine.cores = {0, 1};
  return machine;
}

class OnImages : public test::OwnFolder {
 protected:
  void SetUp() override {
    OwnFolder::SetUp();
    write_images(folder_);
  }
  JobSpec on_images() const {
    JobSpec spec;
    spec.model = "mlp:36-8-3";
    spec.loss = strategy::Loss::cross_entropy;
    spec.batch = 8;
    spec.lr = 0.1;
    spec.data = folder_.string();
    return spec;
  }
};
using Evaluating = OnImages;
using TrainingOnData = OnImages;
using EvaluatingTokens = test::OwnFolder;

TEST_F(Evaluating, AForwardRunsWhenItsJobIsGone) {
  const JobSpec spec = on_images();
  const Job job(spec, two_cores());
  Forward kept(job, job.data()->evaluation(""));
  Forward of_temporary(Job(spec, two_cores()), Job(spec, two_cores()).data()->evaluation(""));
  for (Forward* forward : {&kept, &of_temporary}) {
    forward->run();
  }
  EXPECT_EQ(of_temporary.outputs(), kept.outputs());
  EXPECT_EQ(of_temporary.losses(), kept.losses());
}

TEST_F(Evaluating, TheDataKeepsTheSpecificationAsItWas) {
  JobSpec spec = on_images();
  const JobData data(spec, job::make_model(spec), *spec.loss, spec.batch, 0);
  spec.normalize = parse_pixel_scale("imagenet");  // for three channels, and the images are gray
  EXPECT_NE(data.evaluation(""), nullptr);
}

Evaluation evaluated(const JobSpec& spec, std::int64_t steps) {
  Training run(spec, two_cores());
  const std::shared_ptr<const SampleFeed> feed = run.job().data()->evaluation("");
  Forward forward(run.job(), feed);
  if (steps > 0) {
    run.run(steps, 0);
  }
  return *run.evaluate(forward, *feed);
}

TEST_F(Evaluating, CountsEverySampleOnceWhateverTheBatch) {
  JobSpec spec = on_images();
  const Evaluation wanted = evaluated(spec, 0);
  EXPECT_EQ(wanted.samples, tested_on);
  for (const std::int64_t batch : {1, 3, 13, 20, 40}) {
    spec.batch = batch;
    const Evaluation got = evaluated(spec, 0);
    EXPECT_EQ(got.samples, tested_on);
    EXPECT_NEAR(got.loss, wanted.loss, 1e-6) << "batch " << batch;
    EXPECT_EQ(got.accuracy, wanted.accuracy) << "batch " << batch;
    EXPECT_FALSE(got.perplexity);
  }
}

TEST_F(Evaluating, IsThatOfItsOutputs) {
  const JobSpec spec = on_images();
  Training run(spec, two_cores());
  const std::shared_ptr<const SampleFeed> feed = run.job().data()->evaluation("");
  Forward forward(run.job(), feed);
  run.run(12, 0);
  const Evaluation evaluation = *run.evaluate(forward, *feed);
  EXPECT_EQ(evaluation.step, 12);
  double loss = 0;
  int right = 0;
  for (std::int64_t step = 0; step < 2; ++step) {
    forward.seek(step);
    forward.run();
    const std::vector<float> outputs = forward.outputs();
    for (std::int64_t row = 0; row < feed->order().rows(step); ++row) {
      std::int32_t label = 0;
      feed->target(step, row, std::span(&label, 1));
      const float* scores = outputs.data() + row * 3;
      const double sum = std::exp(scores[0]) + std::exp(scores[1]) + std::exp(scores[2]);
      loss -= std::log(std::exp(static_cast<double>(scores[label])) / sum);
      right += std::max_element(scores, scores + 3) - scores == label ? 1 : 0;
    }
  }
  EXPECT_NEAR(evaluation.loss, loss / tested_on, 1e-5);
  EXPECT_EQ(evaluation.accuracy, static_cast<double>(right) / tested_on);
  EXPECT_EQ(run.evaluations().size(), 1U);
}

TEST_F(Evaluating, IsTheSameUnderEveryStrategy) {
  const Evaluation wanted = evaluated(on_images(), 10);
  EXPECT_LT(wanted.loss, evaluated(on_images(), 0).loss) << "it learns";
  for (const char* strategy : {"dp", "ddp", "layers", "gpipe", "1f1b", "tensor", "zero-1", "zero-2", "zero-3"}) {
    JobSpec spec = on_images();
    spec.strategy = strategy;
    spec.devices = "cpu:2";
    const Evaluation got = evaluated(spec, 10);
    EXPECT_NEAR(got.loss, wanted.loss, 2e-5) << strategy;
    EXPECT_EQ(got.accuracy, wanted.accuracy) << strategy;
  }
}

TEST_F(EvaluatingTokens, GivesAPerplexity) {
  std::vector<std::uint16_t> tokens;
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    tokens.push_back(static_cast<std::uint16_t>(random() % 9));
  }
  test::write_bytes(folder_ / "some.bin", test::llmc_shard(tokens, 20240520, 1));
  JobSpec spec;
  spec.model = "gpt:depth=2,heads=2,dim=8,context=6,vocab=9";
  spec.batch = 4;
  spec.data = (folder_ / "some.bin").string();
  for (const char* strategy : {"single", "ddp", "1f1b", "tensor"}) {
    spec.strategy = strategy;
    spec.devices = spec.strategy == "single" ? "cpu" : "cpu:2";
    Training run(spec, two_cores());
    const std::shared_ptr<const SampleFeed> feed = run.job().data()->evaluation(spec.data);
    Forward forward(run.job(), feed);
    const Evaluation evaluation = *run.evaluate(forward, *feed);
    EXPECT_EQ(evaluation.samples, 66) << "windows of 6 with one token behind each, out of 400";
    EXPECT_FALSE(evaluation.accuracy);
    EXPECT_NEAR(*evaluation.perplexity, std::exp(evaluation.loss), 1e-9);
    EXPECT_NEAR(evaluation.loss, std::log(9.0), 0.5) << "it knows nothing yet";
  }
  EXPECT_FALSE(Job(spec, two_cores()).data()->evaluation("")) << "a file has no test part";
}

/// The tensors of a training, in memory.
class Kept final : public checkpoint::TensorReader {
 public:
  explicit Kept(const Training& run) : tensors_(run.tensors()), metadata_(run.metadata()) {
    auto next = tensors_.begin();
    run.save([&](std::span<const std::byte> tensor) { bytes_[(next++)->first].assign(tensor.begin(), tensor.end()); });
  }
  const checkpoint::Tensors& tensors() const override { return tensors_; }
  const checkpoint::Metadata& metadata() const override { return metadata_; }
  void read(const std::string& name, std::span<std::byte> into) const override {
    std::copy(bytes_.at(name).begin(), bytes_.at(name).end(), into.begin());
  }

 private:
  checkpoint::Tensors tensors_;
  checkpoint::Metadata metadata_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

TEST_F(TrainingOnData, GoesOnWithTheNextSampleUnderAnotherStrategy) {
  JobSpec spec = on_images();
  Training whole(spec, two_cores());
  whole.run(12, 0);  // two epochs and some steps
  Training first(spec, two_cores());
  first.make_room_for_checkpoints();
  first.run(7, 0);
  const Kept kept(first);
  EXPECT_EQ(kept.metadata().at("flag.data"), spec.data);
  for (const char* strategy : {"single", "ddp", "layers", "zero-2"}) {
    spec.strategy = strategy;
    spec.devices = spec.strategy == "single" ? "cpu" : "cpu:2";
    Training second(spec, two_cores());
    second.make_room_for_checkpoints();
    EXPECT_EQ(second.restore(kept), std::vector<std::string>{});
    second.run(5, 0);
    for (std::size_t s = 0; s < 5; ++s) {
      EXPECT_NEAR(second.losses()[s], whole.losses()[7 + s], spec.strategy == "single" ? 0 : 1e-5) << strategy;
    }
  }
}

TEST_F(TrainingOnData, EpochsHaveEverySampleInAnotherOrder) {
  const JobSpec spec = on_images();
  const Job job(spec, two_cores());
  const data::SampleOrder& order = job.data()->training()->order();
  EXPECT_EQ(order.steps_per_epoch(), 5);
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  for (std::int64_t step = 0; step < 5; ++step) {
    for (std::int64_t row = 0; row < 8; ++row) {
      first.push_back(order.at(step, row).sample);
      second.push_back(order.at(step + 5, row).sample);
    }
  }
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

TEST_F(TrainingOnData, SaysWhatDoesNotFit) {
  const auto refused = [this](const std::function<void(JobSpec&)>& change) {
    JobSpec spec = on_images();
    change(spec);
    return usage_sentence([&] { const Job job(spec, two_cores()); });
  };
  EXPECT_TRUE(says(refused([](JobSpec& spec) { spec.batch = 41; }), "40 samples"));
  EXPECT_TRUE(says(refused([](JobSpec& spec) { spec.samples = 100; }), "leave out one of them"));
  EXPECT_TRUE(says(refused([](JobSpec& spec) { spec.data = "/nowhere"; }), "/nowhere"));
  EXPECT_TRUE(says(refused([](JobSpec& spec) { spec.cluster = "dgx-a100"; }), "leave out --data"));
  EXPECT_FALSE(refused([](JobSpec& spec) { spec.model = "gpt:depth=2,heads=2,dim=8,context=6,vocab=9"; }).empty());
  EXPECT_FALSE(refused([](JobSpec& spec) { spec.model = "mlp:36-8-2"; }).empty()) << "fewer scores than classes";
  EXPECT_TRUE(says(refused([](JobSpec& spec) { spec.normalize = parse_pixel_scale("imagenet"); }), "3 means"));
  EXPECT_TRUE(says(refused([](JobSpec& spec) {
                     spec.data = "random";
                     spec.normalize = parse_pixel_scale("mnist");
                   }),
                   "give it with --data"));
}

}  // namespace
}  // namespace baton::training
