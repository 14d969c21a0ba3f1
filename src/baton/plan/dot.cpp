#include "baton/plan/dot.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace baton::plan {
namespace {

std::string in_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string to_dot(const Plan& plan) {
  constexpr std::array<std::string_view, 3> colours{"#9ecae1", "#fdae6b", "#a1d99b"};
  std::string out = fmt::format("digraph plan {{\n  label=\"{}\"; rankdir=LR; node [shape=box, style=filled];\n",
                                in_quotes(plan.title()));
  for (std::size_t d = 0; d < plan.devices().size(); ++d) {
    out += fmt::format("  subgraph cluster_d{} {{ label=\"{}\";\n", d, in_quotes(plan.devices()[d]));
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const Task& task = plan.tasks()[t];
      if (task.device == DeviceId(d)) {
        const std::string block = task.labels.block >= 0 ? fmt::format("\\nblock {}", task.labels.block) : "";
        out += fmt::format("    t{} [label=\"t{} {}{}\", fillcolor=\"{}\"{}];\n", t, t, verb(task), block,
                           colours[static_cast<std::size_t>(task.labels.phase)],
                           task.lane == Lane::communication ? ", shape=ellipse" : "");
      }
    }
    out += "  }\n";
  }
  for (std::size_t d = 0; d < plan.devices().size(); ++d) {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      const std::span<const TaskId> tasks = plan.lane(DeviceId(d), static_cast<Lane>(lane));
      for (std::size_t i = 1; i < tasks.size(); ++i) {
        out += fmt::format("  t{} -> t{} [style=dotted];\n", tasks[i - 1].value, tasks[i].value);
      }
    }
  }
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    for (const TaskId before : plan.tasks()[t].after) {
      out += fmt::format("  t{} -> t{};\n", before.value, t);
    }
  }
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const std::span<const TaskId> members = plan.members(MeetingId(m));
    for (std::size_t i = 1; i < members.size(); ++i) {
      out += fmt::format("  t{} -> t{} [dir=none, color=red, penwidth=2, constraint=false];\n", members[0].value, members[i].value);
    }
  }
  return out + "}\n";
}

}  // namespace baton::plan
