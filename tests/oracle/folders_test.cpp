#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "baton/checkpoint/pretrained.h"
#include "baton/model/huggingface.h"
#include "baton/model/parse.h"
#include "baton/training/evaluation.h"
#include "baton/training/sampling.h"
#include "baton/training/training.h"
#include "support/machine.h"
#include "support/onnx.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"

/// Weights from outside: the scores that a model gives with them, and what becomes of them on their way out again. The folders and
/// PyTorch's scores come from tests/oracle/make_folders.py.
namespace baton::training {
namespace {

namespace fs = std::filesystem;
using test::says;
using test::usage_sentence;

const fs::path folders = BATON_TEST_DATA "/oracle/data/folders";

std::vector<float> floats_of(const checkpoint::TensorReader& source, const std::string& name) {
  std::vector<float> list(static_cast<std::size_t>(source.tensors().at(name).shape.elements()));
  source.read(name, std::as_writable_bytes(std::span(list)));
  return list;
}

std::vector<std::byte> bytes_of(const checkpoint::TensorReader& source, const std::string& name) {
  std::vector<std::byte> list(source.tensors().at(name).size());
  source.read(name, list);
  return list;
}

std::string text_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The samples of a tensor, one after the other.
class Given final : public exec::Feed {
 public:
  Given(std::vector<float> numbers, std::int64_t samples, std::int64_t targets)
      : numbers_(std::move(numbers)), samples_(samples), targets_(targets) {}

  std::int64_t input_elements() const override { return static_cast<std::int64_t>(numbers_.size()) / samples_; }
  std::int64_t target_elements() const override { return targets_; }
  void input(std::int64_t, std::int64_t row, std::span<float> out) const override { copy(row, out); }
  void input(std::int64_t, std::int64_t row, std::span<std::int32_t> out) const override { copy(row, out); }
  void target(std::int64_t, std::int64_t, std::span<float> out) const override { std::fill(out.begin(), out.end(), 0.0F); }
  void target(std::int64_t, std::int64_t, std::span<std::int32_t> out) const override { std::fill(out.begin(), out.end(), 0); }
  std::uint64_t fingerprint() const override { return 0; }

 private:
  template <typename Number>
  void copy(std::int64_t row, std::span<Number> out) const {
    std::transform(numbers_.begin() + row * input_elements(), numbers_.begin() + (row + 1) * input_elements(), out.begin(),
                   [](float number) { return static_cast<Number>(number); });
  }

