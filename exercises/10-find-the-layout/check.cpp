// The check of 10-find-the-layout: every layout of a job is simulated, and the one that is returned is compared with the best.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>

#include "baton/base/error.h"
#include "baton/exercise/exercises.h"
#include "baton/job/scenario.h"
#include "baton/job/setup.h"

namespace baton::exercise {
namespace {

constexpr std::int64_t most_tries = 48;
constexpr std::int64_t most_micro_batches = 8;

/// dp, pp, tp, zero, micro-batches, recompute: as a program says them.
using Chosen = std::array<std::int64_t, 6>;

std::string to_text(const Chosen& layout) {
  const auto [dp, pp, tp, zero, micro_batches, recompute] = layout;
  return fmt::format("dp {} × pp {} × tp {}, zero {}, {} micro-batch{}{}", dp, pp, tp, zero, micro_batches,
                     micro_batches == 1 ? "" : "es", recompute != 0 ? ", recompute" : "");
}

struct Cost {
  double seconds = 0;
  double memory = 0;
};

job::JobSpec spec_of(const job::JobSpec& shared, const Chosen& layout) {
  job::JobSpec spec = shared;
  spec.strategy = "product";
  spec.dp = layout[0];
  spec.pp = layout[1];
  spec.tp = layout[2];
  spec.zero = layout[3] > 0 ? std::optional<std::int64_t>(layout[3]) : std::nullopt;
  spec.schedule = layout[1] > 1 ? "1f1b" : "";
  spec.micro_batches = layout[4];
  spec.recompute = layout[5] != 0 ? strategy::Recompute::all : strategy::Recompute::none;
  return spec;
}

/// A usage error says why it cannot be.
Cost simulated(const job::JobSpec& shared, const Chosen& layout) {
  job::JobSpec spec = spec_of(shared, layout);
  spec.memory = job::ample_memory;  // whether it fits is asked afterwards
  spec.fold = job::Fold::always;
  const job::Scenario scenario(spec);
  const std::vector<Bytes>& peak = scenario.laid().peak;
  return {static_cast<double>(scenario.step().duration.count) * 1e-9,
          static_cast<double>(std::max_element(peak.begin(), peak.end())->count)};
}

std::vector<Chosen> all_layouts(std::int64_t devices) {
  std::vector<Chosen> list;
  for (std::int64_t pp = 1; pp <= devices; pp *= 2) {
    for (std::int64_t tp = 1; pp * tp <= devices; tp *= 2) {
      const std::int64_t dp = devices / pp / tp;
      for (std::int64_t zero = 0; zero <= (dp > 1 ? 3 : 0); ++zero) {
        for (std::int64_t micro_batches = 1; micro_batches <= most_micro_batches; micro_batches *= 2) {
          list.push_back({dp, pp, tp, zero, micro_batches, 0});
        }
      }
    }
  }
  return list;
}

/// A job, and what its layouts cost.
class DrawnJob {
 public:
  job::JobSpec spec;
  std::int64_t devices = 0, heads = 0;
  double memory = 0;  // the limit

  /// A usage error says why a layout cannot be.
  Cost cost(Chosen layout) {
    layout[3] = layout[0] > 1 ? layout[3] : 0;
    layout[5] = layout[5] != 0 ? 1 : 0;
    const auto known = costs_.find(layout);
    return known != costs_.end() ? known->second : costs_.emplace(layout, simulated(spec, layout)).first->second;
  }

  /// The memory that each layout takes without recomputation, in order.
  std::vector<double> needs() {
    std::vector<double> list;
    for (const Chosen& layout : all_layouts(devices)) {
      if (const std::optional<Cost> found = cost_if_any(layout)) {
        list.push_back(found->memory);
      }
    }
    std::sort(list.begin(), list.end());
    return list;
  }

  /// The shortest step of all layouts. Recomputation only adds work, so it is tried for what does not fit without.
  double best() {
    double least = std::numeric_limits<double>::infinity();
    for (Chosen layout : all_layouts(devices)) {
      std::optional<Cost> found = cost_if_any(layout);
      if (found && found->memory > memory) {
        layout[5] = 1;
        found = cost_if_any(layout);
      }
      if (found && found->memory <= memory) {
        least = std::min(least, found->seconds);
      }
    }
    return least;
  }

 private:
  std::optional<Cost> cost_if_any(const Chosen& layout) {
    try {
      return cost(layout);
    } catch (const Error&) {  // the model or the batch does not allow it
      return std::nullopt;
    }
  }

