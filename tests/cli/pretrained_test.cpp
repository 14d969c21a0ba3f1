/// Weights in and out: folders of Hugging Face's and ONNX files as --model, `export` and `sample`.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/program.h"
#include "support/contents.h"
#include "support/onnx.h"

namespace {

namespace fs = std::filesystem;

using baton::test::Cli;
using baton::test::Outcome;

const std::string folders = BATON_TEST_DATA "/oracle/data/folders/";

bool says(const Outcome& outcome, const std::string& text) { return outcome.err.find(text) != std::string::npos; }

TEST_F(Cli, SamplesTheSameTextForASeedAlsoAfterAnExport) {
  std::ofstream(folder_ / "text.txt") << std::string("to be or not to be, that is the question. ", 40) << std::string(200, 'a');
  const Outcome trained = run(
      "train --model gpt:depth=1,heads=2,dim=16,context=16,vocab=256 --data text.txt --tokenizer bytes --batch 2 --steps 4 "
      "--warmup 1 --checkpoint run -q");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string flags = " --prompt 'to be' --tokens 24 --temperature 1";
  const Outcome text = run("sample --checkpoint run --seed 3" + flags);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out.substr(0, 5), "to be");
  EXPECT_EQ(run("sample --checkpoint run --seed 3" + flags).out, text.out);
  EXPECT_NE(run("sample --checkpoint run --seed 4" + flags).out, text.out);
  EXPECT_EQ(run("sample --checkpoint run --temperature 0 --seed 1 --prompt x --tokens 5").out,
            run("sample --checkpoint run --temperature 0 --seed 2 --prompt x --tokens 5").out);

  const Outcome exported = run("export --checkpoint run --to exported");
  ASSERT_EQ(exported.code, 0) << exported.err;
  const Outcome again = run("sample --model ./exported --seed 3" + flags);
  EXPECT_EQ(again.out, text.out) << again.err;
  EXPECT_EQ(run("sample --model ./exported --tokenizer bytes --seed 3" + flags).out, text.out);
  EXPECT_EQ(run("train --model ./exported --steps 2 --warmup 0 --batch 2 -q").code, 0);
}

TEST_F(Cli, KeepsTheSizeOfImagesInAnExport) {
  for (const std::string model : {"resnet:18,width=4,image=80,classes=3", "vit:depth=1,heads=1,dim=8,patch=8,image=24,classes=3"}) {
    for (const char* folder : {"run", "exported", "again"}) {
      fs::remove_all(folder_ / folder);
    }
    ASSERT_EQ(run("train --model " + model + " --batch 2 --steps 2 --warmup 0 --checkpoint run -q").code, 0) << model;
    ASSERT_EQ(run("export --checkpoint run --to exported").code, 0);
    const std::string size = model.starts_with("vit") ? "image=24" : "image=80";
    EXPECT_NE(run("models ./exported").out.find(size), std::string::npos) << run("models ./exported").out;
    ASSERT_EQ(run("export --model ./exported --to again").code, 0);
    EXPECT_NE(run("models ./again").out.find(size), std::string::npos);
    EXPECT_EQ(run("models ./again").out, run("models ./exported").out);
  }
}

TEST_F(Cli, AnExportIsNotMixedWithAnotherModel) {
  std::ofstream(folder_ / "text.txt") << std::string(400, 'a');
  ASSERT_EQ(run("train --model vit:depth=1,heads=1,dim=8,patch=8,image=24,classes=3 --batch 2 --steps 2 --warmup 0 --checkpoint "
                "images -q")
                .code,
            0);
  ASSERT_EQ(run("train --model gpt:depth=1,heads=2,dim=16,context=16,vocab=256 --data text.txt --batch 2 --steps 2 --warmup 0 "
                "--checkpoint words -q")
                .code,
            0);
  for (const auto& [first, second, type] : {std::tuple("images", "words", "vit"), {"words", "images", "gpt2"}}) {
    fs::remove_all(folder_ / "hf");
    ASSERT_EQ(run(std::string("export --to hf --checkpoint ") + first).code, 0);
    EXPECT_EQ(run(std::string("export --to hf --checkpoint ") + first).code, 0) << "its own files are replaced";
    const Outcome mixed = run(std::string("export --to hf --checkpoint ") + second);
    EXPECT_EQ(mixed.code, 2);
    EXPECT_NE(mixed.err.find(std::string("hf holds another model (") + type + ")"), std::string::npos) << mixed.err;
    for (const char* only : {"preprocessor_config.json", "tokens.tokenizer"}) {
      fs::remove(folder_ / "hf" / only);
    }
    EXPECT_EQ(run(std::string("export --to hf --checkpoint ") + second).code, 2) << "its weights would be overwritten";
    EXPECT_NE(mixed.err.find("give a new folder"), std::string::npos) << mixed.err;
    EXPECT_NE(baton::test::contents(folder_ / "hf" / "config.json").find(type), std::string::npos) << "nothing was written";
  }
}

