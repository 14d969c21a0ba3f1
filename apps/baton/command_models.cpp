#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "baton/report/table.h"
#include "baton/strategy/strategy.h"
#include "baton/strategy/training_step.h"
#include "commands.h"

namespace baton::app {
namespace {

std::string count_text(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

/// By block: the bytes that the forward pass of one sample writes and the backward pass reads, in fp32.
std::vector<Bytes> activations(const model::Model& model) {
  const cluster::Cluster one({{"device", {0}, Bytes(0)}});
  const std::int64_t samples = strategy::samples_together(model);
  const plan::Plan plan = strategy::compile({.model = model, .cluster = one, .step = {.global_batch = samples}});
  std::map<BufferId, std::size_t> block_of;
  std::set<BufferId> kept;
  for (const plan::Task& task : plan.tasks()) {
    for (const BufferId id : task.labels.phase == plan::Phase::forward ? task.writes : task.reads) {
      if (plan[id].role != plan::Role::activation || task.labels.block < 0) {
        continue;
      }
      if (task.labels.phase == plan::Phase::forward) {
        block_of.try_emplace(id, static_cast<std::size_t>(task.labels.block));
      } else if (block_of.contains(id)) {
        kept.insert(id);
      }
    }
  }
  std::vector<Bytes> bytes(model.blocks().size());
  for (const BufferId id : kept) {
    bytes[block_of[id]] += plan[id].size();
  }
  std::transform(bytes.begin(), bytes.end(), bytes.begin(), [&](Bytes all) { return Bytes(all.count / samples); });
  return bytes;
}

Flops forward_flops(const model::Model& model) {
  Flops total;
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    total += model.forward_flops(b);
  }
  return total;
}

void list_models() {
  report::Table table({"model", "parameters", "forward per sample", "kept per sample"});
  for (const model::Family& kind : model::zoo()) {
    for (const model::Preset& preset : kind.presets) {
      const model::Model model = model::parse_model(preset.name);
      Bytes kept;
      for (const Bytes bytes : activations(model)) {
        kept += bytes;
      }
      table.row({preset.name, count_text(model.parameter_count()), to_text(forward_flops(model)), to_text(kept)});
    }
  }
  fmt::print("{}\nforward: arithmetic of one sample's forward pass; the backward pass has about twice as much.\n", table.text());
  fmt::print(
      "kept: activations of one sample, in fp32, that the forward pass leaves for the backward pass without recomputation.\n\n");
  fmt::print("Any size can be asked for:\n");
  for (const model::Family& kind : model::zoo()) {
    fmt::print("  {}\n", kind.forms);
  }
}

/// One line of the table of blocks, and how many blocks it stands for.
struct Line {
  std::string name;
  std::vector<std::string> cells;
  std::size_t count = 1;
};

void show_model(const std::string& text, bool parameters) {
  const model::Model model = model::parse_model(text);
  const std::vector<Bytes> kept = activations(model);
  std::vector<Line> lines;
  std::set<std::string> seen;  // parameters that a block before has
  Bytes all_kept;
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    const model::Block& block = model.blocks()[b];
    std::int64_t own = 0;
    std::string shared;
    for (const model::Parameter& parameter : block.parameters) {
      if (parameter.kept != model::Kept::trained) {
        continue;
      }
      if (seen.insert(parameter.name).second) {
        own += parameter.shape.elements();
      } else {
        shared = fmt::format("shares {}", parameter.name);
      }
    }
    all_kept += kept[b];
    std::vector<std::string> cells{fmt::format("{} -> {}", to_text(block.input()), to_text(block.output())), count_text(own),
                                   to_text(model.forward_flops(b)), to_text(kept[b]), shared};
    const auto alike = std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.cells == cells; });
    if (alike != lines.end() && !parameters) {
      ++alike->count;
    } else {
      lines.push_back({block.name, std::move(cells)});
    }
  }
  report::Table table({"block", "blocks", "one sample", "parameters each", "forward each", "kept each", ""},
                      {true, false, true, false, false, false, true});
  for (const Line& line : lines) {
    std::vector<std::string> row{line.name, std::to_string(line.count)};
    row.insert(row.end(), line.cells.begin(), line.cells.end());
    table.row(row);
  }
  fmt::print("{}: {} parameters, {} forward and {} of activations (fp32) per sample\n\n{}", model.name(),
             count_text(model.parameter_count()), to_text(forward_flops(model)), to_text(all_kept), table.text());
  if (!parameters) {
    return;
  }
  report::Table names({"parameter", "shape", "block"}, {true, true, true});
  seen.clear();
  for (const model::Block& block : model.blocks()) {
    for (const model::Parameter& parameter : block.parameters) {
      if (seen.insert(parameter.name).second) {
        names.row({parameter.name, to_text(parameter.shape), block.name});
      }
    }
  }
  fmt::print("\n{}", names.text());
}

}  // namespace

void add_models_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("models", "List the models that can be trained and simulated, or show one");
  auto name = std::make_shared<std::string>();
  auto parameters = std::make_shared<bool>(false);
  command->add_option("model", *name, "a model as --model takes it: its blocks, shapes and parameters")->type_name("MODEL");
  command->add_flag("--parameters", *parameters, "with a model: every block by itself, and the name and shape of every parameter");
  command->footer("\nExamples:\n  baton models\n  baton models gpt2\n  baton models resnet:50 --parameters");
  command->callback([name, parameters] {
    if (name->empty() && *parameters) {
      throw usage_error("--parameters shows those of one model: name it");
    }
    name->empty() ? list_models() : show_model(*name, *parameters);
  });
}

}  // namespace baton::app
