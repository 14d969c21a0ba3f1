#pragma once

#include <string>
#include <vector>

#include "baton/job/choice.h"

namespace baton::job {

/// The flags that make another training program split its work like a choice, or why it cannot: one of the two is empty.
struct ProgramFlags {
  std::string program;  // "Megatron-LM"
  std::string flags;    // its command line, or its JSON configuration
  std::string cannot;   // why it cannot split in this way
};

/// Flags for Megatron-LM, torchtitan and DeepSpeed, of a global batch of this many samples. They set only the split: model,
/// data and optimizer are the user's. If stages of a model are uneven, the programs may assign blocks to stages differently.
std::vector<ProgramFlags> flags_for_programs(const Choice& choice, std::int64_t batch);

}  // namespace baton::job
