#include "baton/exec/executor.h"

#include "baton/base/error.h"
#include "baton/exec/contents.h"
#include "baton/exec/engine.h"
#include "baton/exec/fingerprint.h"
#include "baton/plan/verify.h"

namespace baton::exec {

Executor::Executor(plan::Plan plan, const cluster::Cluster& cluster, const Backend& backend, DataOptions data,
                   std::shared_ptr<ranks::World> world, bool unread)
    : plan_(std::move(plan)), layouts_(backend.layouts()) {
  check(plan_.devices().size() == cluster.size(), "a plan for {} devices on a cluster of {}", plan_.devices().size(),
        cluster.size());
  if (cluster.emulated_link() && cluster.emulated_link()->core_share > 0) {
    throw usage_error("a link that takes a share of a core can be simulated but not emulated: leave core= out of --link");
  }
  if (world != nullptr && !world->alone()) {
    require_agreement(*world, fingerprint(plan_, data, arithmetic_of(plan_, backend)));
  }
  require_layouts(plan_, layouts_, backend.name());
  plan::Limits limits = exec::limits(plan_, cluster, backend);
  limits.unread = unread;
  plan::Verdict verdict = plan::verify(plan_, limits);
  plan::require(verdict);
  peak_ = verdict.memory.peak;
  StepData step = step_data(plan_, data);
  step.layouts = layouts_;
  engine_ = backend.open(
      {plan_, cluster, std::move(verdict.ordering), std::move(verdict.memory), std::move(step), std::move(world)});
}

Executor::~Executor() = default;

RunResult Executor::run(const RunOptions& options, const Progress& progress) { return engine_->run(options, progress); }

std::vector<double> Executor::read(BufferId id) const {
  std::vector<std::byte> memory(static_cast<std::size_t>(plan_[id].size().count));
  engine_->read(id, 0, memory);
  return read_elements(plan_[id], memory.data(), layouts_);
}

void Executor::write(BufferId id, std::span<const double> elements) {
  std::vector<std::byte> memory(static_cast<std::size_t>(plan_[id].size().count));
  write_elements(plan_[id], memory.data(), elements, layouts_);
  engine_->write(id, 0, memory);
}

void Executor::read(BufferId id, std::size_t begin, std::span<std::byte> into) const { engine_->read(id, begin, into); }

void Executor::write(BufferId id, std::size_t begin, std::span<const std::byte> bytes) { engine_->write(id, begin, bytes); }

void Executor::continue_from(std::int64_t steps) { engine_->continue_from(steps); }

}  // namespace baton::exec
