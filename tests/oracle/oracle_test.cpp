#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agree/training.h"
#include "baton/devices/backends.h"
#include "baton/model/parse.h"
#include "baton/op/traits.h"

/// Ten steps of what PyTorch trained, from the same weights and data; see README.md for where the numbers come from.
namespace baton::test {
namespace {

using nlohmann::json;

std::vector<std::string> recorded() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(BATON_TEST_DATA "/oracle/data")) {
    if (entry.path().extension() == ".json" && entry.path().stem() != "random" &&
        !entry.path().stem().string().starts_with("float64_")) {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

json read(const std::string& name) {
  std::ifstream file(fmt::format("{}/oracle/data/{}.json", BATON_TEST_DATA, name));
  return json::parse(file);
}

op::Optimizer optimizer(const json& settings) {
  const std::string name = settings.at("name");
  if (name == "sgd") {
    return op::Sgd{.rate = settings.at("lr"), .momentum = settings.value("momentum", 0.0)};
  }
  return op::Adam{.rate = settings.at("lr"),
                  .beta1 = settings.at("betas").at(0),
                  .beta2 = settings.at("betas").at(1),
                  .epsilon = settings.at("eps"),
                  .weight_decay = settings.value("weight_decay", 0.0),
                  .decoupled = name == "adamw"};
}

/// Losses: 1e-5 relative, since PyTorch's own float32 and float64 losses lie within 2e-6 of each other.
/// Weights: a value may be off by ten times what PyTorch's float32 is off from its own float64 on that tensor's case
/// (`float64_parameter_difference`, at most 4e-7), a sum of n values by that times √n, as independent roundings add
/// up, and twice over for the luck of the draw.
void expect_pytorchs_numbers(const Case& one, const json& oracle) {
  SCOPED_TRACE(to_text(one));
  const std::vector<double> losses = oracle.at("losses");
  const Outcome outcome = train(one, oracle.at("steps"), {.seed = oracle.at("seed")});
  ASSERT_EQ(outcome.losses.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], losses[i], 1e-5 * std::abs(losses[i])) << "step " << i;
  }
  const double off = 10 * oracle.at("float64_parameter_difference").get<double>();
  ASSERT_EQ(outcome.after.size(), oracle.at("parameters").size());
  for (const json& parameter : oracle.at("parameters")) {
    const std::string name = parameter.at("name");
    ASSERT_TRUE(outcome.after.contains(name)) << name;
    const std::vector<double>& values = outcome.after.at(name);
    const std::vector<double> first = parameter.at("first");
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_NEAR(values[i], first[i], off) << name << '[' << i << ']';
    }
    double sum = 0;
    double moved = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      moved += values[i] - outcome.before.at(name)[i];
    }
    const double sum_off = 2 * off * std::sqrt(static_cast<double>(values.size()));
    EXPECT_NEAR(sum, parameter.at("sum").get<double>(), sum_off) << name << ", which moved by " << moved << " in all";
  }
}

/// Gradients of the first step: 1e-4 of a tensor's largest entry, and a sum of n of them by that times √n. The rate lets them be
/// read off a plain step without losing digits to the weights' own rounding.
void expect_pytorchs_gradients(Case one, const json& oracle) {
  constexpr double rate = 64;
  one.step.optimizer = op::Sgd{.rate = rate};
  SCOPED_TRACE(to_text(one));
  const Outcome outcome = train(one, 1, {.seed = oracle.at("seed")});
  for (const json& parameter : oracle.at("parameters")) {
    const std::string name = parameter.at("name");
    const std::vector<double> first = parameter.at("gradient");
    const double off = 1e-4 * parameter.at("gradient_largest").get<double>();
    const auto gradient = [&](std::size_t i) { return (outcome.before.at(name)[i] - outcome.after.at(name)[i]) / rate; };
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_NEAR(gradient(i), first[i], off) << name << '[' << i << ']';
    }
    double sum = 0;
    for (std::size_t i = 0; i < outcome.after.at(name).size(); ++i) {
      sum += gradient(i);
    }
    EXPECT_NEAR(sum, parameter.at("gradient_sum").get<double>(),
                off * std::sqrt(static_cast<double>(outcome.after.at(name).size())))
        << name;
  }
}