  std::vector<float> numbers_;
  std::int64_t samples_;
  std::int64_t targets_;
};

/// What a model gives for inputs, sample by sample.
std::vector<float> scores_of(const JobSpec& spec, const checkpoint::TensorReader& weights, const std::vector<float>& inputs) {
  const Job job(spec, test::small_machine());
  const std::int64_t batch = job.request().step.global_batch;
  const bool labels = job.request().step.loss == strategy::Loss::cross_entropy;
  const Shape output = job.model().output();
  Forward forward(job,
                  std::make_shared<const Given>(inputs, batch, labels ? output.elements() / output.last() : output.elements()));
  forward.take_weights(weights);
  forward.run();
  return forward.outputs();
}

JobSpec spec_of(const fs::path& model, const std::string& backend = "cpu") {
  JobSpec spec;
  spec.model = model.string();
  spec.batch = 3;
  spec.backend = backend;
  return spec;
}

class Folder : public testing::TestWithParam<std::string> {};

TEST_P(Folder, ItsModelGivesPytorchsScores) {
  const checkpoint::ArchiveReader expected(folders / GetParam() / "expected.safetensors");
  std::vector<float> inputs;
  if (expected.tensors().at("input").dtype == DType::i32) {
    const std::vector<std::byte> bytes = bytes_of(expected, "input");
    std::vector<std::int32_t> tokens(bytes.size() / 4);
    std::memcpy(tokens.data(), bytes.data(), bytes.size());
    inputs.assign(tokens.begin(), tokens.end());
  } else {
    inputs = floats_of(expected, "input");
  }
  const std::vector<float> logits = floats_of(expected, "logits");
  for (const std::string backend : {"cpu", "reference"}) {
    const JobSpec spec = spec_of(folders / GetParam(), backend);
    const auto weights = checkpoint::open_pretrained(*model::path_of(spec.model), model::parse_model(spec.model));
    const std::vector<float> scores = scores_of(spec, *weights, inputs);
    ASSERT_EQ(scores.size(), logits.size());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      ASSERT_NEAR(scores[i], logits[i], 1e-4) << backend << ", score " << i;
    }
  }
}

/// What a training that has not begun keeps as a checkpoint.
void save(const Training& run, const fs::path& path) {
  checkpoint::ArchiveWriter writer(path, run.tensors(), run.metadata());
  EXPECT_EQ(run.save([&](std::span<const std::byte> tensor) { writer.append(tensor); }), "");
  writer.commit();
}

TEST_P(Folder, ComesOutOfATrainingAsItWentIn) {
  class Own : public test::OwnFolder {
   public:
    void TestBody() override {}
    using test::OwnFolder::folder_;
    Own() { SetUp(); }
    ~Own() override { TearDown(); }
  } own;
  JobSpec spec = spec_of(folders / GetParam());
  spec.optimizer = "adam";
  Training run(spec, test::small_machine());
  run.make_room_for_checkpoints();
  save(run, own.folder_ / "step.safetensors");
  const checkpoint::FoundCheckpoint found = checkpoint::open_checkpoint(own.folder_ / "step.safetensors");
  checkpoint::export_folder(*found.archive, checkpoint::model_of(*found.archive), own.folder_ / "out");

  // The same model, whatever type its configuration was of.
  EXPECT_EQ(model::parse_model((own.folder_ / "out").string() + (GetParam().starts_with("resnet") ? ":image=20" : "")).name(),
            run.job().model().name());
  // The same tensors, under the names that were read.
  const checkpoint::ArchiveReader out(own.folder_ / "out" / "model.safetensors");
  std::size_t seen = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folders / GetParam())) {
    if (entry.path().extension() != ".safetensors" || entry.path().filename() == "expected.safetensors") {
      continue;
    }
    const checkpoint::ArchiveReader in(entry.path());
    for (const auto& [name, info] : in.tensors()) {
      const std::string whole = model::with_base_name(run.job().model(), name);
      if (model::is_no_weight(run.job().model(), whole)) {
        continue;
      }
      ++seen;
      ASSERT_TRUE(out.tensors().contains(whole)) << whole;
      EXPECT_EQ(out.tensors().at(whole).shape, info.shape) << whole;
      if (info.dtype == out.tensors().at(whole).dtype) {
        EXPECT_EQ(bytes_of(in, name), bytes_of(out, whole)) << whole;
      } else {
        EXPECT_TRUE(info.dtype == DType::f16 || info.dtype == DType::bf16) << whole;
      }
    }
  }
  EXPECT_EQ(seen, out.tensors().size());
  // And read again the weights are those that were trained with.
  const model::Model& model = run.job().model();
  const auto again = checkpoint::open_pretrained({.path = own.folder_ / "out"}, model);
  const auto before = checkpoint::open_pretrained(*model::path_of(spec.model), model);
  for (const auto& [name, info] : before->tensors()) {
    EXPECT_EQ(bytes_of(*before, name), bytes_of(*again, name)) << name;
  }
}

cluster::Machine two_cores() {
  cluster::Machine machine = test::small_machine();
  machine.cores = {0, 1};
  return machine;
}

