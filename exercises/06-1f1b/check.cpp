// The check of 06-1f1b. A forward takes one unit of time and a backward two.

#include <fmt/format.h>

#include <algorithm>

#include "baton/exercise/exercises.h"
#include "baton/schedule/flaw.h"
#include "baton/schedule/replay.h"

namespace baton::exercise {
namespace {

/// The rows as a grid of Baton's; device d has stage d.
schedule::Grid read_rows(Reader& answer, std::string& flaw) {
  schedule::Grid grid;
  grid.rows.resize(answer.count());
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    grid.rows[d].resize(answer.count());
    for (auto& cell : grid.rows[d]) {
      const std::string kind = answer.text();
      const std::int64_t micro_batch = answer.integer();
      if ((kind != "F" && kind != "B") || micro_batch < 0 || micro_batch > 1'000'000) {
        flaw = fmt::format("device {} has an action '{}' of micro-batch {}: actions are F and B", d,
                           kind == "F" || kind == "B" ? kind : "?", micro_batch);
      }
      cell = schedule::Action{static_cast<std::int32_t>(d),
                              kind == "F" ? schedule::Computation::forward : schedule::Computation::backward,
                              static_cast<std::int32_t>(micro_batch)};
    }
  }
  return grid;
}

std::string flaw_in_rows(const schedule::Grid& grid, std::int64_t devices, std::int64_t micro_batches) {
  if (static_cast<std::int64_t>(grid.rows.size()) != devices) {
    return fmt::format("there are {} rows for {} devices", grid.rows.size(), devices);
  }
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    if (static_cast<std::int64_t>(grid.rows[d].size()) != 2 * micro_batches) {
      return fmt::format("device {} has {} actions, and {} micro-batches take a forward and a backward each", d,
                         grid.rows[d].size(), micro_batches);
    }
  }
  return schedule::flaw(grid).value_or("");
}

}  // namespace

void check_one_forward_one_backward(Session& session) {
  GradedPart& runs = session.part("the schedule can run: each action once, none before what it needs, no deadlock", 3);
  GradedPart& time = session.part("a step takes 3 (m + p - 1), as 1F1B does", 3);
  GradedPart& memory = session.part("device d keeps at most p - d activations", 4);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t devices = session.draw(1, 10);
    const std::int64_t micro_batches = session.draw_bool(0.3) ? session.draw(1, devices) : session.draw(devices, 40);
    const std::string what = fmt::format("{} device{}, {} micro-batch{}", devices, devices == 1 ? "" : "s", micro_batches,
                                         micro_batches == 1 ? "" : "es");
    session.ask(what, Writer().add(devices).add(micro_batches), [&](Reader& answer) {
      std::string flaw;
      const schedule::Grid grid = read_rows(answer, flaw);
      flaw = flaw.empty() ? flaw_in_rows(grid, devices, micro_batches) : flaw;
      const auto in_case = [&](const std::string& words) { return words.empty() ? "" : session.in_case() + " " + words; };
      runs.judge(in_case(flaw));
      if (!flaw.empty()) {
        time.judge(in_case(flaw));
        memory.judge(in_case(flaw));
        return;
      }
      const std::int64_t taken = schedule::replay(grid).makespan;
      const std::int64_t wanted = 3 * (micro_batches + devices - 1);
      time.judge(taken <= wanted ? ""
                                 : in_case(fmt::format("a step takes {}, and 1F1B takes {}: {:.1f} % more", taken, wanted,
                                                       100.0 * static_cast<double>(taken - wanted) / static_cast<double>(wanted))));
      const std::vector<std::int64_t> kept = schedule::in_flight(grid);
      std::string too_many;
      for (std::int64_t d = devices - 1; d >= 0; --d) {
        if (kept[static_cast<std::size_t>(d)] > devices - d) {
          too_many = fmt::format("device {} keeps {} activations at once, and {} are enough", d, kept[static_cast<std::size_t>(d)],
                                 std::min(devices - d, micro_batches));
        }
      }
      memory.judge(in_case(too_many));
    });
  }
}

}  // namespace baton::exercise
