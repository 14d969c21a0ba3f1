#include "baton/exec/executor.h"

#include "baton/base/error.h"
#include "baton/exec/engine.h"
#include "baton/exec/ranks/fingerprint.h"
#include "baton/plan/verify.h"

namespace baton::exec {

Executor::Executor(const plan::Plan& plan, const cluster::Cluster& cluster, const Backend& backend, DataOptions data,
                   World* world) {
  check(plan.devices().size() == cluster.size(), "a plan for {} devices on a cluster of {}", plan.devices().size(), cluster.size());
  if (cluster.emulated_link() && cluster.emulated_link()->core > 0) {
    throw usage_error("a link that takes a share of a core can be simulated but not emulated: leave core= out of --link");
  }
  if (world != nullptr && !world->alone()) {
    require_agreement(*world, fingerprint(plan, data));
  }
  plan::Verdict verdict = plan::verify(plan, limits(plan, cluster, backend));
  plan::require(verdict);
  peak_ = verdict.memory.peak;
  engine_ = backend.open({plan, cluster, std::move(verdict.ordering), std::move(verdict.memory), step_data(plan, data), world});
}

Executor::~Executor() = default;

RunResult Executor::run(const RunOptions& options, const Progress& progress) { return engine_->run(options, progress); }

std::vector<double> Executor::read(BufferId id) const { return engine_->read(id); }

void Executor::write(BufferId id, std::span<const double> elements) { engine_->write(id, elements); }

void Executor::continue_from(std::int64_t steps) { engine_->continue_from(steps); }

}  // namespace baton::exec