TEST_P(Folder, IsTheStartOfEveryStrategy) {
  JobSpec spec = spec_of(folders / GetParam());
  spec.batch = 4;
  Training single(spec, two_cores());
  single.run(2, 1);
  spec.devices = "cpu:2";
  for (const std::string strategy : {"layers", "ddp", "zero-3", "tensor"}) {
    const bool replicas = strategy == "ddp" || strategy == "zero-3";
    if (GetParam().starts_with("resnet") ? replicas : GetParam() == "mistral" && strategy == "tensor") {
      continue;  // norms take the moments of each replica, and one head of keys cannot be divided
    }
    spec.strategy = strategy;
    Training split(spec, two_cores());
    split.run(2, 1);
    EXPECT_NEAR(split.losses()[0], single.losses()[0], 1e-5) << strategy;
    EXPECT_NEAR(split.losses()[1], single.losses()[1], 1e-5) << strategy;
  }
  JobSpec random = spec;
  random.strategy = "single";
  random.devices = "cpu";
  random.model = single.job().model().name();
  Training other(random, two_cores());
  other.run(1, 0);
  EXPECT_GT(std::abs(other.losses()[0] - single.losses()[0]), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Types, Folder, testing::Values("gpt2", "llama", "mistral", "qwen2", "vit", "resnet", "resnet-basic"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase(name, '-');
                           return name;
                         });

class Pretrained : public test::OwnFolder {
 protected:
  void SetUp() override {
    test::OwnFolder::SetUp();
    fs::copy(folders / "gpt2", folder_ / "m");
    fs::copy(folders / "mistral", folder_ / "shards");
  }
  /// What is said of weights that were changed.
  std::string refusal(const std::string& folder) const {
    const std::string path = (folder_ / folder).string();
    return usage_sentence([&] { checkpoint::open_pretrained({.path = path}, model::parse_model(path)); });
  }
  void write(const std::string& file, const std::string& text) const { std::ofstream(folder_ / file, std::ios::binary) << text; }
  /// Writes the weights of `m` again, changed.
  template <typename Change>
  void rewrite(Change change) const {
    const checkpoint::ArchiveReader in(folders / "gpt2" / "model.safetensors");
    std::map<std::string, std::pair<checkpoint::TensorInfo, std::vector<std::byte>>> all;
    checkpoint::Tensors infos;
    for (const auto& [name, info] : in.tensors()) {
      all[name] = {info, bytes_of(in, name)};
    }
    change(all);
    for (const auto& [name, tensor] : all) {
      infos[name] = tensor.first;
    }
    checkpoint::ArchiveWriter writer(folder_ / "m" / "model.safetensors", infos, {});
    for (const auto& [name, tensor] : all) {
      writer.append(tensor.second);
    }
    writer.commit();
  }
};

TEST_F(Pretrained, WhatIsMissingTooMuchOrOfAnotherShapeOrTypeIsNamed) {
  rewrite([](auto& all) { all.erase("h.1.mlp.c_fc.bias"); });
  EXPECT_TRUE(says(refusal("m"), "have no transformer.h.1.mlp.c_fc.bias"));
  rewrite([](auto& all) { all["h.2.ln_1.weight"] = all["h.1.ln_1.weight"]; });
  EXPECT_TRUE(says(refusal("m"), "hold h.2.ln_1.weight"));
  rewrite([](auto& all) { all["h.0.attn.c_attn.weight"].first.shape = Shape{48, 16}; });
  EXPECT_TRUE(says(refusal("m"), "h.0.attn.c_attn.weight in"));
  EXPECT_TRUE(says(refusal("m"), "48x16, but its config.json asks for 16x48"));
  rewrite([](auto& all) { all["ln_f.bias"].first.dtype = DType::i32; });
  EXPECT_TRUE(says(refusal("m"), "ln_f.bias"));
  EXPECT_TRUE(says(refusal("m"), "I32"));
  rewrite([](auto& all) { all["lm_head.weight"] = all["wte.weight"]; });  // the same once more
  EXPECT_NO_THROW(checkpoint::open_pretrained({.path = folder_ / "m"}, model::parse_model((folder_ / "m").string())));
  rewrite([](auto& all) { all["transformer.ln_f.bias"] = all["ln_f.bias"]; });
  EXPECT_TRUE(says(refusal("m"), "twice"));
}

TEST_F(Pretrained, FilesThatAreCutAreRefusedAtEveryLength) {
  const std::string whole = text_in(folders / "gpt2" / "model.safetensors");
  for (std::size_t length = 0; length < whole.size(); length += 1 + whole.size() / 60) {
    write("m/model.safetensors", whole.substr(0, length));
    EXPECT_FALSE(refusal("m").empty()) << length;
  }
  fs::remove(folder_ / "m" / "model.safetensors");
  fs::remove(folder_ / "m" / "expected.safetensors");
  EXPECT_TRUE(says(refusal("m"), "no *.safetensors"));
}

TEST_F(Pretrained, AnIndexThatLiesIsRefused) {
  const std::string index = text_in(folders / "mistral" / "model.safetensors.index.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = index;
    text.replace(text.find(from), from.size(), to);
    write("shards/model.safetensors.index.json", text);
    return refusal("shards");
  };
  EXPECT_TRUE(says(with("model-00002-of-00002", "model-00003-of-00002"), "which its index does not say"));
  EXPECT_TRUE(says(with("model.norm.weight", "model.normal.weight"), "model.norm.weight"));
  EXPECT_FALSE(with("model-00001-of-00002", "model-00002-of-00002").empty());
  fs::remove(folder_ / "shards" / "model-00002-of-00002.safetensors");
  write("shards/model.safetensors.index.json", index);
  EXPECT_TRUE(says(refusal("shards"), "model-00002-of-00002.safetensors"));
}

TEST_F(Pretrained, AShorterContextTakesTheFirstPositions) {
  const std::string path = (folder_ / "m").string() + ":context=5";
  const model::Model model = model::parse_model(path);
  const auto source = checkpoint::open_pretrained(*model::path_of(path), model);
  const checkpoint::ArchiveReader whole(folders / "gpt2" / "model.safetensors");
  std::vector<float> first = floats_of(whole, "wpe.weight");
  first.resize(5 * 16);
  EXPECT_EQ(floats_of(*source, "transformer.wpe.weight"), first);
}

TEST_F(Pretrained, OnnxFilesGiveWhatTheyComputeByHand) {
  test::OnnxWriter writer({0, 2, 4, 4}, "y");
  writer.weight("c.weight", {2, 2, 3, 3}).weight("c.bias", {2}).weight("s", {2}).weight("b", {2}).weight("m", {2}).weight("v", {2});
  writer.weight("w", {2, 3}).weight("wb", {3});
  writer.node("Conv", {"x", "c.weight", "c.bias"}, "a", {.lists = {{"pads", {1, 1, 1, 1}}}});
  writer.node("BatchNormalization", {"a", "s", "b", "m", "v"}, "n", {.reals = {{"epsilon", 0.5F}}});
  writer.node("Relu", {"n"}, "r").node("Add", {"r", "x"}, "z").node("GlobalAveragePool", {"z"}, "p").node("Flatten", {"p"}, "f");
  writer.node("Gemm", {"f", "w", "wb"}, "y");
  write("net.onnx", writer.file());
  std::vector<float> inputs(2 * 2 * 16);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5) * 0.3F;
  }
  JobSpec spec = spec_of(folder_ / "net.onnx");
  spec.batch = 2;
  const auto weights = checkpoint::open_pretrained(*model::path_of(spec.model), model::parse_model(spec.model));
  const std::vector<float> scores = scores_of(spec, *weights, inputs);
  const auto weight = [](std::int64_t i) { return 0.01 * static_cast<double>(i + 1); };
  for (std::int64_t sample = 0; sample < 2; ++sample) {
    const auto x = [&](std::int64_t c, std::int64_t row, std::int64_t column) {
      return row < 0 || column < 0 || row > 3 || column > 3
                 ? 0.0
                 : static_cast<double>(inputs[static_cast<std::size_t>(((sample * 2 + c) * 4 + row) * 4 + column)]);
    };
    double pooled[2] = {0, 0};
    for (std::int64_t o = 0; o < 2; ++o) {
      for (std::int64_t at = 0; at < 16; ++at) {
        double sum = weight(o);
        for (std::int64_t k = 0; k < 18; ++k) {
          sum += weight(o * 18 + k) * x(k / 9, at / 4 + k % 9 / 3 - 1, at % 4 + k % 3 - 1);
        }
        const double normed = (sum - weight(o)) / std::sqrt(weight(o) + 0.5) * weight(o) + weight(o);
        pooled[o] += (std::max(0.0, normed) + x(o, at / 4, at % 4)) / 16;
      }
    }
    for (std::int64_t o = 0; o < 3; ++o) {
      const double expected = pooled[0] * weight(o) + pooled[1] * weight(3 + o) + weight(o);
      EXPECT_NEAR(scores[static_cast<std::size_t>(sample * 3 + o)], expected, 1e-5);
    }
  }
  Training run(spec, test::small_machine());  // it can be trained, from these weights
  run.run(2, 1);
  EXPECT_TRUE(std::isfinite(run.losses()[1]));
}

