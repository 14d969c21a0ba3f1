#include "baton/cuda/row_norms.h"

#include <algorithm>
#include <map>
#include <optional>

namespace baton::cuda {
namespace {

/// The operands of a norm's backward, of which both halves must have the same.
struct Backward {
  BufferId x;
  BufferId dy;
  double epsilon;
  bool centred;
  bool of_weights;

  bool belongs_to(const Backward& other) const {
    return x == other.x && dy == other.dy && epsilon == other.epsilon && centred == other.centred;
  }
};

std::optional<Backward> backward_of(const plan::Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  if (compute == nullptr) {
    return std::nullopt;
  }
  if (const auto* o = std::get_if<op::LayerNormBackwardInput>(&compute->op)) {
    return Backward{task.reads[1], task.reads[0], o->epsilon, true, false};
  }
  if (const auto* o = std::get_if<op::RmsNormBackwardInput>(&compute->op)) {
    return Backward{task.reads[1], task.reads[0], o->epsilon, false, false};
  }
  if (const auto* o = std::get_if<op::LayerNormBackwardWeight>(&compute->op)) {
    return Backward{task.reads[0], task.reads[1], o->epsilon, true, true};
  }
  if (const auto* o = std::get_if<op::RmsNormBackwardWeight>(&compute->op)) {
    return Backward{task.reads[0], task.reads[1], o->epsilon, false, true};
  }
  return std::nullopt;
}

bool is_held(const plan::Buffer& dy) {
  const std::int64_t width = dy.shape.last();
  return width <= held_width && width * size_of(dy.dtype) % 16 == 0;
}

bool writes(const plan::Task& task, BufferId id) {
  return std::find(task.writes.begin(), task.writes.end(), id) != task.writes.end();
}

}  // namespace

std::vector<RowNormShare> row_norm_shares(const plan::Plan& plan, const plan::Ordering& ordering) {
  std::vector<RowNormShare> shares(plan.tasks().size(), RowNormShare::none);
  struct Last {
    TaskId task;
    Backward backward;
  };
  std::map<DeviceId, Last> last;  // by device: the gradient of x that was computed last, if its operands are still there
  for (const TaskId id : ordering.sequence) {
    const plan::Task& task = plan[id];
    const auto known = last.find(task.device);
    const std::optional<Backward> own = backward_of(task);
    if (own && own->of_weights && known != last.end() && own->belongs_to(known->second.backward)) {
      shares[known->second.task.index()] = RowNormShare::takes_sums;
      shares[id.index()] = RowNormShare::has_sums;
    }
    if (known != last.end() && (own || writes(task, known->second.backward.x) || writes(task, known->second.backward.dy))) {
      last.erase(known);
    }
    if (own && !own->of_weights && is_held(plan[own->dy]) && !writes(task, own->x) && !writes(task, own->dy)) {
      last.insert_or_assign(task.device, Last{id, *own});
    }
  }
  return shares;
}

}  // namespace baton::cuda
