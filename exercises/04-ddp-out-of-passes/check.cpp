// The check of 04-ddp-out-of-passes: the plan is checked by the rules of every plan, compared with ddp's, and trained here.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "baton/base/error.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/exercise/exercises.h"
#include "baton/model/parse.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/strategy.h"

namespace baton::exercise {
namespace {

constexpr Bytes memory_of_device(std::int64_t{1} << 30);

cluster::Cluster replicas(std::int64_t count) {
  std::vector<cluster::Device> devices;
  for (std::int64_t d = 0; d < count; ++d) {
    devices.push_back({fmt::format("cpu:{}", d), {0}, memory_of_device});
  }
  return cluster::Cluster(std::move(devices));
}

/// The reason for which the plan cannot be run, or does not compute this step.
std::string flaw_in_plan(const plan::Plan& plan, const plan::Plan& wanted) {
  if (plan.devices() != wanted.devices()) {
    return fmt::format("the devices of the plan are {}, and should be {}", fmt::join(plan.devices(), ", "),
                       fmt::join(wanted.devices(), ", "));
  }
  if (!(plan.graph() == wanted.graph())) {
    return "the plan computes another step than the one that was asked for: another model, batch or optimizer";
  }
  const plan::Verdict verdict = plan::verify(plan, {.memory = std::vector<Bytes>(plan.devices().size(), memory_of_device)});
  return verdict.holds() ? "" : "the plan breaks a rule: " + verdict.violations[0].text;
}

/// The device or row that is not right: every device reads rows of the batch, and all of them together read each row once.
std::string flaw_in_rows(const plan::Plan& plan, const plan::Plan& wanted) {
  const auto rows = [](const plan::Plan& of) {
    std::set<std::pair<std::size_t, std::pair<std::int64_t, std::int64_t>>> list;
    for (const plan::Buffer& buffer : of.buffers()) {
      if (const auto* part = std::get_if<plan::BatchRows>(&buffer.content)) {
        list.insert({buffer.device.index(), {part->begin, part->end}});
      }
    }
    return list;
  };
  return rows(plan) == rows(wanted) ? "" : "the rows of the batch are not divided over the devices as evenly as possible";
}

std::string flaw_in_losses(const std::vector<double>& got, const std::vector<double>& wanted) {
  for (std::size_t s = 0; s < wanted.size(); ++s) {
    if (got[s] != wanted[s]) {
      return fmt::format("the loss of step {} is {:.9g} and should be {:.9g}", s + 1, got[s], wanted[s]);
    }
  }
  return "";
}

std::string flaw_in_traffic(const plan::Plan& plan, const plan::Plan& wanted) {
  const std::vector<plan::Totals> got = plan::totals_by_device(plan);
  const std::vector<plan::Totals> needed = plan::totals_by_device(wanted);
  for (std::size_t d = 0; d < needed.size(); ++d) {
    if (got[d].collectives != needed[d].collectives || got[d].transfers != needed[d].transfers) {
      return fmt::format("device {} takes part in {} collectives and {} transfers, and buckets of this size take {} and {}", d,
                         got[d].collectives, got[d].transfers, needed[d].collectives, needed[d].transfers);
    }
    if (got[d].work.sent != needed[d].work.sent) {
      return fmt::format("device {} sends {}, and {} are needed", d, to_text(got[d].work.sent), to_text(needed[d].work.sent));
    }
  }
  return "";
}

}  // namespace

void check_ddp_out_of_passes(Session& session) {
  GradedPart& valid = session.part("the plan computes the step that was asked for, without a race, a deadlock or a wrong sum", 3);
  GradedPart& rows = session.part("every device has its rows of the batch", 2);
  GradedPart& losses = session.part("three steps give the losses of ddp, bit by bit", 2);
  GradedPart& traffic = session.part("gradients are summed in as many buckets, with as many bytes, as by ddp", 3);
  const auto backend = exec::make_reference_backend();
  for (int i = 0; i < 12; ++i) {
    const std::int64_t devices = session.draw(2, 4);
    const std::string text = fmt::format("mlp:dim={},depth={}", session.draw(4, 40), session.draw(1, 6));
    const model::Model model = model::parse_model(text);
    const cluster::Cluster cluster = replicas(devices);
    strategy::Step step{.global_batch = session.draw(devices, 24)};
    const double rate = session.draw_log(1e-3, 0.3);
    step.optimizer = op::Sgd{.rate = rate};
    const Bytes bucket(static_cast<std::int64_t>(session.draw_log(400, 40000)));
    const strategy::Request request{
        .model = model, .cluster = cluster, .strategy = "ddp", .step = step, .layout = {.bucket = bucket, .first_bucket = bucket}};
    const plan::Plan wanted = strategy::compile(request);
    const std::string what = fmt::format("{} on {} devices, batch {}, buckets of {} bytes", text, devices, step.global_batch,
                                         bucket.count);
    session.ask(what, Writer().add(text).add(devices).add(step.global_batch).add(rate).add(bucket.count), [&](Reader& answer) {
      const auto in_case = [&](const std::string& flaw) { return flaw.empty() ? "" : session.in_case() + " " + flaw; };
      std::string flaw;
      std::optional<plan::Plan> plan;
      try {
        plan.emplace(plan::parse(answer.text()));
        flaw = in_case(flaw_in_plan(*plan, wanted));
      } catch (const Error& error) {
        flaw = in_case(fmt::format("there is no plan: {}", error.what()));
      }
      valid.judge(flaw);
      if (!flaw.empty()) {
        for (GradedPart* part : {&rows, &losses, &traffic}) {
          part->judge(flaw);
        }
        return;
      }
      rows.judge(in_case(flaw_in_rows(*plan, wanted)));
      const auto train = [&](const plan::Plan& of) {
        return exec::Executor(of, cluster, *backend).run({.steps = 3, .warmup = 0}).losses;
      };
      losses.judge(in_case(flaw_in_losses(train(*plan), train(wanted))));
      traffic.judge(in_case(flaw_in_traffic(*plan, wanted)));
    });
  }
}

}  // namespace baton::exercise
