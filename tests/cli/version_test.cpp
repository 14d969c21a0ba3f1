/// What version 0.1.0 wrote is read, or left with a sentence that says why.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "baton/archive/safetensors.h"
#include "cli/program.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using baton::test::Cli;
using baton::test::contents;
using baton::test::Outcome;

/// The header of a checkpoint as 0.1.0 wrote it. What has changed since: today there are ten more settings (`flag.clip`,
/// `flag.decay`, `flag.label-smoothing`, ...), which then did not exist; parameters of networks that 0.1.0 did not have go by
/// Hugging Face's names. A checkpoint does not say by which version it was written.
const std::string header =
    R"({"__metadata__":{"baton.checksum":"06522e2f0a7a214b","flag.batch":"4","flag.loss":"mse","flag.loss-scale":"",)"
    R"("flag.loss-scale-growth":"2000","flag.lr":"1e-12","flag.momentum":"","flag.precision":"fp32","flag.samples":"0",)"
    R"("flag.weight-decay":"","format":"pt","model":"mlp:2-3-1","optimizer":"momentum","seed":"0","step":"3"},)"
    R"("block0.bias":{"data_offsets":[0,12],"dtype":"F32","shape":[3]},)"
    R"("block0.weight":{"data_offsets":[12,36],"dtype":"F32","shape":[3,2]},)"
    R"("block1.bias":{"data_offsets":[36,40],"dtype":"F32","shape":[1]},)"
    R"("block1.weight":{"data_offsets":[40,52],"dtype":"F32","shape":[1,3]},)"
    R"("optimizer.0.block0.bias":{"data_offsets":[52,64],"dtype":"F32","shape":[3]},)"
    R"("optimizer.0.block0.weight":{"data_offsets":[64,88],"dtype":"F32","shape":[3,2]},)"
    R"("optimizer.0.block1.bias":{"data_offsets":[88,92],"dtype":"F32","shape":[1]},)"
    R"("optimizer.0.block1.weight":{"data_offsets":[92,104],"dtype":"F32","shape":[1,3]}})";

/// Parameters are 0, 1/8, 2/8, ... in the order of the header; the optimizer's state is zero.
std::vector<float> numbers() {
  std::vector<float> all(26, 0.0F);
  for (std::size_t i = 0; i < 13; ++i) {
    all[i] = static_cast<float>(i) / 8;
  }
  return all;
}

void write_checkpoint(const fs::path& path) {
  std::string text = header;
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  const std::vector<float> all = numbers();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << text;
  file.write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size() * sizeof all[0]));
}

const std::string trains = "train --model mlp:2-3-1 --batch 4 --steps 5 --warmup 0 -q --checkpoint kept --resume ";

TEST_F(Cli, ResumesFromACheckpointOfVersion010) {
  fs::create_directories(folder_ / "kept");
  write_checkpoint(folder_ / "kept/step-000000000003.safetensors");
  // A rate so small that no weight changes: what is saved are the weights that were read.
  const Outcome outcome = run(trains + "--optimizer momentum --lr 1e-12 --json r.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "") << "settings that 0.1.0 did not have are no difference";
  const json result = json::parse(contents(folder_ / "r.json"));
  EXPECT_EQ(result["steps_before"], 3);
  EXPECT_EQ(result["steps"], 2);
  const baton::archive::ArchiveReader saved(folder_ / "kept/step-000000000005.safetensors");
  std::array<float, 6> weight{};
  saved.read("block0.weight", std::as_writable_bytes(std::span(weight)));
  const std::vector<float> all = numbers();
  EXPECT_TRUE(std::equal(weight.begin(), weight.end(), all.begin() + 3));
}

TEST_F(Cli, SaysInWhatACheckpointOfVersion010DiffersFromTheRun) {
  fs::create_directories(folder_ / "kept");
  write_checkpoint(folder_ / "kept/step-000000000003.safetensors");
  const Outcome changed = run(trains + "--optimizer momentum --lr 0.5");
  EXPECT_EQ(changed.code, 0);
  EXPECT_NE((changed.out + changed.err).find("--lr was 1e-12 and is 0.5"), std::string::npos) << changed.out << changed.err;
  fs::remove(folder_ / "kept/step-000000000005.safetensors");
  const Outcome refused = run(trains + "--optimizer adam");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err, "baton: the checkpoint was trained with --optimizer momentum, but this run has adam\n");
}

/// The folder of a run as 0.1.0 left it, in tests/cli/version_0_1_0. What has changed since: neither the spec nor the lines of
/// records have a `basis`, which says what numbers depend on; records have no instances (`instances`, `instance_times_ns`,
/// `interval_level`, `smallest_difference`) but `rounds`, and devices no `loading`.
class LabOfVersion010 : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    fs::create_directories(folder_ / "runs");
    fs::copy(fs::path(BATON_TEST_DATA) / "cli/version_0_1_0", folder_ / old_);
  }

  const std::string old_ = "runs/20261115-180000-strong-scaling";
};

TEST_F(LabOfVersion010, IsReported) {
  const Outcome outcome = run("report " + old_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out.find("1.76 times as fast as 1, where 2 times would be linear"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("one instance says nothing about the noise"), std::string::npos) << outcome.out;
  EXPECT_TRUE(fs::exists(folder_ / old_ / "report.html"));
}

TEST_F(LabOfVersion010, IsNotResumedAndTheNoteSaysSo) {
  const std::string before = contents(folder_ / old_ / "strong-scaling.jsonl");
  const Outcome outcome = run(
      "lab run strong-scaling --set model=mlp:8-8 --set batch=8 --set devices=1 --time-limit 100ms --resume");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("note: " + old_ +
                             " is left as it is, because it was measured with another version (an earlier one, which did not say "
                             "what its numbers depend on): a new run begins\n"),
            std::string::npos)
      << outcome.out;
  EXPECT_EQ(contents(folder_ / old_ / "strong-scaling.jsonl"), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "runs"), fs::directory_iterator()), 2);
}

}  // namespace
