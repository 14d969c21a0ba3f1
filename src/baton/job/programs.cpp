#include "baton/job/programs.h"

#include <fmt/format.h>

#include <optional>

#include "baton/schedule/schedule.h"

namespace baton::job {
namespace {

using strategy::Recompute;

std::string schedule_of(const Choice& choice) {
  return choice.pp == 1 ? "" : schedule::schedules()[static_cast<std::size_t>(choice.schedule)].name;
}

/// One micro-batch goes through every schedule that does not cut its stages or backwards in the same way.
bool is_plain(const Choice& choice, std::string_view name) {
  return name == "1f1b" || (name == "naive" && choice.micro_batches == 1);
}

std::optional<std::string> uneven(const Choice& choice, std::int64_t batch) {
  if (batch % choice.dp != 0 || batch / choice.dp % choice.micro_batches != 0) {
    return fmt::format("it needs equal micro-batches, but {} samples over {} replicas in {} micro-batches are not", batch,
                       choice.dp, choice.micro_batches);
  }
  return std::nullopt;
}

std::optional<std::string> other_recomputation(const Choice& choice) {
  if (choice.recompute == Recompute::light) {
    return "it has no flag that recomputes just the norms, GELUs and gates";
  }
  if (choice.recompute == Recompute::alternate || choice.recompute == Recompute::all) {
    return "it recomputes every layer or none, not some inputs between them";
  }
  return std::nullopt;
}

// Names as in megatron/training/arguments.py; the stages of ZeRO beyond the first are Megatron-FSDP's.
ProgramFlags megatron(const Choice& choice, std::int64_t batch) {
  ProgramFlags result{"Megatron-LM", "", ""};
  const std::string schedule = schedule_of(choice);
  if (const auto why = uneven(choice, batch)) {
    result.cannot = *why;
  } else if (const auto other = other_recomputation(choice)) {
    result.cannot = *other;
  } else if (choice.pp > 1 && !is_plain(choice, schedule) && schedule != "interleaved") {
    result.cannot = fmt::format("its pipelines are 1f1b or interleaved, not {}", schedule);
  } else if (schedule == "interleaved" && choice.micro_batches % choice.pp != 0) {
    result.cannot = fmt::format("its interleaved pipeline needs a multiple of {} micro-batches, not {}", choice.pp,
                                choice.micro_batches);
  } else if (choice.zero >= 2 && choice.pp > 1) {
    result.cannot = fmt::format("stage {} of ZeRO with a pipeline: its distributed optimizer is stage 1", choice.zero);
  }
  if (!result.cannot.empty()) {
    return result;
  }
  std::string& flags = result.flags;
  flags = fmt::format("--tensor-model-parallel-size {} --pipeline-model-parallel-size {}", choice.tp, choice.pp);
  flags += choice.sp ? " --sequence-parallel" : "";
  flags += schedule == "interleaved" ? fmt::format(" --num-virtual-stages-per-pipeline-rank {}", choice.chunks) : "";
  flags += choice.zero > 0 ? " --use-distributed-optimizer" : "";
  if (choice.zero >= 2) {
    flags += fmt::format(
        " --use-megatron-fsdp --data-parallel-sharding-strategy {} --no-gradient-accumulation-fusion "
        "--ckpt-format fsdp_dtensor",
        choice.zero == 2 ? "optim_grads" : "optim_grads_params");
  }
  flags += choice.recompute == Recompute::full ? " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
                                               : "";
  flags += fmt::format(" --micro-batch-size {} --global-batch-size {}", batch / choice.dp / choice.micro_batches, batch);
  return result;
}

// Names as in torchtitan/config: its replicas are FSDP's; plain DDP cannot be combined with another division.
ProgramFlags torchtitan(const Choice& choice, std::int64_t batch) {
  ProgramFlags result{"torchtitan", "", ""};
  const std::string schedule = schedule_of(choice);
  const std::string pipeline = choice.pp == 1                                       ? ""
                               : is_plain(choice, schedule)                         ? "1F1B"
                               : schedule == "gpipe"                                ? "GPipe"
                               : schedule == "interleaved" && choice.chunks == 2    ? "Interleaved1F1B"
                               : schedule == "looped-bfs" && choice.chunks == 2     ? "LoopedBFS"
                               : schedule == "zb-v"                                 ? "ZBVZeroBubble"
                               : schedule == "interleaved-zb" && choice.chunks == 2 ? "InterleavedZeroBubble"
                                                                                    : "none";
  if (const auto why = uneven(choice, batch)) {
    result.cannot = *why;
  } else if (const auto other = other_recomputation(choice)) {
    result.cannot = *other;
  } else if (pipeline == "none") {
    result.cannot = fmt::format("PyTorch has no schedule like {} with {} stage{} per device", schedule, choice.chunks,
                                choice.chunks == 1 ? "" : "s");
  } else if (choice.tp > 1 && !choice.sp) {
    result.cannot = "its tensor parallelism always divides the sequence too: add --sp on";
  } else if (choice.zero == 1) {
    result.cannot = "stage 1 of ZeRO: FSDP divides gradients as well";
  } else if (choice.zero == 0 && choice.dp > 1 && choice.tp * choice.pp > 1) {
    result.cannot = "whole replicas of divided models: with tensor and pipeline parallelism it has FSDP only";
  }
  if (!result.cannot.empty()) {
    return result;
  }
  const std::int64_t rows = batch / choice.dp;
  const std::int64_t micro = rows / choice.micro_batches;
  std::string& flags = result.flags;
  flags = fmt::format("--parallelism.data_parallel_replicate_degree {} --parallelism.data_parallel_shard_degree {}",
                      choice.zero == 0 ? choice.dp : 1, choice.zero == 0 ? 1 : choice.dp);
  if (choice.zero > 0) {
    flags += fmt::format(" --parallelism.fsdp_reshard_after_forward {}", choice.zero == 3 ? "always" : "never");
  }
  flags += fmt::format(" --parallelism.tensor_parallel_degree {} --parallelism.pipeline_parallel_degree {}", choice.tp, choice.pp);
  if (choice.pp > 1) {
    flags += fmt::format(" --parallelism.pipeline_parallel_schedule {} --parallelism.pipeline_parallel_microbatch_size {}",
                         pipeline, micro);
  }
  flags += fmt::format(" --activation_checkpoint.mode {}", choice.recompute == Recompute::full ? "full" : "none");
  flags += fmt::format(" --training.local_batch_size {} --training.global_batch_size {}", choice.pp > 1 ? rows : micro, batch);
  return result;
}

// Its JSON configuration; the number of stages is an argument of PipelineModule.
ProgramFlags deepspeed(const Choice& choice, std::int64_t batch) {
  ProgramFlags result{"DeepSpeed", "", ""};
  const std::string schedule = schedule_of(choice);
  if (const auto why = uneven(choice, batch)) {
    result.cannot = *why;
  } else if (const auto other = other_recomputation(choice)) {
    result.cannot = *other;
  } else if (choice.pp > 1 && !is_plain(choice, schedule)) {
    result.cannot = fmt::format("its pipelines are 1f1b, not {}", schedule);
  } else if (choice.pp > 1 && choice.zero >= 2) {
    result.cannot = fmt::format("stage {} of ZeRO with a pipeline: its engine refuses that", choice.zero);
  } else if (choice.pp > 1 && choice.tp > 1) {
    result.cannot = "tensor parallelism in a pipeline: that takes Megatron's layers inside its PipelineModule";
  } else if (choice.sp) {
    result.cannot = "a sequence divided over the devices of divided tensors: its sequence parallelism has devices of its own";
  }
  if (!result.cannot.empty()) {
    return result;
  }
  const std::int64_t micro = batch / choice.dp / choice.micro_batches;
  std::string& flags = result.flags;
  flags = fmt::format(R"({{"train_batch_size": {}, "train_micro_batch_size_per_gpu": {}, "gradient_accumulation_steps": {}, )",
                      batch, micro, choice.micro_batches);
  flags += choice.tp > 1 ? fmt::format(R"("tensor_parallel": {{"autotp_size": {}}}, )", choice.tp) : "";
  flags += fmt::format(R"("zero_optimization": {{"stage": {}}}}})", choice.zero);
  if (choice.pp > 1) {
    flags += fmt::format(" and PipelineModule(num_stages={}{})", choice.pp,
                         choice.recompute == Recompute::full ? ", activation_checkpoint_interval=1" : "");
  } else if (choice.recompute == Recompute::full) {
    flags += " and deepspeed.checkpointing.checkpoint around each layer";
  }
  return result;
}

}  // namespace

std::vector<ProgramFlags> flags_for_programs(const Choice& choice, std::int64_t batch) {
  return {megatron(choice, batch), torchtitan(choice, batch), deepspeed(choice, batch)};
}

}  // namespace baton::job
