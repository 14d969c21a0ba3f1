#pragma once

#include <cstdint>
#include <string>

#include "baton/ranks/world.h"
#include "baton/training/training.h"

/// The watch over this program's ranks: when one is lost, all end, and rank 0 says which, what it was doing and
/// which ranks waited for it. If the program runs alone, or without patience, none of this does anything.
namespace baton::app {

/// While it lives, ranks that do not connect in time end with an error: before the watch starts, a stopped rank would block the
/// others for ever.
class StartLimit {
 public:
  explicit StartLimit(bool several_ranks);
  ~StartLimit();
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;
};

/// All ranks call it, once. From now on the process ends when another rank is lost.
void open_guard(ranks::World& world, Nanoseconds patience);
/// Tells the guard which plan the ranks run, so that it can name tasks.
void guard_run(const training::Training& run);
void guard_plan(const plan::Plan& plan, const training::Job& job, std::int64_t steps_before);
/// The checkpoint that a lost run can continue from.
void guard_checkpoint(const std::string& path);
/// This rank has failed: the others are told why, and end with `code`. Returns only if there is no
/// watch.
void guard_failure(const std::string& why, int code);
/// This rank is done. All ranks meet here, so that a missing rank is detected, which MPI_Finalize does not do.
void guard_end(ranks::World& world);
/// Waits until all ranks are done, on rank 0 until the others have ended. The last thing that a process does.
void close_guard();

}  // namespace baton::app
