#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/strategy.h"
#include "unit/strategy/drafts.h"

namespace baton::strategy {
namespace {

using plan::Lane;
using plan::Role;
using plan::Rule;
using plan::Task;

struct Drawn {
  std::string model;
  std::string strategy;
  std::size_t devices;
  Step step;
  Layout layout;
};

/// Any strategy, for models with numbers, classes, images and tokens.
Drawn draw(std::mt19937& random) {
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  const std::vector<std::string> models{"mlp:7-6-5-4-3",
                                        "mlp:dim=8,depth=4",
                                        "cnn:4-6,image=8,channels=2,classes=5",
                                        "gpt:depth=2,heads=2,dim=8,context=6,vocab=11",
                                        "llama:depth=2,heads=2,kv-heads=2,dim=8,hidden=16,context=4,vocab=10",
                                        "vit:depth=2,heads=2,dim=8,patch=4,image=8,classes=4"};
  const std::vector<std::string> names{"single", "dp", "ddp", "layers", "gpipe", "1f1b", "zb-h1", "tensor", "zero-1", "zero-3"};
  Drawn drawn{.model = pick(models), .strategy = pick(names), .devices = 1 + random() % 3, .step = {}, .layout = {}};
  drawn.step.global_batch = 6 + static_cast<std::int64_t>(random() % 7);
  drawn.step.precision = pick(std::vector{Precision::fp32, Precision::fp32, Precision::bf16});
  drawn.step.loss = model::parse_model(drawn.model).output_kind() == model::Output::scores ? Loss::cross_entropy
                                                                                           : Loss::mean_squared_error;
  drawn.layout.micro_batches = static_cast<std::int64_t>(random() % 3);
  drawn.devices = drawn.strategy == "single" ? 1 : drawn.devices;
  return drawn;
}

/// nullopt if the strategy refuses.
std::optional<plan::Plan> compiled(const Drawn& drawn, plan::Target target) {
  const model::Model model = model::parse_model(drawn.model);
  try {
    return compile({.model = model,
                    .cluster = devices(drawn.devices),
                    .strategy = drawn.strategy,
                    .step = drawn.step,
                    .layout = drawn.layout,
                    .target = std::move(target)});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage) << error.what();
    return std::nullopt;
  }
}

std::string told(const plan::Verdict& verdict) { return verdict.holds() ? "" : verdict.violations.front().text; }

TEST(LoadAhead, EveryStrategyLoadsTheNextRowsBesideTheStep) {
  std::mt19937 random(20);
  int valid = 0;
  for (int i = 0; i < 150; ++i) {
    Drawn drawn = draw(random);
    const std::optional<plan::Plan> without = compiled(drawn, {.loads = true});
    drawn.step.loads_ahead = true;
    const std::optional<plan::Plan> plain = compiled(drawn, {});
    const std::optional<plan::Plan> plan = compiled(drawn, {.loads = true});
    ASSERT_EQ(plan.has_value(), without.has_value());
    if (!plan) {
      continue;
    }
    ++valid;
    EXPECT_EQ(*plain, *without) << "a backend that does not load gets the plan without";
    const plan::Verdict verdict = plan::verify(*plan);
    ASSERT_TRUE(verdict.holds()) << drawn.strategy << " of " << drawn.model << ": " << told(verdict);
    EXPECT_EQ(plan::parse(plan::to_text(*plan)), *plan);
    std::set<BufferId> loaded;
    for (const Task& task : plan->tasks()) {
      if (std::holds_alternative<plan::Load>(task.action)) {
        EXPECT_EQ(task.lane, Lane::host);
        loaded.insert(task.writes.begin(), task.writes.end());
      }
    }
    std::size_t kept = 0;
    for (const plan::Buffer& buffer : plan->buffers()) {
      kept += buffer.persistent && (buffer.role == Role::input || buffer.role == Role::target) ? 1 : 0;
    }
    EXPECT_EQ(loaded.size(), kept);
    EXPECT_GT(kept, 0U);
  }
  EXPECT_GT(valid, 60);
}

/// A plan that loads ahead, with tasks that a test changes.
class Changed {
 public:
  Changed() {
    const model::Model model = model::parse_model("mlp:4-3-2");
    const plan::Plan plan = compile(
        {.model = model, .cluster = devices(1), .step = {.global_batch = 4, .loads_ahead = true}, .target = {.loads = true}});
    buffers = plan.buffers();
    tasks = plan.tasks();
    graph = plan.graph();
    names = plan.devices();
  }
  Task& first(bool (*wanted)(const Task&)) { return *std::find_if(tasks.begin(), tasks.end(), wanted); }
  static bool loads(const Task& task) { return std::holds_alternative<plan::Load>(task.action); }
  static bool takes(const Task& task) { return std::holds_alternative<plan::Take>(task.action); }
  static bool computes(const Task& task) { return std::holds_alternative<plan::Compute>(task.action); }

