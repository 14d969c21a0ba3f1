#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "baton/base/error.h"
#include "baton/checkpoint/pretrained.h"
#include "baton/checkpoint/share.h"
#include "baton/data/tokenizer.h"
#include "baton/lab/rows.h"
#include "baton/model/parse.h"
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

/// The weights of the checkpoint, or of the folder or file that --model names.
std::shared_ptr<const checkpoint::TensorReader> open_weights(const EvaluateWords& words) {
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

/// The steps after which the checkpoint was saved; nullopt if it does not say it, as files of other programs.
std::optional<std::int64_t> step_of(const checkpoint::TensorReader& source) {
  const std::string step = metadata_of(source, "step");
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  return error == std::errc() && end == step.data() + step.size() && !step.empty() ? std::optional(number) : std::nullopt;
}

void require_evaluable(const job::JobSpec& job) {
  if (job.data.empty()) {
    throw usage_error("there is nothing to evaluate on: give data with --data");
  }
  if (!job.cluster.empty() || job.what_if.changes()) {
    throw usage_error("evaluate runs on this machine: leave out --cluster and --what-if");
  }
}

/// Takes settings of the training, unless others are given.
void take_settings(const checkpoint::TensorReader& source, job::JobSpec& job) {
  for (const char* name : {"model", "loss", "precision", "tokenizer", "token-type", "normalize"}) {
    const job::JobField* field = training::find_field(name);
    const std::string then = metadata_of(source, field->name == "model" ? "model" : "flag." + field->name);
    if (!field->given(job) && !then.empty()) {
      field->set(job, then);
    }
  }
}

/// The job without data to train on.
training::Job job_without_data(job::JobSpec spec) {
  for (const std::string& name : data_flags()) {
    training::find_field(name)->reset(spec);
  }
  return training::Job(spec, cluster::probe(), shared_world());
}

/// `inherits_token_type`: the type was that of the training's data, which may have been another.
data::Parts open_data(const EvaluateWords& words, bool inherits_token_type) {
  const std::filesystem::path weights = words.checkpoint.empty() ? model::path_of(words.job.model)->path
                                                                 : std::filesystem::path(words.checkpoint);
  const std::filesystem::path folder = std::filesystem::is_directory(weights) ? weights : weights.parent_path() / ".";
  return data::open(words.job.data, {.tokenizer = words.job.tokenizer,
                                     .given_tokenizer = data::tokenizer_beside(folder),
                                     .token_type = words.job.token_type,
                                     .type_of_other_data = inherits_token_type});
}

/// Shows the progress. Returns nullopt if a signal ended it, which is printed; `exit_code` is then the signal's.
std::optional<training::Evaluation> evaluate_all(training::Forward& forward, const training::Job& job,
                                                 const training::SampleFeed& feed, int& exit_code) {
  const Interrupt interrupt;
  ProgressBar bar("evaluating", feed.order().steps_per_epoch(), world().rank() == 0, "batches");
  std::optional<training::Evaluation> evaluation = training::evaluate(forward, job, feed, [&](std::int64_t done, std::int64_t) {
    bar.show(done);
    return !world().alone() || !interrupt.asked();
  });
  bar.clear();
  interrupt.begin_saving();
  if (!evaluation) {
    exit_code = interrupt.exit_code();
    fmt::print(stderr, "baton: interrupted before all batches were evaluated\n");
  }
  return evaluation;
}

/// The evaluated plan, model, data and checkpoint, and the result.
struct Evaluated {
  std::string plan;
  std::string model;
  std::string data;                  // its format
  std::optional<std::int64_t> step;  // the step of the checkpoint; nullopt if it does not say it
  training::Evaluation result;
};

void print(const Evaluated& one) {
  fmt::print("{}, on {}\n", one.plan, printable(one.data));
  fmt::print("step {}, {} samples: {}\n", one.step ? fmt::format("{}", *one.step) : "not known", one.result.samples,
             evaluation_text(one.result));
}

lab::Json to_json(const Evaluated& one) {
  namespace key = lab::key;
  using Entry = key::Evaluated;
  return lab::Record{key::command(command_line()),
                     key::model(one.model),
                     Entry::step(one.step),
                     key::data(one.data),
                     Entry::samples(one.result.samples),
                     Entry::eval_loss(one.result.loss),
                     Entry::eval_accuracy(one.result.accuracy),
                     Entry::eval_perplexity(one.result.perplexity),
                     key::time_ns(one.result.time)}
      .json();
}

void evaluate_checkpoint(EvaluateWords words, int& exit_code) {
  require_evaluable(words.job);
  std::shared_ptr<const checkpoint::TensorReader> archive;
  ranks::on_rank_0(world(), [&] {
    settle_outputs({&words.json});
    archive = open_weights(words);
  });
  const checkpoint::SharedReader source(shared_world(), std::move(archive));
  const std::optional<std::int64_t> step = step_of(source);
  const bool inherits_token_type = !words.job.token_type.has_value();
  take_settings(source, words.job);
  const training::Job job = job_without_data(words.job);
  const data::Parts parts = open_data(words, inherits_token_type);
  words.job = training::with_pixel_scale(words.job, *parts.for_evaluation());
  const auto feed = std::make_shared<const training::SampleFeed>(
      parts.for_evaluation(), words.job, training::form_of(job.model(), job.request().step.loss), job.request().step.global_batch,
      0, training::SampleFeed::Use::evaluation);
  if (!words.checkpoint.empty()) {
    checkpoint::require_model(source, job.model());
  }
  training::Forward forward(job, feed);
  forward.take_weights(source);
  const std::optional<training::Evaluation> evaluation = evaluate_all(forward, job, *feed, exit_code);
  if (!evaluation || world().rank() != 0) {
    return;
  }
  const Evaluated evaluated{.plan = forward.plan().title(),
                            .model = job.model().name(),
                            .data = feed->source().description().format,
                            .step = step,
                            .result = *evaluation};
  if (words.json != "-") {
    print(evaluated);
  }
  if (!words.json.empty()) {
    write_output(words.json, to_json(evaluated).dump(2) + "\n");
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
      ->description(
          "the model (default: that of the checkpoint); a folder with a config.json or an ONNX file is used with its weights")
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
