#include "baton/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>

#include "baton/checkpoint/pretrained.h"
#include "baton/checkpoint/share.h"
#include "baton/devices/backends.h"
#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"
#include "support/archive.h"
#include "support/column_major_backend.h"
#include "support/devices.h"
#include "support/usage_sentence.h"

namespace baton::checkpoint {
namespace {

namespace fs = std::filesystem;
using baton::test::Archive;
using baton::test::restore;
using baton::test::save;
using baton::test::says;
using baton::test::snapshot;
using baton::test::usage_sentence;
using baton::test::write_archive;

/// A way of training one model, ready to run.
struct Trial {
  Trial(std::string strategy, std::size_t devices, strategy::Layout layout = {}, op::Optimizer optimizer = op::Adam{},
        std::string model_text = "mlp:7-66-20-33-5-12", std::string backend_name = "cpu",
        std::optional<strategy::LossScale> scale = {})
      : model(model::parse_model(model_text)),
        backend(backend_name == "column_major" ? std::make_unique<baton::test::ColumnMajorBackend>()
                                               : devices::make_backend(backend_name)) {
    cluster = std::make_unique<cluster::Cluster>(baton::test::cpus(devices));
    plan = std::make_unique<plan::Plan>(
        strategy::compile({.model = model,
                           .cluster = *cluster,
                           .strategy = std::move(strategy),
                           .step = {.global_batch = 8,
                                    .optimizer = optimizer,
                                    .precision = scale ? strategy::Precision::fp16 : strategy::Precision::fp32,
                                    .loss_scale = scale},
                           .layout = std::move(layout),
                           .target = backend->target()}));
    executor = std::make_unique<exec::Executor>(*plan, *cluster, *backend, exec::DataOptions{.seed = 3, .samples = 50});
  }
  std::vector<double> train(std::int64_t steps) { return executor->run({.steps = steps, .warmup = 0}).losses; }
  Archive save(std::int64_t step) const { return snapshot(*plan, *executor, {step, 3, model.name(), "adam"}); }