/// Whether some norm takes all samples of a micro-batch together, so that replicas compute something else than one device.
bool follows_the_division_of_the_batch(const model::Model& model) {
  for (const model::Block& block : model.blocks()) {
    for (const model::Node& node : block.nodes) {
      if (op::samples_together(node.op) == 0) {
        return true;
      }
    }
  }
  return false;
}

class Oracle : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(PyTorch, Oracle, testing::ValuesIn(recorded()), [](const auto& one) {
  std::string name = one.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

Case case_of(const json& oracle) {
  Case one;
  one.model = oracle.at("model");
  one.step = {.global_batch = oracle.at("batch"),
              .loss = oracle.at("loss") == "mse" ? strategy::Loss::mean_squared_error : strategy::Loss::cross_entropy,
              .optimizer = optimizer(oracle.at("optimizer"))};
  return one;
}

TEST_P(Oracle, TheReferenceBackendTrainsAsPyTorchDoes) { expect_pytorchs_numbers(case_of(read(GetParam())), read(GetParam())); }

TEST_P(Oracle, TheCpuBackendTrainsAsPyTorchDoes) {
  Case one = case_of(read(GetParam()));
  one.backend = "cpu";
  expect_pytorchs_numbers(one, read(GetParam()));
}

/// Those of which gradients are recorded.
class OracleOfNetworks : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(PyTorch, OracleOfNetworks,
                         testing::Values("cnn_cross-entropy_momentum", "resnet_cross-entropy_momentum",
                                         "resnet-groups_cross-entropy_sgd", "gpt_momentum", "llama_momentum", "llama-base_sgd",
                                         "vit_momentum", "mixer_momentum"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(OracleOfNetworks, TheFirstGradientsArePyTorchs) {
  const json oracle = read(GetParam());
  for (const std::string backend : {"reference", "cpu"}) {
    Case one = case_of(oracle);
    one.backend = backend;
    expect_pytorchs_gradients(one, oracle);
  }
}

/// Statistics that norms keep for evaluation: momentum, the unbiased variance and the count as in PyTorch.
TEST(OracleOfNorms, RunningStatisticsArePyTorchs) {
  for (const std::string name : {"resnet_cross-entropy_momentum", "resnet-groups_cross-entropy_sgd"}) {
    const json oracle = read(name);
    for (const std::string backend : {"reference", "cpu"}) {
      Case one = case_of(oracle);
      one.backend = backend;
      SCOPED_TRACE(to_text(one));
      Training training(one, {.seed = oracle.at("seed")});
      training.run(oracle.at("steps"));
      const Weights kept = training.statistics();
      ASSERT_EQ(kept.size(), oracle.at("statistics").size());
      for (const json& statistic : oracle.at("statistics")) {
        const std::vector<double>& values = kept.at(statistic.at("name"));
        const std::vector<double> first = statistic.at("first");
        double sum = 0;
        double largest = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          sum += values[i];
          largest = std::max(largest, std::abs(values[i]));
          if (i < first.size()) {
            EXPECT_NEAR(values[i], first[i], 1e-5 * std::max(1.0, std::abs(first[i]))) << statistic.at("name") << '[' << i << ']';
          }
        }
        EXPECT_NEAR(sum, statistic.at("sum").get<double>(), 1e-5 * std::max(1.0, largest) * static_cast<double>(values.size()))
            << statistic.at("name");
      }
    }
  }
}

/// The form for evaluation, with the statistics that training kept.
TEST(OracleOfNorms, EvaluationGivesPyTorchsScores) {
  for (const std::string name : {"resnet_cross-entropy_momentum", "resnet-groups_cross-entropy_sgd"}) {
    const json oracle = read(name);
    const std::vector<double> scores = oracle.at("scores");
    for (const std::string backend : {"reference", "cpu"}) {
      Case one = case_of(oracle);
      one.backend = backend;
      SCOPED_TRACE(to_text(one));
      Training trained(one, {.seed = oracle.at("seed")});
      trained.run(oracle.at("steps"));
      Weights kept = trained.weights();
      kept.merge(trained.statistics());
      const model::Model model = model::for_evaluation(model_of(one.model));
      one.step.forward_only = true;
      const std::unique_ptr<exec::Backend> kernels = devices::make_backend(backend);
      const plan::Plan plan = strategy::compile(
          {.model = model, .cluster = trained.cluster(), .step = one.step, .target = kernels->target()});
      exec::Executor executor(plan, trained.cluster(), *kernels, {.seed = oracle.at("seed")});
      BufferId output;
      for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
        const plan::Buffer& buffer = plan.buffers()[b];
        if (!buffer.persistent) {
          continue;
        }
        if (const auto* part = std::get_if<plan::ParameterPart>(&buffer.content)) {
          executor.write(BufferId(b), kept.at(part->name));
        } else if (std::holds_alternative<plan::ValuePart>(buffer.content)) {
          output = BufferId(b);
        }
      }
      executor.run({.steps = 1, .warmup = 0});
      ASSERT_TRUE(output.valid());
      const std::vector<double> given = executor.read(output);
      ASSERT_EQ(given.size(), scores.size());
      for (std::size_t i = 0; i < scores.size(); ++i) {
        EXPECT_NEAR(given[i], scores[i], 2e-4 * std::max(1.0, std::abs(scores[i]))) << "score " << i;
      }
    }
  }
}

/// Dividing over two devices needs two rows or two blocks. The reference's plain loops need seconds for the large
/// models, which the cpu backend covers.
TEST_P(Oracle, TwoDevicesTrainAsPyTorchDoes) {
  const json oracle = read(GetParam());
  for (const std::string& backend : devices::backend_names()) {
    for (const std::string strategy : {"dp", "ddp", "layers"}) {
      Case one = case_of(oracle);
      const model::Model model = model::parse_model(one.model);
      if ((strategy == "layers" ? static_cast<std::int64_t>(model.blocks().size()) : one.step.global_batch) < 2 ||
          (backend == "reference" &&
           (one.step.global_batch * model.parameter_count() > 5'000'000 || model.input().elements() > 5'000)) ||
          (strategy != "layers" && follows_the_division_of_the_batch(model))) {
        continue;
      }
      one.backend = backend;
      one.strategy = strategy;
      one.devices = 2;
      expect_pytorchs_numbers(one, oracle);
    }
  }
}

TEST(OracleInDoubles, AResnetOfBottlenecksHasPyTorchsLossesAndGradients) {
  const json oracle = read("float64_resnet-50");
  Case one;
  one.model = oracle.at("model");
  one.step = {.global_batch = oracle.at("batch"),
              .loss = strategy::Loss::cross_entropy,
              .optimizer = op::Sgd{.rate = oracle.at("rate")},
              .precision = strategy::Precision::fp64};
  const std::vector<double> losses = oracle.at("losses");
  const std::vector<double> ours = train(one, 3, {.seed = oracle.at("seed")}).losses;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(ours[i], losses[i], 1e-7 * losses[i]) << "step " << i;
  }
  one.step.optimizer = op::Sgd{.rate = 1};  // the gradient is then how far a step goes
  const Outcome step = train(one, 1, {.seed = oracle.at("seed")});
  ASSERT_EQ(oracle.at("parameters").size(), step.after.size());
  for (const json& parameter : oracle.at("parameters")) {
    const std::string name = parameter.at("name");
    const double norm = parameter.at("gradient_norm");
    const std::vector<double> first = parameter.at("gradient");
    double squares = 0;
    for (std::size_t i = 0; i < step.after.at(name).size(); ++i) {
      const double gradient = step.before.at(name)[i] - step.after.at(name)[i];
      squares += gradient * gradient;
      if (i < first.size()) {
        EXPECT_NEAR(gradient, first[i], 1e-7 * norm) << name << '[' << i << ']';
      }
    }
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-7 * norm) << name;
  }
}

TEST(OracleFiles, AreThere) { EXPECT_GE(recorded().size(), 20U); }

}  // namespace
}  // namespace baton::test
