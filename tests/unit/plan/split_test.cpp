#include "baton/plan/split.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "baton/op/traits.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"
#include "support/tiled_weights.h"
#include "unit/plan/evaluate.h"
#include "unit/plan/mutate_split.h"
#include "unit/plan/random_plans.h"

namespace baton::plan {
namespace {

using test::SplitMutation;

struct Case {
  std::string name;
  Plan plan;
};

/// How many mutants are made; `BATON_MUTANTS=50000` in the environment makes it this many, `BATON_PLANS_SEED` begins elsewhere.
std::size_t wanted_mutants() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::int64_t few = 500;
#else
  constexpr std::int64_t few = 5000;
#endif
  return static_cast<std::size_t>(test::from_environment("BATON_MUTANTS", few));
}

std::mt19937 seeded(std::int64_t otherwise) {
  return std::mt19937(static_cast<std::uint32_t>(test::from_environment("BATON_PLANS_SEED", otherwise)));
}

/// Plans of any model and any strategy, drawn at random.
void add_drawn(std::vector<Case>& all) {
  std::mt19937 random = seeded(19);
  for (const std::size_t wanted = all.size() + wanted_mutants() / 50; all.size() < wanted;) {
    const test::DrawnRequest drawn = test::draw_request(random);
    try {
      all.push_back({drawn.text, strategy::compile(drawn.request)});
    } catch (const Error&) {
      // It asks for what cannot be made.
    }
  }
}

/// Plans of all strategies: chains and residual models, sequences, micro-batches, products, ZeRO, fused and mixed.
const std::vector<Case>& cases() {
  static const std::vector<Case> list = [] {
    std::vector<Case> all;
    struct Way {
      std::string strategy;
      std::size_t devices;
      strategy::Layout layout = {};
    };
    std::vector<Way> ways{
        {"single", 1},
        {"single", 1, {.recompute = strategy::Recompute::alternate, .micro_batches = 2}},
        {"single", 1, {.recompute = strategy::Recompute::light}},
        {"dp", 3},
        {"dp", 2, {.micro_batches = 2}},
        {"ddp", 2, {.bucket = Bytes(100), .first_bucket = Bytes(40)}},
        {"ddp", 3, {.micro_batches = 2}},
        {"layers", 2},
        {"gpipe", 2, {.micro_batches = 3}},
        {"1f1b", 2, {.recompute = strategy::Recompute::all, .micro_batches = 2}},
        {"interleaved", 2, {.micro_batches = 2}},
        {"zb-h1", 2, {.micro_batches = 3}},
        {"zb-v", 2, {.micro_batches = 2}},
        {"tensor", 2},
        {"tensor", 3, {.micro_batches = 2}},
        {"zero-1", 2},
        {"zero-1", 3, {.micro_batches = 2}},
        {"zero-2", 2, {.micro_batches = 2}},
        {"zero-3", 3, {.micro_batches = 2}},
        {"product", 4, {.dp = 2, .tp = 2, .zero = 2}},
        {"product", 4, {.dp = 2, .pp = 2, .schedule = "1f1b", .micro_batches = 2}},
        {"product", 4, {.pp = 2, .tp = 2, .schedule = "gpipe", .micro_batches = 2}},
        {"product", 8, {.dp = 2, .pp = 2, .tp = 2, .zero = 3, .schedule = "1f1b", .micro_batches = 2}},
        {"tensor", 2, {.sp = true}},
        {"product", 4, {.dp = 2, .tp = 2, .sp = true, .zero = 3, .recompute = strategy::Recompute::light}},
        {"zb-h1", 2, {.recompute = strategy::Recompute::light, .micro_batches = 3}},
        {"product", 4, {.dp = 2, .tp = 2, .sp = true}},
        {"product", 6, {.dp = 3, .tp = 2, .sp = true, .zero = 1}},  // some have no piece of a small parameter
    };
    const std::vector<plan::Target> targets{
        {},
        {.joined = op::joint_ops(), .gradient_with_sgd = true, .all_reduce_with_sgd = true, .layout = baton::test::tiled_weights},
        {.joined = op::joint_ops(),
         .gradient_with_sgd = true,
         .narrow_gradient_with_sgd = {DType::bf16, DType::f16},
         .adds = true,
         .copies = true}};
    std::size_t turn = 0;
    for (const std::string name :
         {"mlp:4-6-4-6-4", "mlp:3-5-4-7-2", "residual:dim=4,hidden=6,depth=4", "residual:dim=4,depth=4,sequence=4",
          "residual:dim=3,hidden=4,depth=4,sequence=5", "graph:gelu,depth=4,sequence=3", "graph:tied,depth=4",
          "gpt:depth=1,heads=2,dim=4,context=3,vocab=4", "llama:depth=1,heads=4,kv-heads=2,dim=8,hidden=3,context=3,vocab=5",
          "cnn:2-1,image=4,channels=1,classes=3", "vit:depth=1,heads=2,dim=4,patch=2,image=4,classes=3",
          "resnet:18,image=8,classes=3,width=1,group=1", "tokens:vocabulary=5,dim=3,hidden=4,depth=2,sequence=4",
          "tokens:vocabulary=4,dim=2,hidden=3,depth=2,sequence=3"}) {
      const model::Model model = test::model_of(name);
      for (const Way& way : ways) {
        const cluster::Cluster cluster(baton::test::cpus(way.devices, way.devices));
        strategy::Request request{.model = model, .cluster = cluster, .strategy = way.strategy, .layout = way.layout};
        request.step.global_batch = 13;
        request.step.loss = turn % 3 == 1 || name.find("vocab") != std::string::npos ? strategy::Loss::cross_entropy
                                                                                     : strategy::Loss::mean_squared_error;
        request.step.optimizer = op::optimizer_by_name(turn % 4 == 3 ? "adamw" : turn % 4 == 2 ? "momentum" : "sgd");
        if (turn % 7 == 2 || turn % 7 == 5) {
          std::visit([&](auto& optimizer) { optimizer.clip = 0.05; }, request.step.optimizer);
        }
        if (turn % 5 == 3) {
          request.step.precision = strategy::Precision::fp16;
          request.step.loss_scale = strategy::LossScale{};
        }
        request.target = targets[turn++ % 3];
        try {
          all.push_back({fmt::format("{} on {} of {}", way.strategy, way.devices, name), strategy::compile(request)});
        } catch (const Error&) {
          // Some models have no sequence, or too few layers for a stage.
        }
      }
    }
    add_drawn(all);
    return all;
  }();
  return list;
}

TEST(Split, EveryStrategyComputesTheModel) {
  EXPECT_GT(cases().size(), 220U);
  for (const Case& one : cases()) {
    const Verdict verdict = verify(one.plan);
    EXPECT_TRUE(verdict.holds()) << one.name << ": " << (verdict.holds() ? "" : verdict.violations[0].text);
    EXPECT_FALSE(one.plan.graph().empty());
    EXPECT_TRUE(parse(to_text(one.plan)) == one.plan) << one.name;
  }
}

TEST(Split, AGroupOfSamplesThatANormTakesTogetherIsNotDivided) {
  const model::Model model = model::parse_model("resnet:18,image=8,classes=3,width=1,group=2");
  const cluster::Cluster cluster(baton::test::cpus(3, 3));
  strategy::Request request{.model = model, .cluster = cluster, .strategy = "ddp"};
  request.step.global_batch = 6;
  const Plan plan = strategy::compile(request);
  ASSERT_TRUE(verify(plan).holds());
  // The second replica takes samples 1 and 2 in place of 2 and 3.
  std::vector<Buffer> buffers = plan.buffers();
  for (Buffer& buffer : buffers) {
    if (auto* rows = std::get_if<BatchRows>(&buffer.content); rows != nullptr && buffer.device == DeviceId(1)) {
      rows->begin -= 1;
      rows->end -= 1;
    } else if (auto* part = std::get_if<ValuePart>(&buffer.content); part != nullptr && buffer.device == DeviceId(1)) {
      part->at[0] = {part->at[0].begin - 1, part->at[0].end - 1};
    }
  }
  Draft draft;
  draft.devices = plan.devices();
  draft.buffers = std::move(buffers);
  draft.tasks = plan.tasks();
  draft.graph = plan.graph();
  draft.meetings = static_cast<std::uint32_t>(plan.meeting_count());
  for (Task& task : draft.tasks) {
    task.after.clear();
  }
  const Verdict verdict = verify(finish(std::move(draft)));
  ASSERT_FALSE(verdict.holds());
  EXPECT_EQ(verdict.violations[0].rule, Rule::value);
  EXPECT_NE(verdict.violations[0].text.find("takes 2 samples together, but has samples 1:3"), std::string::npos)
      << verdict.violations[0].text;
}

/// A step of two micro-batches of which one task that keeps statistics is changed or, where `change` says so, left out.
Verdict spoilt_statistics(const std::function<bool(Task& first, const Task& second)>& change) {
  const model::Model model = test::model_of("resnet:18,image=4,classes=2,width=1");
  const cluster::Cluster cluster(baton::test::cpus(1, 1));
  strategy::Layout layout;
  layout.micro_batches = 2;
  const Plan plan = strategy::compile(
      {.model = model, .cluster = cluster, .step = {.global_batch = 4, .loss = strategy::Loss::cross_entropy}, .layout = layout});
  EXPECT_TRUE(verify(plan).holds());
  Draft draft{plan.title(), plan.devices(), plan.buffers(), plan.tasks(), plan.graph(), 0};
  std::vector<std::size_t> tracking;
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    draft.tasks[i].after.clear();
    const auto* compute = std::get_if<Compute>(&draft.tasks[i].action);
    if (compute != nullptr && op::tracks(compute->op) &&
        (tracking.empty() || draft.tasks[i].writes == draft.tasks[tracking[0]].writes)) {
      tracking.push_back(i);
    }
  }
  EXPECT_EQ(tracking.size(), 2U);
  if (change(draft.tasks[tracking[0]], draft.tasks[tracking[1]])) {
    draft.tasks.erase(draft.tasks.begin() + static_cast<std::ptrdiff_t>(tracking[0]));
  }
  return verify(finish(std::move(draft)));
}

