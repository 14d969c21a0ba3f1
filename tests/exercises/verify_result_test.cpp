/// A result can be trained again: what agrees is told, and what was changed is found.

#include <fstream>
#include <map>

#include "baton/job/json.h"
#include "program.h"
#include "support/variable.h"

namespace baton::test {
namespace {

class VerifyResult : public Cli {
 protected:
  job::Json train(const std::string& flags, const std::string& model = "mlp:dim=16,depth=3") const {
    const Outcome outcome = run("train -q --model " + model + " --batch 12 --steps 8 --json result.json " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return job::Json::parse(contents(folder_ / "result.json"));
  }
  Outcome verify(const job::Json& result) const {
    std::ofstream(folder_ / "result.json") << result.dump();
    return run("verify-result result.json");
  }
};

TEST_F(VerifyResult, AgreesBitByBitWithWhatWasTrainedHere) {
  for (const char* flags : {"", "--strategy ddp --devices cpu:3 --seed 7", "--strategy 1f1b --devices cpu:2 --optimizer adam",
                            "--precision bf16 --strategy layers --devices cpu:2", "--precision fp16 --warmup 0 --samples 24"}) {
    const Outcome outcome = verify(train(flags));
    EXPECT_EQ(outcome.code, 0) << flags << ": " << outcome.out << outcome.err;
    EXPECT_EQ(outcome.out, "Yes: the losses of all 8 steps are the same bit by bit when the training is repeated.\n") << flags;
  }
}

TEST_F(VerifyResult, FindsALossThatWasChangedAndSaysByHowMuch) {
  job::Json result = train("--strategy ddp --devices cpu:2");
  result["losses"][5] = result["losses"][5].get<double>() * (1 + 3e-6);
  const Outcome outcome = verify(result);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out,
            "No: 1 of 8 losses have other bits, from step 6 on, by at most 3e-06 of their size when the training is repeated, and "
            "they should be the same bit by bit.\n");
}

TEST_F(VerifyResult, FindsLossesOfAnotherSeedOrSetting) {
  job::Json result = train("--seed 3");
  result["seed"] = 4;
  EXPECT_NE(verify(result).err.find("says that its seed is 4, and its settings say 3"), std::string::npos);
  result["settings"]["seed"] = 4;
  const Outcome outcome = verify(result);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("No: 8 of 8 losses have other bits, from step 1 on"), std::string::npos) << outcome.out;
}

/// Its losses differ between emulation and tiles in a few of eight steps, in the sixth digit.
constexpr const char* gpt = "gpt:depth=1,heads=2,dim=32,context=8,vocab=40";

void change(job::Json& loss) { loss = loss.get<double>() * 1.003; }

TEST_F(VerifyResult, AllowsOneRoundingIfExactlyOneOfTheTwoWasEmulated) {
  const auto trained_by = [&](const char* word) {
    const Variable variable("BATON_AMX", word);
    return train("--precision bf16", gpt);
  };
  const auto verified_by = [&](const char* word, const job::Json& result) {
    const Variable variable("BATON_AMX", word);
    return verify(result);
  };
  job::Json emulated = trained_by("off");
  EXPECT_EQ(emulated["arithmetic"], "emulation");
  const Outcome near = verified_by("portable", emulated);
  EXPECT_EQ(near.code, 0) << near.out << near.err;
  EXPECT_NE(
      near.out.find("up to 0.00390625 is allowed, because it was computed by emulation, and here bf16 is computed by portable"),
      std::string::npos)
      << near.out;
  EXPECT_EQ(verified_by("off", emulated).code, 0);
  job::Json before = emulated;  // a result made before it was said
  before.erase("arithmetic");
  EXPECT_NE(verified_by("off", before).out.find("the same bit by bit"), std::string::npos);
  EXPECT_EQ(verified_by("portable", before).code, 0);
  emulated["losses"][3] = emulated["losses"][3].get<double>() * 1.02;
  EXPECT_EQ(verified_by("portable", emulated).code, 1);

  job::Json tiles = trained_by("portable");
  EXPECT_EQ(tiles["arithmetic"], "portable");
  for (const char* unit : {"portable", "amx"}) {  // the same bits, so that no other are allowed
    job::Json result = tiles;
    result["arithmetic"] = unit;
    const Outcome same = verified_by("portable", result);
    EXPECT_EQ(same.out, "Yes: the losses of all 8 steps are the same bit by bit when the training is repeated.\n") << same.err;
    change(result["losses"][5]);
    const Outcome changed = verified_by("portable", result);
    EXPECT_EQ(changed.code, 1) << unit;
    EXPECT_NE(changed.out.find("No: 1 of 8 losses have other bits"), std::string::npos) << changed.out;
  }
}

TEST_F(VerifyResult, NoUnitThatAResultMakesUpAllowsOtherLosses) {
  const Variable variable("BATON_AMX", "off");
  const auto refused = [&](const job::Json& result, const std::string& words) {
    const Outcome outcome = verify(result);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  };
  job::Json plain = train("");
  EXPECT_FALSE(plain.contains("arithmetic"));
  change(plain["losses"][2]);
  EXPECT_EQ(verify(plain).code, 1);
  plain["arithmetic"] = "";
  EXPECT_EQ(verify(plain).code, 1);
  for (const char* unit : {"amx", "emulation", "pen and paper"}) {
    plain["arithmetic"] = unit;
    refused(plain, "the result says that its arithmetic is \"" + std::string(unit) + "\", and with its settings no unit affects");
  }
  job::Json narrow = train("--precision bf16");
  change(narrow["losses"][2]);
  EXPECT_EQ(verify(narrow).code, 1);
  for (const char* unit : {"", "AMX", "pen and paper"}) {
    narrow["arithmetic"] = unit;
    refused(narrow, "the result says that its arithmetic is \"" + std::string(unit) + "\", and bf16 on cores is computed by amx, ");
  }
  for (job::Json* result : {&plain, &narrow}) {
    (*result)["arithmetic"] = 3;
    refused(*result, "the arithmetic of the result is not a text");
  }
}

TEST_F(VerifyResult, RefusesAClaimAboutTheJobThatItsSettingsDoNotGive) {
  const Variable variable("BATON_AMX", "off");  // so that bf16 has the same bits on every processor
  const job::Json result = train("");
  for (const auto& [key, claim] : std::map<std::string, job::Json>{{"precision", "bf16"},
                                                                   {"model", "mlp:dim=2048,depth=8"},
                                                                   {"strategy", "ddp"},
                                                                   {"optimizer", "adam"},
                                                                   {"global_batch", 4096}}) {
    job::Json changed = result;
    changed[key] = claim;
    const Outcome outcome = verify(changed);
    EXPECT_EQ(outcome.code, 2) << key;
    EXPECT_NE(outcome.err.find("the result says that its " + key + " is " + claim.dump() + ", and its settings give "),
              std::string::npos)
        << outcome.err;
  }
  job::Json both = result;  // another training, of which these are not the losses
  both["precision"] = both["settings"]["precision"] = "bf16";
  const Outcome outcome = verify(both);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("No: 8 of 8 losses have other bits"), std::string::npos) << outcome.out;
}

