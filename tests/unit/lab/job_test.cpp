#include "baton/lab/job.h"

#include <cmath>

#include "baton/lab/rows.h"
#include "baton/lab/training_json.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::says;
using test::trained;
using test::usage_sentence;
using test::with;

cluster::Machine small_machine() {
  cluster::Machine machine;
  machine.cores = {0};
  machine.memory = Bytes(1 << 30);
  return machine;
}

// The words of a job

TEST(JobWords, EveryFieldCanBeSetByItsName) {
  for (const JobField& field : job_fields()) {
    JobWords words;
    set_word(words, field.name, "something");
    EXPECT_EQ(words.*field.word, "something") << field.name;
    for (const JobField& other : job_fields()) {
      if (other.word != field.word) {
        EXPECT_EQ(words.*other.word, JobWords().*other.word) << field.name << " has changed " << other.name;
      }
    }
    EXPECT_FALSE(field.help.empty()) << field.name;
  }
  EXPECT_EQ(job_fields().size() * sizeof(std::string), sizeof(JobWords)) << "a word has no field";
}

TEST(JobWords, EverySpellingOfAFieldSetsIt) {
  for (const JobField& field : job_fields()) {
    for (const std::string& spelling : field.also) {
      JobWords words;
      set_word(words, spelling, "something");
      EXPECT_EQ(words.*field.word, "something") << spelling;
    }
  }
  JobWords words;
  set_word(words, "accumulate", "4");
  EXPECT_EQ(words.micro_batches, "4");
}

TEST(JobWords, DashesUnderscoresAndCaseAreAllTheSame) {
  JobWords words;
  set_word(words, "micro_batches", "4");
  set_word(words, "Bucket-MB", "2");
  set_word(words, "global_batch", "128");
  EXPECT_EQ(words.micro_batches, "4");
  EXPECT_EQ(words.bucket_mb, "2");
  EXPECT_EQ(words.batch, "128");
}

TEST(JobWords, AnUnknownNameIsRefusedWithAllThatThereAre) {
  JobWords words;
  const std::string sentence = usage_sentence([&] { set_word(words, "colour", "red"); });
  EXPECT_TRUE(says(sentence, "'colour'"));
  for (const JobField& field : job_fields()) {
    EXPECT_TRUE(says(sentence, field.name));
  }
}

// Precision and loss scale

strategy::Step step_of(const std::string& precision, const std::string& scale, const std::string& growth = "2000") {
  JobWords words;
  words.precision = precision;
  words.loss_scale = scale;
  words.loss_scale_growth = growth;
  return Job(words, small_machine()).request().step;
}

TEST(Job, ScalesTheLossOfFp16UnlessToldOtherwise) {
  using strategy::LossScale;
  EXPECT_EQ(step_of("fp16", "").loss_scale, LossScale{});
  EXPECT_EQ(step_of("mixed", "").loss_scale, LossScale{});
  EXPECT_EQ(step_of("mixed", "").precision, strategy::Precision::fp16);
  EXPECT_EQ(step_of("fp32", "").loss_scale, std::nullopt);
  EXPECT_EQ(step_of("bf16", "").loss_scale, std::nullopt);
  EXPECT_EQ(step_of("fp16", "none").loss_scale, std::nullopt);
  EXPECT_EQ(step_of("bf16", "Dynamic", "7").loss_scale, (LossScale{.growth_interval = 7}));
  EXPECT_EQ(step_of("half", "1024").loss_scale, (LossScale{.initial = 1024, .dynamic = false}));
}

TEST(Job, PrecisionsAndScalesThatMeanNothingAreRefused) {
  EXPECT_TRUE(says(usage_sentence([] { step_of("fp8", ""); }), "unknown precision 'fp8': choose fp64, fp32, tf32, bf16 or fp16"));
  EXPECT_TRUE(says(usage_sentence([] { step_of("tf32", ""); }), "tf32 is how the matrix units of a GPU"));
  for (const char* scale : {"big", "0", "-1", "inf", "1e40"}) {
    EXPECT_TRUE(says(usage_sentence([&] { step_of("fp16", scale); }), "must be none, dynamic or a number")) << scale;
  }
  EXPECT_TRUE(says(usage_sentence([] { step_of("fp16", "", "0"); }), "--loss-scale-growth"));
}

