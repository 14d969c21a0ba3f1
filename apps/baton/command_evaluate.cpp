#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "baton/base/error.h"
#include "baton/checkpoint/pretrained.h"
#include "baton/checkpoint/share.h"
#include "baton/data/tokenizer.h"
#include "baton/lab/rows.h"
#include "baton/training/evaluation.h"
#include "commands.h"
#include "guard.h"
#include "options.h"
#include "signals.h"
#include "summary.h"
#include "terminal.h"
#include "train_log.h"

namespace baton::app {
namespace {

struct EvaluateWords {
  job::JobSpec job;
  std::string checkpoint;
  std::string json;
  bool model_given = false;
};

/// The weights of the checkpoint, or of the folder or file that the model is.
std::unique_ptr<checkpoint::TensorReader> open_weights(const EvaluateWords& words) {
  if (!words.checkpoint.empty()) {
    return checkpoint::open_checkpoint(words.checkpoint).archive;
  }
  if (const std::optional<model::ModelPath> path = model::path_of(words.job.model)) {
    return checkpoint::open_pretrained(*path, model::parse_model(words.job.model));
  }
  throw usage_error("there are no weights to evaluate: give a --checkpoint, or a folder or an ONNX file as --model");
}

std::string metadata_of(const checkpoint::TensorReader& source, const std::string& key) {
  const auto found = source.metadata().find(key);
  return found == source.metadata().end() ? "" : found->second;
}

void evaluate_checkpoint(EvaluateWords words, int& exit_code) {
  if (words.job.data.empty()) {
    throw usage_error("there is nothing to evaluate on: give some with --data");
  }
  if (!words.job.cluster.empty() || words.job.what_if.changes()) {
    throw usage_error("evaluate runs on this machine: leave out --cluster and --what-if");
  }
  std::unique_ptr<checkpoint::TensorReader> archive;
  ranks::on_rank_0(world(), [&] {
    settle_outputs({&words.json});
    archive = open_weights(words);
  });
  const checkpoint::SharedReader source(world(), archive.get());
  const bool inherits_token_type = words.job.token_type.empty();
  // What the training was given counts where nothing else is said.
  for (const char* name : {"model", "loss", "precision", "tokenizer", "token-type", "normalize"}) {
    const job::JobField* field = training::find_field(name);
    const std::string then = metadata_of(source, field->name == "model" ? "model" : "flag." + field->name);
    if (!field->given(words.job) && !then.empty()) {
      field->set(words.job, then);
    }
  }
  job::JobSpec without = words.job;  // the job has nothing to be trained on
  for (const std::string& name : data_flags()) {
    const job::JobField* field = training::find_field(name);
    field->set(without, field->text(job::JobSpec{}));
  }
  const training::Job job(without, cluster::probe(), &world());
  const std::filesystem::path weights = words.checkpoint.empty() ? model::path_of(words.job.model)->path
                                                                 : std::filesystem::path(words.checkpoint);
  const std::filesystem::path folder = std::filesystem::is_directory(weights) ? weights : weights.parent_path() / ".";
  const data::Parts parts = data::open(words.job.data, {.tokenizer = words.job.tokenizer,
                                                        .given_tokenizer = data::tokenizer_beside(folder),
                                                        .token_type = words.job.token_type,
                                                        .type_of_other_data = inherits_token_type});
  words.job = training::with_pixel_scale(words.job, *parts.for_evaluation());
  const training::SampleFeed feed(parts.for_evaluation(), words.job, training::form_of(job.model(), job.request().step.loss),
                                  job.request().step.global_batch, 0, training::SampleFeed::Use::evaluation);
  if (!words.checkpoint.empty()) {
    checkpoint::require_model(source, job.model());
  }
  training::Forward forward(job, feed);
  forward.take_weights(source);
  const bool speaks = world().rank() == 0;
  const Interrupt interrupt;
  ProgressBar bar("evaluating", feed.order().steps_per_epoch(), speaks, "batches");
  const std::optional<training::Evaluation> evaluation = training::evaluate(forward, job, feed,
                                                                            [&](std::int64_t done, std::int64_t) {
                                                                              bar.show(done);
                                                                              return !world().alone() || !interrupt.asked();
                                                                            });
  bar.clear();
  interrupt.begin_saving();
  if (!evaluation) {
    exit_code = interrupt.exit_code();
    fmt::print(stderr, "baton: interrupted before all batches were evaluated\n");
    return;
  }
  training::Evaluation result = *evaluation;
  const std::string step = metadata_of(source, "step");
  if (speaks && words.json != "-") {
    fmt::print("{}, on {}\n", forward.plan().title(), printable(feed.source().description().format));
    fmt::print("step {}, {} samples: {}\n", step.empty() ? "not known" : printable(step), result.samples, evaluation_text(result));
  }
  if (speaks && !words.json.empty()) {
    const auto number = [](const std::optional<double>& value) { return value ? lab::Json(*value) : lab::Json(); };
    write_output(
        words.json,
        lab::Json{{"command", command_line()},
                  {"model", job.model().name()},
                  {"step",
                   step.empty() ? lab::Json() : lab::Json(parse_integer(step, "the checkpoint's step", 0, std::int64_t{1} << 48))},
                  {"data", feed.source().description().format},
                  {"samples", result.samples},
                  {"eval_loss", result.loss},
                  {"eval_accuracy", number(result.accuracy)},
                  {"eval_perplexity", number(result.perplexity)},
                  {"time_ns", result.time.count}}
                .dump(2) +
            "\n");
  }
}

}  // namespace

void add_evaluate_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("evaluate", "Measure loss and accuracy of a checkpoint on data");
  auto words = std::make_shared<EvaluateWords>();
  add_job_flags(*command, words->job,
                {"model",     "data",   "tokenizer", "token-type", "normalize", "strategy", "devices", "batch",         "dp",
                 "pp",        "tp",     "sp",        "schedule",   "chunks",    "split",    "balance", "micro-batches", "loss",
                 "precision", "memory", "backend"});
  command->get_option("--model")
      ->description("the model (default: that of the checkpoint); a folder with a config.json or an ONNX file brings its weights")
      ->default_str("");
  command->get_option("--data")->description(
      "evaluate on this: a file or folder of tokens, text, images or arrays, as docs/data.md lists them; its validation or test "
      "part if it has "
      "one");
  for (const char* flag : {"--loss", "--precision", "--tokenizer", "--token-type", "--normalize"}) {
    CLI::Option* option = command->get_option(flag);
    const std::string help = option->get_description();
    option->description(help.substr(0, help.find(" (default: ")) + " (default: that of the checkpoint)")->default_str("");
  }
  command->add_option("--checkpoint", words->checkpoint, "the folder of a training's checkpoints, or one of its files")
      ->type_name("PATH");
  command->add_option("--json", words->json, "write the result to a file, or to standard output with -")->type_name("FILE");
  command->footer("\nExample:\n  baton evaluate --checkpoint runs/mnist --data /usr/share/datasets/fashion-mnist");
  command->callback([words, &exit_code] { evaluate_checkpoint(*words, exit_code); });
}

}  // namespace baton::app
