#pragma once

#include <set>
#include <vector>

#include "baton/plan/verify.h"

/// The rules of the plan a second time, slow and plain, written from the rules in verify.h and task.h: all
/// pairs, no clocks. It shares no code with `verify`, so that each can be compared with the other.
namespace baton::plan::test {

/// Which task of a device certainly comes before which: the closure of lane order and of `after`.
class Before {
 public:
  explicit Before(const Plan& plan);
  bool operator()(std::size_t first, std::size_t second) const { return reaches_[first][second]; }

 private:
  std::vector<std::vector<bool>> reaches_;
};

/// What is wrong with a plan, by rule, and who is to blame.
struct Judgement {
  /// The rules that are broken. `verify` stops after the first group that has a broken one, and so does this:
  /// {place, shape, meet, kernel}, then {waiting}, then {written, read, ordered}.
  std::set<Rule> broken;
  std::set<std::pair<Rule, std::size_t>> guilty;            // tasks, one by one
  std::set<std::pair<std::size_t, std::size_t>> unordered;  // pairs that touch one buffer without an order
  std::set<std::size_t> unsure;  // tasks that touch a buffer whose touches are not ordered: what they read, nobody knows

  bool right() const { return broken.empty(); }
};

Judgement judge(const Plan& plan, const Limits& limits = {});

/// The nodes of the waiting graph: a task alone, or a meeting's members together.
std::vector<std::size_t> waiting_nodes(const Plan& plan);
/// Tasks that `id` waits for directly: the one before it in its lane, and `after`.
std::vector<std::size_t> waits_for(const Plan& plan, std::size_t id);

}  // namespace baton::plan::test
