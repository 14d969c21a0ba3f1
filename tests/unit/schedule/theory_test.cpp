#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "baton/schedule/flaw.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"

namespace baton::schedule {
namespace {

constexpr std::array<std::int64_t, 9> device_counts{1, 2, 3, 4, 5, 6, 7, 8, 16};

/// Calls `hold` with every pipeline of the schedule up to 16 devices and 20 micro-batches.
void for_all_pipelines(std::string_view name, const std::vector<std::int64_t>& chunks,
                       const std::function<void(const Pipeline&, const Grid&)>& hold) {
  for (const std::int64_t devices : device_counts) {
    for (const std::int64_t chunk_count : chunks) {
      for (std::int64_t micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        const Pipeline pipeline{devices, chunk_count, micro_batches};
        SCOPED_TRACE(testing::Message() << name << ", " << devices << " devices with " << chunk_count << " chunks, "
                                        << micro_batches << " micro-batches");
        hold(pipeline, schedule_by_name(name).grid(pipeline));
        if (testing::Test::HasFailure()) {
          return;
        }
      }
    }
  }
}

/// What the step takes beyond a device's own work.
std::int64_t waits(const Pipeline& pipeline, const Grid& grid) {
  return replay(grid).makespan - 3 * pipeline.chunks * pipeline.micro_batches;
}

std::int64_t largest_bubble(const Grid& grid) {
  const Timing timing = replay(grid);
  std::int64_t most = 0;
  for (std::size_t d = 0; d < timing.rows.size(); ++d) {
    most = std::max(most, timing.bubble(d));
  }
  return most;
}

std::int64_t most_in_flight(const Grid& grid) {
  const std::vector<std::int64_t> by_device = in_flight(grid);
  return *std::max_element(by_device.begin(), by_device.end());
}

std::vector<std::int64_t> chunks_of(const Schedule& schedule) {
  return schedule.default_chunks == 1 || schedule.name == "zb-v" ? std::vector{schedule.default_chunks}
                                                                 : std::vector<std::int64_t>{1, 2, 3, 4};
}

TEST(Theory, EveryScheduleOfEveryPipelineCanRun) {
  for (const Schedule& schedule : schedules()) {
    for_all_pipelines(schedule.name, chunks_of(schedule), [](const Pipeline& pipeline, const Grid& grid) {
      EXPECT_EQ(flaw(grid), std::nullopt);
      EXPECT_EQ(std::ssize(grid.rows), pipeline.devices);
      EXPECT_EQ(stages(grid), pipeline.stages());
      EXPECT_EQ(micro_batches(grid), pipeline.micro_batches);
    });
  }
}

TEST(Theory, SlotsOfAGridAreTheTimesOfItsUnitReplay) {
  for (const Schedule& schedule : schedules()) {
    for_all_pipelines(schedule.name, chunks_of(schedule), [](const Pipeline&, const Grid& grid) {
      const Timing timing = replay(grid, {.backward = 1});
      for (std::size_t d = 0; d < grid.rows.size(); ++d) {
        for (const Placed& placed : timing.rows[d]) {
          EXPECT_EQ(grid.rows[d].at(static_cast<std::size_t>(placed.start)), placed.action);
        }
        EXPECT_EQ(std::ssize(grid.rows[d]), timing.makespan);
      }
    });
  }
}

TEST(Theory, StagesGoRoundTheDevicesAndInZeroBubbleVThereAndBack) {
  for (const Schedule& schedule : schedules()) {
    for_all_pipelines(schedule.name, {schedule.default_chunks}, [&](const Pipeline& pipeline, const Grid& grid) {
      const std::vector<std::int32_t> devices = device_of_stage(grid);
      for (std::int64_t stage = 0; stage < pipeline.stages(); ++stage) {
        const bool back = schedule.name == "zb-v" && stage >= pipeline.devices;
        EXPECT_EQ(devices.at(static_cast<std::size_t>(stage)), back ? 2 * pipeline.devices - 1 - stage : stage % pipeline.devices);
      }
    });
  }
}

/// Whether each action comes after those whose results it needs, told without the library's own rule.
bool in_causal_order(const std::vector<Action>& actions, std::int64_t stage_count) {
  std::set<std::pair<std::int32_t, std::int32_t>> forward;
  std::set<std::pair<std::int32_t, std::int32_t>> back;
  return std::all_of(actions.begin(), actions.end(), [&](const Action& action) {
    const auto [stage, kind, k] = action;
    switch (kind) {
      case Computation::forward:
        forward.insert({stage, k});
        return stage == 0 || forward.contains({stage - 1, k});
      case Computation::backward_weight:
        return back.contains({stage, k});
      default:
        back.insert({stage, k});
        return forward.contains({stage, k}) && (stage + 1 == stage_count || back.contains({stage + 1, k}));
    }
  });
}

TEST(Theory, ASequenceKeepsCausesFirstAndEachDevicesOrder) {
  for (const Schedule& schedule : schedules()) {
    for_all_pipelines(schedule.name, {schedule.default_chunks}, [](const Pipeline& pipeline, const Grid& grid) {
      const std::vector<Action> actions = sequence(grid);
      EXPECT_TRUE(in_causal_order(actions, pipeline.stages()));
      const std::vector<std::int32_t> devices = device_of_stage(grid);
      for (std::size_t d = 0; d < grid.rows.size(); ++d) {
        std::vector<Action> own;
        std::copy_if(actions.begin(), actions.end(), std::back_inserter(own), [&](const Action& action) {
          return devices[static_cast<std::size_t>(action.stage)] == static_cast<std::int32_t>(d);
        });
        std::vector<Action> row;
        for (const std::optional<Action>& cell : grid.rows[d]) {
          if (cell) {
            row.push_back(*cell);
          }
        }
        EXPECT_EQ(own, row);
      }
    });
  }
}

TEST(Theory, GradientsOfAStageAddUpInTheOrderOfTheMicroBatches) {
  for (const Schedule& schedule : schedules()) {
    for_all_pipelines(schedule.name, {schedule.default_chunks}, [](const Pipeline& pipeline, const Grid& grid) {
      std::vector<std::int32_t> next(static_cast<std::size_t>(pipeline.stages()));
      for (const Action& action : sequence(grid)) {
        if (action.kind == Computation::backward || action.kind == Computation::backward_weight) {
          EXPECT_EQ(action.micro_batch, next[static_cast<std::size_t>(action.stage)]++);
        }
      }
    });
  }
}

TEST(Theory, NaiveKeepsOneDeviceAtWork) {
  for_all_pipelines("naive", {1, 2}, [](const Pipeline& pipeline, const Grid& grid) {
    const auto p = static_cast<double>(pipeline.devices);
    EXPECT_NEAR(replay(grid).idle_share(), (p - 1) / p, 1e-12);
    EXPECT_EQ(in_flight(grid), std::vector<std::int64_t>(grid.rows.size(), pipeline.chunks));
  });
}

TEST(Theory, GpipeAndOneForwardOneBackwardWaitForThePipelineToFillAndDrain) {
  for (const std::string_view name : {"gpipe", "1f1b"}) {
    for_all_pipelines(name, {1}, [](const Pipeline& pipeline, const Grid& grid) {
      const auto p = static_cast<double>(pipeline.devices);
      const auto m = static_cast<double>(pipeline.micro_batches);
      const Timing timing = replay(grid);
      for (std::size_t d = 0; d < grid.rows.size(); ++d) {
        EXPECT_NEAR(timing.idle_share(d), (p - 1) / (m + p - 1), 1e-12);
      }
    });
  }
}

TEST(Theory, GpipeKeepsEveryActivationAndOneForwardOneBackwardOnlyThoseUnderWay) {
  for_all_pipelines("gpipe", {1}, [](const Pipeline& pipeline, const Grid& grid) {
    EXPECT_EQ(in_flight(grid), std::vector<std::int64_t>(grid.rows.size(), pipeline.micro_batches));
  });
  for_all_pipelines("1f1b", {1}, [](const Pipeline& pipeline, const Grid& grid) {
    const std::vector<std::int64_t> kept = in_flight(grid);
    for (std::int64_t stage = 0; stage < pipeline.devices; ++stage) {
      EXPECT_EQ(kept[static_cast<std::size_t>(stage)], std::min(pipeline.micro_batches, pipeline.devices - stage));
    }
  });
}

TEST(Theory, StagesThatAreSmallerMakeWaitsThatAreSmaller) {
  // In units of a chunk the waits are those of 1f1b, and a chunk is a v-th of its stage.
  for (const std::string_view name : {"interleaved", "looped-bfs"}) {
    for_all_pipelines(name, {1, 2, 3, 4}, [](const Pipeline& pipeline, const Grid& grid) {
      const std::int64_t p = pipeline.devices;
      const std::int64_t too_few = std::max<std::int64_t>(0, p - pipeline.micro_batches);
      EXPECT_EQ(waits(pipeline, grid), 3 * (p - 1) + 3 * (pipeline.chunks - 1) * too_few);
    });
  }
}

TEST(Theory, InterleavedKeepsWhatMegatronsRuleSays) {
  for_all_pipelines("interleaved", {1, 2, 3, 4}, [](const Pipeline& pipeline, const Grid& grid) {
    const std::int64_t p = pipeline.devices;
    const std::int64_t all = pipeline.chunks * pipeline.micro_batches;
    if (pipeline.micro_batches % p == 0) {
      const std::vector<std::int64_t> kept = in_flight(grid);
      for (std::int64_t d = 0; d < p; ++d) {
        EXPECT_EQ(kept[static_cast<std::size_t>(d)], std::min(all, (pipeline.chunks - 1) * p + 2 * (p - 1 - d) + 1));
      }
    }
  });
}

TEST(Theory, ZeroBubbleH1WaitsAThirdOfOneForwardOneBackward) {
  for_all_pipelines("zb-h1", {1}, [](const Pipeline& pipeline, const Grid& grid) {
    const std::int64_t p = pipeline.devices;
    const std::int64_t too_few = std::max<std::int64_t>(0, p - pipeline.micro_batches);
    EXPECT_EQ(waits(pipeline, grid), p - 1 + too_few);
    EXPECT_EQ(largest_bubble(grid), p - 1 + too_few);
    EXPECT_EQ(in_flight(grid), std::vector<std::int64_t>(grid.rows.size(), std::min(p, pipeline.micro_batches)));
  });
}

TEST(Theory, ZeroBubbleH2WaitsForNothingOnceItHasBegun) {
  for_all_pipelines("zb-h2", {1}, [](const Pipeline& pipeline, const Grid& grid) {
    const std::int64_t p = pipeline.devices;
    const std::int64_t too_few = std::max<std::int64_t>(0, 2 * p - 1 - pipeline.micro_batches);
    EXPECT_EQ(largest_bubble(grid), too_few);
    EXPECT_EQ(waits(pipeline, grid), p - 1 + too_few / 2);
    EXPECT_EQ(in_flight(grid), std::vector<std::int64_t>(grid.rows.size(), std::min(2 * p - 1, pipeline.micro_batches)));
  });
}

TEST(Theory, ZeroBubbleVWaitsForNothingOnceItHasBegunInTheMemoryOfOneForwardOneBackward) {
  for_all_pipelines("zb-v", {2}, [](const Pipeline& pipeline, const Grid& grid) {
    const std::int64_t p = pipeline.devices;
    const std::int64_t too_few = std::max<std::int64_t>(0, 2 * p - 1 - pipeline.micro_batches);
    EXPECT_EQ(largest_bubble(grid), 2 * too_few);
    EXPECT_EQ(waits(pipeline, grid), std::max(p - 1, 2 * too_few));
    EXPECT_EQ(most_in_flight(grid), 2 * std::min(p, pipeline.micro_batches));
  });
}

TEST(Theory, InterleavedZeroBubbleWaitsAThirdOfInterleaved) {
  for_all_pipelines("interleaved-zb", {1, 2, 3, 4}, [](const Pipeline& pipeline, const Grid& grid) {
    const Grid whole = schedule_by_name("interleaved").grid(pipeline);
    if (pipeline.micro_batches >= pipeline.devices) {
      EXPECT_EQ(waits(pipeline, grid), pipeline.devices - 1);
      EXPECT_EQ(3 * waits(pipeline, grid), waits(pipeline, whole));
    }
    EXPECT_LE(waits(pipeline, grid), waits(pipeline, whole));
    EXPECT_LE(most_in_flight(grid), most_in_flight(whole));
  });
}

TEST(Theory, AnActivationIsKeptUntilTheGradientOfTheWeightsIsThere) {
  EXPECT_EQ(in_flight(parse_csv("0F0,0I0,0F1,0I1,0F2,0W0,0W1,0I2,0W2")), std::vector<std::int64_t>{3});
  EXPECT_EQ(in_flight(parse_csv("0F0,0I0,0W0,0F1,0I1,0W1")), std::vector<std::int64_t>{1});
  EXPECT_EQ(in_flight(parse_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1")), (std::vector<std::int64_t>{1, 2}));
}

TEST(Replay, TransfersTakeTheirTimeBetweenDevicesAndNoneWithinOne) {
  const Costs costs{.forward = 2, .backward = 3, .backward_input = 5, .backward_weight = 7, .transfer = 10};
  // Stage 0 and 2 on device 0: forwards 0-2, 12-14, 24-26; backwards 26-29, 39-42, 52-57 and 57-64.
  const Timing timing = replay(parse_csv("0F0,2F0,2B0,0I0,0W0\n1F0,1B0\n"), costs);
  const auto span = [&](std::size_t device, std::size_t i) {
    return std::pair(timing.rows.at(device).at(i).start, timing.rows.at(device).at(i).end);
  };
  EXPECT_EQ(span(0, 0), std::pair(0L, 2L));
  EXPECT_EQ(span(1, 0), std::pair(12L, 14L));
  EXPECT_EQ(span(0, 1), std::pair(24L, 26L));
  EXPECT_EQ(span(0, 2), std::pair(26L, 29L));
  EXPECT_EQ(span(1, 1), std::pair(39L, 42L));
  EXPECT_EQ(span(0, 3), std::pair(52L, 57L));
  EXPECT_EQ(span(0, 4), std::pair(57L, 64L));
  EXPECT_EQ(timing.makespan, 64);
  EXPECT_EQ(timing.busy(0), 19);
  EXPECT_EQ(timing.busy(1), 5);
  EXPECT_EQ(timing.bubble(0), 45);
  EXPECT_EQ(timing.bubble(1), 25);
  EXPECT_DOUBLE_EQ(timing.idle_share(1), 59.0 / 64);
  EXPECT_DOUBLE_EQ(timing.idle_share(), (45.0 + 59.0) / 128);
}

TEST(Replay, OneDeviceWithTwoStagesNeverWaits) { EXPECT_EQ(replay(parse_csv("0F0,1F0,1B0,0B0"), {.transfer = 100}).makespan, 6); }

TEST(Theory, FormulasOfASchedulesWaitingAndMemoryAreThoseOfItsGrids) {
  for (const Schedule& schedule : schedules()) {
    for_all_pipelines(schedule.name, chunks_of(schedule), [&](const Pipeline& pipeline, const Grid& grid) {
      const Formulas& formulas = schedule.formulas;
      const auto chunks = static_cast<double>(pipeline.chunks);
      if (formulas.kept != nullptr && (pipeline.chunks == 1 || pipeline.micro_batches % pipeline.devices == 0)) {
        const double most = std::min(formulas.kept(pipeline), static_cast<double>(pipeline.micro_batches));
        EXPECT_DOUBLE_EQ(static_cast<double>(most_in_flight(grid)) / chunks, most);
      }
      const bool halves = std::any_of(grid.rows[0].begin(), grid.rows[0].end(), [](const std::optional<Action>& cell) {
        return cell && cell->kind == Computation::backward_weight;
      });
      EXPECT_EQ(formulas.kept == nullptr, halves);
      if (formulas.overlaps && pipeline.micro_batches >= 2 * pipeline.devices && pipeline.micro_batches % pipeline.devices == 0) {
        const auto of_1f1b = static_cast<double>(3 * (pipeline.devices - 1));
        EXPECT_DOUBLE_EQ(static_cast<double>(largest_bubble(grid)), formulas.waiting * of_1f1b);
      }
    });
  }
}

}  // namespace
}  // namespace baton::schedule
