#include "baton/job/programs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "baton/schedule/schedule.h"

namespace baton::job {
namespace {

using strategy::Recompute;

std::int64_t schedule(std::string_view name) {
  const std::vector<schedule::Schedule>& list = schedule::schedules();
  for (std::size_t s = 0; s < list.size(); ++s) {
    if (list[s].name == name) {
      return static_cast<std::int64_t>(s);
    }
  }
  return -1;
}

struct Case {
  const char* what;
  Choice choice;
  const char* megatron;  // a part of the flags, or behind "!" of the reason
  const char* torchtitan;
  const char* deepspeed;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.what; }

class Programs : public testing::TestWithParam<Case> {};

TEST_P(Programs, GetTheirFlagsOrTheReasonWhyTheyCannot) {
  const Case& one = GetParam();
  const std::vector<ProgramFlags> list = flags_for_programs(one.choice, 64);
  ASSERT_EQ(list.size(), 3U);
  const std::vector<std::string> expected{one.megatron, one.torchtitan, one.deepspeed};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NE(list[i].flags.empty(), list[i].cannot.empty()) << list[i].program;
    const bool cannot = expected[i][0] == '!';
    const std::string& text = cannot ? list[i].cannot : list[i].flags;
    EXPECT_NE(text.find(expected[i].substr(cannot ? 1 : 0)), std::string::npos)
        << list[i].program << ": " << list[i].flags << list[i].cannot;
    EXPECT_FALSE(text.empty()) << list[i].program << ": " << list[i].flags << list[i].cannot;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Choices, Programs,
    testing::Values(
        Case{"replicas",
             {.dp = 8},
             "--micro-batch-size 8 --global-batch-size 64",
             "data_parallel_replicate_degree 8",
             R"("stage": 0)"},
        Case{"all in pieces",
             {.dp = 8, .zero = 3, .micro_batches = 2},
             "optim_grads_params",
             "data_parallel_shard_degree 8 --parallelism.fsdp_reshard_after_forward always",
             R"("gradient_accumulation_steps": 2)"},
        Case{"states in pieces", {.dp = 8, .zero = 1}, "--use-distributed-optimizer", "!stage 1 of ZeRO", R"("stage": 1)"},
        Case{"tensors and sequence",
             {.dp = 2, .tp = 4, .sp = true, .zero = 2},
             "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 --sequence-parallel",
             "tensor_parallel_degree 4",
             "!sequence"},
        Case{"tensors",
             {.dp = 2, .tp = 4, .zero = 2},
             "--data-parallel-sharding-strategy optim_grads ",
             "!--sp on",
             R"("autotp_size": 4)"},
        Case{"interleaved",
             {.dp = 2, .pp = 4, .zero = 1, .schedule = schedule("interleaved"), .chunks = 3, .micro_batches = 8},
             "--num-virtual-stages-per-pipeline-rank 3",
             "!interleaved with 3 stages",
             "!not interleaved"},
        Case{"interleaved with too few micro-batches",
             {.pp = 4, .schedule = schedule("interleaved"), .chunks = 2, .micro_batches = 2},
             "!a multiple of 4 micro-batches",
             "pipeline_parallel_schedule Interleaved1F1B --parallelism.pipeline_parallel_microbatch_size 32",
             "!not interleaved"},
        Case{"1f1b with everything in pieces",
             {.dp = 2, .pp = 2, .zero = 3, .schedule = schedule("1f1b"), .micro_batches = 4},
             "!stage 3 of ZeRO with a pipeline",
             "pipeline_parallel_schedule 1F1B",
             "!stage 3 of ZeRO with a pipeline"},
        Case{"a zero-bubble pipeline",
             {.pp = 2, .schedule = schedule("zb-v"), .chunks = 2, .micro_batches = 4},
             "!not zb-v",
             "ZBVZeroBubble",
             "!not zb-v"},
        Case{"a schedule nobody has", {.pp = 2, .schedule = schedule("zb-h2"), .micro_batches = 4}, "!zb-h2", "!zb-h2", "!zb-h2"},
        Case{"recomputation of every layer",
             {.dp = 2, .pp = 2, .schedule = schedule("1f1b"), .micro_batches = 4, .recompute = Recompute::full},
             "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
             "!FSDP only",
             "num_stages=2, activation_checkpoint_interval=1"},
        Case{"recomputation of some inputs",
             {.dp = 2, .recompute = Recompute::all},
             "!every layer or none",
             "!every layer or none",
             "!every layer or none"},
        Case{"uneven micro-batches", {.dp = 3}, "!equal micro-batches", "!equal micro-batches", "!equal micro-batches"}));

TEST(Programs, DeepSpeedsConfigurationIsJson) {
  const std::string text = flags_for_programs({.dp = 4, .tp = 2, .zero = 1, .micro_batches = 2}, 64)[2].flags;
  const nlohmann::json config = nlohmann::json::parse(text);
  EXPECT_EQ(config["train_batch_size"], 64);
  EXPECT_EQ(config["train_micro_batch_size_per_gpu"].get<int>() * config["gradient_accumulation_steps"].get<int>() * 4, 64);
}

}  // namespace
}  // namespace baton::job
