#pragma once

#include "baton/exec/backend.h"
#include "baton/exec/host/host_backend.h"

namespace baton::bench {

/// Kernels that do nothing: what remains is the executor.
class IdleBackend final : public exec::HostBackend {
 public:
  std::string_view name() const override { return "idle"; }
  plan::Target target() const override { return {}; }
  bool has_kernel(const plan::Plan&, const plan::Task&) const override { return true; }
  int team_size(int) const override { return 1; }
  std::unique_ptr<exec::Kernel> prepare(plan::Plan, TaskId, const exec::Addresses&, int) const override {
    class Nothing final : public exec::Kernel {
      void run(const threads::Member&, std::int64_t) override {}
    };
    return std::make_unique<Nothing>();
  }
};

}  // namespace baton::bench
