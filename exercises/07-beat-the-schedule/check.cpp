// The check of 07-beat-the-schedule: rows become a plan, which is verified and simulated, as those of Baton's schedules do.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "baton/base/error.h"
#include "baton/cost/uniform.h"
#include "baton/exercise/exercises.h"
#include "baton/model/zoo.h"
#include "baton/plan/verify.h"
#include "baton/schedule/flaw.h"
#include "baton/schedule/schedule.h"
#include "baton/sim/simulate.h"
#include "baton/strategy/strategy.h"

namespace baton::exercise {
namespace {

constexpr double shorter_in_the_mean = 0.10;
constexpr int most_simulations = 64;

struct DrawnPipeline {
  std::int64_t devices, micro_batches, activations;
  std::int64_t forward, backward_input, backward_weight, transfer;  // microseconds
};

/// Limits below what 1F1B keeps, between that and what a schedule without idle time keeps, and above.
DrawnPipeline draw_pipeline(Session& session, int kind) {
  DrawnPipeline one{};
  one.devices = session.draw(2, 8);
  one.micro_batches = session.draw(one.devices, 4 * one.devices);
  one.activations = kind <= 1   ? session.draw(1, one.devices - 1)
                    : kind <= 3 ? session.draw(one.devices, 2 * one.devices - 2)
                                : session.draw(2 * one.devices - 1, 3 * one.devices);
  const bool equal = session.draw_bool(0.3);
  one.forward = session.draw(20, 100);
  one.backward_input = equal ? one.forward : session.draw(20, 100);
  one.backward_weight = equal ? one.forward : session.draw(20, 100);
  one.transfer = session.draw_bool() ? 0 : session.draw(1, one.forward / 2);
  return one;
}

/// Simulates a step of a grid. Every stage is a Linear layer and its ReLU; the times of F, I and W are given
/// to the one task of each that every stage has.
class Judge {
 public:
  explicit Judge(const DrawnPipeline& pipeline)
      : pipeline_(pipeline),
        model_(model::mlp(std::vector<std::int64_t>(static_cast<std::size_t>(pipeline.devices) + 1, 4))),
        cluster_(devices_of(pipeline), std::nullopt, wiring_of(pipeline)),
        costs_({{"linear", Nanoseconds(1000 * pipeline.forward)},
                {"relu_backward", Nanoseconds(1000 * pipeline.backward_input)},
                {"linear_backward_weight", Nanoseconds(1000 * pipeline.backward_weight)}}) {}

  Nanoseconds step(const schedule::Grid& grid) const {
    const plan::Plan plan = strategy::compile({.model = model_,
                                               .cluster = cluster_,
                                               .strategy = "product",
                                               .step = {.global_batch = pipeline_.micro_batches},
                                               .layout = {.pp = pipeline_.devices, .grid = grid}});
    plan::require(plan::verify(plan, {.memory = std::vector<Bytes>(cluster_.size(), memory)}));
    return sim::simulate(plan, cluster_, costs_).duration;
  }

  /// The shortest of Baton's schedules with one stage per device that keep the limit, and its name.
  std::pair<Nanoseconds, std::string> best() const {
    std::pair<Nanoseconds, std::string> least;
    for (const schedule::Schedule& one : schedule::schedules()) {
      if (one.default_chunks != 1) {
        continue;
      }
      const schedule::Grid grid = one.grid({.devices = pipeline_.devices, .chunks = 1, .micro_batches = pipeline_.micro_batches});
      const std::vector<std::int64_t> kept = schedule::in_flight(grid);
      if (*std::max_element(kept.begin(), kept.end()) > pipeline_.activations) {
        continue;
      }
      const Nanoseconds time = step(grid);
      if (least.second.empty() || time < least.first) {
        least = {time, one.name};
      }
    }
    return least;
  }

 private:
  static constexpr Bytes memory{std::int64_t{1} << 30};

  static std::vector<cluster::Device> devices_of(const DrawnPipeline& pipeline) {
    std::vector<cluster::Device> list;
    for (std::int64_t d = 0; d < pipeline.devices; ++d) {
      list.push_back(
          {.name = fmt::format("device:{}", d), .cores = {static_cast<int>(d)}, .memory = memory, .shared_lanes = false});
    }
    return list;
  }
  static cluster::Wiring wiring_of(const DrawnPipeline& pipeline) {
    cluster::Wiring wiring;
    wiring.port.latency = Nanoseconds(1000 * pipeline.transfer);
    return wiring;
  }

  DrawnPipeline pipeline_;
  model::Model model_;
  cluster::Cluster cluster_;
  cost::Uniform costs_;
};

/// The rows as a grid of Baton's.
schedule::Grid grid_of_answer(Reader& answer, std::int64_t devices, std::string& flaw) {
  static constexpr std::array<std::pair<std::string_view, schedule::Computation>, 4> kinds{
      {{"F", schedule::Computation::forward},
       {"B", schedule::Computation::backward},
       {"I", schedule::Computation::backward_input},
       {"W", schedule::Computation::backward_weight}}};
  schedule::Grid grid;
  grid.rows.resize(answer.count());
  if (static_cast<std::int64_t>(grid.rows.size()) != devices) {
    flaw = fmt::format("there are {} rows for {} devices", grid.rows.size(), devices);
  }
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    grid.rows[d].resize(answer.count());
    for (auto& cell : grid.rows[d]) {
      const std::string text = answer.text();
      const std::int64_t micro_batch = answer.integer();
      const auto* const kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& one) { return one.first == text; });
      if (kind == kinds.end() || micro_batch < 0 || micro_batch > 1'000'000) {
        flaw = fmt::format("device {} has an action '{}' of micro-batch {}: actions are F, I, W and B", d,
                           kind == kinds.end() ? "?" : text, micro_batch);
        cell = schedule::Action{};
      } else {
        cell = schedule::Action{static_cast<std::int32_t>(d), kind->second, static_cast<std::int32_t>(micro_batch)};
      }
    }
  }
  return grid;
}

