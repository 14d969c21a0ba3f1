#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "cli/program.h"
#include "unit/data/written.h"

namespace {

using baton::test::contents;
using baton::test::idx;
using baton::test::Outcome;
using baton::test::write_bytes;
using Json = nlohmann::ordered_json;

/// A folder of images in three classes that differ in which rows are bright: 48 to train on, 11 to evaluate.
class TrainOnData : public baton::test::Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    std::mt19937 random(9);
    for (const auto& [name, count] : {std::pair("train", 48U), std::pair("t10k", 11U)}) {
      std::string pixels;
      std::string labels;
      for (std::uint32_t i = 0; i < count; ++i) {
        labels += static_cast<char>(random() % 3);
        for (std::uint32_t at = 0; at < 36; ++at) {
          pixels += static_cast<char>((at / 12 == static_cast<std::uint32_t>(labels.back()) ? 120U : 0U) + random() % 120);
        }
      }
      write_bytes(folder_ / "images" / (std::string(name) + "-images-idx3-ubyte"), idx({count, 6, 6}, pixels));
      write_bytes(folder_ / "images" / (std::string(name) + "-labels-idx1-ubyte"), idx({count}, labels));
    }
  }

  static constexpr const char* job = "train --model cnn:4,image=6,channels=1,classes=3 --data images --batch 8 --lr 0.1 ";

  Json trained(const std::string& flags) const {
    const Outcome outcome = run(job + flags + " --json -");
    EXPECT_EQ(outcome.code, 0) << flags << ": " << outcome.err;
    return outcome.code == 0 ? Json::parse(outcome.out) : Json();
  }
};

TEST_F(TrainOnData, ThePageSaysOnceHowGoodItIsAndThatTheLossRoseAgain) {
  std::string labels = contents(folder_ / "images" / "train-labels-idx1-ubyte");
  for (auto label = labels.end() - 48; label != labels.end(); ++label) {
    *label = static_cast<char>((*label + 1) % 3);
  }
  write_bytes(folder_ / "wrong" / "t10k-labels-idx1-ubyte", labels);
  std::filesystem::copy_file(folder_ / "images" / "train-images-idx3-ubyte", folder_ / "wrong" / "t10k-images-idx3-ubyte");
  ASSERT_EQ(run(std::string(job) + "--steps 60 --eval-every 6 --eval-data wrong --report page.html -q").code, 0);
  const std::string page = contents(folder_ / "page.html");
  const std::size_t at = page.find("How good is it?");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(page.find("How good is it?", at + 1), std::string::npos);
  EXPECT_NE(page.find("it rose since: the model overfits"), std::string::npos) << page.substr(at, 300);
}

TEST_F(TrainOnData, ANoteSaysThatTheModelHasMoreClasses) {
  const Outcome more = run("train --model cnn:4,image=6,channels=1,classes=5 --data images --batch 8 --steps 2 --warmup 0 -q");
  EXPECT_NE(more.out.find("note: the data has 3 classes, the model 5\n"), std::string::npos) << more.out;
  EXPECT_EQ(run(std::string(job) + "--steps 2 --warmup 0 -q").out.find("classes, the model"), std::string::npos);
}

TEST_F(TrainOnData, AModelThatLeavesItsVocabularyOpenTakesThatOfTheData) {
  write_bytes(folder_ / "abc.txt", "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc\n");
  const std::string flags = " --data abc.txt --tokenizer chars --batch 2 --steps 6 --json -";
  const Outcome open = run("train --model gpt:depth=1,heads=1,dim=4,context=4" + flags);
  ASSERT_EQ(open.code, 0) << open.err;
  EXPECT_EQ(Json::parse(open.out)["model"], "gpt:depth=1,heads=1,dim=4,context=4,vocab=4");
  const Outcome given = run("train --model gpt:depth=1,heads=1,dim=4,context=4,vocab=4" + flags);
  EXPECT_EQ(Json::parse(open.out)["losses"], Json::parse(given.out)["losses"]);
  const Outcome random = run("train --model gpt:depth=1,heads=1,dim=4,context=4");
  EXPECT_EQ(random.code, 2);
  EXPECT_NE(random.err.find("needs vocab"), std::string::npos) << random.err;
}

