#pragma once

#include <optional>
#include <random>
#include <string_view>

#include "baton/plan/verify.h"

namespace baton::plan::test {

/// The ways in which a plan is spoilt, one small change each.
enum class Mutation {
  drop_edge,          // an `after` is lost
  reverse_edge,       // an `after` points the other way
  add_edge,           // an `after` too many, forwards, backwards or to another device
  swap_meetings,      // two tasks of one device's communication lane change places
  redirect_read,      // a task reads another buffer
  redirect_write,     // a task writes another buffer
  drop_transfer,      // both ends are gone
  drop_transfer_end,  // one end is gone
  change_transfer,    // another peer, end or meeting
  drop_member,        // one member of a collective is gone
  change_collective,  // another rank, size, kind or meeting
  move_task,          // to another device
  change_lane,        // to another lane of its device
  delete_task,        // any
  change_buffer,      // another shape, type, order, or it no longer lives on
  change_scaling,     // a loss or an update is scaled, or no longer; or a scale is to grow before it began
  lose_kernel,        // the backend lacks what one task does
  shrink_memory,      // a device has less, or just enough
};
constexpr std::size_t mutation_count = 18;

std::string_view to_text(Mutation mutation);

struct Mutant {
  Plan plan;
  Limits limits;
};

/// The plan with one change of that kind; nothing if the plan has no place for it.
/// `peak` is what the plan needs on each device.
std::optional<Mutant> mutate(const Plan& plan, const std::vector<Bytes>& peak, Mutation mutation, std::mt19937& random);

}  // namespace baton::plan::test