std::string flaw_of_grid(const schedule::Grid& grid, std::int64_t micro_batches) {
  if (std::string flaw = schedule::flaw(grid).value_or(""); !flaw.empty()) {
    return flaw;
  }
  const std::int64_t given = schedule::micro_batches(grid);
  return given == micro_batches ? "" : fmt::format("the rows have {} micro-batches, but there are {}", given, micro_batches);
}

std::string flaw_of_memory(const schedule::Grid& grid, std::int64_t limit) {
  const std::vector<std::int64_t> kept = schedule::in_flight(grid);
  const auto most = std::max_element(kept.begin(), kept.end());
  return *most <= limit ? ""
                        : fmt::format("device {} keeps {} activations at once, and may keep {}", most - kept.begin(), *most, limit);
}

}  // namespace

void check_beat_the_schedule(Session& session) {
  GradedPart& runs = session.part("the schedule can run: each action once, none before what it needs, no deadlock", 2);
  GradedPart& memory = session.part("no device keeps more activations than it may", 2);
  GradedPart& near = session.part("a step takes at most 10 % longer than with the best of Baton's schedules that keep the limit",
                                  2);
  GradedPart& no_longer = session.part("a step takes no longer than with that schedule", 2);
  GradedPart& beaten = session.part("steps are at least 10 % shorter than with that schedule, on average over all cases", 2);
  double logarithms = 0;
  int beaten_cases = 0;
  std::string unfit;
  constexpr int cases = 40;
  for (int i = 0; i < cases; ++i) {
    const DrawnPipeline pipeline = draw_pipeline(session, i % 5);
    const Judge judge(pipeline);
    const auto [best, name] = judge.best();
    const std::string what = fmt::format("{} devices, {} micro-batches, at most {} activation{}, F {}, I {}, W {}, transfer {}",
                                         pipeline.devices, pipeline.micro_batches, pipeline.activations,
                                         pipeline.activations == 1 ? "" : "s", pipeline.forward, pipeline.backward_input,
                                         pipeline.backward_weight, pipeline.transfer);
    Writer given;
    given.add(pipeline.devices).add(pipeline.micro_batches).add(pipeline.activations);
    given.add(pipeline.forward).add(pipeline.backward_input).add(pipeline.backward_weight).add(pipeline.transfer);
    int simulations = 0;
    const auto simulate = [&](Reader& question) {
      std::string flaw;
      const schedule::Grid grid = grid_of_answer(question, pipeline.devices, flaw);
      const bool runs_and_fits = ++simulations <= most_simulations && flaw.empty() &&
                                 flaw_of_grid(grid, pipeline.micro_batches).empty() &&
                                 flaw_of_memory(grid, pipeline.activations).empty();
      return Writer().add(runs_and_fits ? static_cast<double>(judge.step(grid).count) / 1000 : -1.0);
    };
    const auto judge_rows = [&, best = best, name = name](Reader& answer) {
      const auto in_case = [&](const std::string& words) { return words.empty() ? "" : session.in_case() + " " + words; };
      std::string flaw;
      const schedule::Grid grid = grid_of_answer(answer, pipeline.devices, flaw);
      flaw = in_case(flaw.empty() ? flaw_of_grid(grid, pipeline.micro_batches) : flaw);
      runs.judge(flaw);
      if (flaw.empty()) {
        flaw = in_case(flaw_of_memory(grid, pipeline.activations));
      }
      memory.judge(flaw);
      if (!flaw.empty()) {
        near.judge(flaw);
        no_longer.judge(flaw);
        unfit = unfit.empty() ? flaw : unfit;
        return;
      }
      const Nanoseconds step = judge.step(grid);
      const double ratio = static_cast<double>(step.count) / static_cast<double>(best.count);
      const auto more_than = [&](double allowed) {
        return ratio <= 1 + allowed ? ""
                                    : in_case(fmt::format("a step takes {}, and {} with {}: {:.1f} % longer", to_text(step),
                                                          to_text(best), name, 100 * (ratio - 1)));
      };
      near.judge(more_than(0.10));
      no_longer.judge(more_than(0));
      logarithms += std::log(ratio);
      ++beaten_cases;
    };
    session.ask(what, given, judge_rows, simulate);
  }
  if (beaten_cases < cases) {
    beaten.judge(unfit.empty() ? fmt::format("{} of {} cases have no answer", cases - beaten_cases, cases) : unfit);
    return;
  }
  const double mean = std::exp(logarithms / cases);
  beaten.judge(mean <= 1 - shorter_in_the_mean
                   ? ""
                   : fmt::format("your steps take {:.1f} % of the time of Baton's, in the geometric mean", 100 * mean));
}

}  // namespace baton::exercise
