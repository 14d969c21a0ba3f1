#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/units.h"

namespace baton::cost {

/// The efficiency of a program's kernels on one kind of device.
struct Kernels {
  double products = 1;            // share of the efficiency that the device's file gives
  double attention_forward = 0;   // share of the rate that long sequences reach; 0: that of the device's products
  double attention_backward = 0;  // likewise
  double unaligned = 2;           // how much longer a product takes whose rows do not begin at multiples of 16 bytes
  double attention_half = 0;      // positions of a sequence at which half of that is reached; twice as many if it is causal
};

/// The memory of a PyTorch program with FSDP2, as `torch.cuda.max_memory_reserved` reports it, which may differ from the plan. Only
/// the shapes of values and parameters, the split and the schedule are the plan's.
struct Reserves {
  bool counted = false;               // the profile says it
  bool unread = false;                // outputs of ops whose results are kept stay though no gradient reads them
  bool last_stage = false;            // true if the last stage of a pipeline is reported
  double loss_gradients = 2;          // float32 tensors of all scores that the loss's backward makes at once
  double loss_gradients_divided = 3;  // the same if the vocabulary is divided
  double update_copies = 0;           // copies of a device's parameters that exist while they are updated
};

/// A training program as data: what it adds to the arithmetic of a plan. The content of a file in profiles/. The usual one is
/// Baton's own: tasks take what the plan says they compute and move.
///
///   summary = "what it is"
///   [job]          fields of a job that the program has unless the user says otherwise, as recompute = "full"
///   [host]         forward, backward, recompute: time to issue one op of the model; micro_batch, collective, message, update;
///                  waits = true if a stage waits until a message that it sends has been received; with it, waits_for_batches =
///                  true if the host waits for the device before it issues a forward that reads the batch; streams = true if
///                  each process group communicates on a stream of its own, so that with `waits` receives are posted ahead
///   [kernels]      products, unaligned, attention_forward, attention_backward, attention_half;
///                  [kernels.A100] and so on for a device by name
///   [memory]       elementwise, norms, norm_gradients (passes per pass of the plan), loss (bytes per score), update (passes)
///   [scores]       forward, backward: passes over the scores of an attention that keeps them in memory; 0: it does not;
///                  multiple, ops, passes: if the heads of a micro-batch are not a multiple of it, this many more ops and passes
///   [model]        joined_projections, narrow_stream, vocabulary (rounded up to a multiple of this and of the tensor ranks),
///                  pads_alone = false if it is not with one tensor rank
///   [reserved]     what PyTorch's allocator holds under FSDP2 (see Reserves): unread, last_stage, loss_gradients,
///                  loss_gradients_divided, update_copies
///   [products]     recomputed (share of the forward's products), fp8, casts (bytes moved per element of an operand in fp8)
struct Software {
  std::string name = "baton";
  std::string summary;
  std::vector<std::pair<std::string, std::string>> job;

  Nanoseconds host_forward;        // time to issue an op of the model in the forward
  Nanoseconds host_recompute;      // time to issue it when it is recomputed
  Nanoseconds host_backward;       // time to issue it in the backward
  Nanoseconds host_collective;     // time per collective
  Nanoseconds host_message;        // time per message of a pipeline
  Nanoseconds host_update;         // time per update, and per task that is done once for a step
  Nanoseconds host_micro_batch;    // time per micro-batch and stage, in addition to its ops
  bool waits = false;              // true if the host waits for messages of a pipeline
  bool waits_for_batches = false;  // true if it then waits for the device too, before the first and the last stage read a batch
  bool streams = false;            // each process group communicates on a stream of its own

  Kernels kernels;
  std::map<std::string, Kernels, std::less<>> kernels_of;  // by the product that a device is

  double elementwise = 1;  // passes over memory per pass of the plan: ops that are neither products nor norms
  double norms = 1;
  double norm_gradients = 1;  // the same in the backward of norms
  double loss_bytes = 0;      // bytes moved per score; 0: those of the plan
  double update_passes = 1;
  double scores_forward = 0;  // passes over the scores of an attention; 0: the scores stay in the multiprocessors
  double scores_backward = 0;
  std::int64_t scores_multiple = 1;  // heads times samples are a multiple of this, or attention takes the following
  double unfused_ops = 0;            // the ops that others take in addition
  double unfused_passes = 0;         // the passes over memory that others take in addition

  bool joined_projections = false;  // queries, keys and values are one product
  bool narrow_stream = false;       // the residual stream has the type that is computed in
  std::int64_t vocabulary = 1;      // the vocabulary is rounded up to a multiple of this
  bool pads_alone = true;           // true if it is rounded up also if tensors are not divided

  double recomputed_products = 0;  // the share of the forward's products that are computed twice
  bool fp8 = false;                // true if products have 8-bit operands
  double casts = 0;                // bytes moved per element to make an 8-bit operand of a 16-bit one

  Reserves reserves;

  const Kernels& on(std::string_view product) const;
};

/// A usage error names the mistake in the text.
Software parse_software(std::string_view toml, std::string name);
/// The profiles that are built in, by name.
const std::vector<Software>& software_profiles();
/// The files of profiles/ as they were when this was built: name and text.
std::vector<std::pair<std::string_view, std::string_view>> software_texts();
/// NAME, or a file, which has a slash or ends in .toml; empty: Baton itself. It may be followed by +fp8 (products have 8-bit
/// operands), +selective (half of the forward's products are computed twice), +keep (none is) and +scores (an attention that keeps
/// its scores in memory makes them again in the backward). A usage error lists the names.
Software software_by_name(std::string_view text);

}  // namespace baton::cost