  model::Model model;
  std::unique_ptr<cluster::Cluster> cluster;
  std::unique_ptr<exec::Backend> backend;
  std::unique_ptr<plan::Plan> plan;
  std::unique_ptr<exec::Executor> executor;
};

struct Way {
  std::string strategy;
  std::size_t devices;
  strategy::Layout layout = {};
};

std::vector<Way> ways() {
  return {{"single", 1},
          {"dp", 2},
          {"ddp", 4},
          {"layers", 3},
          {"1f1b", 2, {.micro_batches = 4}},
          {"tensor", 2},
          {"zero-1", 3},
          {"zero-2", 2},
          {"zero-3", 4},
          {"product", 8, {.dp = 2, .pp = 2, .tp = 2, .zero = 1, .schedule = "1f1b", .micro_batches = 2}}};
}

TEST(Checkpoint, ResumedUnderTheSameStrategyGoesOnToTheBit) {
  for (const Way& way : ways()) {
    Trial whole(way.strategy, way.devices, way.layout);
    const std::vector<double> expected = whole.train(9);
    Trial first(way.strategy, way.devices, way.layout);
    first.train(4);
    const Archive archive = first.save(4);
    Trial second(way.strategy, way.devices, way.layout);
    EXPECT_EQ(restore(*second.plan, *second.executor, archive).step, 4);
    EXPECT_EQ(second.train(5), std::vector<double>(expected.begin() + 4, expected.end())) << way.strategy;
    EXPECT_TRUE(second.save(9) == whole.save(9)) << way.strategy;
  }
}

TEST(Checkpoint, SavedUnderAnyStrategyGoesOnUnderAnyOther) {
  Trial whole("single", 1);
  const std::vector<double> expected = whole.train(9);
  for (const Way& from : ways()) {
    Trial first(from.strategy, from.devices, from.layout);
    first.train(4);
    const Archive archive = first.save(4);
    for (const Way& to : ways()) {
      Trial second(to.strategy, to.devices, to.layout);
      restore(*second.plan, *second.executor, archive);
      const std::vector<double> losses = second.train(5);
      for (std::size_t i = 0; i < losses.size(); ++i) {
        EXPECT_NEAR(losses[i], expected[4 + i], 2e-4 * expected[4 + i]) << from.strategy << " to " << to.strategy;
      }
    }
  }
}

TEST(Checkpoint, HoldsParametersAndNotTheirCopiesOf16BitsWhichItMakesAgain) {
  const model::Model model = model::parse_model("mlp:7-66-20-33-5-12");
  const std::unique_ptr<exec::Backend> backend = devices::make_backend("reference");
  for (const std::string strategy : {"single", "ddp", "zero-3"}) {
    const cluster::Cluster cluster(baton::test::cpus(2));
    const auto plan_for = [&](bool copies) {
      return strategy::compile({.model = model,
                                .cluster = cluster,
                                .strategy = strategy,
                                .step = {.global_batch = 8, .optimizer = op::Adam{}, .precision = strategy::Precision::bf16},
                                .target = {.copies = copies}});
    };
    const plan::Plan kept = plan_for(true);
    const plan::Plan cast = plan_for(false);
    EXPECT_EQ(tensors_of(kept), tensors_of(cast)) << strategy;
    exec::Executor whole(kept, cluster, *backend, {.seed = 3, .samples = 50});
    const std::vector<double> expected = whole.run({.steps = 6, .warmup = 0}).losses;
    exec::Executor first(kept, cluster, *backend, {.seed = 3, .samples = 50});
    first.run({.steps = 3, .warmup = 0});
    const Archive archive = snapshot(kept, first, {3, 3, model.name(), "adam"});
    for (const plan::Plan* plan : {&kept, &cast}) {
      exec::Executor second(*plan, cluster, *backend, {.seed = 4, .samples = 50});  // other weights, until it is restored
      exec::Executor third(*plan, cluster, *backend, {.seed = 3, .samples = 50});
      restore(*plan, second, archive);
      restore(*plan, third, archive);
      EXPECT_EQ(third.run({.steps = 3, .warmup = 0}).losses, std::vector<double>(expected.begin() + 3, expected.end())) << strategy;
      EXPECT_TRUE(snapshot(*plan, second, {3, 3, model.name(), "adam"}) == archive) << strategy;
    }
  }
}

TEST(Checkpoint, HasTheSameNamesAndShapesWhateverTheStrategy) {
  const Archive single = Trial("single", 1).save(0);
  EXPECT_TRUE(single.tensors.contains("block0.weight"));
  EXPECT_TRUE(single.tensors.contains("optimizer.1.block4.bias"));
  for (const Way& way : ways()) {
    EXPECT_TRUE(Trial(way.strategy, way.devices, way.layout).save(0) == single) << way.strategy << ", before the first step";
  }
}

TEST(Checkpoint, IsTheSameWhateverTheMemoryLayoutsOfTheBackend) {
  const auto trial = [](const Way& way, const std::string& backend) {
    return Trial(way.strategy, way.devices, way.layout, op::Adam{}, "mlp:7-66-20-33-5-12", backend);
  };
  for (const Way& way : ways()) {
    Trial reference = trial(way, "reference");
    Trial own = trial(way, "column_major");
    Trial tiled = trial(way, "cpu");
    EXPECT_TRUE(own.save(0) == reference.save(0)) << way.strategy;
    EXPECT_TRUE(tiled.save(0) == reference.save(0)) << way.strategy;
    EXPECT_EQ(own.train(3), reference.train(3)) << way.strategy;
    const Archive archive = own.save(3);
    EXPECT_TRUE(archive == reference.save(3)) << way.strategy;
    restore(*tiled.plan, *tiled.executor, archive);
    EXPECT_TRUE(tiled.save(3) == archive) << way.strategy;
  }
}

TEST(Checkpoint, OfAnotherModelOrOptimizerIsRefusedAndChangesNothing) {
  Trial run("ddp", 2);
  const Archive before = run.save(0);
  const auto refused = [&](const Archive& archive) { return usage_sentence([&] { restore(*run.plan, *run.executor, archive); }); };
  EXPECT_TRUE(says(refused(Trial("single", 1, {}, op::Adam{}, "mlp:7-66-20").save(1)), "has no block2"));
  EXPECT_TRUE(says(refused(Trial("single", 1, {}, op::Adam{}, "mlp:7-66-20-33-5-13").save(1)), "block4.bias is 13"));
  EXPECT_TRUE(says(refused(Trial("single", 1, {}, op::Sgd{}).save(1)), "has no optimizer.0."));
  EXPECT_TRUE(says(refused(Archive{}), "step"));
  EXPECT_TRUE(run.save(0) == before);
  Trial plain("single", 1, {}, op::Sgd{});
  EXPECT_TRUE(says(usage_sentence([&] { restore(*plain.plan, *plain.executor, before); }), "no place for"));
}

TEST(Checkpoint, HoldsTheLossScaler) {
  const strategy::LossScale scale{.initial = 1e30, .growth_interval = 3};  // far too high: it is halved until it fits
  Trial whole("ddp", 2, {}, op::Adam{}, "mlp:7-66-5", "cpu", scale);
  const std::vector<double> expected = whole.train(90);
  Trial first("ddp", 2, {}, op::Adam{}, "mlp:7-66-5", "cpu", scale);
  first.train(60);
  const Archive archive = first.save(60);
  ASSERT_TRUE(archive.tensors.contains("loss_scale"));
  Trial second("ddp", 2, {}, op::Adam{}, "mlp:7-66-5", "cpu", scale);
  restore(*second.plan, *second.executor, archive);
  EXPECT_EQ(second.train(30), std::vector<double>(expected.begin() + 60, expected.end()));
  EXPECT_TRUE(second.save(90) == whole.save(90));
  EXPECT_LT(expected.back(), expected.front()) << "it never trained";
}

TEST(Checkpoint, HoldsTheStatisticsOfTheFirstReplica) {
  const std::string model = "resnet:18,image=6,classes=3,width=2";
  Trial whole("ddp", 2, {}, op::Sgd{}, model);
  whole.train(3);
  const Archive archive = whole.save(3);
  ASSERT_TRUE(archive.tensors.contains("layer1.0.bn2.running_var"));
  const baton::test::Tensor& count = archive.tensors.at("bn1.num_batches_tracked");
  EXPECT_EQ(count.dtype, DType::i32);
  std::int32_t batches = 0;
  std::memcpy(&batches, count.bytes.data(), sizeof batches);
  EXPECT_EQ(batches, 3);
  Trial again("layers", 2, {}, op::Sgd{}, model);
  restore(*again.plan, *again.executor, archive);
  EXPECT_TRUE(again.save(3) == archive);
}

class CheckpointFolder : public testing::Test {
 protected:
  CheckpointFolder() : folder_(fs::temp_directory_path() / ("baton_checkpoints_" + std::to_string(::getpid()))) {}
  ~CheckpointFolder() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(CheckpointFolder, KeepsTheLastFewAndFindsTheNewest) {
  const Folder folder(folder_, 2);
  EXPECT_FALSE(folder.newest().has_value());
  Trial run("single", 1, {}, op::Sgd{}, "mlp:3-2");
  for (const std::int64_t step : {5, 10, 100, 2000}) {
    save(folder, run.save(step), step);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
  EXPECT_EQ(folder.newest()->archive->metadata().at("step"), "2000");
}

TEST_F(CheckpointFolder, TakesTheOneBeforeWhereTheNewestIsDamagedAndSaysSo) {
  const Folder folder(folder_, 3);
  Trial run("single", 1, {}, op::Sgd{}, "mlp:3-2");
  save(folder, run.save(5), 5);
  const fs::path newest = save(folder, run.save(6), 6);
  fs::resize_file(newest, fs::file_size(newest) - 3);
  const auto found = folder.newest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->archive->metadata().at("step"), "5");
  EXPECT_TRUE(says(found->skipped, newest.filename().string()));
  fs::resize_file(found->path, 9);
  EXPECT_TRUE(says(usage_sentence([&] { folder.newest(); }), "no checkpoint in"));
}

TEST_F(CheckpointFolder, NeverDropsTheOneJustSavedForDamagedOnesOfLaterSteps) {
  const Folder folder(folder_, 1);
  std::ofstream(folder_ / "step-000000000020.safetensors") << "damaged";
  Trial run("single", 1, {}, op::Sgd{}, "mlp:3-2");
  const fs::path saved = save(folder, run.save(11), 11);
  ASSERT_TRUE(fs::exists(saved));
  EXPECT_FALSE(fs::exists(folder_ / "step-000000000020.safetensors"));
  EXPECT_EQ(folder.newest()->path, saved);
}

TEST_F(CheckpointFolder, SaysWhereARunThatBeginsAnewWouldMixWithAnother) {
  const Folder folder(folder_, 3);
  folder.require_empty();
  Trial run("single", 1, {}, op::Sgd{}, "mlp:3-2");
  save(folder, run.save(11), 11);
  EXPECT_TRUE(says(usage_sentence([&] { folder.require_empty(); }), "step-000000000011.safetensors"));
}

TEST(Checkpoint, NamesATensorThatIsNotFinite) {
  Trial run("single", 1, {}, op::Sgd{}, "mlp:3-2");
  std::vector<std::byte> room = baton::test::room_for(*run.plan);
  int visited = 0;
  const auto count = [&](std::span<const std::byte>) { ++visited; };
  EXPECT_EQ(for_each_tensor(*run.plan, *run.executor, room, count), "");
  EXPECT_EQ(visited, 2);
  Archive archive = run.save(1);
  const float broken = std::numeric_limits<float>::quiet_NaN();
  auto& [name, tensor] = *archive.tensors.begin();
  std::memcpy(tensor.bytes.data(), &broken, sizeof broken);
  restore(*run.plan, *run.executor, archive);
  visited = 0;
  EXPECT_EQ(for_each_tensor(*run.plan, *run.executor, room, count), name);
  EXPECT_EQ(visited, 0) << "nothing of it is to be saved";
}

TEST_F(CheckpointFolder, HasOneRunAtATimeAndADeadOneKeepsItNot) {
  const auto open = [&] { const Folder second(folder_, 2); };
  {
    const Folder first(folder_, 2);
    EXPECT_TRUE(says(usage_sentence(open), "another run saves its checkpoints in"));
  }
  EXPECT_NO_THROW(open());
  const pid_t child = ::fork();
  if (child == 0) {
    const Folder held(folder_, 2);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(open());
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(CheckpointFolder, OfWhichAnotherRemovedAllFilesIsStillSavedTo) {
  const Folder folder(folder_, 1);
  Trial run("single", 1, {}, op::Sgd{}, "mlp:3-2");
  const Archive archive = run.save(1);
  const auto writer = folder.begin(1, baton::test::infos(archive), archive.metadata);
  for (const auto& [name, tensor] : archive.tensors) {
    writer->append(tensor.bytes);
  }
  fs::create_directories(folder_ / "elsewhere");
  EXPECT_TRUE(fs::exists(folder.finish(*writer)));
}

TEST(Checkpoint, ThatCouldNotBeReadAgainIsRefusedBeforeItIsWritten) {
  Tensors few{{"a", {DType::f32, Shape{1}}}};
  require_readable(few, {});
  EXPECT_TRUE(says(usage_sentence([&] { require_readable(few, {{"model", std::string(70'000, 'x')}}); }), "does not end"));
  Tensors many;
  for (int i = 0; i < 250'001; ++i) {
    many[std::to_string(i)] = {DType::f32, Shape{1}};
  }
  EXPECT_TRUE(says(usage_sentence([&] { require_readable(many, {}); }), "more than 250000 tensors"));
}

TEST_F(CheckpointFolder, ReadersOfAReaderKeepIt) {
  std::vector<std::byte> whole(6 * 8 * sizeof(float));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    whole[i] = static_cast<std::byte>(i);
  }
  const std::string name = "transformer.wpe.weight";
  const fs::path file = folder_ / "some.safetensors";
  fs::create_directories(folder_);
  write_archive(file, {.tensors = {{name, {DType::f32, Shape{6, 8}, whole}}}, .metadata = {}});
  const std::unique_ptr<TensorReader> fewer = shortened(std::make_shared<ArchiveReader>(file),
                                                        model::parse_model("gpt:depth=1,heads=2,dim=8,context=4,vocab=9"));
  EXPECT_EQ(fewer->tensors().at(name).shape, (Shape{4, 8}));
  std::vector<std::byte> part(4 * 8 * sizeof(float));
  fewer->read(name, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
  const SharedReader shared(ranks::make_world_of_one(), std::make_shared<ArchiveReader>(file));
  std::vector<std::byte> all(whole.size());
  shared.read(name, all);
  EXPECT_EQ(all, whole);
}

TEST_F(CheckpointFolder, TakesAwayWhatARunThatDiedLeftHalfWritten) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  fs::create_directories(folder_);
  const fs::path dead = folder_ / fmt::format("step-000000000002.safetensors.{}.tmp", child);
  const fs::path alive = folder_ / fmt::format("step-000000000002.safetensors.{}.tmp", ::getpid());
  const fs::path other = folder_ / fmt::format("other.{}.tmp", child);
  for (const fs::path& file : {dead, alive, other}) {
    std::ofstream(file) << "x";
  }
  const Folder again(folder_, 2);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(CheckpointFolder, IgnoresFilesThatAreNoneOfItsOwn) {
  const Folder folder(folder_, 1);
  std::ofstream(folder_ / "step-.safetensors") << "x";
  std::ofstream(folder_ / "step-000000000001.safetensors.123.tmp") << "half";
  EXPECT_FALSE(folder.newest().has_value());
}

}  // namespace
}  // namespace baton::checkpoint
