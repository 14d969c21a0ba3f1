#include <fmt/format.h>

#include <filesystem>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/checkpoint/pretrained.h"
#include "baton/data/tokenizer.h"
#include "baton/model/parse.h"
#include "baton/training/sampling.h"
#include "commands.h"
#include "options.h"
#include "signals.h"
#include "terminal.h"
#include "train_log.h"

namespace baton::app {
namespace {

namespace fs = std::filesystem;

struct SampleWords {
  job::JobSpec job;
  std::string checkpoint;
  std::string prompt;
  std::int64_t tokens = 200;
  double temperature = 0.8;
  std::int64_t top_k = 0;
  std::int64_t seed = 0;
  std::string tokenizer;
};

/// The source of weights, and the folder in which a tokenizer may be.
struct Weights {
  std::shared_ptr<const checkpoint::TensorReader> source;
  std::string model;
  fs::path folder;
};

Weights open_weights(const SampleWords& words) {
  if (words.checkpoint.empty() == words.job.model.empty()) {
    throw usage_error("sample takes the weights of --checkpoint or of --model, a folder with a config.json: give one of them");
  }
  if (words.checkpoint.empty()) {
    const std::optional<model::ModelPath> path = model::path_of(words.job.model);
    if (!path || path->onnx) {
      throw usage_error("--model {} has no trained weights: give a folder with a config.json, or a --checkpoint",
                        words.job.model.text());
    }
    const model::Model model = model::parse_model(words.job.model);
    training::require_token_model(model);
    return {checkpoint::open_pretrained(*path, model), model.name(), path->path};
  }
  checkpoint::FoundCheckpoint found = checkpoint::open_checkpoint(words.checkpoint);
  const model::Model model = checkpoint::model_of(*found.archive);
  training::require_token_model(model);
  return {std::move(found.archive), model.name(), found.path.parent_path() / "."};
}

std::shared_ptr<const data::Tokenizer> open_tokenizer(const SampleWords& words, const fs::path& folder) {
  if (!words.tokenizer.empty()) {
    if (canonical(words.tokenizer) == "chars") {
      throw usage_error("--tokenizer chars is made of the text that a model was trained on: give the file next to its tokens");
    }
    return data::tokenizer_by_name(words.tokenizer);
  }
  if (std::shared_ptr<const data::Tokenizer> found = data::tokenizer_beside(folder)) {
    return found;
  }
  throw usage_error("there is no tokenizer in {}: give one with --tokenizer, bytes or the path of a tokenizer.json",
                    folder.string());
}

/// Prints text as it comes, whole characters at a time and without control characters.
class TextPrinter {
 public:
  void print(std::string_view bytes) {
    held_ += bytes;
    std::string out;
    while (!held_.empty()) {
      const auto first = static_cast<unsigned char>(held_[0]);
      const std::size_t length = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
      if (held_.size() < length && is_start(held_)) {
        break;
      }
      const std::string sign = held_.substr(0, std::min(length, held_.size()));
      const bool whole = is_utf8(sign);
      if (!whole) {
        out += "\xef\xbf\xbd";
      } else if (sign == "\n" || sign == "\t" || !steers_terminal(sign)) {
        out += sign;
      }
      held_.erase(0, whole ? sign.size() : 1);
    }
    fmt::print("{}", out);
    std::fflush(stdout);
  }
  void finish() {
    fmt::print("{}\n", held_.empty() ? "" : "\xef\xbf\xbd");
    std::fflush(stdout);  // the line ends before anything goes to stderr
  }

 private:
  /// True if more bytes could make these a character.
  static bool is_start(std::string_view bytes) {
    return std::all_of(bytes.begin() + 1, bytes.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; });
  }