TEST_F(TrainOnData, EvaluatesOnTheTestPartOfTheFolderWithoutAFurtherFlag) {
  const Json result = trained("--epochs 3");
  EXPECT_EQ(result["steps"], 18);
  EXPECT_EQ(result["steps_per_epoch"], 6);
  EXPECT_EQ(result["eval_step"], Json({6, 12, 18}));
  ASSERT_EQ(result["eval_loss"].size(), 3U);
  ASSERT_EQ(result["eval_accuracy"].size(), 3U);
  EXPECT_GT(result["eval_accuracy"][2], 0.5);
  EXPECT_TRUE(result["eval_perplexity"][0].is_null());
  EXPECT_EQ(trained("--steps 9 --eval-every 4")["eval_step"], Json({4, 8, 9}));
  EXPECT_EQ(trained("--steps 7")["losses"].size(), 7U);
  EXPECT_EQ(trained("")["losses"].size(), 6U) << "one epoch where nothing is said";
  EXPECT_TRUE(Json::parse(run("train --model mlp:4-3 --steps 6 --json -").out)["eval_loss"].empty());
}

TEST_F(TrainOnData, WritesItsLinesWhileItRunsAndAPageAtTheEnd) {
  const Outcome outcome = run(std::string(job) +
                              "--epochs 2 --log-every 4 --csv log.csv --json-lines log.jsonl --report page.html");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("samples/s"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("time left"), std::string::npos);
  EXPECT_NE(outcome.out.find("accuracy"), std::string::npos);
  std::istringstream lines(contents(folder_ / "log.jsonl"));
  std::vector<std::int64_t> steps;
  std::size_t evaluations = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    entry["loss"].is_null() ? ++evaluations : (steps.push_back(entry["step"]), std::size_t{});
    EXPECT_TRUE(entry["loss"].is_null() != entry["eval_loss"].is_null()) << line;
    EXPECT_TRUE(entry["loss"].is_null() || entry["lr"] == 0.1) << line;
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 8, 12}));
  EXPECT_EQ(evaluations, 2U);
  const std::string csv = contents(folder_ / "log.csv");
  EXPECT_TRUE(csv.starts_with("step,epoch,loss,lr,")) << csv;
  const std::string heading = csv.substr(0, csv.find('\n'));
  for (const char* column : {",trained_model,", ",trained_batch,", ",trained_strategy,", ",trained_lr,", ",trained_seed,"}) {
    EXPECT_NE(heading.find(column), std::string::npos) << column;
  }
  EXPECT_NE(csv.find(",\"cnn:4,image=6,channels=1,classes=3\","), std::string::npos) << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 6);
  const std::string page = contents(folder_ / "page.html");
  for (const char* words : {"<html", "Training of cnn:4", "eval_accuracy"}) {
    EXPECT_NE(page.find(words), std::string::npos) << words;
  }
}

TEST_F(TrainOnData, LoadsBesideTheStepWhichPlanAndTraceShow) {
  const Outcome plan = run(
      "plan --model cnn:4,image=6,channels=1,classes=3 --data images --batch 8 --text --strategy ddp --devices cpu:2");
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("d1 host forward load"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("d1 compute forward take"), std::string::npos);
  EXPECT_EQ(run("plan --model mlp:4-3 --text").out.find(" load"), std::string::npos) << "plans without data are as they were";
  const Json result = trained("--steps 8 --trace trace.json");
  EXPECT_GE(result["device_list"][0]["loading"], 0.0);
  EXPECT_GE(result["data_wait_ns"], 0);
  const std::string trace = contents(folder_ / "trace.json");
  EXPECT_NE(trace.find("\"load\""), std::string::npos);
  EXPECT_NE(trace.find("host"), std::string::npos);
}

TEST_F(TrainOnData, GoesOnWithTheNextSampleUnderAnotherStrategy) {
  const Json whole = trained("--epochs 3");
  trained("--steps 8 --checkpoint kept");
  const Json rest = trained("--steps 18 --checkpoint kept --resume --strategy ddp --devices cpu:2");
  ASSERT_EQ(rest["losses"].size(), 10U);
  for (std::size_t s = 0; s < 10; ++s) {
    EXPECT_NEAR(rest["losses"][s].get<double>(), whole["losses"][8 + s].get<double>(), 1e-4);
  }
  EXPECT_NEAR(rest["eval_loss"].back().get<double>(), whole["eval_loss"].back().get<double>(), 1e-3);
  EXPECT_EQ(rest["eval_step"], Json({12, 18}));
}

TEST_F(TrainOnData, KeepsItsPlaceInTheDataOnResume) {
  trained("--steps 8 --checkpoint kept");
  const Outcome outcome = run(
      "train --model cnn:4,image=6,channels=1,classes=3 --data images --batch 4 --lr 0.1 --steps 18 --checkpoint kept --resume");
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_NE(outcome.err.find("keep --batch 8"), std::string::npos) << outcome.err;
}