TEST(Split, AStatisticTakesEverySampleOnce) {
  const Verdict missing = spoilt_statistics([](Task&, const Task&) { return true; });
  ASSERT_FALSE(missing.holds());
  EXPECT_EQ(missing.violations[0].rule, Rule::update);
  EXPECT_NE(missing.violations[0].text.find("is not of all samples"), std::string::npos) << missing.violations[0].text;
  const Verdict other = spoilt_statistics([](Task& first, const Task& second) {
    std::swap(first.writes[0], first.writes[1]);  // the mean where the variance is
    std::swap(first.reads[1], first.reads[2]);
    return second.writes.empty();
  });
  ASSERT_FALSE(other.holds());
  EXPECT_EQ(other.violations[0].rule, Rule::value);
}

/// The evaluator is right if all splits of one model leave what one device leaves.
TEST(Split, TheEvaluatorFindsTheSameLossesWhateverTheSplit) {
  std::map<std::string, double> sums;
  for (const Case& one : cases()) {
    const auto end = test::evaluate(one.plan, order(one.plan));
    std::map<std::int64_t, double> by_row;
    for (std::size_t b = 0; b < one.plan.buffers().size(); ++b) {
      const Buffer& buffer = one.plan.buffers()[b];
      const auto* rows = std::get_if<BatchRows>(&buffer.content);
      if (buffer.role == Role::loss && rows->axis == 0) {
        for (std::int64_t r = rows->begin; r < rows->end; ++r) {
          by_row[r] = end[b][static_cast<std::size_t>(r - rows->begin)];
        }
      }
    }
    double sum = 0;
    for (const auto& [row, loss] : by_row) {
      sum += loss;
    }
    const op::Op& loss = one.plan.graph().nodes.back().op;
    const auto [known, added] = sums.try_emplace(fmt::format("{}|{}", one.name.substr(one.name.find(" of ")), op::name(loss)), sum);
    EXPECT_NEAR(known->second, sum, 1e-9) << one.name;
  }
}