  std::vector<Rule> broken() const {
    std::vector<Rule> rules;
    for (const plan::Violation& violation : plan::verify(plan::Plan("", names, buffers, tasks, graph)).violations) {
      rules.push_back(violation.rule);
    }
    return rules;
  }

  std::vector<plan::Buffer> buffers;
  std::vector<Task> tasks;
  plan::Graph graph;
  std::vector<std::string> names;
};

TEST(LoadAhead, ABufferThatIsReadWhileItIsLoadedIsCaught) {
  EXPECT_EQ(Changed().broken(), std::vector<Rule>{});
  Changed reads;  // the first product takes what is being loaded
  const Task& take = reads.first(Changed::takes);
  std::vector<BufferId>& operands = reads.first(Changed::computes).reads;
  std::replace(operands.begin(), operands.end(), take.writes[0], take.reads[0]);
  ASSERT_FALSE(reads.broken().empty());
  EXPECT_EQ(reads.broken().front(), Rule::ordered);
  Changed early;  // the next rows are loaded without waiting for these to be taken
  early.first(Changed::loads).after.clear();
  ASSERT_FALSE(early.broken().empty());
  EXPECT_EQ(early.broken().front(), Rule::ordered);
}

TEST(LoadAhead, RowsThatAreNotLoadedOrTakenFromElsewhereAreCaught) {
  Changed missing;
  missing.first(Changed::loads).writes.pop_back();
  EXPECT_EQ(missing.broken(), std::vector{Rule::update}) << "the targets stay those of the first step";
  Changed lane;
  lane.first(Changed::loads).lane = Lane::compute;
  EXPECT_EQ(lane.broken().front(), Rule::shape);
  Changed weights;
  weights.first(Changed::loads).writes.push_back(weights.first(Changed::computes).reads[1]);
  EXPECT_EQ(weights.broken().front(), Rule::shape);
  Changed swapped;
  std::swap(swapped.first(Changed::takes).reads[0], swapped.first(Changed::takes).reads[1]);
  EXPECT_EQ(swapped.broken().front(), Rule::shape);
  Changed late;  // taken after the next rows were loaded
  const auto take = std::find_if(late.tasks.begin(), late.tasks.end(), Changed::takes);
  const auto load = std::find_if(late.tasks.begin(), late.tasks.end(), Changed::loads);
  load->after.clear();
  take->after = {TaskId(static_cast<std::size_t>(load - late.tasks.begin()))};
  EXPECT_EQ(late.broken(), std::vector{Rule::update});
}

TEST(ForwardOnly, KeepsTheWholeOutputAndUpdatesNothing) {
  std::mt19937 random(21);
  int valid = 0;
  for (int i = 0; i < 150; ++i) {
    Drawn drawn = draw(random);
    if (drawn.strategy.starts_with("zero")) {
      continue;  // evaluated as ddp
    }
    drawn.step.forward_only = true;
    const std::optional<plan::Plan> plan = compiled(drawn, {});
    if (!plan) {
      continue;
    }
    ++valid;
    const plan::Verdict verdict = plan::verify(*plan);
    ASSERT_TRUE(verdict.holds()) << drawn.strategy << " of " << drawn.model << ": " << told(verdict);
    for (const Task& task : plan->tasks()) {
      EXPECT_EQ(task.labels.phase, plan::Phase::forward);
      EXPECT_FALSE(std::holds_alternative<plan::Update>(task.action));
    }
    const model::Model model = model::parse_model(drawn.model);
    std::set<std::vector<std::pair<std::int64_t, std::int64_t>>> parts;  // several devices may hold the same
    std::int64_t held = 0;
    for (const plan::Buffer& buffer : plan->buffers()) {
      const auto* part = std::get_if<plan::ValuePart>(&buffer.content);
      if (part == nullptr || !buffer.persistent) {
        continue;
      }
      std::vector<std::pair<std::int64_t, std::int64_t>> at;
      for (const Range& range : part->at) {
        at.emplace_back(range.begin, range.end);
      }
      held += parts.insert(at).second ? buffer.shape.elements() : 0;
    }
    EXPECT_EQ(held, drawn.step.global_batch * model.output().elements()) << drawn.strategy << " of " << drawn.model;
  }
  EXPECT_GT(valid, 60);
}

}  // namespace
}  // namespace baton::strategy