TEST(Training, TellsWhatItsPrecisionDid) {
  JobWords words;
  words.model = "mlp:dim=32,depth=20";
  words.precision = "fp16";
  words.loss_scale = "none";
  Training bare(words, small_machine());
  bare.run(3, 1);
  const Json lost = result_json(bare, "");
  EXPECT_EQ(lost["precision"], "fp16");
  EXPECT_EQ(lost["emulated"], true);
  EXPECT_GT(lost["underflows"], 0);
  EXPECT_EQ(lost["overflows"], 0);
  EXPECT_EQ(lost["skipped_steps"], 0);
  EXPECT_TRUE(lost["final_scale"].is_null());
  EXPECT_FALSE(lost["roundings"].empty());

  words.loss_scale = "1e20";  // so high that every step overflows
  Training high(words, small_machine());
  high.run(3, 1);
  const Json skipped = result_json(high, "");
  EXPECT_EQ(skipped["skipped_steps"], 3);
  EXPECT_GT(skipped["overflows"], 0);
  EXPECT_NEAR(skipped["final_scale"].get<double>(), 1e20, 1e14);

  words.precision = "fp32";
  words.loss_scale = "";
  Training plain(words, small_machine());
  plain.run(3, 1);
  const Json exact = result_json(plain, "");
  EXPECT_EQ(exact["emulated"], false);
  EXPECT_EQ(exact["underflows"], 0);
  EXPECT_TRUE(exact["roundings"].empty());
  EXPECT_TRUE(exact["final_scale"].is_null());
}

TEST(Training, BuffersByThemselvesTakeWhatThePlanTakesWithoutScratch) {
  JobWords words;
  words.model = "mlp:dim=32,depth=4";
  words.precision = "bf16";
  const Training training(words, small_machine());
  EXPECT_LT(training.buffer_bytes()[0], training.arenas()[0]);
  words.backend = "reference";  // which needs none
  const Training reference(words, small_machine());
  EXPECT_EQ(reference.buffer_bytes()[0], reference.arenas()[0]);
}

TEST(Job, IsWhatItsWordsSay) {
  JobWords words;
  words.model = "mlp:dim=8,depth=3";
  words.strategy = "LAYERS";
  words.devices = "cpu:3";
  words.batch = "12";
  words.optimizer = "adam";
  words.lr = "0.5";
  words.seed = "7";
  words.delay = "before=backward,rank=0,ms=2;before=update,rank=all,ms=1";
  const Job job(words, small_machine());
  EXPECT_EQ(job.request().strategy, "layers");
  EXPECT_EQ(job.cluster().size(), 3U);
  EXPECT_EQ(job.request().step.global_batch, 12);
  EXPECT_EQ(std::get<op::Adam>(job.request().step.optimizer).rate, 0.5);
  EXPECT_EQ(job.seed(), 7U);
  EXPECT_EQ(job.request().delays.size(), 2U);
  EXPECT_TRUE(says(job.oversubscription(), "3 devices share 1 core:"));
  EXPECT_EQ(job.compile().devices().size(), 3U);
}

TEST(Job, RefusesWhatItCannotReadOrHonour) {
  const auto refusal = [](const std::string& name, const std::string& value) {
    JobWords words;
    set_word(words, name, value);
    return usage_sentence([&] { const Job job(words, small_machine()); });
  };
  EXPECT_TRUE(says(refusal("batch", "many"), "--batch"));
  EXPECT_TRUE(says(refusal("batch", "0"), "--batch"));
  EXPECT_TRUE(says(refusal("seed", "-1"), "--seed"));
  EXPECT_TRUE(says(refusal("momentum", "2"), "--momentum"));
  EXPECT_TRUE(says(refusal("samples", "63"), "--samples is 63, but a batch alone takes 64"));
  EXPECT_TRUE(says(refusal("backend", "gpu"), "gpu"));
  EXPECT_TRUE(says(refusal("split", "3,x"), "--split"));
  EXPECT_TRUE(says(refusal("strategy", "magic"), "magic"));
  EXPECT_TRUE(says(refusal("fold", "bogus"), "--fold is 'bogus'"));
  EXPECT_TRUE(says(refusal("what-if", "nonsense"), "--what-if has 'nonsense'"));
}

