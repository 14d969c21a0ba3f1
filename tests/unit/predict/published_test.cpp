#include "baton/predict/published.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "baton/base/error.h"
#include "baton/predict/validation.h"
#include "baton/training/simulation.h"
#include "support/machine.h"
#include "support/own_folder.h"

namespace baton::predict {
namespace {

std::vector<PublishedCase> cases_of(const std::string& text, const PublishedDefaults& defaults = {}) {
  return published_cases(parse_table(text, "mine"), defaults);
}

std::string sentence_of(const std::string& text) {
  try {
    cases_of(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const job::JobSpec& first_job(const PublishedCase& one) { return std::get<PublishedJobs>(one.job).at(0); }

TEST(PublishedTable, QuotedCellsBlankLinesAndOtherSeparatorsAreRead) {
  const PublishedTable table = parse_table("\xef\xbb\xbf\"a;b\";c\r\n\"x \"\"y\"\"\";2\r\n\r\n3\r\n", "mine");
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a;b", "c"}));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].cells, (std::vector<std::string>{"x \"y\"", "2"}));
  EXPECT_EQ(table.rows[1].line, 4U);
}

TEST(PublishedTable, ARowOfMoreCellsThanColumnsIsNamed) {
  EXPECT_NE(sentence_of("a,b\n1,2,3\n").find("line 2 of the table mine has 3 cells"), std::string::npos);
}

TEST(PublishedCases, ATableWithoutTimesOrDevicesSaysWhatItLacks) {
  const std::string sentence = sentence_of("hidden,layers,heads\n64,2,2\n");
  EXPECT_NE(sentence.find("gpus"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("iteration_ms"), std::string::npos) << sentence;
}

TEST(PublishedCases, ARowOfAGptIsAJobWithItsLayout) {
  const auto cases = cases_of(
      "Hidden,Heads,Layers,Seq,Vocab,# GPUs,GPU,TP,PP,DP,global_batch,micro_batch,recompute,precision,iteration_ms\n"
      "256,4,8,128,1000,8,A100-SXM-80GB,2,2,2,\"1,024\",16,full,fp16,100\n");
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_EQ(cases[0].reason, "");
  EXPECT_EQ(cases[0].seconds, 0.1);
  const job::JobSpec& spec = first_job(cases[0]);
  EXPECT_EQ(spec.cluster, "dgx-a100");
  EXPECT_EQ(spec.model, "gpt:depth=8,heads=4,dim=256,context=128,vocab=1024") << "rounded up to 128 times the tensor ranks";
  EXPECT_EQ(spec.batch, 1024);
  EXPECT_EQ(spec.micro_batches, 32);
  EXPECT_EQ(spec.split, (std::vector<std::int64_t>{9, 9})) << "an embedding before the first layer, scores behind the last";
  EXPECT_EQ(spec.recompute, strategy::Recompute::full);
}

TEST(PublishedCases, ATableWhoseArithmeticPerSecondCountsLayersTwiceRecomputedThem) {
  const auto spec_of = [](const std::string& tflops) {
    return first_job(cases_of("hidden,heads,layers,gpus,gpu,tp,dp,global_batch,seq,iteration_ms,tflops_per_gpu\n"
                              "1920,15,24,1,A100,1,1,16,1024,1076," +
                              tflops + "\n")
                         .at(0));
  };
  EXPECT_EQ(spec_of("149.8").recompute, strategy::Recompute::full);
  EXPECT_EQ(spec_of("114.6").recompute, strategy::Recompute::none);
}

TEST(PublishedCases, DividedTensorsOfTorchtitanDivideTheSequenceToo) {
  const std::string columns = "model,gpus,gpu,fsdp,tp,local_batch,seq,recompute,techniques,tokens_per_s_per_gpu\n";
  EXPECT_TRUE(first_job(cases_of(columns + "llama3.1-8B,64,H100,8,8,2,8192,selective,2D+compile,4000\n").at(0)).sp);
  EXPECT_FALSE(first_job(cases_of(columns + "llama3.1-8B,8,H100,8,1,2,8192,selective,FSDP+compile,4000\n").at(0)).sp);
}

TEST(PublishedCases, TheEmbeddingAndTheScoresCountAsLayersIfStagesDoNotDivideTheLayers) {
  const std::string columns = "model,gpus,gpu,tp,pp,dp,global_batch,micro_batch,seq,chunks,iteration_s\n";
  const auto split_of = [&](const std::string& row) { return first_job(cases_of(columns + row).at(0)).split; };
  const std::vector<std::int64_t> split = split_of("llama3.1-405B,128,H100,8,16,1,16,1,8192,8,7\n");
  ASSERT_EQ(split.size(), 128U);
  EXPECT_EQ(split.front(), 1) << "the embedding alone";
  EXPECT_EQ(split[1], 2) << "one layer";
  EXPECT_EQ(split.back(), 1) << "the scores alone";
  EXPECT_EQ(split_of("llama3.1-405B,64,H100,8,8,1,16,1,8192,1,7\n"), (std::vector<std::int64_t>{31, 32, 32, 32, 32, 32, 32, 31}));
  const std::vector<std::int64_t> uneven = split_of("llama3.1-8B,40,H100,8,5,1,16,1,8192,1,7\n");
  EXPECT_EQ(uneven, (std::vector<std::int64_t>{13, 14, 14, 14, 11})) << "34 parts over 5 stages: 7, 7, 7, 7, 6";
}

TEST(PublishedCases, AColumnSaysWhetherTensorRanksDivideTheSequenceAndSelectiveRecomputesScoresThatAreKept) {
  const std::string columns =
      "hidden,heads,layers,gpus,gpu,tp,pp,global_batch,micro_batch,sequence_parallel,recompute,iteration_s\n";
  const auto spec_of = [&](const std::string& row) { return first_job(cases_of(columns + row).at(0)); };
  const job::JobSpec plain = spec_of("6144,64,48,8,A100,8,1,4,4,no,full,1.42\n");
  EXPECT_FALSE(plain.sp);
  EXPECT_EQ(plain.software, "megatron-2021");
  EXPECT_EQ(plain.recompute, strategy::Recompute::full);
  const job::JobSpec divided = spec_of("6144,64,48,8,A100,8,1,4,4,yes,selective,1.1\n");
  EXPECT_TRUE(divided.sp);
  EXPECT_EQ(divided.software, "megatron-2021+scores");
  EXPECT_EQ(divided.recompute, strategy::Recompute::none);
  EXPECT_EQ(spec_of("6144,64,48,8,H100,8,1,4,4,yes,selective,1.1\n").software, "megatron-core")
      << "a fused attention keeps no scores";
}

TEST(PublishedCases, ADegreeOfOneDividesNoSequence) {
  const auto cases_with = [](const std::string& column, const std::string& cell) {
    return cases_of("hidden,heads,layers,gpus,gpu,tp,pp,global_batch,micro_batch," + column +
                    ",iteration_s\n6144,64,48,8,A100,8,1,4,4," + cell + ",1.42\n");
  };
  EXPECT_FALSE(first_job(cases_with("sp", "1").at(0)).sp);
  EXPECT_FALSE(first_job(cases_with("sp", "no").at(0)).sp);
  EXPECT_TRUE(first_job(cases_with("sp", "8").at(0)).sp) << "as many parts as there are tensor ranks";
  EXPECT_TRUE(first_job(cases_with("sp", "true").at(0)).sp);
  EXPECT_TRUE(first_job(cases_with("sequence_parallel", "1").at(0)).sp) << "a flag";
  EXPECT_FALSE(first_job(cases_with("sequence_parallel", "0").at(0)).sp);
  const std::string h100 = "model,gpus,gpu,tp,pp,gbs,mbs,seq,tokens_per_s_per_gpu\nGPT3-20B,64,H100,2,1,256,2,2048,5000\n";
  EXPECT_TRUE(first_job(cases_of(h100).at(0)).sp) << "Megatron-Core does if the table does not say";
  EXPECT_EQ(first_job(cases_of(h100).at(0)).model, "gpt:depth=44,heads=48,dim=6144,context=2048,vocab=51200");
  EXPECT_FALSE(first_job(cases_with("precision", "fp16").at(0)).sp) << "Megatron-LM of 2021 does not";
  EXPECT_EQ(cases_with("sp", "4").at(0).reason, "it divides the sequence into 4 parts, but only its 8 tensor ranks can divide it");
}

TEST(PublishedCases, AScheduleMayBeSaidToBeInterleavedByAFlagOrByItsChunks) {
  const auto chunks_with = [](const std::string& column, const std::string& cell) {
    const auto cases = cases_of("hidden,heads,layers,gpus,gpu,tp,pp,global_batch,micro_batch," + column +
                                ",iteration_s\n6144,64,48,8,A100,1,8,16,1," + cell + ",1.42\n");
    return cases.at(0).reason.empty() ? first_job(cases.at(0)).chunks.value_or(1) : -1;
  };
  EXPECT_EQ(chunks_with("interleave", "no"), 1);
  EXPECT_EQ(chunks_with("interleave", "yes"), 2);
  EXPECT_EQ(chunks_with("interleaved", "3"), 3);
  EXPECT_EQ(chunks_with("vpp", "6"), 6);
  EXPECT_EQ(chunks_with("schedule", "interleaved"), 2);
  EXPECT_EQ(chunks_with("vpp", "many"), -1);
}

TEST(PublishedCases, RatesBecomeSecondsPerStep) {
  const auto cases = cases_of("model,gpus,gpu,fsdp,local_batch,seq,tokens_per_s_per_gpu\nllama3-8b,8,H100,8,2,4096,8192\n");
  ASSERT_EQ(cases[0].reason, "");
  EXPECT_DOUBLE_EQ(cases[0].seconds, 2.0 * 4096 / 8192);
  EXPECT_EQ(first_job(cases[0]).zero, 3);
}

TEST(PublishedCases, RowsWithoutAnAxisOrWithAnImpossibleLayoutAreNamed) {
  const std::string head = "hidden,heads,layers,gpus,gpu,tp,pp,dp,cp,global_batch,micro_batch,iteration_ms\n";
  EXPECT_NE(cases_of(head + "64,4,8,8,a100,2,1,2,2,16,1,5\n")[0].reason.find("along cp"), std::string::npos);
  EXPECT_NE(cases_of(head + "64,4,8,8,a100,2,1,2,1,16,1,5\n")[0].reason.find("is not its 8 GPUs"), std::string::npos);
  EXPECT_NE(cases_of(head + "64,4,1,8,a100,1,8,1,1,16,1,5\n")[0].reason.find("1 layers are too few for 8 stages"),
            std::string::npos);
  EXPECT_NE(cases_of(head + "64,4,8,8,a100,1,1,8,1,12,1,5\n")[0].reason.find("over 8 replicas"), std::string::npos);
  EXPECT_NE(cases_of(head + "64,4,8,8,abacus,1,1,8,1,16,1,5\n")[0].reason.find("the GPU 'abacus': add --cluster"),
            std::string::npos);
  EXPECT_NE(cases_of(head + "64,4,,8,a100,1,1,8,1,16,1,5\n")[0].reason.find("layers"), std::string::npos);
}

TEST(PublishedCases, EveryTenthRowFromTheFirstOnIsFittedOfTablesWithTwentyRows) {
  const auto cases_with = [](int rows) {
    std::string text = "gpu,gpus,bytes,busbw_GBps\n";
    for (int i = 0; i < rows; ++i) {
      text += "a100,2,1048576,20\n";
    }
    return cases_of(text);
  };
  const auto many = cases_with(20);
  EXPECT_TRUE(many[0].fitted && many[10].fitted);
  EXPECT_FALSE(many[1].fitted || many[11].fitted);
  const auto few = cases_with(19);
  EXPECT_FALSE(few[0].fitted || few[10].fitted);
}

TEST(PublishedCases, ACellThatIsNotANumberAboveZeroIsNamedWithItsColumn) {
  for (const std::string cell : {"-1", "abc", "nan", "0"}) {
    const auto cases = cases_of("model,gpus,gpu,global_batch,micro_batch,iteration_time_s\ngpt2,8,H100,64,8," + cell + "\n");
    EXPECT_EQ(cases.at(0).reason, "'" + cell + "' in the column iteration_time_s is not a number above zero");
  }
}

TEST(PublishedCases, ARowOfFewerCellsThanColumnsIsNotRead) {
  const auto cases = cases_of("model,gpus,gpu,global_batch,micro_batch,iteration_s\ngpt2,8\ngpt2,8,H100,64,8,1\n");
  EXPECT_EQ(cases.at(0).reason, "the row has 2 cells, but the table has 6 columns");
  EXPECT_EQ(cases.at(1).reason, "");
}

TEST(PublishedTable, AQuoteThatIsNotClosedAndAColumnThatStandsTwiceAreNamed) {
  EXPECT_EQ(sentence_of("a,b\n1,2\n\"3,4\n5,6\n"), "line 3 of the table mine begins a quoted cell that is not closed");
  EXPECT_EQ(sentence_of("GPU,gpus,gpu\nx,1,y\n"), "the table mine has the column gpu twice");
}

TEST(PublishedCases, AbsurdNumbersNameTheirColumn) {
  const std::string head = "hidden,heads,layers,gpus,gpu,pp,chunks,global_batch,micro_batch,iteration_ms\n";
  EXPECT_EQ(cases_of(head + "64,4,8,1000000,a100,1,1,16,1,5\n")[0].reason,
            "'1000000' in the column gpus is more than 131072, the most that is simulated");
  EXPECT_NE(cases_of(head + "64,4,8,8,a100,8,1000000000,16,1,5\n")[0].reason.find("column chunks is more"), std::string::npos);
  EXPECT_NE(cases_of(head + "64,4,8,8,a100,1000000,1,16,1,5\n")[0].reason.find("column pp is more"), std::string::npos);
}

TEST(PublishedCases, ModelsAreKnownByTheNamesOfTheCommandLineAndBringTheirOwnSequence) {
  const std::string head = "model,gpus,gpu,global_batch,micro_batch,iteration_s\n";
  const auto of = [&](const std::string& model) { return cases_of(head + model + ",8,H100,64,1,1\n").at(0); };
  EXPECT_EQ(first_job(of("llama3-8b")).model, "llama3-8b:context=8192");
  EXPECT_EQ(first_job(of("gpt2")).model, "gpt2:context=1024");
  EXPECT_EQ(first_job(of("gpt2-xl")).model, "gpt2-xl:context=1024");
  EXPECT_EQ(first_job(of("tinyllama")).model, "tinyllama:context=2048");
  EXPECT_EQ(first_job(of("resnet50")).model, "resnet50:group=1");
  EXPECT_EQ(of("llama3-8b").assumed,
            (std::vector<std::string>{"sequence 8192", "bf16", "software megatron-core", "cluster dgx-h100"}));
  const std::string split = "model,gpus,gpu,tp,software,global_batch,micro_batch,seq,precision,sp,iteration_s\nllama3-8b,8,H100,8,";
  EXPECT_EQ(cases_of(split + "megatron-core,64,1,8192,bf16,,1\n").at(0).assumed,
            (std::vector<std::string>{"cluster dgx-h100", "tensor ranks divide the sequence too"}));
  EXPECT_EQ(cases_of(split + "megatron-core,64,1,8192,bf16,yes,1\n").at(0).assumed, std::vector<std::string>{"cluster dgx-h100"});
  EXPECT_NE(of("./gpt2").reason.find("not known by name"), std::string::npos);
}

TEST(PublishedCases, TheExampleOfTheDocumentIsRead) {
  std::ifstream file(BATON_TEST_DATA "/../docs/prediction.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  const std::string fence = "```csv\n";
  const std::size_t begin = document.find(fence) + fence.size();
  const auto cases = cases_of(document.substr(begin, document.find("```", begin) - begin));
  ASSERT_EQ(cases.size(), 2U);
  for (const PublishedCase& one : cases) {
    EXPECT_EQ(one.reason, "");
    EXPECT_EQ(one.assumed.size(), first_job(one).tp.value_or(1) > 1 ? 3U : 2U)
        << "the software, the cluster, and what tensor ranks divide";
  }
  EXPECT_EQ(first_job(cases[0]).tp, 2);
}

TEST(Validation, TwiceTheBytesTakeAboutTwiceTheTimeOnceTheyAreMany) {
  const double one = simulated_time(
      PublishedAllReduce{.cluster = "dgx-h200", .devices = 8, .bytes = std::int64_t{1} << 32, .ring = true});
  const double two = simulated_time(
      PublishedAllReduce{.cluster = "dgx-h200", .devices = 8, .bytes = std::int64_t{1} << 33, .ring = true});
  const double summed = simulated_time(PublishedAllReduce{.cluster = "dgx-h200", .devices = 8, .bytes = std::int64_t{1} << 33});
  EXPECT_NEAR(two / one, 2, 0.01);
  EXPECT_LT(summed, two) << "the switch sums faster than a ring";
}

TEST(Validation, AStepOfManyMicroBatchesIsThatOfTwoShorterOnesContinued) {
  job::JobSpec spec;
  spec.model = "gpt:depth=8,heads=8,dim=512,context=256,vocab=1024";
  spec.cluster = "dgx-a100";
  spec.software = "megatron-2021";
  spec.devices = "8";
  spec.pp = 4;
  spec.tp = 2;
  spec.dp = 1;
  spec.schedule = "1f1b";
  spec.micro_batches = spec.batch = 40;
  spec.precision = strategy::Precision::fp16;
  spec.recompute = strategy::Recompute::full;
  const training::Job job(spec, baton::test::small_machine());
  const plan::Plan plan = job.compile();
  const double whole = static_cast<double>(training::Simulation(job, plan).step().duration.count) * 1e-9;
  EXPECT_NEAR(simulated_step(spec, baton::test::small_machine()) / whole, 1, 0.01);
}

job::JobSpec pipeline(const std::string& software, const std::string& schedule, std::int64_t chunks) {
  job::JobSpec spec;
  spec.model = "gpt:depth=16,heads=8,dim=1024,context=1024,vocab=1024";
  spec.cluster = "dgx-a100";
  spec.software = software;
  spec.devices = "8";
  spec.pp = 4;
  spec.tp = 2;
  spec.dp = 1;
  spec.schedule = schedule;
  spec.chunks = chunks > 1 ? std::optional(chunks) : std::nullopt;
  spec.micro_batches = spec.batch = 16;
  spec.precision = strategy::Precision::fp16;
  return spec;
}

TEST(Validation, ChunksShortenAPipelineOfMegatronWhoseStagesWaitForWhatTheySend) {
  const auto step = [](const std::string& schedule, std::int64_t chunks) {
    return simulated_step(pipeline("megatron-2021", schedule, chunks), baton::test::small_machine());
  };
  const double plain = step("1f1b", 1);
  EXPECT_LT(step("interleaved", 2), plain);
  EXPECT_GT(step("interleaved", 2), 0.8 * plain);
}

TEST(Validation, AScheduleInWhichBlockingStagesWouldWaitForEverIsRefusedInASentence) {
  const job::JobSpec spec = pipeline("megatron-deepspeed", "interleaved", 2);
  try {
    simulated_step(spec, baton::test::small_machine());
    FAIL() << "simulated";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    EXPECT_NE(std::string(error.what()).find("choose --schedule 1f1b or gpipe"), std::string::npos) << error.what();
  }
}

class ValidationOfFiles : public baton::test::OwnFolder {};

TEST_F(ValidationOfFiles, AClusterWithoutAFigureThatAStepNeedsIsNamed) {
  const auto reason = [&](const std::string& text) {
    const std::string file = (folder_ / "mine.toml").string();
    std::ofstream(file) << text;
    std::vector<PublishedCase> cases = cases_of(
        "hidden,heads,layers,gpus,tp,pp,dp,global_batch,micro_batch,seq,vocab,iteration_ms\n64,4,2,2,1,1,2,4,1,16,100,5\n",
        {.cluster = file, .software = ""});
    return validated(std::move(cases[0]), baton::test::small_machine()).published.reason;
  };
  const std::string device = "[device]\ncount = 2\nmemory = \"1GiB\"\n";
  EXPECT_NE(reason(device).find("no [device.rates]"), std::string::npos);
  const std::string rates = "[device.rates]\nf32 = \"1Tflop/s\"\nbf16 = \"2Tflop/s\"\n";
  EXPECT_NE(reason(device + rates).find("no memory_bandwidth"), std::string::npos);
  const std::string memory = device + "memory_bandwidth = \"1TB/s\"\n" + rates;
  EXPECT_NE(reason(memory).find("no [port] bandwidth"), std::string::npos);
  EXPECT_EQ(reason(memory + "[port]\nbandwidth = \"10GB/s\"\n"), "");
}

TEST(Validation, TheListOfErrorsBeginsWithTheLargestAndHasTheCommandOfEachStepButNoMeasuredTime) {
  std::vector<ValidatedPoint> points(3);
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].published.source = "mine";
    points[i].published.line = i + 2;
    points[i].published.seconds = 0.1234;
  }
  points[0].seconds = 0.1234 * 1.05;
  points[1].seconds = 0.1234 * 0.8;
  points[1].spec.cluster = "dgx-a100";
  points[2].published.reason = "no such axis";
  EXPECT_EQ(to_error_list(points),
            "error,memory_error,source,line,fitted,what,command\n"
            "-20.0 %,,mine,3,no,,./baton simulate --cluster dgx-a100\n"
            "+5.0 %,,mine,2,no,,\n"
            ",,mine,4,no,not simulated: no such axis,\n");
}

TEST(Validation, ErrorsAreCountedPerSourceAndRefusedRowsApart) {
  std::vector<PublishedCase> cases = cases_of(
      "gpu,gpus,bytes,busbw_GBps,collective\na100,8,1073741824,229,all_reduce\na100,8,4096,1,all_to_all\n");
  const auto points = validate(std::move(cases), baton::test::small_machine(), [](std::size_t, std::size_t) { return true; });
  const auto errors = errors_by_source(points, false);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].points, 1U);
  EXPECT_EQ(errors[0].refused, 1U);
  EXPECT_EQ(errors[0].mean, std::abs(points[0].error()));
  EXPECT_NE(to_csv(points).find("all_to_all"), std::string::npos);
}

}  // namespace
}  // namespace baton::predict
