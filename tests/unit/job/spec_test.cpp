#include "baton/job/spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "baton/base/error.h"
#include "baton/job/spec_text.h"
#include "baton/job/step_json.h"
#include "baton/op/optimizer.h"
#include "support/usage_sentence.h"

namespace baton::job {
namespace {

std::string refusal(const std::string& name, const FieldValue& value) {
  JobSpec spec;
  try {
    set_field(spec, name, value);
  } catch (const Error& error) {
    EXPECT_EQ(spec, JobSpec{}) << "what is refused changes nothing";
    return error.what();
  }
  return "";
}

/// A text for every field that is not its default, written as the command line would be asked for it again.
const std::map<std::string, std::string>& examples() {
  static const std::map<std::string, std::string> texts{{"model", "gpt:depth=2,heads=2,dim=8,context=4,vocab=10"},
                                                        {"strategy", "zero-3"},
                                                        {"devices", "cpu:0-3,4-7"},
                                                        {"batch", "128"},
                                                        {"dp", "2"},
                                                        {"pp", "4"},
                                                        {"tp", "8"},
                                                        {"sp", "on"},
                                                        {"zero", "0"},
                                                        {"schedule", "interleaved"},
                                                        {"chunks", "3"},
                                                        {"split", "3,3,2"},
                                                        {"balance", "memory"},
                                                        {"recompute", "full"},
                                                        {"micro-batches", "16"},
                                                        {"bucket-mb", "0.1"},
                                                        {"first-bucket-mb", "2"},
                                                        {"loss", "cross-entropy"},
                                                        {"label-smoothing", "0.1"},
                                                        {"optimizer", "adamw"},
                                                        {"lr", "1e-05"},
                                                        {"momentum", "0.9"},
                                                        {"weight-decay", "0.01"},
                                                        {"decay", "matrices"},
                                                        {"lr-schedule", "cosine:until=1000,warmup=100,floor=0.1"},
                                                        {"clip", "0.5"},
                                                        {"precision", "bf16"},
                                                        {"gradients", "fp32"},
                                                        {"loss-scale", "1024"},
                                                        {"loss-scale-growth", "7"},
                                                        {"delay", "before=backward,device=0,ms=2.5;before=update,device=all,ms=1"},
                                                        {"link", "bandwidth=1.5GB/s,latency=50us,core=0.2"},
                                                        {"memory", "1536M"},
                                                        {"backend", "reference"},
                                                        {"seed", "9223372036854775807"},
                                                        {"samples", "640"},
                                                        {"data", "numbers.npy"},
                                                        {"tokenizer", "chars"},
                                                        {"token-type", "uint16"},
                                                        {"normalize", "mnist"},
                                                        {"augment", "crop=4,flip"},
                                                        {"cluster", "dgx-a100+infiniband-400"},
                                                        {"software", "megatron-2021"},
                                                        {"what-if", "compute=2x,link=0.5x,latency=+10us"},
                                                        {"fold", "never"}};
  return texts;
}

TEST(JobSpec, EveryMemberHasAField) {
  // A new member does not compile here until it is counted.
  const auto [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, bb, cc, dd, ee, ff, gg, hh, ii, jj,
              kk, ll, mm, nn, oo, pp, qq, rr, ss] = JobSpec{};
  constexpr std::size_t members = 45;
  EXPECT_EQ(fields().size(), members);
  EXPECT_EQ(examples().size(), members);
}

TEST(JobSpec, EveryFieldPrintsTheTextThatSetsIt) {
  for (const JobField& field : fields()) {
    const std::string& text = examples().at(field.name);
    JobSpec spec;
    EXPECT_FALSE(field.given(spec)) << field.name;
    field.set(spec, text);
    EXPECT_EQ(field.text(spec), text) << field.name;
    EXPECT_TRUE(field.given(spec)) << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
    for (const JobField& other : fields()) {
      EXPECT_EQ(other.given(spec), other.name == field.name) << field.name << " and " << other.name;
    }
    JobSpec again;
    field.set(again, field.text(spec));
    EXPECT_EQ(again, spec) << field.name;
    const FieldValue value = field.value(spec);
    EXPECT_TRUE(!field.numeric || !std::holds_alternative<std::string>(value)) << field.name << " is a number";
    JobSpec typed;
    field.set(typed, value);
    EXPECT_EQ(typed, spec) << field.name;
    field.set(typed, field.value(JobSpec{}));
    EXPECT_EQ(typed, JobSpec{}) << field.name;
    field.set(again, field.text(JobSpec{}));
    EXPECT_EQ(again, JobSpec{}) << field.name << " can be set back to its default by the default's text";
  }
}

TEST(JobSpec, SettingsAreNumbersWhereTheyCanBe) {
  JobSpec spec;
  spec.devices = 4;
  spec.dp = 2;
  spec.loss_scale = {.mode = LossScaling::Mode::fixed, .scale = 1024};
  spec = with_rates_of(spec, op::optimizer_by_name("adamw"));
  const Json settings = settings_json(spec);
  EXPECT_EQ(settings["batch"], 64);
  EXPECT_EQ(settings["devices"], 4);
  EXPECT_EQ(settings["dp"], 2);
  EXPECT_EQ(settings["tp"], "");
  EXPECT_EQ(settings["weight-decay"], 0.01);
  EXPECT_EQ(settings["loss-scale"], 1024.0);
  EXPECT_EQ(settings["optimizer"], "sgd");
  EXPECT_TRUE(settings["bucket-mb"].is_number());
}

TEST(JobSpec, EveryFieldCanBeSetBackToItsDefault) {
  JobSpec spec;
  for (const auto& [name, text] : examples()) {
    set_field(spec, name, text);
  }
  for (const JobField& field : fields()) {
    EXPECT_TRUE(field.given(spec)) << field.name;
    field.reset(spec);
    EXPECT_FALSE(field.given(spec)) << field.name;
  }
  EXPECT_EQ(spec, JobSpec{});
}

TEST(JobSpec, ItsFlagsGiveTheSameJobAgain) {
  JobSpec spec;
  for (const auto& [name, text] : examples()) {
    set_field(spec, name, text);
  }
  const std::string flags = flags_of(spec);
  for (const auto& [name, text] : examples()) {
    EXPECT_NE(flags.find(fmt::format("--{} {}", name, text)), std::string::npos) << flags;
  }
  EXPECT_EQ(flags_of(JobSpec{}), "");
  EXPECT_EQ(flags_of(
                spec, [](const std::string& text) { return "'" + text + "'"; },
                [](const JobField& field) { return field.name == "dp" || field.name == "tp"; }),
            "--dp '2' --tp '8'");
}

TEST(JobSpec, EverySpellingOfAFieldSetsItsMember) {
  for (const JobField& field : fields()) {
    for (const std::string& spelling : field.also) {
      JobSpec spec;
      set_field(spec, spelling, examples().at(field.name));
      EXPECT_TRUE(field.given(spec)) << spelling;
    }
  }
  JobSpec spec;
  set_field(spec, "accumulate", "4");
  set_field(spec, "Bucket-MB", "2");
  set_field(spec, "global_batch", "128");
  EXPECT_EQ(spec.micro_batches, 4);
  EXPECT_EQ(spec.bucket, Bytes(2 << 20));
  EXPECT_EQ(spec.batch, 128);
}

TEST(JobSpec, NumbersAreTakenAsTheyAre) {
  JobSpec spec;
  set_field(spec, "batch", std::int64_t{32});
  set_field(spec, "lr", 0.1);
  set_field(spec, "momentum", std::int64_t{1});
  set_field(spec, "devices", std::int64_t{8});
  set_field(spec, "loss-scale", std::int64_t{512});
  set_field(spec, "memory", std::int64_t{1024});
  EXPECT_EQ(spec.batch, 32);
  EXPECT_EQ(spec.lr, 0.1);
  EXPECT_EQ(spec.momentum, 1);
  EXPECT_EQ(spec.devices.count(), 8);
  EXPECT_EQ(spec.loss_scale, (LossScaling{.mode = LossScaling::Mode::fixed, .scale = 512}));
  EXPECT_EQ(spec.memory, Bytes(1024));
  EXPECT_EQ(field_value(Json(3)), FieldValue(std::int64_t{3}));
  EXPECT_EQ(field_value(Json(0.5)), FieldValue(0.5));
  EXPECT_EQ(field_value(Json("ddp")), FieldValue("ddp"));
}

TEST(JobSpec, ANumberOutOfRangeGetsTheSentenceThatTextGets) {
  const std::string sentence = "--batch is '0', but must be a whole number from 1 to 1073741824";
  EXPECT_EQ(refusal("batch", std::int64_t{0}), sentence);
  EXPECT_EQ(refusal("batch", "0"), sentence);
  EXPECT_EQ(refusal("batch", 1.5), "--batch is '1.5', but must be a whole number from 1 to 1073741824");
  EXPECT_EQ(refusal("momentum", 2.0), "--momentum is '2', but must be a number from 0 to 1");
  EXPECT_EQ(refusal("momentum", "2"), "--momentum is '2', but must be a number from 0 to 1");
  EXPECT_EQ(refusal("batch", ""), "--batch is '', but must be a whole number from 1 to 1073741824") << "it has to have a value";
  EXPECT_EQ(refusal("dp", ""), "") << "it may be left out";
}

TEST(JobSpec, WhatIsOneOfAFewNamesIsRefusedWithAllOfThem) {
  EXPECT_EQ(refusal("fold", "bogus"), "unknown --fold 'bogus': choose auto, always or never");
  EXPECT_EQ(refusal("precision", "fp8"), "unknown precision 'fp8': choose fp64, fp32, tf32, bf16 or fp16");
  EXPECT_NE(refusal("strategy", "dpp").find("(did you mean dp?)"), std::string::npos);
  EXPECT_NE(refusal("schedule", "1f1").find("1f1b"), std::string::npos);
}

TEST(JobSpec, HowDataIsPreparedIsParsedWhenItIsSet) {
  EXPECT_TRUE(test::says(refusal("normalize", "imagnet"), "did you mean imagenet"));
  EXPECT_TRUE(test::says(refusal("augment", "rotate"), "--augment has 'rotate'"));
  EXPECT_EQ(refusal("token-type", "uint8"), "unknown --token-type 'uint8': choose uint16 or uint32");
  JobSpec spec;
  set_field(spec, "normalize", "0.5,0.4,0.3/1,1,2");
  set_field(spec, "augment", "flip,crop=2");
  set_field(spec, "token-type", "UINT32");
  EXPECT_EQ(spec.normalize->deviation, (std::vector<double>{1, 1, 2}));
  EXPECT_EQ(spec.augment, (Augmentation{.crop = 2, .flip = true}));
  EXPECT_EQ(spec.token_type, TokenType::uint32);
  set_field(spec, "normalize", "");
  EXPECT_EQ(spec.normalize, std::nullopt);
}

TEST(JobSpec, SpecificationsAreComparedByTheirValues) {
  JobSpec a;
  JobSpec b;
  set_field(a, "lr", "1e-1");
  set_field(b, "lr", 0.1);
  set_field(a, "link", "latency=50us");
  set_field(b, "link", "latency=0.05ms");
  EXPECT_EQ(a, b);
  set_field(b, "link", "latency=51us");
  EXPECT_NE(a, b);
  EXPECT_TRUE(find_field(fields(), "link")->given(a));
  EXPECT_FALSE(find_field(fields(), "link")->given(JobSpec{}));
}

TEST(JobSpec, SizesInMiBAreTheShortestNumbersThatGiveThem) {
  const JobField* field = find_field(fields(), "bucket-mb");
  for (const char* text : {"25", "0.1", "0.3", "1.5", "0.0001", "123.456", "999999", "7e-07"}) {
    JobSpec spec;
    field->set(spec, text);
    const FieldValue value = field->value(spec);
    EXPECT_LE(std::abs(std::get<double>(value) - std::stod(text)), 1.0 / (1 << 20)) << text;
    EXPECT_EQ(std::get<double>(value), std::stod(field->text(spec))) << text;
    JobSpec again;
    field->set(again, value);
    EXPECT_EQ(again.bucket, spec.bucket) << text;
  }
  JobSpec spec;
  field->set(spec, "0.1");
  EXPECT_EQ(std::get<double>(field->value(spec)), 0.1);
}

TEST(JobSpec, AnExperimentMayBeGivenWhatSaysNeitherHowWorkIsSplitNorWhereItRuns) {
  std::set<std::string> names;
  for (const JobField& field : fields()) {
    if (field.beside_axes) {
      names.insert(field.name);
    }
  }
  EXPECT_EQ(names,
            (std::set<std::string>{
                "model",     "batch",    "micro-batches", "recompute",    "bucket-mb", "first-bucket-mb", "loss",
                "optimizer", "lr",       "momentum",      "weight-decay", "precision", "loss-scale",      "loss-scale-growth",
                "link",      "memory",   "seed",          "samples",      "decay",     "lr-schedule",     "label-smoothing",
                "clip",      "gradients"}));
}

TEST(JobSpec, NamesThatMeanTheSameAreOneValue) {
  JobSpec spec;
  set_field(spec, "precision", "mixed");
  set_field(spec, "strategy", "FSDP");
  set_field(spec, "optimizer", "ADAM");
  EXPECT_EQ(spec.precision, strategy::Precision::fp16);
  EXPECT_EQ(spec.strategy, "zero-3");
  EXPECT_EQ(spec.optimizer, "adam");
}

TEST(JobSpec, DelaysAreAddedOneByOne) {
  const JobField* field = find_field(fields(), "delay");
  JobSpec spec;
  field->add(spec, "before=forward,device=1,ms=3");
  field->add(spec, "before=update,device=all,time=1500ns");
  ASSERT_EQ(spec.delays.size(), 2U);
  EXPECT_EQ(field->text(spec), "before=forward,device=1,ms=3;before=update,device=all,ms=0.0015");
  JobSpec again;
  field->add(again, field->text(spec));  // as on a command line that is pasted
  EXPECT_EQ(again.delays, spec.delays);
}

TEST(SpecText, GivesTheValueAgainToTheBit) {
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, std::int64_t{1} << 50, (std::int64_t{1} << 40) + 1}) {
    EXPECT_EQ(parse_bytes(flag_text(Bytes(bytes)), "size"), Bytes(bytes));
  }
  for (const char* link :
       {"bandwidth=25Gb/s", "bandwidth=1.3GB/s,latency=1us", "latency=0ns", "bandwidth=7B/s,core=1.5", "bandwidth=12345.678KB/s"}) {
    const cluster::Link given = cluster::parse_link(link);
    const cluster::Link again = cluster::parse_link(flag_text(given));
    EXPECT_EQ(std::tuple(again.latency, again.bandwidth, again.core_share),
              std::tuple(given.latency, given.bandwidth, given.core_share))
        << link;
  }
  for (const std::int64_t time : {0, 1, 999, 1'000, 333'333, 100'000, 700'000, 1'234'567}) {
    const strategy::DelayRequest delay{.before = plan::Phase::forward, .device = 3, .duration = Nanoseconds(time)};
    EXPECT_EQ(strategy::parse_delay(flag_text(delay)), delay) << flag_text(delay);
  }
  for (const char* schedule : {"constant:warmup=10", "linear:until=20", "linear:until=20,floor=0.3",
                               "step:every=3,gamma=0.7,warmup=2", "step:every=5,gamma=0", "cosine:until=9,warmup=4"}) {
    EXPECT_EQ(op::parse_schedule(flag_text(op::parse_schedule(schedule))), op::parse_schedule(schedule)) << schedule;
  }
  for (const char* change : {"compute=0.1x", "latency=3x", "link=1e-05x,latency=+1ns"}) {
    EXPECT_EQ(parse_what_if(flag_text(parse_what_if(change))), parse_what_if(change)) << change;
  }
}