/// A plan of two parts of a vocabulary with one task changed; `change` says whether it was the one.
Verdict spoilt_vocabulary(const std::function<bool(Draft&, Task&)>& change) {
  const model::Model model = test::model_of("tokens:vocabulary=6,dim=3,hidden=4,depth=1,sequence=2");
  const cluster::Cluster cluster(baton::test::cpus(2, 2));
  const Plan plan = strategy::compile({.model = model,
                                       .cluster = cluster,
                                       .strategy = "tensor",
                                       .step = {.global_batch = 4, .loss = strategy::Loss::cross_entropy}});
  EXPECT_TRUE(verify(plan).holds());
  Draft draft{plan.title(), plan.devices(), plan.buffers(), plan.tasks(), plan.graph(), 0};
  for (Task& task : draft.tasks) {
    task.after.clear();
  }
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    if (change(draft, draft.tasks[i])) {
      return verify(finish(std::move(draft)));
    }
  }
  ADD_FAILURE() << "nothing was changed";
  return {};
}

/// Whether the first breach is of that rule and says so.
testing::AssertionResult breaks(const Verdict& verdict, Rule rule, std::string_view says) {
  if (verdict.holds()) {
    return testing::AssertionFailure() << "no rule is broken";
  }
  const Violation& first = verdict.violations[0];
  const bool named = first.rule == rule && first.text.find(says) != std::string::npos;
  return (named ? testing::AssertionSuccess() : testing::AssertionFailure()) << to_text(first.rule) << ": " << first.text;
}

