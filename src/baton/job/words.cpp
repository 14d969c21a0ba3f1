#include "baton/job/words.h"

#include <algorithm>
#include <filesystem>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/cost/software.h"
#include "baton/model/zoo.h"
#include "baton/op/optimizer.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/strategy.h"

namespace baton::job {
namespace {

std::string list_models() {
  std::vector<std::string> forms;
  for (const model::Kind& kind : model::zoo()) {
    forms.push_back(kind.forms);
  }
  forms.emplace_back("the path of a folder with a config.json and safetensors, or of an ONNX file (docs/huggingface.md)");
  return either(forms);
}

/// The names of a list, in its order.
std::vector<std::string> names_of(const auto& list) {
  std::vector<std::string> names;
  for (const auto& one : list) {
    names.push_back(one.name);
  }
  return names;
}

std::vector<std::string> strategy_names() { return names_of(strategy::strategies()); }
std::vector<std::string> software_names() {
  std::vector<std::string> names{"baton"};
  for (const cost::Software& known : cost::software_profiles()) {
    names.push_back(known.name);
  }
  return names;
}

std::vector<std::string> cluster_names() { return names_of(cluster::catalogue()); }

/// A field whose value is one of a few names. The help lists the names between `before` and `after`.
JobField choice(std::string name, std::string JobWords::*word, const std::string& before,
                std::function<std::vector<std::string>()> values, const std::string& after = "",
                std::vector<std::string> also = {}) {
  std::string help = before + either(values()) + after;
  return {std::move(name), word, "NAME", std::move(help), std::move(also), std::move(values)};
}

}  // namespace

std::vector<std::string> decay_names() { return {"all", "matrices"}; }
std::vector<std::string> fold_names() { return {"auto", "always", "never"}; }
std::vector<std::string> gradient_names() { return {"same", "fp32"}; }
std::vector<std::string> schedule_names() { return names_of(schedule::schedules()); }
std::vector<std::string> sp_names() { return {"off", "on"}; }

const std::vector<JobField>& fields() {
  static const std::vector<JobField> list{
      {"model", &JobWords::model, "MODEL", list_models(), {"m"}},
      choice("strategy", &JobWords::strategy, "", strategy_names,
             " (default: single; product if --dp, --pp, --tp, --zero or --schedule is given)", {"s"}),
      {"devices",
       &JobWords::devices,
       "DEVICES",
       "cpu (one device), cpu:4 (four, called cpu:0 to cpu:3), cpu:0-3,4-7 (by cores), cuda (every GPU), cuda:0,1, cuda:0/4 (four "
       "parts of one GPU)",
       {"d"}},
      {"batch",
       &JobWords::batch,
       "N",
       "global batch: the samples per step over all devices together, at least 1",
       {"b", "global-batch", "batch-size"}},
      {"dp", &JobWords::dp, "N", "number of replicas of the model; dp × pp × tp is the number of devices"},
      {"pp", &JobWords::pp, "N", "number of devices that the layers of each replica are spread over"},
      {"tp", &JobWords::tp, "N", "number of devices that each pair of Linear layers is split over"},
      choice("sp", &JobWords::sp, "with --tp: divide the sequence over the same devices between the divided layers: ", sp_names),
      {"zero", &JobWords::zero, "0..3",
       "ZeRO stage: 1 shards optimizer states over the replicas, 2 also gradients, 3 also parameters; 0 shards nothing"},
      choice("schedule", &JobWords::schedule, "schedule of a pipeline: ", schedule_names,
             ", or a file in PyTorch's notation (.csv)"),
      {"chunks", &JobWords::chunks, "N", "pipeline stages per device, for schedules that interleave stages (default: 2)"},
      {"split", &JobWords::split, "N,N,...", "blocks per pipeline stage, for example 3,3"},
      choice("balance", &JobWords::balance, "without --split: assign blocks to stages by ", strategy::balance_names),
      choice("recompute", &JobWords::recompute,
             "free activations in the forward and recompute them in the backward: ", strategy::recompute_names),
      {"micro-batches",
       &JobWords::micro_batches,
       "N",
       "split the batch of each replica into N micro-batches and accumulate their gradients (default: 1; with a pipeline schedule: "
       "twice the number of its devices)",
       {"accumulate"}},
      {"bucket-mb", &JobWords::bucket_mb, "MiB", "ddp: size of the buckets in which gradients are all-reduced"},
      {"first-bucket-mb", &JobWords::first_bucket_mb, "MiB", "ddp: size of the first bucket"},
      choice("loss", &JobWords::loss, "", strategy::loss_names,
             " (default: cross-entropy for models that give scores of classes or tokens, mse for the others)"),
      {"label-smoothing", &JobWords::label_smoothing, "0..1",
       "cross-entropy: the share of a target that is spread evenly over all classes (default: 0)"},
      choice("optimizer", &JobWords::optimizer, "", op::optimizer_names),
      {"lr",
       &JobWords::lr,
       "NUMBER",
       "learning rate (default: 0.01 for sgd and momentum, 0.001 for adam and adamw)",
       {"learning-rate"}},
      {"momentum", &JobWords::momentum, "0..1", "momentum of sgd"},
      {"weight-decay", &JobWords::weight_decay, "NUMBER", "weight decay, at least 0 (default: 0.01 for adamw, 0 for the others)"},
      choice("decay", &JobWords::decay,
             "which parameters weight decay acts on; matrices leaves out biases and gains of norms: ", decay_names),
      {"lr-schedule", &JobWords::lr_schedule, "SCHEDULE",
       "how the learning rate changes over the steps: cosine:until=1000,warmup=100,floor=0.1, linear:until=1000, "
       "step:every=300,gamma=0.1 or constant:warmup=100 (default: it stays)"},
      {"clip",
       &JobWords::clip,
       "NORM",
       "clip gradients: if the norm of all of them together exceeds this, scale them down to it (default: 0, which clips nothing)",
       {"clip-norm", "clip-grad-norm", "grad-clip", "max-grad-norm"}},
      choice("precision", &JobWords::precision, "", strategy::precision_names,
             "; bf16 and fp16 keep float32 weights (mixed is fp16), tf32 needs a GPU, fp64 needs the reference backend"),
      choice("gradients", &JobWords::gradients, "in 16-bit training, the type of the gradients of parameters: ", gradient_names,
             "; same is the 16-bit type, fp32 is what PyTorch's autocast has"),
      {"loss-scale", &JobWords::loss_scale, "SCALE",
       "none, dynamic (halved after an overflow) or a fixed number (default: dynamic for fp16, none otherwise)"},
      {"loss-scale-growth", &JobWords::loss_scale_growth, "N", "double a dynamic loss scale after N steps without overflow"},
      {.name = "delay",
       .word = &JobWords::delay,
       .type = "DELAY",
       .help = "make a device wait: before=forward|backward|update,device=all|N,ms=10; may be given several times",
       .repeatable = true},
      {"link", &JobWords::link, "LINK",
       "slow down the links between devices: bandwidth=1GB/s,latency=50us (in a simulation also core=0.2, the share of a core that "
       "a transfer takes)"},
      {"memory", &JobWords::memory, "SIZE", "memory per device, for example 512M (default: an even share of the machine's memory)"},
      {.name = "backend",
       .word = &JobWords::backend,
       .type = "NAME",
       .help = "what computes on the devices (default: the fastest one for them)"},
      {"seed", &JobWords::seed, "N", "seed of the random weights and data, at least 0"},
      {"samples", &JobWords::samples, "N", "random samples in the data set; 0 means the same batch in every step"},
      {"data", &JobWords::data, "SOURCE",
       "train on this: a file or folder of tokens, text, images or arrays, as docs/data.md lists them (default: random, numbers "
       "drawn "
       "from the seed)"},
      {"tokenizer", &JobWords::tokenizer, "NAME",
       "with a text as --data: bytes, chars, or the file or folder of a tokenizer (default: what lies beside the data, or bytes)"},
      {"token-type", &JobWords::token_type, "NAME", "with token files that have no header: uint16 or uint32"},
      {"normalize", &JobWords::normalize, "NAME",
       "with images: none, mnist, fashion-mnist, cifar10, cifar100, imagenet or MEAN/DEVIATION (default: pixels from -1 to 1)"},
      {"augment", &JobWords::augment, "CHANGES", "with images, random changes while training: none, flip, crop=4 or crop=4,flip"},
      {.name = "cluster",
       .word = &JobWords::cluster,
       .type = "CLUSTER",
       .help = "the machine to simulate: machine (this one), a name from `baton clusters`, NAME+NETWORK, or a file; "
               "--devices is then the number of its devices",
       .values = cluster_names},
      {.name = "software",
       .word = &JobWords::software,
       .type = "NAME",
       .help = "with --cluster: the program that is simulated, by a profile of profiles/: its fusions, recomputation, overlap, "
               "precision and host overhead; a name, or a file (default: Baton itself)",
       .values = software_names},
      {"what-if", &JobWords::what_if, "CHANGES", "simulate a changed machine, for example compute=2x,link=0.5x,latency=+10us"},
      choice("fold", &JobWords::fold, "simulate only one of many identical replicas and tensor parts: ", fold_names,
             "; auto does so above 64 devices"),
  };
  return list;
}

bool is_imagined(const JobWords& words) { return !words.cluster.empty() && !is_this_machine(words.cluster); }

bool is_this_machine(std::string_view cluster) { return canonical(cluster) == this_machine; }

bool is_schedule_file(const std::string& word) {
  return !word.empty() && schedule::find_schedule(word) == nullptr &&
         (word.ends_with(".csv") || word.find('/') != std::string::npos || std::filesystem::exists(word));
}

const JobField* find_field(const std::vector<JobField>& fields, std::string_view name) {
  const std::string wanted = canonical(name);
  for (const JobField& field : fields) {
    if (field.name == wanted || std::find(field.also.begin(), field.also.end(), wanted) != field.also.end()) {
      return &field;
    }
  }
  return nullptr;
}

void set_word(JobWords& words, std::string_view name, std::string value) {
  if (const JobField* field = find_field(fields(), name)) {
    words.*field->word = std::move(value);
    return;
  }
  std::vector<std::string> names;
  for (const JobField& field : fields()) {
    names.push_back(field.name);
  }
  throw usage_error("a job has no '{}'{}: choose {}", name, did_you_mean(name, names), either(names));
}

JobWords with_software(JobWords words) {
  if (words.software.empty()) {
    return words;
  }
  if (!is_imagined(words)) {
    throw usage_error("--software says which program runs on a simulated machine: add --cluster");
  }
  const JobWords usual;
  for (const auto& [name, value] : cost::software_by_name(words.software).job) {
    const JobField* field = find_field(fields(), name);
    if (field == nullptr) {
      throw usage_error("[job] of the software profile {} has '{}', which is no word of a job", words.software, name);
    }
    if (words.*field->word == usual.*field->word) {
      words.*field->word = value;
    }
  }
  return words;
}

}  // namespace baton::job
