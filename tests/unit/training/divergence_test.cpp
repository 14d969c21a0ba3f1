#include "baton/training/divergence.h"

#include <gtest/gtest.h>

#include "baton/training/training.h"
#include "support/archive.h"

namespace baton::training {
namespace {

JobSpec job_with(double lr, const char* strategy = "ddp") {
  JobSpec spec;
  spec.model = "mlp:dim=16,depth=3";
  spec.strategy = strategy;
  spec.devices = "cpu:2";
  spec.batch = 8;
  spec.lr = lr;
  return spec;
}

const std::function<bool()> always = [] { return true; };

/// The first step of the run itself whose loss is not finite.
std::int64_t broken_step(const JobSpec& of, const cluster::Machine& machine) {
  Training run(of, machine);
  run.run(400, 0);
  for (std::size_t s = 0; s < run.losses().size(); ++s) {
    if (!std::isfinite(run.losses()[s])) {
      return static_cast<std::int64_t>(s);
    }
  }
  return -1;
}

TEST(Divergence, TheBlockAndTheStepAreNamedWhateverTheStrategy) {
  const cluster::Machine machine = cluster::probe();
  for (const char* strategy : {"ddp", "layers", "zero-3"}) {
    const std::int64_t step = broken_step(job_with(1e6, strategy), machine);
    ASSERT_GT(step, 0);
    const auto found = find_divergence(job_with(1e6, strategy), machine, nullptr, step, always);
    ASSERT_TRUE(found) << strategy;
    EXPECT_LE(found->step, step);
    EXPECT_GE(found->step, step - 1) << "what the loss shows had begun at most a step before";
    EXPECT_NE(found->where.find(" of block "), std::string::npos) << found->where;
  }
}

TEST(Divergence, ItIsFoundFromACheckpointToo) {
  const cluster::Machine machine = cluster::probe();
  const std::int64_t step = broken_step(job_with(1e6), machine);
  Training before(job_with(1e6), machine);
  before.run(step - 1, 0);
  const auto whole = find_divergence(job_with(1e6), machine, nullptr, step, always);
  before.make_room_for_checkpoints();
  test::Archive saved;
  saved.metadata = before.metadata();
  const checkpoint::Tensors tensors = before.tensors();
  auto next = tensors.begin();
  before.save([&](std::span<const std::byte> bytes) {
    saved.tensors[next->first] = {next->second.dtype, next->second.shape, {bytes.begin(), bytes.end()}};
    ++next;
  });
  const test::ArchiveSource source(saved);
  const auto found = find_divergence(job_with(1e6), machine, &source, step, always);
  ASSERT_TRUE(found && whole);
  EXPECT_EQ(found->step, whole->step);
  EXPECT_EQ(found->where, whole->where);
}

TEST(Divergence, WhatStaysFiniteHasNone) { EXPECT_FALSE(find_divergence(job_with(0.01), cluster::probe(), nullptr, 5, always)); }

TEST(Divergence, ItIsNotLookedForLongerThanWanted) {
  int asked = 0;
  EXPECT_FALSE(find_divergence(job_with(1e6), cluster::probe(), nullptr, 1000, [&] { return ++asked < 3; }));
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace baton::training