TEST_F(Cli, KeepsTheNamesOfClassesInAnExport) {
  fs::create_directories(folder_ / "cifar");
  std::ofstream(folder_ / "cifar" / "data_batch_1.bin", std::ios::binary) << std::string(std::size_t{3073} * 4, '\1');
  std::ofstream(folder_ / "cifar" / "batches.meta.txt") << "a\nb\nc\nd\ne\nf\ng\nhorse\ni\ntruck\n";
  const Outcome trained = run(
      "train --model vit:depth=1,heads=1,dim=8,patch=8,image=32,classes=10 --data cifar --batch 2 --steps 2 --warmup 0 "
      "--checkpoint run -q");
  ASSERT_EQ(trained.code, 0) << trained.err;
  ASSERT_EQ(run("export --checkpoint run --to exported").code, 0);
  const std::string config = baton::test::contents(folder_ / "exported" / "config.json");
  EXPECT_NE(config.find("\"7\": \"horse\""), std::string::npos) << config;
  EXPECT_EQ(config.find("LABEL_"), std::string::npos) << config;
}

TEST_F(Cli, TakesAFolderWhereverItTakesAModel) {
  const std::string model = "--model " + folders + "qwen2 ";
  for (const std::string& command :
       {"train " + model + "--batch 2 --steps 2 --warmup 1 -q", "plan " + model + "--batch 2", "models " + folders + "qwen2",
        "simulate " + model + "--batch 2 --cluster dgx-a100 --devices 1",
        "train --model " + folders + "gpt2:context=4 --batch 2 --steps 2 --warmup 1 -q"}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
  }
  const Outcome noted = run("train --model " + folders + "gpt2 --batch 2 --steps 2 --warmup 1");
  EXPECT_NE(noted.out.find("resid_pdrop = 0.1"), std::string::npos) << noted.out;
}

TEST_F(Cli, RefusesWeightsAndFlagsThatDoNotFitInOneSentence) {
  fs::create_directories(folder_ / "empty");
  std::ofstream(folder_ / "cut.onnx") << baton::test::OnnxWriter({0, 4}, "y").weight("w", {4, 2}).file().substr(0, 40);
  std::ofstream(folder_ / "sigmoid.onnx") << baton::test::OnnxWriter({0, 4}, "y").node("Sigmoid", {"x"}, "y").file();
  fs::copy(folders + "vit", folder_ / "no-weights");
  fs::remove(folder_ / "no-weights" / "model.safetensors");
  fs::remove(folder_ / "no-weights" / "expected.safetensors");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"train --model ./empty --steps 2 --warmup 0", "empty/config.json"},
      {"train --model ./no-weights --steps 2 --warmup 0", "no *.safetensors"},
      {"train --model cut.onnx --steps 2 --warmup 0", "cut.onnx"},
      {"train --model sigmoid.onnx --steps 2 --warmup 0", "Sigmoid"},
      {"models sigmoid.onnx", "Sigmoid"},
      {"sample --prompt x", "--checkpoint or of --model"},
      {"sample --model gpt2 --prompt x", "no trained weights"},
      {"sample --model " + folders + "vit --prompt x --tokenizer bytes", "does not continue texts"},
      {"sample --model " + folders + "gpt2 --prompt x", "no tokenizer"},
      {"sample --model " + folders + "gpt2 --prompt x --tokenizer bytes", "256 tokens"},
      {"sample --model " + folders + "gpt2 --prompt x --tokenizer chars", "chars"},
      {"sample --checkpoint none --prompt x", "none"},
      {"sample --checkpoint empty --prompt x", "no checkpoint in empty"},
      {"sample --checkpoint empty --prompt x --temperature -1", "--temperature"},
      {"export --to exported", "--checkpoint or of --model"},
      {"export --model gpt2 --to exported", "no trained weights"},
      {"export --model sigmoid.onnx --to exported", "Sigmoid"},
      {"export --checkpoint empty --to exported", "no checkpoint in empty"},
      {"export --checkpoint " + folders + "gpt2/expected.safetensors --to exported", "does not say its model"},
  };
  for (const auto& [command, sentence] : cases) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 2) << command << ": " << outcome.err;
    EXPECT_TRUE(says(outcome, sentence)) << command << ": " << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << command << ": " << outcome.err;
  }
  ASSERT_EQ(run("export --model " + folders + "mistral --to whole").code, 0);
  EXPECT_EQ(run("train --model ./whole --batch 2 --steps 2 --warmup 1 -q").code, 0);
  EXPECT_EQ(run("export --model ./whole --to whole").code, 2) << "it is read while it is written";
  EXPECT_EQ(run("models ./no-weights").code, 0) << "the configuration is enough";
  ASSERT_EQ(run("train --model mlp:dim=8,depth=2 --batch 8 --steps 2 --warmup 0 -q --checkpoint mlp").code, 0);
  const Outcome mlp = run("export --checkpoint mlp --to exported");
  EXPECT_EQ(mlp.code, 2);
  EXPECT_TRUE(says(mlp, "mlp:dim=8,depth=2")) << mlp.err;
}

}  // namespace