TEST(Job, AnOptimizerThatHasNoMomentumSaysSo) {
  JobWords words;
  words.optimizer = "adam";
  words.momentum = "0.9";
  EXPECT_TRUE(says(usage_sentence([&] { const Job job(words, small_machine()); }), "--momentum means nothing to adam"));
}

TEST(Training, GoesOnWhereItStopped) {
  JobWords words;
  words.model = "mlp:dim=8,depth=2";
  words.batch = "8";
  Training whole(words, small_machine());
  whole.run(6, 1);
  Training parts(words, small_machine());
  parts.run(2, 1);
  parts.run(4, 0);
  EXPECT_EQ(whole.losses(), parts.losses());
  EXPECT_EQ(parts.losses().size(), 6U);
  EXPECT_EQ(parts.timed().size(), 5U);
  EXPECT_EQ(parts.warmup(), 1);
}

// Rows

TEST(Rows, WhatIsMissingIsABug) {
  EXPECT_THROW(number({{"a", "text"}}, "a"), BugError);
  EXPECT_THROW(number({{"a", 1}}, "b"), BugError);
  EXPECT_THROW(text({{"a", 1}}, "b"), BugError);
  EXPECT_EQ(text({{"a", 1}}, "a"), "1");
  EXPECT_EQ(text({{"a", "x"}}, "a"), "x");
}

TEST(Rows, ALossThatIsNoNumberHasNoSign) {
  for (const double loss : losses_of({{"losses", {nullptr, std::nan(""), -std::nan("")}}})) {
    EXPECT_TRUE(std::isnan(loss) && !std::signbit(loss));
  }
}

TEST(Rows, AreChosenByValueAndValuesAreListedOnce) {
  const std::vector<Json> rows{{{"k", 2}, {"v", 1}}, {{"k", 1}, {"v", 2}}, {{"k", 2}, {"v", 3}}, {{"other", 2}}};
  EXPECT_EQ(where(rows, "k", 2).size(), 2U);
  EXPECT_EQ(values_of(rows, "k"), (std::vector<Json>{2, 1}));
}

TEST(Rows, SpeedupIsOverTheFewestDevicesAmongRowsThatAgree) {
  std::vector<Json> rows{with(trained(8, 2), {{"model", "a"}}), with(trained(4, 4), {{"model", "a"}}),
                         with(trained(9, 1), {{"model", "b"}})};
  add_speedup(rows, {"model"});
  EXPECT_DOUBLE_EQ(rows[1]["speedup"], 2);
  EXPECT_DOUBLE_EQ(rows[1]["efficiency"], 1) << "twice the devices, twice as fast";
  EXPECT_DOUBLE_EQ(rows[2]["speedup"], 1);
}

TEST(Rows, TheUncertaintyOfASpeedupIsThatOfBothTimes) {
  std::vector<Json> rows{trained(8, 1), trained(4, 2)};  // known to a hundredth each
  add_speedup(rows, {});
  EXPECT_DOUBLE_EQ(rows[0]["speedup_low"], 1) << "a time against itself is certain";
  EXPECT_DOUBLE_EQ(rows[0]["speedup_high"], 1);
  EXPECT_NEAR(rows[1]["speedup_low"], 2 * 0.99 / 1.01, 1e-12);
  EXPECT_NEAR(rows[1]["speedup_high"], 2 * 1.01 / 0.99, 1e-12);
}

TEST(Rows, DifferOnlyWhereTheirIntervalsDoNotTouch) {
  EXPECT_TRUE(differs(trained(1), trained(1.03)));
  EXPECT_TRUE(differs(trained(1.03), trained(1)));
  EXPECT_FALSE(differs(trained(1), trained(1.01)));
}

TEST(Rows, ASharingNoteNamesEachCountOnce) {
  const auto shared = [](int devices) { return with(trained(1, devices), {{"oversubscribed", true}}); };
  EXPECT_EQ(sharing_note({trained(1), trained(1, 2)}), "");
  EXPECT_TRUE(says(sharing_note({shared(4), shared(4), trained(1, 2)}), "Rows with 4 devices ran"));
  EXPECT_TRUE(says(sharing_note({shared(14), shared(4)}), "Rows with 14, 4 devices ran"));
}

}  // namespace
}  // namespace baton::lab
