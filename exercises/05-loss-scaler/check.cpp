// The check of 05-loss-scaler: runs of many steps, in which some gradients overflow, are infinite or NaN.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "baton/exercise/exercises.h"
#include "baton/op/loss_scale.h"

namespace baton::exercise {
namespace {

struct Told {
  double scale = 0;
  bool stepped = false;
  std::vector<float> gradients;
};

std::vector<std::vector<float>> draw_gradients(Session& session) {
  std::vector<std::vector<float>> steps(static_cast<std::size_t>(session.draw(20, 120)));
  const double broken = session.draw_bool() ? 0.02 : 0.15;
  for (std::vector<float>& gradients : steps) {
    gradients.resize(static_cast<std::size_t>(session.draw(1, 20)));
    for (float& gradient : gradients) {
      gradient = static_cast<float>(session.draw_normal() * session.draw_log(1e-6, 3));
    }
    if (session.draw_bool(broken)) {
      gradients[static_cast<std::size_t>(session.draw(0, static_cast<std::int64_t>(gradients.size()) - 1))] =
          session.draw_bool() ? std::numeric_limits<float>::quiet_NaN()
                              : (session.draw_bool() ? 1.0F : -1.0F) * std::numeric_limits<float>::infinity();
    }
  }
  return steps;
}

}  // namespace

void check_loss_scaler(Session& session) {
  GradedPart& skips = session.part("a step is skipped if a gradient is infinite or NaN, and only then", 3);
  GradedPart& divides = session.part("gradients are divided by the scale that they were multiplied by", 2);
  GradedPart& halves = session.part("a skipped step halves the scale", 2);
  GradedPart& doubles = session.part("after `growth_interval` good steps in a row since the last change, the scale doubles", 3);
  for (int i = 0; i < 30; ++i) {
    const auto initial = static_cast<float>(std::exp2(static_cast<double>(i == 0 ? 127 : session.draw(4, 24))));
    const std::int64_t interval = session.draw(1, 15);
    const std::vector<std::vector<float>> given = draw_gradients(session);
    const std::string what = fmt::format("{} steps, scale 2^{}, growth interval {}", given.size(), std::ilogb(initial), interval);
    session.ask(what, Writer().add(initial).add(interval).add(given), [&](Reader& answer) {
      std::vector<Told> told(answer.count());
      for (Told& step : told) {
        step.scale = answer.real();
        step.stepped = answer.integer() != 0;
        step.gradients = answer.floats();
      }
      std::string skipped, divided, halved, doubled;
      const auto note = [&](std::string& flaw, std::size_t step, const std::string& words) {
        flaw = flaw.empty() ? fmt::format("{} {} in step {}", session.in_case(), words, step + 1) : flaw;
      };
      if (told.size() != given.size()) {
        note(skipped, 0, fmt::format("{} steps were returned", told.size()));
      }
      // Each step is judged by the scale that the answer itself had before it, so that one mistake is told once.
      std::int64_t good = 0;
      for (std::size_t s = 0; s < std::min(told.size(), given.size()); ++s) {
        const auto scale = static_cast<float>(told[s].scale);
        bool finite = true;
        for (const float gradient : given[s]) {
          finite = finite && std::abs(gradient * scale) <= 65504.0F;
        }
        if (told[s].stepped != finite) {
          note(skipped, s,
               finite ? "the update was skipped although all gradients are finite"
                      : "the update was done although a gradient is not finite");
        }
        for (std::size_t g = 0; finite && told[s].stepped && g < given[s].size(); ++g) {
          const double wanted = static_cast<double>(given[s][g]);
          const double got = g < told[s].gradients.size() ? static_cast<double>(told[s].gradients[g]) : 0;
          if (!(std::abs(got - wanted) <= 1e-6 * std::abs(wanted))) {
            note(divided, s, fmt::format("gradient {} is {:.6g} and should be {:.6g}", g, got, wanted));
          }
        }
        if (s + 1 == told.size()) {
          continue;
        }
        const op::ScaleState state{.scale = scale, .good_steps = static_cast<float>(good)};
        const op::ScaleState next = op::adjusted(state, finite, interval);
        good = static_cast<std::int64_t>(next.good_steps);
        if (told[s + 1].scale != static_cast<double>(next.scale)) {
          note(finite ? doubled : halved, s,
               fmt::format("the scale goes from {:.6g} to {:.6g} and should be {:.6g}, after {} good steps in a row", told[s].scale,
                           told[s + 1].scale, static_cast<double>(next.scale),
                           static_cast<std::int64_t>(state.good_steps) + (finite ? 1 : 0)));
        }
      }
      if (!told.empty() && told[0].scale != static_cast<double>(initial)) {
        note(doubled, 0, fmt::format("the scale is {:.6g} and should be {:.6g}", told[0].scale, static_cast<double>(initial)));
      }
      skips.judge(skipped);
      divides.judge(divided);
      halves.judge(halved);
      doubles.judge(doubled);
    });
  }
}

}  // namespace baton::exercise
