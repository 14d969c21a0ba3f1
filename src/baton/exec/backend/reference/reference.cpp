#include <algorithm>
#include <map>
#include <vector>

#include "baton/exec/backend/host_backends.h"
#include "baton/exec/backend/reference/attention_loops.h"
#include "baton/exec/backend/reference/elementwise_loops.h"
#include "baton/exec/backend/reference/image_loops.h"
#include "baton/exec/backend/reference/linear_loops.h"
#include "baton/exec/backend/reference/loss_loops.h"
#include "baton/exec/backend/reference/norm_loops.h"
#include "baton/exec/backend/reference/sequence_loops.h"
#include "baton/exec/backend/reference/update_loops.h"
#include "baton/op/signature.h"

namespace baton::exec {
namespace {

using plan::Plan;
using plan::Task;

template <typename Real>
class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(Plan plan, TaskId task, Addresses addresses, bool on_copies = false)
      : plan_(std::move(plan)), task_(task), addresses_(std::move(addresses)), on_copies_(on_copies) {}

  void run(const threads::Member&, std::int64_t step) override {
    const Task& task = plan_[task_];
    const reference::Loops<Real> loops{plan_, task, addresses_, rounding_, step, on_copies_};
    if (const auto* compute = std::get_if<plan::Compute>(&task.action)) {
      std::visit(loops, compute->op);
      loops.copy_results();
    } else {
      loops.update(std::get<plan::Update>(task.action));
    }
  }
  Rounding rounding() const override { return rounding_; }

 private:
  Plan plan_;
  TaskId task_;
  Addresses addresses_;
  bool on_copies_;
  Rounding rounding_;
};

/// Calls `visit(id, address)` for each operand of an op of one of the types that may differ from each other.
template <typename Visit>
void each_mixed(const op::Op& op, const Task& task, Addresses& at, Visit visit) {
  const op::Signature& signature = op::signature(op);
  const auto one = [&](const std::vector<op::Axes>& axes, const std::vector<BufferId>& ids, std::vector<std::byte*>& places) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].type == op::Type::value || axes[i].type == op::Type::summed || axes[i].type == op::Type::wide) {
        visit(ids[i], places[i]);
      }
    }
  };
  one(signature.reads, task.reads, at.reads);
  one(signature.writes, task.writes, at.writes);
}

/// An op of which some operands have 16 bits and some 32: the loops run on copies in float32, and results are rounded on the way
/// out.
class MixedKernel final : public Kernel {
 public:
  MixedKernel(Plan plan, TaskId number, Addresses addresses) {
    const Task& task = plan[number];
    each_mixed(std::get<plan::Compute>(task.action).op, task, addresses, [&](BufferId id, std::byte*& place) {
      if (is_narrow(plan[id].dtype)) {
        const auto [copy, added] = copies_.try_emplace(id);
        if (added) {
          copy->second = {plan[id].dtype, place, std::vector<float>(static_cast<std::size_t>(plan[id].shape.elements()))};
        }
        place = reinterpret_cast<std::byte*>(copy->second.wide.data());
      }
    });
    for (const BufferId id : task.writes) {
      if (const auto copy = copies_.find(id); copy != copies_.end()) {
        results_.push_back(&copy->second);
      }
    }
    inner_ = std::make_unique<ReferenceKernel<float>>(std::move(plan), number, std::move(addresses), true);
  }

  void run(const threads::Member& member, std::int64_t step) override {
    for (auto& [id, copy] : copies_) {
      widen(copy.type, copy.narrow, copy.wide.data(), static_cast<std::int64_t>(copy.wide.size()));
    }
    inner_->run(member, step);
    for (const Copy* copy : results_) {
      rounding_ += narrow(copy->type, copy->wide.data(), copy->narrow, static_cast<std::int64_t>(copy->wide.size()));
    }
  }
  Rounding rounding() const override { return rounding_; }

 private:
  struct Copy {
    DType type;
    std::byte* narrow;
    std::vector<float> wide;
  };
  std::map<BufferId, Copy> copies_;
  std::vector<const Copy*> results_;
  std::unique_ptr<Kernel> inner_;
  Rounding rounding_;
};

class ReferenceBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "reference"; }
  plan::Target target() const override { return {.loads = true}; }
  bool has_kernel(const Plan& plan, const Task& task) const override {
    if (const auto* compute = std::get_if<plan::Compute>(&task.action); compute != nullptr && op::normalizes_sum(compute->op)) {
      return false;
    }
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        if (!plan[id].layout.empty()) {
          return false;
        }
      }
    }
    return true;
  }
  int team_size(int) const override { return 1; }

  /// The type that a task computes in. Losses and statistics have types of their own whatever they are made of.
  static DType type_of(const Plan& plan, const Task& task) {
    if (const auto* compute = std::get_if<plan::Compute>(&task.action)) {
      const op::Signature& signature = op::signature(compute->op);
      const auto is_own = [](const op::Axes& axes) {
        return axes.type == op::Type::value || axes.type == op::Type::summed || axes.type == op::Type::wide ||
               axes.type == op::Type::floating;
      };
      for (const auto& [axes, operands] : {std::pair(&signature.writes, &task.writes), std::pair(&signature.reads, &task.reads)}) {
        if (const auto found = std::find_if(axes->begin(), axes->end(), is_own); found != axes->end()) {
          return plan[(*operands)[static_cast<std::size_t>(found - axes->begin())]].dtype;
        }
      }
      return DType::f32;
    }
    return plan[task.writes[0]].dtype;
  }

  static bool is_mixed(const Plan& plan, const Task& task) {
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    bool mixed = false;
    if (compute != nullptr) {
      Addresses none{std::vector<std::byte*>(task.reads.size()), std::vector<std::byte*>(task.writes.size())};
      each_mixed(compute->op, task, none, [&](BufferId id, std::byte*) { mixed = mixed || plan[id].dtype != type_of(plan, task); });
    }
    return mixed;
  }

  std::unique_ptr<Kernel> prepare(Plan plan, TaskId task, const Addresses& addresses, int) const override {
    if (is_mixed(plan, plan[task])) {
      return std::make_unique<MixedKernel>(std::move(plan), task, addresses);
    }
    switch (type_of(plan, plan[task])) {
      case DType::f64:
        return std::make_unique<ReferenceKernel<double>>(std::move(plan), task, addresses);
      case DType::bf16:
        return std::make_unique<ReferenceKernel<Bf16>>(std::move(plan), task, addresses);
      case DType::f16:
        return std::make_unique<ReferenceKernel<F16>>(std::move(plan), task, addresses);
      case DType::f32:
      case DType::i32:
        break;
    }
    return std::make_unique<ReferenceKernel<float>>(std::move(plan), task, addresses);
  }
};

}  // namespace

std::unique_ptr<HostBackend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace baton::exec
