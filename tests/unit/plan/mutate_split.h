#pragma once

#include <optional>
#include <random>
#include <string_view>

#include "baton/plan/plan.h"

namespace baton::plan::test {

/// The ways in which a split is spoilt. What is left is a plan without races or deadlocks, of buffers that fit; edges are derived
/// again.
enum class SplitMutation {
  missing_sum,        // a collective that adds up is gone
  doubled_sum,        // an all-reduce is there twice
  wrong_piece,        // two members' pieces of one size trade places
  wrong_reader,       // a task reads another buffer like the one it should
  wrong_writer,       // a task writes another buffer like the one it should
  bias_twice,         // a term of a divided sum gets the bias too
  swapped_rows,       // two devices' inputs or targets trade places
  wrong_part,         // two devices' parts of a parameter trade places
  wrong_micro_batch,  // a task reads a value of another micro-batch
  missing_addition,   // what should be added to what was there takes its place
  wrong_scale,        // another number of rows in the loss, another rate, or a loss scale on one side only
  swapped_members,    // two buffers of one device trade places in the collectives that they are brought to
  missing_update,     // a parameter stays as it was
  early_update,       // an update comes before the last use of what it updates
  wrong_rank,         // two members of a collective trade ranks
  wrong_number,       // an op takes its part of a vocabulary for another part
  missing_merge,      // a loss reads its own part's terms for those of all parts
  norm_twice,         // a gradient counts twice in the norm that gradients are clipped by
  norm_missing,       // a gradient does not count in it
};
constexpr std::size_t split_mutation_count = 19;

std::string_view to_text(SplitMutation mutation);

/// The plan with one change of that kind; nothing if the plan has no place for it.
std::optional<Plan> mutate_split(const Plan& plan, SplitMutation mutation, std::mt19937& random);

}  // namespace baton::plan::test