  std::map<Chosen, Cost> costs_;
};

/// With so little memory, if it is tight, that half of the layouts or more do not fit without recomputation.
DrawnJob draw_job(Session& session, bool tight) {
  static constexpr std::array clusters{"pcie-4", "pcie-8", "dgx-a100", "dgx-h100", "pcie-4+ethernet-10", "pcie-4+ethernet-100"};
  DrawnJob drawn;
  drawn.spec.cluster = clusters[static_cast<std::size_t>(session.draw(0, clusters.size() - 1))];
  drawn.devices = drawn.spec.cluster == "pcie-4" ? 4 : 8;
  drawn.spec.devices = drawn.devices;
  const std::int64_t depth = session.draw(2, 4);
  drawn.heads = std::int64_t{8} << session.draw(0, 2);
  drawn.spec.model = fmt::format("gpt:depth={},heads={},dim={},context={},vocab=8000", depth, drawn.heads, 64 * drawn.heads,
                                 std::int64_t{64} << session.draw(0, 3));
  drawn.spec.batch = std::int64_t{16} << session.draw(0, 3);
  drawn.spec.precision = strategy::Precision::bf16;
  drawn.spec.optimizer = "adam";
  const double quantile = session.draw_real(0.1, 0.5);
  if (!session.given_up()) {
    const std::vector<double> needs = drawn.needs();
    drawn.memory = tight ? needs[static_cast<std::size_t>(quantile * static_cast<double>(needs.size()))] : needs.back();
  }
  return drawn;
}

/// The figures of a job, in the order in which a program reads them.
Writer given_of(const DrawnJob& drawn) {
  const model::Model model = job::make_model(drawn.spec);
  const cluster::Cluster cluster = job::imagine(drawn.spec);
  const std::vector<cluster::Device>& devices = cluster.devices();
  const auto per_node = std::count_if(devices.begin(), devices.end(), [](const cluster::Device& one) { return one.node == 0; });
  const cluster::Wiring& wiring = *cluster.wiring();
  const bool several = static_cast<std::size_t>(per_node) < devices.size();
  job::JobSpec plain = spec_of(drawn.spec, {drawn.devices, 1, 1, 0, 1, 0});
  plain.memory = job::ample_memory;
  const job::Scenario scenario(plain);
  Writer given;
  given.add(drawn.spec.model.text()).add(drawn.spec.cluster).add(drawn.devices).add(static_cast<std::int64_t>(per_node));
  given.add(scenario.request().step.global_batch).add(static_cast<std::int64_t>(model.blocks().size())).add(drawn.heads);
  const auto crossing = static_cast<double>(model.blocks()[1].input().elements());
  given.add(drawn.memory).add(static_cast<double>(model.parameter_count())).add(scenario.laid().flops);
  given.add(crossing * (model.blocks()[1].values[0].wide ? 4 : 2));
  given.add(devices[0].speed.rate(DType::bf16) * devices[0].speed.efficiency).add(wiring.port.bandwidth);
  return given.add(several ? wiring.network.bandwidth * wiring.network_ports : 0.0);
}

/// The reason for which a layout cannot be; empty if it can.
std::string refusal(DrawnJob& drawn, const Chosen& layout) {
  const auto [dp, pp, tp, zero, micro_batches, recompute] = layout;
  if (dp < 1 || pp < 1 || tp < 1 || dp > drawn.devices || pp > drawn.devices || tp > drawn.devices ||
      dp * pp * tp != drawn.devices) {
    return fmt::format("dp {} × pp {} × tp {} are not the {} devices that there are", dp, pp, tp, drawn.devices);
  }
  if (zero < 0 || zero > 3) {
    return fmt::format("zero is {}, but must be 0, 1, 2 or 3", zero);
  }
  if (micro_batches < 1 || micro_batches > most_micro_batches || (micro_batches & (micro_batches - 1)) != 0) {
    return fmt::format("there are {} micro-batches, but there must be 1, 2, 4 or {}", micro_batches, most_micro_batches);
  }
  try {
    drawn.cost(layout);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

Chosen read_layout(Reader& from) {
  Chosen layout{};
  std::generate(layout.begin(), layout.end(), [&] { return from.integer(); });
  return layout;
}

std::string mebibytes(double bytes) { return baton::to_text(Bytes(static_cast<std::int64_t>(bytes))); }

}  // namespace

void check_find_the_layout(Session& session) {
  GradedPart& fits = session.part("the layout is possible and fits in memory", 2);
  GradedPart& twice = session.part("a step takes at most twice as long as with the best layout of all", 2);
  GradedPart& near = session.part("it takes at most 25 % longer", 3);
  GradedPart& nearest = session.part("it takes at most 5 % longer", 3);
  for (int i = 0; i < 6; ++i) {
    DrawnJob drawn = draw_job(session, i % 2 == 0);
    const std::string what = fmt::format("{}, batch {}, on {} devices of {}{}", drawn.spec.model.text(), drawn.spec.batch,
                                         drawn.devices, drawn.spec.cluster,
                                         drawn.memory > 0 ? fmt::format(" with {} each", mebibytes(drawn.memory)) : "");
    std::int64_t tries = 0;
    const auto try_out = [&](Reader& question) {
      const Chosen layout = read_layout(question);
      std::string refused = ++tries > most_tries ? fmt::format("all {} tries are used up", most_tries) : refusal(drawn, layout);
      const Cost cost = refused.empty() ? drawn.cost(layout) : Cost{};
      return Writer().add(refused).add(cost.seconds).add(cost.memory);
    };
    const auto judge = [&](Reader& answer) {
      const auto in_case = [&](const std::string& words) { return words.empty() ? "" : session.in_case() + " " + words; };
      const Chosen layout = read_layout(answer);
      std::string flaw = refusal(drawn, layout);
      if (flaw.empty() && drawn.cost(layout).memory > drawn.memory) {
        flaw = fmt::format("{} needs {} per device, and there are {}", to_text(layout), mebibytes(drawn.cost(layout).memory),
                           mebibytes(drawn.memory));
      }
      fits.judge(in_case(flaw));
      const double least = drawn.best();
      const auto allowed = [&](double longer) {
        if (!flaw.empty()) {
          return in_case(flaw);
        }
        const double ratio = drawn.cost(layout).seconds / least;
        return ratio <= 1 + longer
                   ? std::string()
                   : in_case(fmt::format("{} takes {:.2f} ms, and the best layout {:.2f} ms: {:.0f} % longer", to_text(layout),
                                         1e3 * drawn.cost(layout).seconds, 1e3 * least, 100 * (ratio - 1)));
      };
      twice.judge(allowed(1));
      near.judge(allowed(0.25));
      nearest.judge(allowed(0.05));
    };
    session.ask(what, session.given_up() ? Writer() : given_of(drawn), judge, try_out);
  }
}

}  // namespace baton::exercise