TEST_F(VerifyResult, AllowsATenThousandthForWhatAGpuComputed) {
  job::Json result = train("--devices cpu:2 --strategy ddp");
  result["settings"]["devices"] = "cuda:0/2";
  result["gpu"] = "NVIDIA H200";
  for (job::Json& loss : result["losses"]) {
    loss = loss.get<double>() * (1 + 2e-5);
  }
  if (run("train -q --devices cuda --steps 1 --warmup 0").code == 0) {
    GTEST_SKIP() << "there is a GPU here, on which this would be trained again";
  }
  const Outcome close = verify(result);
  EXPECT_EQ(close.code, 0) << close.out << close.err;
  EXPECT_NE(close.out.find("up to 0.0001 is allowed, because it was computed on NVIDIA H200, and here there are CPUs only"),
            std::string::npos)
      << close.out;
  result["losses"][2] = result["losses"][2].get<double>() * 1.001;
  EXPECT_EQ(verify(result).code, 1);
}

TEST_F(VerifyResult, RefusesInASentenceWhatCannotBeDoneAgain) {
  job::Json result = train("");
  const auto refused = [&](const job::Json& changed, const std::string& words) {
    const Outcome outcome = verify(changed);
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  };
  job::Json shorter = result;
  shorter["losses"].erase(7);
  refused(shorter, "it has 8 steps, but has 7 losses");
  job::Json continued = result;
  continued["steps_before"] = 5;
  refused(continued, "continues a checkpoint");
  job::Json bare = result;
  bare.erase("settings");
  refused(bare, "has no settings");
  job::Json listed = result;
  listed["settings"]["batch"] = {64};
  refused(listed, "the setting batch of the result is neither a number nor a text");
  refused(job::Json::array(), "not a result of train --json");
  job::Json simulated = result;
  simulated["settings"]["cluster"] = "pcie-4";
  refused(simulated, "a simulation has no losses");
  std::ofstream(folder_ / "text") << "no JSON";
  EXPECT_EQ(run("verify-result text").code, 2);
  EXPECT_EQ(run("verify-result nowhere").code, 2);
}

}  // namespace
}  // namespace baton::test
