#include <fmt/format.h>

#include <optional>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/cluster/machine.h"
#include "baton/lab/json.h"
#include "baton/training/recompute.h"
#include "commands.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

constexpr Bytes largest_claim(std::int64_t{256} << 20);
constexpr std::size_t most_values_of_a_claim = 10'000'000;

void verify_result(const std::string& path, int& exit_code) {
  const lab::Json result = lab::parse_json(read_file(path, "the result " + path, largest_claim), most_values_of_a_claim);
  if (result.is_discarded()) {
    throw usage_error("{} is not JSON, so it is not a result of train --json", path);
  }
  const Interrupt interrupt;
  std::optional<ProgressBar> bar;
  const training::Recomputed compared = training::recompute(result, cluster::probe(), [&](std::int64_t done, std::int64_t of) {
    if (!bar) {
      bar.emplace("training again", of, true, "steps");
    }
    bar->show(done);
    return !interrupt.asked();
  });
  bar.reset();
  fmt::print("{}\n", printable(compared.sentence()));
  exit_code = compared.agrees() ? 0 : 1;
}

}  // namespace

void add_verify_result_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("verify-result",
                                             "Repeat the training of a result, and compare seed, steps and losses");
  auto path = std::make_shared<std::string>();
  command->add_option("file", *path, "a result of `baton train --json`")->required()->type_name("FILE");
  command->footer(
      "\nLosses computed on CPUs must be the same bit by bit. So must those of a GPU if this machine has the same kind of GPU;\n"
      "otherwise they may differ by 1e-4. bf16 computed by AMX and bf16 emulated may differ by 2^-8.\n\nExamples:\n  baton train "
      "--strategy ddp --devices cpu:2 --json result.json\n  baton "
      "verify-result result.json");
  command->callback([path, &exit_code] { verify_result(*path, exit_code); });
}

}  // namespace baton::app