TEST_F(Pretrained, ATextIsContinuedByWhatTheWholeModelScores) {
  const std::string path = (folders / "llama").string();
  const model::Model model = model::parse_model(path);
  const std::shared_ptr<const checkpoint::TensorReader> weights = checkpoint::open_pretrained({.path = path}, model);
  JobSpec spec;
  spec.model = path;
  Sampler sampler(spec, weights, 7, test::small_machine());
  EXPECT_EQ(sampler.window(), 7);
  const std::vector<std::int32_t> text{3, 1, 4, 1, 5};
  std::vector<float> padded(12, 0.0F);
  std::copy(text.begin(), text.end(), padded.begin());
  JobSpec whole = spec_of(path);
  whole.batch = 1;
  const std::vector<float> scores = scores_of(whole, *weights, padded);
  const std::vector<float> next = sampler.next_scores(text);
  ASSERT_EQ(next.size(), 23U);
  for (std::size_t i = 0; i < next.size(); ++i) {
    EXPECT_NEAR(next[i], scores[4 * 23 + i], 1e-5);
  }
  // A text that is longer than the window is seen from its end.
  std::vector<std::int32_t> longer(20, 2);
  std::copy(text.begin(), text.end(), longer.end() - 5);
  EXPECT_EQ(sampler.next_scores(longer).size(), 23U);
  EXPECT_TRUE(says(usage_sentence([&] {
                     JobSpec other;
                     other.model = (folders / "vit").string();
                     Sampler(other, weights, 7, test::small_machine());
                   }),
                   "does not continue texts"));
}

TEST(Drawing, IsAFunctionOfSeedAndPosition) {
  std::vector<float> scores(50);
  std::iota(scores.begin(), scores.end(), 0.0F);
  EXPECT_EQ(draw_token(scores, {.temperature = 0}, 3), 49);
  std::vector<int> counts(50, 0);
  std::vector<float> two(3, -1e30F);
  two[1] = std::log(3.0F);
  two[2] = 0;
  int ones = 0;
  for (std::int64_t i = 0; i < 4000; ++i) {
    const std::int32_t token = draw_token(two, {.seed = 5}, i);
    EXPECT_EQ(token, draw_token(two, {.seed = 5}, i));
    ASSERT_NE(token, 0);
    ones += token == 1 ? 1 : 0;
    ASSERT_GE(draw_token(scores, {.temperature = 100, .top_k = 4}, i), 46);
    ++counts[static_cast<std::size_t>(draw_token(scores, {.temperature = 1e6}, i))];
  }
  EXPECT_NEAR(ones, 3000, 120);
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 40);
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 130);
}

}  // namespace
}  // namespace baton::training