  std::string held_;
};

void sample(const SampleWords& words, int& exit_code) {
  const std::int64_t count = words.tokens;
  const training::Drawing drawing{
      .temperature = words.temperature, .top_k = words.top_k, .seed = static_cast<std::uint64_t>(words.seed)};
  const Weights weights = open_weights(words);
  const std::shared_ptr<const data::Tokenizer> tokenizer = open_tokenizer(words, weights.folder);
  std::vector<std::int32_t> text = tokenizer->beginning();
  tokenizer->encode(words.prompt, text);
  const bool begun = !text.empty();
  if (!begun) {
    if (!tokenizer->end_of_text()) {
      throw usage_error(
          "--prompt is empty, and this tokenizer has no end of text to begin a text with: give a first word, such as --prompt The");
    }
    text.push_back(*tokenizer->end_of_text());
  }
  job::JobSpec job = words.job;
  job.model = weights.model;
  training::Sampler sampler(job, weights.source, static_cast<std::int64_t>(text.size()) + count, cluster::probe());
  const std::int64_t vocabulary = sampler.model().output().last();
  if (tokenizer->vocabulary() > vocabulary) {
    throw usage_error("the tokenizer has {} tokens, but {} has scores of {}: it was trained with another one",
                      tokenizer->vocabulary(), sampler.model().name(), vocabulary);
  }
  const Interrupt interrupt;
  TextPrinter printer;
  printer.print(words.prompt);
  const Nanoseconds begin = now();
  std::int64_t done = 0;
  for (; done < count && !interrupt.asked(); ++done) {
    std::vector<float> scores = sampler.next_scores(text);
    scores.resize(static_cast<std::size_t>(tokenizer->vocabulary()));  // a vocabulary may be padded
    const std::int32_t token = training::draw_token(scores, drawing, static_cast<std::int64_t>(text.size()));
    if (tokenizer->end_of_text() == token) {
      break;
    }
    text.push_back(token);
    printer.print(tokenizer->decode(token));
  }
  printer.finish();
  const double seconds = static_cast<double>((now() - begin).count) * 1e-9;
  fmt::print(stderr, "baton: {} tokens in {:.3g} s ({} per second), each by a forward over {} positions\n", done, seconds,
             rate_text(seconds > 0 ? static_cast<double>(done) / seconds : 0.0), sampler.window());
  if (interrupt.asked()) {
    exit_code = interrupt.exit_code();
  }
}

}  // namespace

void add_sample_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("sample", "Continue a text by a trained model");
  auto words = std::make_shared<SampleWords>();
  words->job.model = "";
  command->add_option("--checkpoint", words->checkpoint, "the folder of a training's checkpoints, or one of its files")
      ->type_name("PATH");
  add_job_flags(*command, words->job, {"model", "devices", "memory", "backend"});
  command->get_option("--model")->description("instead of a checkpoint: a folder with config.json and safetensors");
  command->add_option("--prompt", words->prompt, "the text to continue")->type_name("TEXT");
  add_number(*command, "--tokens", words->tokens, std::int64_t{1}, std::int64_t{1} << 20,
             "number of tokens to add; fewer if the model ends the text");
  add_number(*command, "--temperature", words->temperature, 0.0, 1000.0,
             "how evenly tokens are drawn; 0 takes the most likely one each time");
  add_number(*command, "--top-k", words->top_k, std::int64_t{0}, std::int64_t{1} << 24,
             "draw from the N most likely tokens only; 0 means all");
  add_number(*command, "--seed", words->seed, std::int64_t{0}, most_seed, "seed of the draws: the same seed gives the same text");
  command
      ->add_option("--tokenizer", words->tokenizer,
                   "bytes, or the file or folder of a tokenizer (default: the one saved with the weights)")
      ->type_name("NAME");
  command->footer(
      "\nExamples:\n  baton sample --checkpoint runs/shakespeare --prompt \"ROMEO:\"\n"
      "  baton sample --model ./gpt2 --prompt \"The baton is\" --tokens 50 --top-k 40 --seed 7");
  command->callback([words, &exit_code] { sample(*words, exit_code); });
}

}  // namespace baton::app
