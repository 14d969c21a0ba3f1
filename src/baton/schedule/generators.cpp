#include "baton/schedule/generators.h"

#include <algorithm>
#include <array>
#include <functional>

#include "baton/base/divide.h"
#include "baton/base/error.h"
#include "baton/schedule/run.h"

namespace baton::schedule {
namespace {

/// A number for each device.
using ByDevice = std::function<std::int64_t(std::int64_t)>;

Action action(std::int64_t stage, Computation kind, std::int64_t micro_batch) {
  return {static_cast<std::int32_t>(stage), kind, static_cast<std::int32_t>(micro_batch)};
}

/// Refuses parameters from which no grid can be made.
void require_sound(const Pipeline& pipeline) {
  if (pipeline.devices < 1 || pipeline.chunks < 1 || pipeline.micro_batches < 1) {
    throw usage_error("a pipeline needs a device, a stage on each and a micro-batch at least, not {}, {} and {}", pipeline.devices,
                      pipeline.chunks, pipeline.micro_batches);
  }
  if (pipeline.devices > most_cells || pipeline.chunks > most_cells / pipeline.devices ||
      pipeline.micro_batches > most_cells / pipeline.stages() / 3) {
    throw usage_error("{} devices with {} stages each and {} micro-batches are too many for a grid", pipeline.devices,
                      pipeline.chunks, pipeline.micro_batches);
  }
}

void require_one_stage_each(std::string_view name, const Pipeline& pipeline) {
  require_sound(pipeline);
  if (pipeline.chunks != 1) {
    throw usage_error("{} has one stage on each device, not {}: interleaved and looped-bfs take several", name, pipeline.chunks);
  }
}

/// `ahead` forwards, then a backward and a forward by turns, then the backwards that are left. With `behind`
/// the backwards are halved, and the weights' half of each follows the input's half of the one that comes
/// `behind` later.
std::vector<Action> woven(const std::vector<Action>& forwards, const std::vector<Action>& backwards, std::int64_t ahead,
                          std::optional<std::int64_t> behind) {
  auto forward = forwards.begin() + std::min<std::ptrdiff_t>(ahead, std::ssize(forwards));
  auto weight = backwards.begin();
  std::vector<Action> order(forwards.begin(), forward);
  for (auto backward = backwards.begin(); backward != backwards.end(); ++backward) {
    order.push_back(action(backward->stage, behind ? Computation::backward_input : Computation::backward, backward->micro_batch));
    if (behind && backward - weight >= *behind) {
      order.push_back(action(weight->stage, Computation::backward_weight, weight->micro_batch));
      ++weight;
    }
    if (forward != forwards.end()) {
      order.push_back(*forward++);
    }
  }
  for (; behind && weight != backwards.end(); ++weight) {
    order.push_back(action(weight->stage, Computation::backward_weight, weight->micro_batch));
  }
  return order;
}

/// Stages go round the devices, chunk after chunk. Micro-batches go in groups: each group passes through all
/// chunks of a device before the next begins.
Grid looped(const Pipeline& pipeline, const std::vector<std::int64_t>& groups, const ByDevice& ahead,
            const ByDevice& behind = nullptr) {
  Orders orders;
  for (std::int64_t device = 0; device < pipeline.devices; ++device) {
    std::vector<Action> forwards;
    std::vector<Action> backwards;
    std::int64_t first = 0;
    for (const std::int64_t group : groups) {
      for (std::int64_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
        for (std::int64_t k = first; k < first + group; ++k) {
          forwards.push_back(action(chunk * pipeline.devices + device, Computation::forward, k));
          backwards.push_back(action((pipeline.chunks - 1 - chunk) * pipeline.devices + device, Computation::backward, k));
        }
      }
      first += group;
    }
    orders.push_back(woven(forwards, backwards, ahead(device), behind ? std::optional(behind(device)) : std::nullopt));
  }
  return aligned(orders);
}

/// As many groups as have a micro-batch for each device, as even as possible, the larger first.
std::vector<std::int64_t> even_groups(const Pipeline& pipeline) {
  const std::int64_t count = std::max<std::int64_t>(1, pipeline.micro_batches / pipeline.devices);
  return divide(pipeline.micro_batches, count, Remainder::first);
}

}  // namespace

Grid naive(const Pipeline& pipeline) {
  require_sound(pipeline);
  Orders orders(static_cast<std::size_t>(pipeline.devices));
  const auto append = [&](std::int64_t stage, Computation kind, std::int64_t k) {
    orders[static_cast<std::size_t>(stage % pipeline.devices)].push_back(action(stage, kind, k));
  };
  for (std::int64_t k = 0; k < pipeline.micro_batches; ++k) {
    for (std::int64_t stage = 0; stage < pipeline.stages(); ++stage) {
      append(stage, Computation::forward, k);
    }
    for (std::int64_t stage = pipeline.stages() - 1; stage >= 0; --stage) {
      append(stage, Computation::backward, k);
    }
  }
  return aligned(orders);
}

Grid gpipe(const Pipeline& pipeline) {
  require_one_stage_each("gpipe", pipeline);
  return looped(pipeline, {pipeline.micro_batches}, [&](std::int64_t) { return pipeline.micro_batches; });
}

Grid one_forward_one_backward(const Pipeline& pipeline) {
  require_one_stage_each("1f1b", pipeline);
  return looped(pipeline, {pipeline.micro_batches}, [&](std::int64_t device) { return pipeline.devices - device; });
}

Grid interleaved(const Pipeline& pipeline) {
  require_sound(pipeline);
  const std::vector<std::int64_t> groups = even_groups(pipeline);
  return looped(pipeline, groups, [&](std::int64_t device) {
    return (pipeline.chunks - 1) * groups.front() + 2 * (pipeline.devices - 1 - device) + 1;
  });
}

Grid looped_bfs(const Pipeline& pipeline) {
  require_sound(pipeline);
  return looped(pipeline, {pipeline.micro_batches}, [&](std::int64_t) { return pipeline.micro_batches * pipeline.chunks; });
}

Grid zero_bubble_h1(const Pipeline& pipeline) {
  require_one_stage_each("zb-h1", pipeline);
  return looped(
      pipeline, {pipeline.micro_batches}, [&](std::int64_t device) { return pipeline.devices - device; },
      [](std::int64_t device) { return device; });
}

Grid zero_bubble_h2(const Pipeline& pipeline) {
  require_one_stage_each("zb-h2", pipeline);
  return looped(
      pipeline, {pipeline.micro_batches}, [&](std::int64_t device) { return 2 * (pipeline.devices - device) - 1; },
      [](std::int64_t device) { return 2 * device; });
}

Grid interleaved_zero_bubble(const Pipeline& pipeline) {
  require_sound(pipeline);
  const std::vector<std::int64_t> groups = even_groups(pipeline);
  return looped(
      pipeline, groups, [&](std::int64_t device) { return (pipeline.chunks - 1) * groups.front() + pipeline.devices - device; },
      [](std::int64_t device) { return device; });
}

Grid zero_bubble_v(const Pipeline& pipeline) {
  require_sound(pipeline);
  if (pipeline.chunks != 2) {
    throw usage_error("zb-v has two stages on each device, there and back, not {}", pipeline.chunks);
  }
  const std::int64_t p = pipeline.devices;
  // The order is stated for a pipeline that is filled once at least; with fewer micro-batches the others drop
  // out.
  const std::int64_t filled = std::max(pipeline.micro_batches, 2 * p - 1);
  Orders orders;
  for (std::int64_t device = 0; device < p; ++device) {
    std::vector<Action>& order = orders.emplace_back();
    std::array<std::array<std::int64_t, 4>, 2> done{};  // By chunk and kind.
    const auto count = [&](std::size_t chunk, Computation kind) -> std::int64_t& {
      return done[chunk][static_cast<std::size_t>(kind)];
    };
    const auto next = [&](std::size_t chunk, Computation kind) {
      const std::int64_t k = count(chunk, kind)++;
      if (k < pipeline.micro_batches) {
        order.push_back(action(chunk == 0 ? device : 2 * p - 1 - device, kind, k));
      }
    };
    const auto backward = [&](std::size_t chunk) {
      next(chunk, Computation::backward_input);
      next(chunk, Computation::backward_weight);
    };
    // Forwards there until the first comes back, then both ways by turns until its backward comes.
    for (std::int64_t i = 0; i < 2 * (p - device) - 1; ++i) {
      next(0, Computation::forward);
    }
    for (std::int64_t i = 0; i < device; ++i) {
      next(1, Computation::forward);
      next(0, Computation::forward);
    }
    for (std::int64_t i = 0; i < p - device; ++i) {
      next(1, Computation::forward);
      backward(1);
    }
    while (count(1, Computation::forward) < filled) {
      if (count(0, Computation::forward) < filled) {
        next(0, Computation::forward);
      }
      backward(0);
      next(1, Computation::forward);
      backward(1);
    }
    // First the backwards that others wait for; the weights' halves fill the gaps and the end.
    for (std::int64_t i = 0; i < device; ++i) {
      next(0, Computation::backward_input);
      next(1, Computation::backward_input);
    }
    for (std::int64_t i = 0; i < p - device; ++i) {
      backward(0);
    }
    for (const std::size_t chunk : {1, 0}) {
      while (count(chunk, Computation::backward_weight) < filled) {
        next(chunk, Computation::backward_weight);
      }
    }
  }
  return aligned(orders);
}

}  // namespace baton::schedule
