#include "baton/sheet/sheets.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/job/keys.h"

namespace baton::sheet {
namespace {

namespace key = job::key;

job::JobSpec job(const std::string& strategy, const std::string& model, std::vector<strategy::DelayRequest> delays = {}) {
  job::JobSpec spec;
  spec.strategy = strategy;
  spec.model = model;
  spec.devices = "cuda";
  spec.delays = std::move(delays);
  return spec;
}

Sheet data_parallelism() {
  const std::string small = "mlp:dim=1024,depth=2";
  return {.id = "hw1",
          .title = "Homework 1: data parallelism",
          .most_pages = 6,
          .tasks =
              {{.heading = "Task 1: Reproducible benchmark",
                .experiments = {"timing"},
                .questions = {{"hw1/1/Q1", "Q1", "Why is warm-up needed in GPU benchmarking?"},
                              {"hw1/1/Q2", "Q2", "Why must randomness be controlled?"}},
                .columns = {key::run, key::devices, key::step_1_ns, key::time_per_step_ns, key::mean_ns, key::mean_all_ns,
                            key::std_ns, key::steps_timed, key::warmup, key::loss_last},
                .plots = 0,
                .programs = {"task1_benchmark.cpp", "task1_ddp.py"}},
               {.heading = "Task 2: Strong scaling",
                .experiments = {"strong-scaling"},
                .questions = {{"hw1/2/Q1", "Q1", "Is scaling linear?"},
                              {"hw1/2/Q2", "Q2", "Where does efficiency drop?"},
                              {"hw1/2/Q3", "Q3", "What explains it, in numbers?"}},
                .columns = {key::devices, key::time_per_step_ns, key::speedup, key::efficiency},
                .plots = 2,
                .programs = {"task2_strong_scaling.cpp", "task1_ddp.py"}},
               {.heading = "Task 3: Communication against computation",
                .experiments = {"comm-vs-compute"},
                .questions = {{"hw1/3/Q1", "Q1", "In which case is DDP more efficient?"},
                              {"hw1/3/Q2", "Q2", "Why does performance differ between small and large models?"},
                              {"hw1/3/Q3", "Q3", "When does communication become the bottleneck?"}},
                .columns = {key::case_, key::devices, key::time_per_step_ns, key::speedup, key::efficiency, key::sent_bytes,
                            key::exposed_share},
                .programs = {"task3_communication.cpp", "task3_case_a.py", "task3_case_b.py"},
                .names_size = true,
                .shares_of_step = true},
               {.heading = "Task 4: DataParallel against DDP",
                .experiments = {"dp-vs-ddp"},
                .questions = {{"hw1/4/Q1", "Q1", "Why does DP suffer from a bottleneck on GPU 0?"},
                              {"hw1/4/Q2", "Q2", "Why does DDP scale better architecturally?"},
                              {"hw1/4/Q3", "Q3", "When could DP still be acceptable?"}},
                .columns = {key::strategy, key::devices, key::time_per_step_ns, key::std_ns, key::busy_device_0, key::busy_others,
                            key::memory_device_0, key::memory_others, key::through_device_0, key::through_others},
                .gpu_columns = {key::strategy, key::devices, key::gpu_utilization_0, key::gpu_utilization_others,
                                key::gpu_memory_bytes, key::gpu_watts, key::gpu_clock_mhz},
                .noise_columns = {key::strategy, key::devices, key::time_per_step_ns, key::std_ns},
                .reading =
                    {{key::std_ns, "std is the standard deviation of the step times."},
                     {key::busy_device_0, "busy is the share of the step in which a device computes."},
                     {"",
                      "GPU utilization, in the sense of `nvidia-smi`, is the share of time in which any kernel runs, also one that "
                      "waits for a message, so it is at least busy."},
                     {key::gpu_utilization_0,
                      "Neither CPU cores nor a simulation have it: `baton lab run dp-vs-ddp --devices cuda` measures it on GPUs.",
                      true}},
                .programs = {"task4_dp_vs_ddp.cpp", "task4_dp.py", "task1_ddp.py"}},
               {.heading = "Task 5, option A: Artificial delay",
                .option = "A",
                .experiments = {"delay"},
                .questions = {{"hw1/5A/Q1", "Q1", "How does the delay affect scaling?"},
                              {"hw1/5A/Q2", "Q2", "Does speedup degrade linearly or non-linearly?"},
                              {"hw1/5A/Q3", "Q3", "How does it relate to Amdahl's law?"}},
                .columns = {key::delay_ms, key::devices, key::time_per_step_ns, key::speedup},
                .plots = 2,
                .most_words = 220,
                .programs = {"task5a_delay.cpp", "task5_delay.py"}},
               {.heading = "Task 5, option B: Batch scaling",
                .option = "B",
                .experiments = {"batch-scaling"},
                .questions = {{"hw1/5B/Q1", "Q1", "Does a larger batch improve scaling?"},
                              {"hw1/5B/Q2", "Q2", "When does performance saturate?"}},
                .columns = {key::batch, key::devices, key::time_per_step_ns, key::samples_per_s, key::speedup, key::efficiency},
                .plots = 2,
                .most_words = 220,
                .programs = {"task5b_batch.cpp", "task5_batch.py"}},
               {.heading = "Task 5, option C: Imbalance",
                .option = "C",
                .experiments = {"imbalance"},
                .questions = {{"hw1/5C/Q1", "Q1", "What happens to overall training time?"},
                              {"hw1/5C/Q2", "Q2", "What does it reveal about synchronization?"}},
                .columns = {key::devices, key::delay_ms, key::time_per_step_ns, key::waiting_device_0_ns, key::waiting_others_ns},
                .most_words = 220,
                .programs = {"task5c_imbalance.cpp", "task5_imbalance.py"}}},
          .scripts = {
              {.file = "task1_ddp.py",
               .spec = job("ddp", small),
               .table = "for n in 1 2 4; do torchrun --nproc_per_node=$n -- task1_ddp.py; done"},
              {.file = "task3_case_a.py",
               .spec = job("ddp", small),
               .experiment = "comm-vs-compute",
               .table = "for n in 1 2 4; do torchrun --nproc_per_node=$n -- task3_case_a.py; done"},
              {.file = "task3_case_b.py",
               .spec = job("ddp", "mlp:dim=8192,depth=8"),
               .experiment = "comm-vs-compute",
               .table = "for n in 1 2 4; do torchrun --nproc_per_node=$n -- task3_case_b.py; done"},
              {.file = "task4_dp.py", .spec = job("dp", small), .table = "for n in 2 4; do python3 task4_dp.py --gpus $n; done"},
              {.file = "task5_delay.py",
               .spec = job("ddp", small, {strategy::parse_delay("before=backward,device=all,ms=10")}),
               .table = "for ms in 0 5 10 20 40; do for n in 1 2 4; do torchrun --nproc_per_node=$n -- task5_delay.py "
                        "--delay-ms $ms; done; done"},
              {.file = "task5_batch.py",
               .spec = job("ddp", small),
               .table = "for n in 1 4; do for b in 32 64 128 256; do torchrun --nproc_per_node=$n -- task5_batch.py --batch $b; "
                        "done; done"},
              {.file = "task5_imbalance.py",
               .spec = job("ddp", small, {strategy::parse_delay("before=backward,device=0,ms=20")}),
               .table = "for n in 1 2 4; do for ms in 0 20; do torchrun --nproc_per_node=$n -- task5_imbalance.py --delay-ms "
                        "$ms; done; done"}}};
}

Sheet model_parallelism() {
  return {
      .id = "hw3",
      .title = "Homework 3: layer-wise model parallelism",
      .most_pages = 4,
      .tasks =
          {{.heading = "Task 1: Current behaviour",
            .experiments = {"split"},
            .questions = {{"hw3/1/Q1", "Q1", "How many layers are on each GPU?"},
                          {"hw3/1/Q2", "Q2", "At what exact point of the forward does the data move?"}},
            .columns = {key::depth, key::devices, key::time_per_step_ns, key::transfers_forward},
            .plots = 0,
            .programs = {"task1_split.cpp", "task1_split.py"}},
           {.heading = "Task 2: Larger model",
            .experiments = {"depth"},
            .questions = {{"hw3/2/Q1", "Q1", "Does adding layers improve speed, and why not?"}},
            .columns = {key::depth, key::time_per_step_ns, key::idle_share, key::transfers},
            .programs = {"task2_depth.cpp", "task2_depth.py"}},
           {.heading = "Task 3: All GPUs",
            .experiments = {},
            .questions =
                {{"hw3/3/Q1", "Q1", "Which rule gives each layer its GPU?",
                  "Layer i of depth goes to GPU `i * n // depth`; n is the number of GPUs that "
                  "`torch.cuda.device_count()` finds in `__init__`, below. The rule never decreases, so each GPU holds one "
                  "contiguous run of layers and data crosses each border once; runs differ by at most one layer. 20 layers "
                  "are 10 + 10 on two GPUs and 4 on each of five; `i < depth // 2` is the case n = 2 of an even depth. "
                  "`code/split.h` has the rule in C++."}},
            .programs = {"task3_all_devices.cpp", "split.h", "task3_all_gpus.py"},
            .listed_class = "LargeLinearModelMP"},
           {.heading = "Task 4: More GPUs",
            .experiments = {"all-devices"},
            .questions = {{"hw3/4/Q1", "Q1", "Are all GPUs used?"}, {"hw3/4/Q2", "Q2", "Is it faster?"}},
            .columns = {key::devices, key::time_per_step_ns, key::busy_each, key::memory_each},
            .reading = {{key::memory_each,
                         "memory: PyTorch keeps all gradients until `step()`, up to {parameters} more over all GPUs; Baton frees "
                         "each after its update."}},
            .programs = {"task4_more_devices.cpp", "task3_all_gpus.py"}},
           {.heading = "Task 5: Transfers",
            .experiments = {"transfers"},
            .questions = {{"hw3/5/Q1", "Q1", "How often does x.to(layer_device) move data in one forward?"},
                          {"hw3/5/Q2", "Q2", "How is the number of GPUs related to communication overhead?"}},
            .columns = {key::devices, key::transfers_forward, key::bytes_forward, key::sent_bytes, key::transfer_ns,
                        key::transfers_step_ns, key::time_per_step_ns},
            .programs = {"task5_transfers.cpp", "task3_all_gpus.py"}}},
      .scripts = {{.file = "task1_split.py",
                   .spec =
                       [] {
                         job::JobSpec spec = job("layers", "mlp:dim=1024,depth=6");
                         spec.devices = "cuda:0,1";
                         spec.split = {3, 3};
                         return spec;
                       }(),
                   .experiment = "split"},
                  {.file = "task2_depth.py",
                   .spec = job("layers", "mlp:dim=1024,depth=6"),
                   .experiment = "depth",
                   .table = "for d in 6 12 24; do python3 task2_depth.py --gpus 2 --depth $d; done"},
                  {.file = "task3_all_gpus.py",
                   .spec = job("layers", "mlp:dim=1024,depth=20"),
                   .experiment = "all-devices",
                   .table = "for n in 1 2 3 4 5; do python3 task3_all_gpus.py --gpus $n; done"}}};
}

Sheet first_model_split() {
  job::JobSpec spec = job("layers", "first-split");
  spec.devices = "cuda:0,1";
  spec.batch = 32;
  spec.samples = 160;
  return {.id = "practical8",
          .title = "Practical 8: first model split",
          .most_pages = 2,
          .tasks = {{.heading = "Part 1: The forward",
                     .experiments = {"first-split"},
                     .questions = {{"practical8/1/Q1", "Q1", "Where does computation start?"},
                                   {"practical8/1/Q2", "Q2", "When does the move happen?"},
                                   {"practical8/1/Q3", "Q3", "Which device holds the output?"}},
                     .columns = {key::devices, key::time_per_step_ns, key::forward_ns, key::transfer_ns, key::transfers_forward,
                                 key::transfers, key::sent_bytes},
                     .plots = 0,
                     .programs = {"first_split.cpp", "first_split.py"}},
                    {.heading = "Part 2: Five training steps",
                     .questions = {{"practical8/2/Q1", "Q1", "What is the loss of each of five training steps?"}}},
                    {.heading = "Part 3: The device before and after the move",
                     .questions = {{"practical8/3/Q1", "Q1", "On which device is the data before and after the move?"}}},
                    {.heading = "Part 4: Time of the forward",
                     .questions = {{"practical8/4/Q1", "Q1", "How long does the forward take?"}}},
                    {.heading = "Observations", .questions = {{"practical8/5/Q1", "Q1", "What do you observe?"}}}},
          .scripts = {{.file = "first_split.py", .spec = spec, .steps = 5, .warmup = 0}}};
}

Sheet scientific_computing() {
  return {
      .id = "csye-hw4",
      .title = "Homework 4: CUDA, parallel training and model splits",
      .most_pages = 6,
      .tasks =
          {{.heading = "Part 1: Questions", .experiments = {"profile"}, .questions = theory_questions(), .plots = 0},
           {.heading = "Part 2: Powers of matrices",
            .experiments = {"matrix-power"},
            .questions = {{"csye-hw4/2/Q1", "Q1", "How long does Aⁿ + Bⁿ take on one GPU and on two?"}},
            .columns = {key::devices, key::size, key::power, key::time_per_step_ns, key::tflops, key::speedup, key::products},
            .plots = 0,
            .programs = {"part2_matrix_power.cpp", "part2_matrix_power.py"},
            .names_size = true},
           {.heading = "Part 3: From two GPUs to four",
            .experiments = {"four-way-split"},
            .questions = {{"csye-hw4/3/Q1", "Q1", "How is a model for two GPUs split over four?"}},
            .columns = {key::model, key::devices, key::split, key::time_per_step_ns, key::loss_at_5},
            .plots = 1,
            .programs = {"part3_four_way_split.cpp", "part3_four_way_split.py"},
            .listed_class = "SplitModel",
            .note = "The sheet's script is taken to be PyTorch's tutorial on model parallelism, with a toy model and ResNet-50. "
                    "The toy model has two Linear layers, too few for four GPUs: here it has four (`toy-4`). ResNet-50 is 18 "
                    "blocks: the stem, 16 bottlenecks and the head.",
            .split_over = 4,
            .names_size = true}},
      .scripts = {{.file = "part2_matrix_power.py", .steps = 0, .experiment = "matrix-power"},
                  {.file = "part3_four_way_split.py", .steps = 0, .experiment = "four-way-split"}}};
}

}  // namespace

const std::vector<Sheet>& sheets() {
  static const std::vector<Sheet> all{data_parallelism(), model_parallelism(), first_model_split(), scientific_computing()};
  return all;
}

const Sheet& sheet_by_id(std::string_view id) {
  std::vector<std::string> ids;
  for (const Sheet& sheet : sheets()) {
    ids.push_back(sheet.id);
  }
  return sheets()[index_of_name(ids, id, "sheet")];
}

std::vector<std::string> options_of(const Sheet& sheet) {
  std::vector<std::string> options;
  for (const SheetTask& task : sheet.tasks) {
    if (!task.option.empty()) {
      options.push_back(task.option);
    }
  }
  return options;
}

std::vector<SheetTask> tasks_of(const Sheet& sheet, const std::string& option) {
  std::vector<SheetTask> tasks = sheet.tasks;
  std::erase_if(tasks, [&](const SheetTask& task) { return !task.option.empty() && canonical(task.option) != canonical(option); });
  return tasks;
}

}  // namespace baton::sheet
