#include "baton/sheet/theory.h"

namespace baton::sheet {

std::vector<AskedOn> theory_questions() {
  return {
      {"csye-hw4/1/Q1", "Q1", "What is the general idea of a CUDA workflow?",
       "Six steps. (1) Allocate and fill memory on the host. (2) Allocate memory on the device (`cudaMalloc`). (3) Copy the inputs "
       "to the "
       "device (`cudaMemcpy`, host to device). (4) Launch the kernel over a grid of blocks of threads; it runs asynchronously. (5) "
       "Wait "
       "and copy the results back (device to host). (6) Free both memories (`cudaFree`, `free`). In PyTorch steps 1 to 3 are "
       "`torch.rand(...).to(\"cuda\")`, 4 is any operation, 5 is `.cpu()`."},
      {"csye-hw4/1/Q2", "Q2", "Which memory of a GPU is on the chip, and which is not?",
       "On chip: registers (per thread), shared memory and L1 (per multiprocessor), constant and texture caches, and L2 (for all). "
       "Off chip, in DRAM: global memory, local memory (what does not fit in registers), and constant and texture memory behind "
       "their caches. Off-chip memory is larger and slower: an RTX 3090 has 24 GB of it, 128 KB of L1 and shared memory per "
       "multiprocessor and 6 MB of L2; an access takes about 500 cycles off chip, 200 in L2 and 30 in L1 or shared memory."},
      {"csye-hw4/1/Q3", "Q3", "Why is training deep networks slow?",
       "(1) Much arithmetic: per sample about 6 flops for each parameter of a fully connected layer, and more where weights are "
       "used at every position, as in a convolution (ResNet-50: about 960 per parameter); for millions of parameters and samples. "
       "(2) Many passes over the data, each step waiting for the update before it. (3) Memory bandwidth: element-wise operations "
       "and updates do few flops per byte. (4) Reading and preparing data. (5) Communication once the work is split. (6) Repeated "
       "runs for hyperparameters. `baton lab run profile` shows which matters."},
      {"csye-hw4/1/Q4", "Q4", "Which parallel methods are there on a single machine and on several?",
       "One machine: vector instructions, threads (OpenMP), processes, the threads of a GPU (CUDA), several GPUs driven by one "
       "process "
       "(DataParallel) or by one process each (DDP). Several machines: message passing (MPI, NCCL, Gloo), as in DDP, pipelines, "
       "tensor "
       "parallelism and ZeRO, or a parameter server. What is divided is the batch, the layers, each layer, or the optimizer's "
       "state. "
       "`baton strategies` lists them; `mpirun -n 2 baton train --strategy ddp` runs one over processes."},
      {"csye-hw4/1/Q5", "Q5", "Which type of MPI communication serves data-parallel deep learning, and by which functions?",
       "Collective communication: all ranks call together. `MPI_Allreduce` sums the gradients so that every rank has the sum, and "
       "`MPI_Bcast` gives every rank the first weights of rank 0. DataParallel's pattern is `MPI_Scatter`, `MPI_Gather` and "
       "`MPI_Reduce`. "
       "A split model is point to point instead: `MPI_Send` and `MPI_Recv`. `baton plan --strategy ddp --devices cpu:2 --text` "
       "shows the all-reduce as a task."},
      {"csye-hw4/1/Q6", "Q6", "How many dimensions do tensors of time series, images and videos have?",
       "Time series 3: (samples, time, features). Images 4: (samples, channels, height, width). Videos 5: (samples, frames, "
       "channels, "
       "height, width). The first dimension is the batch; one image by itself has 3."},
      {"csye-hw4/1/Q7", "Q7", "Which PyTorch methods move tensors between CPU and GPU?",
       "`x.to(\"cuda\")` or `x.cuda()` to the GPU, `x.to(\"cpu\")` or `x.cpu()` back, `model.to(device)` for all parameters of a "
       "module. "
       "Each makes a copy unless the tensor is there already. From pinned memory (`x.pin_memory()`) with `non_blocking=True` the "
       "copy "
       "overlaps with computing. All operands of an operation must be on one device: nothing moves by itself."},
      {"csye-hw4/1/Q8", "Q8", "Which tensor stores 64 RGB images of 128 × 128?",
       "`torch.rand(64, 3, 128, 128)`: (samples, channels, height, width), 4 dimensions, 64 · 3 · 128 · 128 = 3 145 728 elements, "
       "12 MiB in "
       "float32."},
      {"csye-hw4/1/Q9", "Q9", "Which networks suit data parallelism?",
       "Those that fit on one device and do much work per parameter: convolutional networks, whose weights are used at every "
       "position, and "
       "transformers of moderate size. An all-reduce moves about 8 bytes per parameter, whatever the batch, so work per parameter "
       "decides. "
       "Large fully connected layers and embeddings suit it less: for `mlp:dim=8192,depth=8` on eight A100, `baton simulate "
       "--strategy ddp "
       "--cluster dgx-a100 --devices 8 --batch 64 --model mlp:dim=8192,depth=8` leaves 14 % of the step to exposed communication, "
       "and "
       "5.3 % at a batch of 1024."},
      {"csye-hw4/1/Q10", "Q10", "When should model parallelism be used?",
       "When parameters, gradients, optimizer state and activations do not fit on one device: 16 bytes per parameter with Adam in "
       "float32, "
       "before any activation. Not for speed by itself: with n devices and no pipeline one works at a time. Layers are split where "
       "the "
       "model is deep, each layer (tensor parallelism) where one layer is too large. `baton plan --model mlp:dim=2048,depth=8 "
       "--memory "
       "96M --devices cpu:4 --strategy layers --verify` checks that it fits before anything runs."},
      {"csye-hw4/1/Q11", "Q11", "What is profiling, and why is it done?",
       "Profiling measures where time and memory go, by operation and device, instead of guessing. It names the part that is worth "
       "speeding up, and bounds the gain: if a part that is a share p of the critical path becomes k times as fast, the step "
       "becomes "
       "at most 1 / (1 − p + p / k) times as fast (Amdahl), and less if another path becomes the critical one. `baton lab run "
       "profile` does it for a step, `baton train --trace trace.json` writes a timeline; PyTorch has `torch.profiler`."},
      {"csye-hw4/1/Q12", "Q12", "How many types of mixed-precision calculation does the GPU provide?",
       "Three on an Ampere GPU (RTX 3090, A100): its tensor cores multiply FP16, BF16 or TF32 operands and sum in FP32. The number "
       "depends on the GPU: Volta has one (FP16), Hopper (H100) has four, since FP8 is added, and Blackwell adds FP6 and FP4. "
       "PyTorch's autocast offers two of them, `torch.float16` and `torch.bfloat16`; TF32 is a switch for float32 products. "
       "`baton lab run precision` compares them."},
      {"csye-hw4/1/Q13", "Q13", "What are the roles of GradScaler and autocast?",
       "`autocast` chooses a precision per operation: products in 16 bits, sums, softmax and losses in float32, weights stay "
       "float32. "
       "`GradScaler` multiplies the loss (by 65536 at first), so that gradients below 3 · 10^-8 do not become zero in float16, and "
       "divides "
       "the gradients by the same before the update; a step with infinities is skipped and the factor halved, and after 2000 good "
       "steps it "
       "is doubled. bfloat16 has the range of float32 and needs no scaler. `baton train --precision fp16` does both."},
  };
}

}  // namespace baton::sheet
