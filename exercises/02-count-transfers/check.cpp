// The check of 02-count-transfers: plans of all kinds, whose transfers are counted here as well.

#include <fmt/format.h>

#include <set>

#include "baton/cluster/cluster.h"
#include "baton/exercise/exercises.h"
#include "baton/model/parse.h"
#include "baton/plan/text.h"
#include "baton/strategy/strategy.h"

namespace baton::exercise {
namespace {

using Table = std::vector<std::vector<std::int64_t>>;

cluster::Cluster some_devices(std::int64_t count) {
  std::vector<cluster::Device> devices;
  for (std::int64_t d = 0; d < count; ++d) {
    devices.push_back({fmt::format("cpu:{}", d), {0}, Bytes(std::int64_t{1} << 30)});
  }
  return cluster::Cluster(std::move(devices));
}

Table read_table(Reader& answer) {
  Table table(answer.count());
  for (auto& row : table) {
    row = answer.integers();
  }
  return table;
}

std::string flaw_in_table(const char* what, const Table& got, const Table& wanted) {
  for (std::size_t a = 0; a < wanted.size(); ++a) {
    for (std::size_t b = 0; b < wanted.size(); ++b) {
      if (got.size() != wanted.size() || got[a].size() != wanted.size()) {
        return fmt::format("the table of {} does not have {} rows and columns", what, wanted.size());
      }
      if (got[a][b] != wanted[a][b]) {
        return fmt::format("you counted {} {} from device {} to device {}, and there are {}", got[a][b], what, a, b, wanted[a][b]);
      }
    }
  }
  return "";
}

std::string flaw_in_number(const char* what, std::int64_t got, std::int64_t wanted) {
  return got == wanted ? "" : fmt::format("you counted {} {}, and there are {}", got, what, wanted);
}

}  // namespace

void check_count_transfers(Session& session) {
  GradedPart& messages = session.part("transfers are counted from each device to each other", 3);
  GradedPart& bytes = session.part("their bytes are counted", 3);
  GradedPart& collectives = session.part("each collective is counted once", 2);
  GradedPart& payloads = session.part("the bytes of collectives are counted", 2);
  const std::vector<std::string> strategies{"layers", "dp", "ddp", "1f1b", "gpipe", "tensor", "zero-1", "zero-3", "single"};
  for (std::size_t i = 0; i < 27; ++i) {
    strategy::Step step{.global_batch = 12 * session.draw(1, 4)};
    step.precision = session.draw_bool(0.3) ? strategy::Precision::bf16 : strategy::Precision::fp32;
    const std::string& name = strategies[i % strategies.size()];
    const std::int64_t devices = name == "single" ? 1 : session.draw(2, 4);
    const model::Model model = model::parse_model(
        fmt::format("mlp:dim={},depth={}", 4 * session.draw(2, 12), session.draw(devices, 8)));
    const cluster::Cluster cluster = some_devices(devices);
    const plan::Plan plan = strategy::compile({.model = model, .cluster = cluster, .strategy = name, .step = step});
    session.ask(plan.title(), Writer().add(plan::to_text(plan)), [&](Reader& answer) {
      Table sent(plan.devices().size(), std::vector<std::int64_t>(plan.devices().size(), 0));
      Table size = sent;
      std::set<std::uint32_t> met;
      std::int64_t held = 0;
      for (const plan::Task& task : plan.tasks()) {
        if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
          if (transfer->end == plan::Transfer::End::send) {
            ++sent[task.device.index()][transfer->peer.index()];
            size[task.device.index()][transfer->peer.index()] += plan::bytes_of(plan, plan::payload(task)).count;
          }
        } else if (const auto* member = std::get_if<plan::Collective>(&task.action)) {
          if (met.insert(member->meeting.value).second) {
            held += plan::bytes_of(plan, plan::payload(task)).count;
          }
        }
      }
      const Table got_messages = read_table(answer);
      const Table got_bytes = read_table(answer);
      const std::int64_t got_collectives = answer.integer();
      const std::int64_t got_payload = answer.integer();
      const auto in_case = [&](const std::string& flaw) { return flaw.empty() ? "" : session.in_case() + " " + flaw; };
      messages.judge(in_case(flaw_in_table("transfers", got_messages, sent)));
      bytes.judge(in_case(flaw_in_table("bytes", got_bytes, size)));
      collectives.judge(in_case(flaw_in_number("collectives", got_collectives, static_cast<std::int64_t>(met.size()))));
      payloads.judge(in_case(flaw_in_number("bytes of collectives", got_payload, held)));
    });
  }
}

}  // namespace baton::exercise
