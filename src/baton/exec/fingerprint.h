#pragma once

#include <string>

#include "baton/exec/run.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"

namespace baton::exec {

/// Hash of the running executable.
std::uint64_t hash_program();

/// The facts that must be the same on all ranks that run a plan together.
struct Fingerprint {
  std::uint64_t plan = 0;     // hash of the plan's text
  std::uint64_t data = 0;     // hash of everything that its data are drawn from
  std::string version;        // version of Baton
  std::uint64_t program = 0;  // hash of the file that runs: two builds of one version may differ in their last bits
  std::string arithmetic;     // arithmetic_of
};
Fingerprint fingerprint(const plan::Plan& plan, const DataOptions& data, std::string arithmetic = {});

/// All ranks call it. A usage error names the ranks whose fingerprint is not rank 0's, and in what.
void require_agreement(ranks::World& world, const Fingerprint& mine);

/// A setting of a rank besides the plan: an option and its value.
struct Setting {
  std::string flag;
  std::string value;
};
/// All ranks call it, with the same flags. A usage error names the ranks whose value differs from rank 0's.
void require_same(ranks::World& world, const std::vector<Setting>& mine);

}  // namespace baton::exec