TEST_F(TrainOnData, RowsThatCannotBeReadEndATrainingWithTheirSentenceAndKeepTheStepsBefore) {
  std::vector<std::uint16_t> tokens(401);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(i * 7 % 11 % 8);
  }
  tokens[222] = 900;  // above the vocabulary, in one sample of a hundred
  write_bytes(folder_ / "train.bin", baton::test::packed(tokens));
  const std::string gpt =
      "train --model gpt:depth=1,heads=1,dim=8,context=4,vocab=8 --data train.bin --token-type uint16 --batch 4 -q ";
  const Outcome outcome = run(gpt + "--epochs 1 --warmup 0 --checkpoint kept --json r.json");
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find("900"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("train.bin"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("interrupted"), std::string::npos) << outcome.err;
  const auto steps = Json::parse(contents(folder_ / "r.json"))["steps"].get<int>();
  ASSERT_GT(steps, 0);
  ASSERT_LT(steps, 25);
  const std::string kept = fmt::format("kept/step-{:012}.safetensors", steps);
  EXPECT_TRUE(std::filesystem::exists(folder_ / kept)) << "the state before the step";
  EXPECT_NE(outcome.err.find(kept), std::string::npos) << outcome.err;

  const Outcome again = run(gpt + "--steps 25 --warmup 0 --checkpoint kept --resume --json again.json");
  EXPECT_EQ(again.code, 2) << "no step could be made";
  EXPECT_NE(again.err.find("900"), std::string::npos) << again.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "again.json"));
  tokens[222] = 0;
  write_bytes(folder_ / "train.bin", baton::test::packed(tokens));
  EXPECT_EQ(run(gpt + "--steps 25 --warmup 0 --checkpoint kept --resume").code, 0);
}

TEST_F(TrainOnData, AHeaderCountsMoreThanATokenTypeThatWasGivenForOtherData) {
  std::vector<std::uint16_t> tokens(101);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(i % 8);
  }
  const std::vector<std::uint32_t> wide(tokens.begin(), tokens.end());
  write_bytes(folder_ / "wide.bin", baton::test::packed(wide));
  write_bytes(folder_ / "val.bin", baton::test::llmc_shard(tokens, 20240520, 1));
  const std::string gpt = "--model gpt:depth=1,heads=1,dim=8,context=4,vocab=8 --batch 4 ";
  const Outcome trained = run("train " + gpt +
                              "--data wide.bin --token-type uint32 --eval-data val.bin --steps 4 --checkpoint kept -q");
  EXPECT_EQ(trained.code, 0) << trained.err;
  const Outcome evaluated = run("evaluate --checkpoint kept --data val.bin");
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  const Outcome refused = run("evaluate --checkpoint kept --data val.bin --token-type uint32");
  EXPECT_EQ(refused.code, 2) << "given for this very data";
  EXPECT_NE(refused.err.find("leave it out"), std::string::npos) << refused.err;
}

TEST_F(TrainOnData, ACheckpointOfAnotherNetworkIsRefused) {
  trained("--steps 2 --checkpoint kept");
  const Outcome other = run(
      "train --model cnn:5,image=6,channels=1,classes=3 --data images --batch 8 --lr 0.1 --steps 4 --checkpoint kept --resume");
  EXPECT_EQ(other.code, 2) << other.out;
  EXPECT_NE(other.err.find("but this run is of cnn:5"), std::string::npos) << other.err;
}