TEST(Ranges, AreShownWithTheBoundsThatMeanSomething) {
  EXPECT_EQ(range_text(std::int64_t{0}, std::int64_t{3}), "0..3");
  EXPECT_EQ(range_text(0.0, 1.0), "0..1");
  EXPECT_EQ(range_text(std::int64_t{1}, std::int64_t{1} << 20), "N");
  EXPECT_EQ(range_text(std::int64_t{2}, std::int64_t{1} << 20), "N>=2");
  EXPECT_EQ(range_text(std::int64_t{0}, std::int64_t{10'000'000}), "N");
  EXPECT_EQ(range_text(0.0, 1e6), "NUMBER");
  EXPECT_EQ(find_field(fields(), "dp")->type, "N");
  EXPECT_EQ(find_field(fields(), "zero")->type, "0..3");
  EXPECT_EQ(find_field(fields(), "lr")->type, "NUMBER");
}

TEST(JobSpec, AStrategyIsFoundWhenItIsNamed) {
  JobSpec spec;
  set_field(spec, "strategy", "Schedule1F1B");
  EXPECT_EQ(find_field(fields(), "strategy")->text(spec), "1f1b");
  set_field(spec, "strategy", "");
  EXPECT_EQ(spec, JobSpec{});
  EXPECT_TRUE(test::says(test::usage_sentence([&] { spec.strategy = "dpp"; }), "did you mean"));
}

TEST(DeviceList, HoldsTextOrNumbersAndIsWrittenAsTheCommandLineTakesIt) {
  EXPECT_EQ(DeviceList::cpus(3).text(), "cpu:3");
  EXPECT_EQ(DeviceList::cpus(3).count(), std::nullopt);
  EXPECT_EQ(DeviceList(cluster::CoreSets{{{0, 1}, {2}}}).text(), "cpu:0-0+1-1,2-2");
  EXPECT_EQ(DeviceList(cluster::GpuNames{.numbers = {0}, .parts = 4, .used = 2}).text(), "cuda:0/4:2");
  EXPECT_EQ(DeviceList(cluster::CoreSets{{{0}}}).count(), std::nullopt);
  EXPECT_EQ(DeviceList(8).names(), cluster::DeviceNames("8"));
  EXPECT_EQ(cluster::gpus_of(DeviceList("cuda:1").names()), (cluster::GpuNames{.numbers = {1}}));
  EXPECT_EQ(cluster::gpus_of(DeviceList("cpu:1").names()), std::nullopt);
}

}  // namespace
}  // namespace baton::job