template <typename Op>
Op* op_of(Task& task) {
  auto* compute = std::get_if<Compute>(&task.action);
  return compute == nullptr ? nullptr : std::get_if<Op>(&compute->op);
}

TEST(Split, APartOfAVocabularyIsTakenForThatPart) {
  EXPECT_TRUE(breaks(spoilt_vocabulary([](Draft&, Task& task) {
                       auto* embed = op_of<op::Embed>(task);
                       return embed != nullptr && std::exchange(embed->first, 1) != 1;
                     }),
                     Rule::value, "takes 0:3 of 6 indices for those from 1 on, of 6"));
  EXPECT_TRUE(breaks(spoilt_vocabulary([](Draft&, Task& task) {
                       auto* terms = op_of<op::CrossEntropyTerms>(task);
                       return terms != nullptr && std::exchange(terms->of, 7) == 6;
                     }),
                     Rule::value, "takes 0:3 of 6 indices for those from 0 on, of 7"));
  EXPECT_TRUE(breaks(spoilt_vocabulary([](Draft&, Task& task) {
                       auto* backward = op_of<op::EmbedBackward>(task);
                       return backward != nullptr && backward->first == 3 && std::exchange(backward->first, 0) == 3;
                     }),
                     Rule::value, "takes 3:6 of 6 indices for those from 0 on, of 6"));
}

TEST(Split, RowsThatAPartOfAVocabularyDoesNotHaveAreAddedUp) {
  EXPECT_TRUE(breaks(spoilt_vocabulary([](Draft& draft, Task& task) {
                       const auto* sum = std::get_if<Collective>(&task.action);
                       if (sum == nullptr || sum->kind != Move::all_reduce) {
                         return false;
                       }
                       const MeetingId meeting = sum->meeting;
                       std::erase_if(draft.tasks, [&](const Task& one) { return meeting_of(one) == meeting; });
                       return true;
                     }),
                     Rule::sum, "reads b24 (embed.embed at 0:2, 0:4, 0:3), which holds some terms of the sum only"));
}

