#pragma once

#include <string>
#include <vector>

#include "baton/job/choice.h"

namespace baton::job {

/// How another training program is told to split its work as a choice does. One of the two is empty.
struct ProgramFlags {
  std::string program;  // "Megatron-LM"
  std::string flags;    // of its command line, or its JSON configuration
  std::string cannot;   // why it cannot split so
};

/// Flags for Megatron-LM, torchtitan and DeepSpeed, of a global batch of this many samples. What is told is the split alone: model,
/// data and optimizer are the user's. Where stages of a model are uneven the programs may deal out blocks in another way.
std::vector<ProgramFlags> flags_for_programs(const Choice& choice, std::int64_t batch);

}  // namespace baton::job