TEST_F(TrainOnData, SaysWhereADivergenceBegan) {
  const Outcome outcome = run("train --model cnn:4,image=6,channels=1,classes=3 --data images --batch 8 --lr 1e6 --steps 30");
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_NE(outcome.err.find("try a smaller --lr"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("bug in baton"), std::string::npos) << outcome.err;
}

TEST_F(TrainOnData, TokensOfAnotherTokenizerAreNotTakenForTheModels) {
  write_bytes(folder_ / "low.txt", "abcabcabcbacbacbabcabcaabbccabcabc abcabc\nabcabcabcbacb");
  write_bytes(folder_ / "up.txt", "ABCABCABCBACBACBABCABCAABBCCABCABC ABCABC\nABCABCABCBACB");
  const std::string model = "--model gpt:depth=1,heads=1,dim=8,context=4,vocab=5 --batch 2 ";
  const Outcome first = run("train " + model + "--data low.txt --tokenizer chars --steps 6 --checkpoint kept");
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string tokenizer = contents(folder_ / "kept" / "tokens.tokenizer");
  const Outcome resumed = run("train " + model + "--data up.txt --tokenizer chars --steps 8 --checkpoint kept --resume");
  EXPECT_NE(resumed.code, 0);
  EXPECT_NE(resumed.err.find("another tokenizer"), std::string::npos) << resumed.err;
  EXPECT_EQ(contents(folder_ / "kept" / "tokens.tokenizer"), tokenizer);
  ASSERT_EQ(run("tokens up.txt --tokenizer chars --out up.bin").code, 0);
  const Outcome evaluated = run("evaluate --checkpoint kept --data up.bin");
  EXPECT_NE(evaluated.code, 0) << evaluated.out;
  EXPECT_NE(evaluated.err.find("another tokenizer"), std::string::npos) << evaluated.err;
}

TEST_F(TrainOnData, KeepsTheBestCheckpointAndEvaluatesIt) {
  const Json result = trained("--steps 12 --eval-every 3 --checkpoint kept --keep-best");
  const std::vector<double> losses = result["eval_loss"];
  const auto best = std::min_element(losses.begin(), losses.end()) - losses.begin();
  for (const auto& [path, wanted] :
       {std::pair("kept", losses.size() - 1), std::pair("kept/best.safetensors", static_cast<std::size_t>(best))}) {
    for (const char* where : {"", " --strategy ddp --devices cpu:2", " --batch 5", " --strategy 1f1b --devices cpu:2"}) {
      const Outcome outcome = run(fmt::format("evaluate --checkpoint {} --data images{} --json -", path, where));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json evaluation = Json::parse(outcome.out);
      EXPECT_NEAR(evaluation["eval_loss"].get<double>(), losses[wanted], 1e-5) << path << where;
      EXPECT_EQ(evaluation["samples"], 11);
      EXPECT_EQ(evaluation["step"], result["eval_step"][wanted]);
    }
  }
  EXPECT_NE(run("evaluate --checkpoint kept --data images").out.find("accuracy"), std::string::npos);
}

TEST_F(TrainOnData, CountsEveryStepOfAShortTrainingAndOfAShortResume) {
  EXPECT_EQ(trained("--steps 3 --checkpoint kept")["losses"].size(), 3U);
  const Outcome outcome = run(std::string(job) + "--steps 4 --checkpoint kept --resume");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Loss "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("Evaluation at step 4 on 11 samples"), std::string::npos) << outcome.out;
}

TEST_F(TrainOnData, KeepsTheLinesOfAllRunsBesideTheCheckpointsForThePage) {
  trained("--steps 8 --log-every 2 --checkpoint kept");
  trained("--steps 12 --log-every 2 --checkpoint kept --resume --report page.html");
  std::istringstream lines(contents(folder_ / "kept" / "log.jsonl"));
  std::vector<std::int64_t> steps;
  std::vector<std::int64_t> evaluated;
  double seconds = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    (entry["loss"].is_null() ? evaluated : steps).push_back(entry["step"]);
    EXPECT_GE(entry["seconds"], seconds);
    seconds = entry["seconds"];
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{6, 8, 12}));
  const std::string page = contents(folder_ / "page.html");
  for (const char* words : {"\"plots_first\":true", "\"preset\":\"\"", "\"step\":2,"}) {
    EXPECT_NE(page.find(words), std::string::npos) << words;
  }
  for (const char* words : {"\"title\":\"One step\"", "\"time_per_step_ns\":", "\"trained\":", "\"title\":\"Devices\"",
                            "\"device\":\"cpu:0\"", "\"events\":[{", "\"duration_ns\":"}) {
    EXPECT_NE(page.find(words), std::string::npos) << words << ": the record of a step and its timeline";
  }
}

TEST_F(TrainOnData, MakesAnEvaluationAgainThatWasNotFinished) {
  const Json whole = trained("--steps 6 --checkpoint kept");
  std::istringstream lines(contents(folder_ / "kept" / "log.jsonl"));
  std::string without;
  for (std::string line; std::getline(lines, line);) {
    without += Json::parse(line)["eval_loss"].is_null() ? line + "\n" : "";
  }
  write_bytes(folder_ / "kept" / "log.jsonl", without + "{\"step\": 6, \"los");
  const Json again = trained("--steps 6 --checkpoint kept --resume");
  EXPECT_EQ(again["losses"].size(), 0U);
  EXPECT_EQ(again["eval_step"], Json({6}));
  EXPECT_EQ(again["eval_loss"], whole["eval_loss"]);
  const Outcome third = run(std::string(job) + "--steps 6 --checkpoint kept --resume");
  EXPECT_EQ(third.code, 2);
  EXPECT_NE(third.err.find("already at step 6"), std::string::npos) << third.err;
}