TEST(Split, ALossIsOfTheTermsOfAllParts) {
  EXPECT_TRUE(breaks(spoilt_vocabulary([](Draft& draft, Task& task) {
                       auto* loss = op_of<op::CrossEntropy>(task);
                       if (loss == nullptr) {
                         return false;
                       }
                       // Both losses read their own part's terms, and nothing gathers them.
                       std::map<BufferId, BufferId> own;
                       MeetingId gathered;
                       for (const Task& one : draft.tasks) {
                         const auto* collective = std::get_if<Collective>(&one.action);
                         if (collective != nullptr && collective->kind == Move::all_gather) {
                           own[one.writes[0]] = one.reads[0];
                           gathered = collective->meeting;
                         }
                       }
                       for (Task& one : draft.tasks) {
                         if (auto* other = op_of<op::CrossEntropy>(one)) {
                           other->parts = 1;
                           one.reads[2] = own.at(one.reads[2]);
                         }
                       }
                       std::erase_if(draft.tasks, [&](const Task& one) { return meeting_of(one) == gathered; });
                       return true;
                     }),
                     Rule::sum, "which holds some terms of the sum only"));
  // Terms of one part from both members: the second device's rows of the head are said to be the first's.
  EXPECT_TRUE(breaks(spoilt_vocabulary([](Draft& draft, Task& task) {
                       auto* terms = op_of<op::CrossEntropyTerms>(task);
                       if (terms == nullptr || terms->first == 0) {
                         return false;
                       }
                       terms->first = 0;
                       for (Buffer& buffer : draft.buffers) {
                         auto* part = std::get_if<ParameterPart>(&buffer.content);
                         auto* value = std::get_if<ValuePart>(&buffer.content);
                         if (part != nullptr && buffer.device == task.device && part->whole[part->axis] == 6 && part->begin == 3) {
                           part->begin = 0;
                           part->end = 3;
                         } else if (value != nullptr && value->at.size() == 3 && value->at[2] == Range{3, 6}) {
                           value->at[2] = {0, 3};
                         }
                       }
                       for (Task& one : draft.tasks) {
                         if (auto* compute = std::get_if<Compute>(&one.action); compute != nullptr && one.device == task.device) {
                           compute->op = op::part_of(compute->op).of > 0 && !op_of<op::Embed>(one) ? op::for_part(compute->op, 0, 6)
                                                                                                   : compute->op;
                           if (auto* embed = op_of<op::Embed>(one)) {
                             embed->first = 0;
                           }
                         }
                       }
                       return true;
                     }),
                     Rule::sum, "another member brings the same terms"));
}

/// A plan of two replicas of two parts that clips, with its pieces of gradients, changed and judged.
Verdict spoilt_norm(int zero, const std::function<bool(Draft&, Task&)>& change) {
  const model::Model model = test::model_of("gpt:depth=1,heads=2,dim=4,context=3,vocab=4");
  const cluster::Cluster cluster(baton::test::cpus(4, 4));
  strategy::Request request{.model = model,
                            .cluster = cluster,
                            .strategy = "product",
                            .step = {.global_batch = 4, .loss = strategy::Loss::cross_entropy, .optimizer = op::Adam{.clip = 1}},
                            .layout = {.dp = 2, .tp = 2, .zero = zero}};
  const Plan plan = strategy::compile(request);
  const Verdict verdict = verify(plan);
  EXPECT_TRUE(verdict.holds()) << (verdict.holds() ? "" : verdict.violations[0].text);
  Draft draft{plan.title(), plan.devices(), plan.buffers(), plan.tasks(), plan.graph(), 0};
  for (Task& task : draft.tasks) {
    task.after.clear();
  }
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    if (change(draft, draft.tasks[i])) {
      return verify(finish(std::move(draft)));
    }
  }
  ADD_FAILURE() << "nothing was changed";
  return {};
}

