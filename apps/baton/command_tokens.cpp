#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/stop.h"
#include "baton/data/text.h"
#include "baton/data/tokens.h"
#include "commands.h"
#include "options.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

namespace fs = std::filesystem;

struct TokensWords {
  std::vector<std::string> files;
  std::string tokenizer = "bytes";
  std::string out;
  double val = 0;
};

/// One file that is written, of these texts.
struct TokensOutput {
  fs::path path;
  std::vector<data::TextPart> texts;
};

/// The last share of the texts goes into a file of its own.
std::vector<TokensOutput> divided(const TokensWords& words, const data::Tokenizer& tokenizer) {
  std::vector<data::TextPart> texts;
  std::uint64_t total = 0;
  for (const std::string& file : words.files) {
    texts.push_back(data::whole_text(file));
    total += texts.back().end;
  }
  if (words.val == 0) {
    return {{words.out, texts}};
  }
  std::error_code error;
  fs::create_directories(words.out, error);
  if (error) {
    throw failure("the folder {} cannot be made: {}", words.out, error.message());
  }
  std::vector<TokensOutput> outputs{{fs::path(words.out) / "train.bin", {}}, {fs::path(words.out) / "val.bin", {}}};
  const auto first = static_cast<std::uint64_t>(static_cast<double>(total) * (1 - words.val));
  std::uint64_t before = 0;
  for (const data::TextPart& text : texts) {
    const std::uint64_t at = std::clamp(first, before, before + text.end) - before;
    const std::uint64_t cut = at == 0 || at == text.end ? at : data::cut_near(text, at, tokenizer);
    if (cut > 0) {
      outputs[0].texts.push_back({text.path, 0, cut});
    }
    if (cut < text.end) {
      outputs[1].texts.push_back({text.path, cut, text.end});
    }
    before += text.end;
  }
  return outputs;
}

std::int64_t write_tokens(const TokensOutput& output, const data::Tokenizer& tokenizer, const data::BytesRead& read) {
  data::TokenWriter writer(output.path, tokenizer.vocabulary());
  for (std::size_t i = 0; i < output.texts.size(); ++i) {
    if (const std::optional<std::int32_t> between = tokenizer.end_of_text(); between && i > 0) {
      writer.append(std::span(&*between, 1));
    }
    data::encode_text(output.texts[i], tokenizer, [&](std::span<const std::int32_t> tokens, std::uint64_t bytes) {
      writer.append(tokens);
      read(bytes);
    });
  }
  const SaveGuard guard;
  writer.commit();
  return writer.count();
}

void make_tokens(const TokensWords& words) {
  const std::vector<fs::path> paths(words.files.begin(), words.files.end());
  std::int64_t total = 0;
  for (const fs::path& path : paths) {
    total += static_cast<std::int64_t>(data::whole_text(path).end);
  }
  for (const std::string& file : words.files) {
    std::error_code ignored;
    if (fs::equivalent(file, words.out, ignored)) {
      throw usage_error("--out {} is one of the texts, which would be lost: give another file", words.out);
    }
  }
  if (words.val == 0) {
    if (!words.out.ends_with(".bin") || destination_of(words.out).written_into) {
      throw usage_error("--out is '{}', but must be a file whose name ends in .bin, as those of token files do", words.out);
    }
    require_writable(words.out);
  }
  const Interrupt interrupt;
  const auto follow = [&](const std::string& what) {
    auto bar = std::make_shared<ProgressBar>(what, std::max<std::int64_t>(1, total), true, ProgressBar::percent);
    return [bar, done = std::int64_t{0}, &interrupt](std::uint64_t bytes) mutable {
      done += static_cast<std::int64_t>(bytes);
      bar->show(done);
      if (interrupt.asked()) {
        throw Stopped("interrupted; no unfinished file is left");
      }
    };
  };
  const auto tokenizer = data::tokenizer_for(words.tokenizer, paths, follow("characters"));
  data::BytesRead read = follow("tokens");
  std::string summary;
  for (const TokensOutput& output : divided(words, *tokenizer)) {
    const std::int64_t count = write_tokens(output, *tokenizer, read);
    summary += fmt::format("{}: {} tokens of a vocabulary of {}\n", output.path.string(), count, tokenizer->vocabulary());
    if (summary.find('\n') + 1 == summary.size()) {  // one tokenizer stands for both files
      write_whole(data::path_of_tokenizer(output.path), tokenizer->serialized());
    }
  }
  if (words.files.size() > 1) {
    summary += tokenizer->end_of_text() ? fmt::format("Between texts: the end of text, token {}\n", *tokenizer->end_of_text())
                                        : std::string("Between texts: nothing, because this tokenizer has no end of text\n");
  }
  read = {};  // takes the bar off the screen
  fmt::print("{}{}: the tokenizer ({})\n", summary,
             data::path_of_tokenizer(words.val == 0 ? fs::path(words.out) : fs::path(words.out) / "train.bin").string(),
             tokenizer->name());
}

}  // namespace

void add_tokens_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("tokens", "Turn texts into a file of tokens to train on");
  auto words = std::make_shared<TokensWords>();
  command->add_option("FILE", words->files, "texts in UTF-8; several follow each other")->type_name("FILE")->required();
  command
      ->add_option(
          "--tokenizer", words->tokenizer,
          "bytes, chars, or a path: tokenizer.json, vocab.json with merges.txt next to it, a .tiktoken or a .tokenizer file")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("-o,--out", words->out, "the file to write, such as train.bin; with --val, a folder")
      ->type_name("PATH")
      ->required();
  add_number(*command, "--val", words->val, 0.0, 0.9,
             "write the last share of the text, such as 0.1, to val.bin and the rest to train.bin");
  command->footer(
      "\nThe file has llm.c's format. The tokenizer is written next to it. Two texts are separated by the tokenizer's end-of-text\n"
      "token, if it has one; the last lines say so.\n"
      "\nExamples:\n  baton tokens input.txt --tokenizer chars --val 0.1 --out shakespeare\n"
      "  baton tokens a.txt b.txt --tokenizer gpt2/tokenizer.json --out train.bin");
  command->callback([words] { make_tokens(*words); });
}

}  // namespace baton::app