TEST_F(TrainOnData, SaysThatAnEvaluationWasInterrupted) {
  std::string inputs;
  std::string labels;
  for (std::uint32_t i = 0; i < 60000; ++i) {
    labels += static_cast<char>(i % 3);
    inputs += std::string(36, static_cast<char>(i % 251));
  }
  write_bytes(folder_ / "many" / "t10k-images-idx3-ubyte", idx({60000, 6, 6}, inputs));
  write_bytes(folder_ / "many" / "t10k-labels-idx1-ubyte", idx({60000}, labels));
  const std::string command = fmt::format("'{}' {} --steps 2 --eval-data many --backend reference --checkpoint kept -q",
                                          BATON_PROGRAM, job);
  // It is in the evaluation once there is a checkpoint of the last step.
  const std::string script = fmt::format(
      "cd '{}' && {{ {} >out 2>err </dev/null & p=$!; for i in $(seq 600); do ls kept 2>/dev/null | grep -q 000002.safetensors && "
      "break; sleep 0.05; done; kill -TERM $p; wait $p; }}",
      folder_.string(), command);
  const int status = std::system(script.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 143);
  const std::string err = contents(folder_ / "err");
  EXPECT_NE(err.find("the evaluation at step 2 was interrupted"), std::string::npos) << err;
}

TEST_F(TrainOnData, SaysWhatChangesTheCourseOfTheTraining) {
  write_bytes(folder_ / "text.txt", std::string(400, 'a') + std::string(100, 'b'));
  const std::string gpt = "train --data text.txt --batch 2 --checkpoint text --model gpt:depth=1,heads=1,dim=8,context=4,vocab=256";
  ASSERT_EQ(run(gpt + " --steps 2").code, 0);
  const Outcome resumed = run(gpt + ",dropout=0.1 --steps 4 --resume");
  EXPECT_NE(resumed.out.find("note: --model was gpt:"), std::string::npos) << resumed.out << resumed.err;
  EXPECT_NE(resumed.out.find("dropout=0.1 since that checkpoint"), std::string::npos) << resumed.out;
  const Outcome ends = run(std::string(job) + "--steps 12 --lr-schedule cosine:until=8");
  EXPECT_NE(ends.out.find("note: the learning rate is 0 from step 8 on, so the last 5 of 12 steps"), std::string::npos) << ends.out;
  EXPECT_EQ(run(std::string(job) + "--steps 8 --lr-schedule cosine:until=8").out.find("the learning rate is 0"), std::string::npos);
  EXPECT_EQ(trained("--steps 2 --optimizer adamw")["settings"]["weight-decay"], 0.01);
  const Outcome best = run(std::string(job) + "--steps 6 --checkpoint best --keep-best");
  EXPECT_NE(best.out.find("Best: step 6 with loss "), std::string::npos) << best.out;
  EXPECT_NE(best.out.find("in best/best.safetensors"), std::string::npos) << best.out;
}

TEST_F(TrainOnData, SaysWhatToGiveInstead) {
  write_bytes(folder_ / "empty.txt", "");
  write_bytes(folder_ / "some.txt", std::string(400, 'a'));
  write_bytes(folder_ / "file", "x");
  const std::string gpt = "--batch 2 --model gpt:depth=1,heads=1,dim=8,context=4,vocab=9";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"train --data empty.txt " + gpt, "it is empty"},
      {"train --data empty.txt --tokenizer chars " + gpt, "it is empty"},
      {"train --data some.txt " + gpt, "--tokenizer chars"},
      {std::string(job) + "--checkpoint file", "file is a file, but train keeps its checkpoints in a folder: give a new one"},
      {"pytorch --data images", "--write-start"},
      {"models nope", "the kinds are mlp, "},
      {"models resnet51", "resnet50"},
  };
  for (const auto& [command, words] : cases) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << command << ": " << outcome.err;
    EXPECT_LT(outcome.err.size(), 300U) << outcome.err;
  }
  const std::string help = run("evaluate --help").out;
  EXPECT_EQ(help.find("mlp:dim"), std::string::npos) << help;
  EXPECT_EQ(help.find("NAME=fp32"), std::string::npos) << help;
}

