#include <algorithm>

#include "agree/training.h"
#include "baton/devices/backends.h"
#include "baton/model/zoo.h"
#include "baton/op/optimizer.h"

namespace baton::test {
namespace {

using strategy::Loss;

/// Rates at which ten steps move the weights by a good part of themselves, so that an error shows.
op::Optimizer optimizer(std::string_view name) {
  op::Optimizer optimizer = op::optimizer_by_name(name);
  if (auto* sgd = std::get_if<op::Sgd>(&optimizer)) {
    sgd->rate = sgd->momentum != 0 ? 0.2 : 1;
  } else {
    std::get<op::Adam>(optimizer).rate = 0.002;
  }
  return optimizer;
}

Case training_of(std::string model, std::int64_t batch, std::string_view optimizer_name, Loss loss) {
  return {.model = std::move(model), .step = {.global_batch = batch, .loss = loss, .optimizer = optimizer(optimizer_name)}};
}

/// Every optimizer with every loss on the smallest model; two of them on each larger one. Batches divide evenly over
/// hardly any number of devices; widths are odd, or lie on both sides of the 64 that weights are tiled by.
std::vector<Case> trainings() {
  std::vector<Case> list;
  for (const std::string& name : op::optimizer_names()) {
    list.push_back(training_of("mlp:7-33-20-5", 7, name, Loss::mean_squared_error));
    list.push_back(training_of("mlp:7-33-20-5", 13, name, Loss::cross_entropy));
  }
  list.push_back(training_of("mlp:dim=64,depth=6", 13, "sgd", Loss::mean_squared_error));
  list.push_back(training_of("mlp:dim=64,depth=6", 7, "adam", Loss::cross_entropy));
  list.push_back(training_of("mlp:dim=100,depth=5", 7, "adamw", Loss::mean_squared_error));
  list.push_back(training_of("mlp:dim=100,depth=5", 13, "momentum", Loss::cross_entropy));
  list.push_back(training_of("mlp:9-130-70-65-64-3", 5, "sgd", Loss::cross_entropy));
  list.push_back(training_of("mlp:9-130-70-65-64-3", 13, "momentum", Loss::mean_squared_error));
  list.push_back(training_of("mlp:dim=24,depth=10", 13, "momentum", Loss::mean_squared_error));
  for (const std::string name : {"sgd", "adamw"}) {
    list.push_back(training_of("mlp:7-33-20-5", 7, name, Loss::mean_squared_error));
    std::visit(
        [](auto& settings) {
          settings.weight_decay = 0.1;
          settings.schedule = op::parse_schedule("cosine:until=8,warmup=3,floor=0.2");
          settings.decay_matrices = true;
        },
        list.back().step.optimizer);
  }
  return list;
}

/// Where it comes from: a sum of n ≤ 130 products in float32 is off by √n · 2⁻²⁴ ≈ 7e-7 of its terms' size as a rule,
/// and by n · 2⁻²⁴ ≈ 8e-6 at worst. Gradients are such sums, and plain descent adds ten of them up, so it stays within
/// 1e-5 of how far it went. Adam divides each gradient by its own size: an element whose terms cancel to a thousandth
/// of themselves is off by a thousand times as much. Such elements are few, so a tensor as a whole stays near while one
/// of its thousands may stray. Losses feel weights of all kinds together. (Seen at most: sgd 3e-8 in the loss and the
/// weights' own rounding; adam 7e-7, 4e-5 typical, 4e-3 worst.)
Tolerance tolerance(const Case& one) {
  return std::holds_alternative<op::Adam>(one.step.optimizer) ? Tolerance{.loss = 5e-6, .typical = 2e-4, .worst = 2e-2}
                                                              : Tolerance{.loss = 5e-7, .typical = 1e-6, .worst = 1e-5};
}

/// What the reference backend leaves on one device: by the number of the training, each worked out once.
const Outcome& judge(std::size_t training) {
  static std::map<std::size_t, Outcome> judged;
  const auto found = judged.find(training);
  return found != judged.end() ? found->second : judged.emplace(training, train(trainings()[training])).first->second;
}

struct Way {
  std::string strategy;
  std::string backend;
  std::size_t devices;
};

std::vector<Way> ways() {
  std::vector<Way> list;
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    for (const std::string& backend : devices::backend_names()) {
      for (std::size_t devices = 1; devices <= 5; ++devices) {
        list.push_back({strategy.name(), backend, devices});
      }
    }
  }
  return list;
}

std::string name_of(const testing::TestParamInfo<Way>& info) {
  std::string name = info.param.strategy + "_" + info.param.backend + "_" + std::to_string(info.param.devices);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool one_of(std::initializer_list<std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Agreement : public testing::TestWithParam<Way> {};

TEST_P(Agreement, TenStepsLeaveTheLossesAndWeightsThatTheReferenceLeavesOnOneDevice) {
  const std::vector<Case> list = trainings();
  int compared = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Case one = list[i];
    one.strategy = GetParam().strategy;
    one.backend = GetParam().backend;
    one.devices = GetParam().devices;
    if (const auto outcome = train_unless_refused(one)) {  // too few blocks or features, as tests/unit/strategy says
      ++compared;
      EXPECT_TRUE(close(judge(i), *outcome, tolerance(one))) << to_text(one);
    }
  }
  const bool always = one_of({"single", "dp", "ddp", "zero-1", "zero-2", "zero-3"}, GetParam().strategy);
  EXPECT_GE(compared, always ? static_cast<int>(list.size()) : 1);
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Agreement, testing::ValuesIn(ways()), name_of);

TEST(Agreement, TheJudgeLearnsSomethingInEveryTraining) {
  for (std::size_t i = 0; i < trainings().size(); ++i) {
    const Outcome& outcome = judge(i);
    EXPECT_LT(outcome.losses.back(), 0.999 * outcome.losses.front()) << to_text(trainings()[i]);
  }
}

TEST(Agreement, UnevenSplitsOfTheLayersAgreeWithTheJudge) {
  const Case six = trainings()[8];
  const Outcome expected = train(six);
  for (const std::string& backend : devices::backend_names()) {
    for (const std::vector<std::int64_t>& split : std::vector<std::vector<std::int64_t>>{{1, 3, 2}, {5, 1}, {1, 5}, {2, 1, 1, 2}}) {
      Case one = six;
      one.strategy = "layers";
      one.backend = backend;
      one.devices = split.size();
      one.layout.split = split;
      EXPECT_TRUE(close(expected, train(one), tolerance(one))) << to_text(one);
    }
  }
}

TEST(Agreement, BucketsOfAnySizeLeaveTheSameBits) {
  for (const std::string& backend : devices::backend_names()) {
    Case one = trainings()[12];
    one.strategy = "ddp";
    one.backend = backend;
    one.devices = 3;
    const Outcome whole = train(one);
    for (const std::int64_t bucket : {1, 1000, 20000}) {
      one.layout = {.bucket = Bytes(bucket), .first_bucket = Bytes(bucket / 2 + 1)};
      EXPECT_TRUE(same_bits(whole, train(one))) << to_text(one) << ", buckets of " << bucket << " bytes";
    }
  }
}

TEST(Agreement, MicroBatchesAddUpToTheWholeBatch) {
  for (const std::size_t training : {1U, 8U}) {
    for (const strategy::Strategy& strategy : strategy::strategies()) {
      for (const std::string& backend : devices::backend_names()) {
        for (const std::size_t devices : {1U, 2U, 3U}) {
          for (const std::int64_t pieces : {2, 3}) {
            Case one = trainings()[training];
            one.strategy = strategy.name();
            one.backend = backend;
            one.devices = devices;
            one.layout.micro_batches = pieces;
            if (const auto outcome = train_unless_refused(one)) {
              EXPECT_TRUE(close(judge(training), *outcome, tolerance(one))) << to_text(one);
            } else {
              EXPECT_GT(devices, 1U) << to_text(one) << " was refused";
            }
          }
        }
      }
    }
  }
}

TEST(Agreement, DataThatChangesEveryStepIsTheSameDataHoweverItIsSplit) {
  Case one = trainings()[9];
  const exec::DataOptions data{.seed = 7, .samples = 40};  // no multiple of the batch: it begins again in the middle
  const Outcome expected = train(one, 10, data);
  EXPECT_FALSE(same_bits(expected.losses, train(one, 10, {.seed = 7}).losses)) << "the data did not change";
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    for (const std::string& backend : devices::backend_names()) {
      for (const std::size_t devices : {1U, 2U, 3U, 5U}) {
        one.strategy = strategy.name();
        one.backend = backend;
        one.devices = devices;
        if (const auto outcome = train_unless_refused(one, 10, data)) {
          EXPECT_TRUE(close(expected, *outcome, tolerance(one))) << to_text(one);
        } else {
          EXPECT_GT(devices, 3U) << to_text(one) << " was refused";
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::test