TEST(Split, TheNormOfTheGradientsCountsEachPartOnce) {
  for (const int zero : {0, 2}) {
    EXPECT_TRUE(breaks(spoilt_norm(zero,
                                   [](Draft&, Task& task) {
                                     if (op_of<op::SquaredSum>(task) == nullptr) {
                                       return false;
                                     }
                                     task.reads.erase(task.reads.begin() + 1);
                                     return true;
                                   }),
                       Rule::sum, "clips by a norm that does not count all of the gradient of"));
    EXPECT_TRUE(breaks(spoilt_norm(zero,
                                   [](Draft&, Task& task) {
                                     if (op_of<op::SquaredSum>(task) == nullptr) {
                                       return false;
                                     }
                                     task.reads.push_back(task.reads[1]);
                                     return true;
                                   }),
                       Rule::sum, "a second time"));
    // Every part has the gains of norms, of which one device counts them.
    EXPECT_TRUE(breaks(spoilt_norm(zero,
                                   [](Draft& draft, Task& task) {
                                     if (op_of<op::SquaredSum>(task) == nullptr || task.device != DeviceId(1)) {
                                       return false;
                                     }
                                     for (const Task& update : draft.tasks) {
                                       if (std::holds_alternative<Update>(update.action) && update.device == task.device) {
                                         for (const BufferId id : update.reads) {
                                           const auto* part = std::get_if<ParameterPart>(&draft[id].content);
                                           if (draft[id].role == Role::gradient && part->name == "transformer.ln_f.weight") {
                                             task.reads.push_back(id);
                                           }
                                         }
                                       }
                                     }
                                     return true;
                                   }),
                       Rule::sum, "a second time"));
    EXPECT_TRUE(breaks(spoilt_norm(zero,
                                   [](Draft& draft, Task& task) {
                                     const auto* sum = std::get_if<Collective>(&task.action);
                                     if (sum == nullptr || draft[task.reads[0]].label != "squares of the gradients") {
                                       return false;
                                     }
                                     const MeetingId meeting = sum->meeting;
                                     std::erase_if(draft.tasks, [&](const Task& one) { return meeting_of(one) == meeting; });
                                     return true;
                                   }),
                       Rule::sum, "clips by a norm that does not count all of the gradient of"));
  }
}

TEST(Split, MutantsThatChangeTheResultAreCaughtByName) {
  const std::size_t wanted = wanted_mutants();
  std::mt19937 random = seeded(20);
  std::vector<std::optional<std::vector<std::vector<double>>>> results(cases().size());
  std::map<std::string, std::map<std::string, int>> caught;  // by kind and rule
  std::size_t made = 0;
  std::size_t missed = 0;
  std::size_t by_split = 0;  // that change the result and break no other rule
  for (std::size_t turn = 0; made < wanted; ++turn) {
    const auto mutation = static_cast<SplitMutation>(turn % test::split_mutation_count);
    const std::size_t which = random() % cases().size();
    const Case& one = cases()[which];
    const std::optional<Plan> mutant = test::mutate_split(one.plan, mutation, random);
    if (!mutant) {
      continue;
    }
    ++made;
    const Verdict verdict = verify(*mutant);
    if (!results[which]) {
      results[which] = test::evaluate(one.plan, order(one.plan));
    }
    const auto changes = [&] { return !test::same_result(one.plan, test::evaluate(*mutant, verdict.ordering), *results[which]); };
    if (!verdict.holds()) {
      const Rule rule = verdict.violations[0].rule;
      by_split += (rule == Rule::value || rule == Rule::sum || rule == Rule::update) && changes() ? 1 : 0;
      ++caught[std::string(to_text(mutation))][std::string(to_text(verdict.violations[0].rule))];
      continue;
    }
    if (!changes()) {
      ++caught[std::string(to_text(mutation))]["(same result)"];
      continue;
    }
    ++missed;
    if (missed <= 5) {
      ADD_FAILURE() << to_text(mutation) << " in " << one.name << " changes the result and is not caught\n" << to_text(*mutant);
    }
  }
  EXPECT_EQ(missed, 0U);
  fmt::print("{} of {} change the result and are caught by the rules of the split alone\n", by_split, made);
  EXPECT_GT(by_split, wanted / 5);
  for (const auto& [kind, rules] : caught) {
    std::string line = fmt::format("{:<18}", kind);
    for (const auto& [rule, count] : rules) {
      line += fmt::format(" {} {}", rule, count);
    }
    fmt::print("{}\n", line);
  }
  EXPECT_EQ(caught.size(), test::split_mutation_count);
}

}  // namespace
}  // namespace baton::plan