TEST_F(TrainOnData, SaysHowToGoOnAfterAnInterrupt) {
  const std::string script = fmt::format("timeout --signal=INT 1 '{}' {} --epochs 100000 --checkpoint kept -q", BATON_PROGRAM, job);
  const int status = std::system(fmt::format("cd '{}' && {} >out 2>err </dev/null", folder_.string(), script).c_str());
  EXPECT_NE(status, 0);
  const std::string err = contents(folder_ / "err");
  EXPECT_NE(err.find("continue with: "), std::string::npos) << err;
  EXPECT_NE(err.find("--resume"), std::string::npos) << err;
}

TEST_F(TrainOnData, RefusesWhatDoesNotFitInOneSentence) {
  const std::vector<std::string> refused{
      "train --data images --model mlp:35-3 --loss cross-entropy",
      "train --data images --model cnn:4,image=6,channels=1,classes=2 --batch 8",
      "train --data images --model gpt:depth=1,heads=1,dim=8,context=4,vocab=9 --batch 8",
      std::string(job) + "--batch 49",
      std::string(job) + "--epochs 0",
      std::string(job) + "--epochs nothing",
      std::string(job) + "--epochs 2 --steps 10",
      std::string(job) + "--samples 100",
      std::string(job) + "--eval-every 0",
      std::string(job) + "--eval-data nowhere",
      std::string(job) + "--keep-best",
      std::string(job) + "--tokenizer chars --normalize none,none",
      std::string(job) + "--log-every -1",
      std::string(job) + "--csv nowhere/log.csv",
      "train --model mlp:4-3 --epochs 2",
      "train --model mlp:4-3 --eval-data images",
      "train --model mlp:4-3 --keep-best --checkpoint kept",
      "train --model mlp:4-3 --normalize mnist",
      "train --data nowhere",
      "simulate --data images --cluster dgx-a100",
      "predict --data images",
      "evaluate --data images",
      "evaluate --checkpoint nowhere --data images",
      "evaluate --checkpoint images --data images",
  };
  for (const std::string& command : refused) {
    const Outcome outcome = run(command);
    EXPECT_NE(outcome.code, 0) << command;
    EXPECT_FALSE(outcome.err.empty()) << command;
    EXPECT_LE(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << command << ": " << outcome.err;
    EXPECT_EQ(outcome.err.find("bug"), std::string::npos) << outcome.err;
  }
}

TEST_F(TrainOnData, FlagsDrawnAtRandomTrainOrAreRefusedInOneSentence) {
  std::mt19937 random(23);
  const std::vector<std::vector<std::string>> drawn{
      {"", "", "--strategy ddp --devices cpu:2", "--strategy 1f1b --devices cpu:2", "--strategy zero-3 --devices cpu:2",
       "--strategy layers --devices cpu:2", "--strategy tensor --devices cpu:2", "--strategy dp --devices cpu:2"},
      {"", "--epochs 1.5", "--epochs 1", "--steps 7", "--steps 3"},
      {"", "--eval-every 2", "--eval-every 100", "--eval-data images"},
      {"", "", "--micro-batches 2", "--micro-batches 9"},
      {"", "--batch 5", "--batch 48", "--batch 1000"},
      {"", "--augment flip", "--augment crop=1,flip", "--augment crop=-1"},
      {"", "--normalize none", "--normalize 0.3/0.2", "--normalize 0/0"},
      {"", "--precision bf16", "--optimizer adam --lr-schedule cosine:until=6"},
      {"", "--log-every 2", "--json-lines log.jsonl"}};
  int trained = 0;
  for (int i = 0; i < 30; ++i) {
    std::string flags = std::string(job) + "-q --json -";
    for (const std::vector<std::string>& list : drawn) {
      flags += " " + list[random() % list.size()];
    }
    const Outcome outcome = run(flags);
    if (outcome.code == 0) {
      ++trained;
      const Json result = Json::parse(outcome.out);
      EXPECT_EQ(result["eval_loss"].size(), result["eval_step"].size());
      EXPECT_EQ(result["eval_step"].back(), result["steps"]) << flags;
      EXPECT_TRUE(std::isfinite(result["eval_loss"].back().get<double>())) << flags;
    } else {
      EXPECT_EQ(outcome.code, 2) << flags << ": " << outcome.err;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << flags << ": " << outcome.err;
    }
  }
  EXPECT_GT(trained, 3);
}

}  // namespace
