#include "baton/lab/experiments/list.h"

#include <fmt/format.h>

#include <array>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::lab {

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> list{
      timing(),      strong_scaling(),   comm_vs_compute(), dp_vs_ddp(), delay(),          batch_scaling(),
      imbalance(),   accumulate(),       first_split(),     split_experiment(), depth(),   all_devices(),
      transfers(),   four_way_split(),   idle(),            memory(),           matrix_power(), precision(),
      profile(),
  };
  return list;
}

const Experiment& experiment_by_id(std::string_view id) {
  const std::string wanted = canonical(id);
  std::vector<std::string> ids;
  for (const Experiment& experiment : experiments()) {
    if (experiment.id == wanted) {
      return experiment;
    }
    ids.push_back(experiment.id);
  }
  throw usage_error("unknown experiment '{}'{}: choose {}", id, did_you_mean(id, ids), either(ids));
}

std::string_view to_text(Format format) {
  constexpr std::array<std::string_view, 8> names{"text", "integer", "number", "time", "bytes", "percent", "ratio", "rate"};
  return names[static_cast<std::size_t>(format)];
}

std::string workers(const Settings& settings, std::int64_t count, std::int64_t most) {
  if (!settings.cluster.empty() && settings.cluster != "machine") {
    return fmt::format("{}", count);
  }
  const std::vector<int>& cores = settings.machine.cores;
  const auto each = std::max<std::size_t>(1, cores.size() / static_cast<std::size_t>(std::max(count, most)));
  std::string text = settings.devices + ":";
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::size_t first = i * each % cores.size();
    text += i == 0 ? "" : ",";
    for (std::size_t c = first; c < std::min(first + each, cores.size()); ++c) {
      text += fmt::format("{}{}-{}", c == first ? "" : "+", cores[c], cores[c]);
    }
  }
  return text;
}

}  // namespace baton::lab
