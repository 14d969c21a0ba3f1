#include "baton/lab/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/exec/backend/cuda/cuda.h"
#include "baton/exec/devices.h"
#include "baton/model/zoo.h"
#include "baton/op/traits.h"
#include "baton/schedule/schedule.h"

namespace baton::lab {
namespace {

std::string list_models() {
  std::vector<std::string> forms;
  for (const model::Kind& kind : model::zoo()) {
    forms.push_back(kind.forms);
  }
  forms.emplace_back("the path of a folder with a config.json and safetensors, or of an ONNX file (docs/huggingface.md)");
  return either(forms);
}

std::string list_backends() {
  std::vector<std::string> forms;
  for (const exec::BackendKind& kind : exec::backends()) {
    forms.push_back(fmt::format("{} ({})", kind.name, kind.summary));
  }
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
std::vector<std::string> schedule_names() { return names_of(schedule::schedules()); }
std::vector<std::string> cluster_names() { return names_of(cluster::catalogue()); }
std::vector<std::string> fold_names() { return {"auto", "always", "never"}; }

/// A field whose value is one of a few names. The help lists the names between `before` and `after`.
JobField choice(std::string name, std::string JobWords::*word, const std::string& before,
                std::function<std::vector<std::string>()> values, const std::string& after = "",
                std::vector<std::string> also = {}) {
  std::string help = before + either(values()) + after;
  return {std::move(name), word, "NAME", std::move(help), std::move(also), std::move(values)};
}

bool is_imagined(const JobWords& words) { return !words.cluster.empty() && !is_this_machine(words.cluster); }

/// The number of devices: `8`, or `gpu:8` in the form of this machine's devices; `cpu` alone means all devices of one node.
std::int64_t parse_count(const JobWords& words, std::int64_t in_node) {
  const std::string_view text = words.devices;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos && canonical(text) == JobWords{}.devices) {
    return std::max<std::int64_t>(in_node, 1);
  }
  return parse_integer(text.substr(colon == std::string_view::npos ? 0 : colon + 1),
                       fmt::format("--devices, with --cluster {} the number of its devices,", words.cluster), 1, 1 << 20);
}

/// The devices of another machine. If a link is given, it replaces the links of that machine.
cluster::Cluster imagine(const JobWords& words, std::optional<Bytes> memory, std::optional<cluster::Link> link) {
  cluster::Blueprint blueprint = cluster::blueprint_by_name(words.cluster);
  blueprint.device.memory = memory.value_or(blueprint.device.memory);
  if (link) {
    blueprint.wired = true;
    blueprint.wiring.port = blueprint.wiring.network = *link;
    blueprint.wiring.bus = 0;
  }
  return blueprint.take(parse_count(words, blueprint.in_node));
}

/// The fused tasks of simulated machines: all that exist.
strategy::Target imagined_target() {
  return {.joined = op::joint_ops(), .gradient_with_sgd = true, .narrow_gradient_with_sgd = true, .all_reduce_with_sgd = true};
}

cluster::Cluster make_cluster(const JobWords& words, const cluster::Machine& machine, exec::World* world) {
  std::optional<Bytes> memory;
  if (!words.memory.empty()) {
    memory = parse_bytes(words.memory, "--memory");
  }
  std::optional<cluster::Link> link;
  if (!words.link.empty()) {
    link = cluster::parse_link(words.link);
  }
  if (is_imagined(words)) {
    return imagine(words, memory, link);
  }
  return cluster::Cluster(world == nullptr ? exec::open_devices(words.devices, machine, memory)
                                           : exec::open_devices_of_ranks(words.devices, machine, memory, *world),
                          link);
}

Bytes parse_megabytes(const std::string& text, std::string_view flag) {
  return Bytes(static_cast<std::int64_t>(parse_number(text, flag, 0, 1e6) * 1048576.0));
}

std::int64_t parse_seed(const std::string& text) {
  return parse_integer(text, "--seed", 0, std::numeric_limits<std::int64_t>::max());
}

std::vector<std::string> gradient_names() { return {"same", "fp32"}; }

std::vector<std::string> decay_names() { return {"all", "matrices"}; }

op::Optimizer make_optimizer(const JobWords& words) {
  op::Optimizer optimizer = op::optimizer_by_name(words.optimizer);
  const auto set = [&](const std::string& text, std::string_view flag, double high, std::string_view field) {
    if (text.empty()) {
      return;
    }
    const double value = parse_number(text, flag, 0, high);
    bool known = false;
    op::attributes(optimizer, [&](std::string_view name, auto& setting) {
      if constexpr (std::is_same_v<std::decay_t<decltype(setting)>, double>) {
        if (name == field) {
          setting = value;
          known = true;
        }
      }
    });
    if (!known) {
      throw usage_error("optimizer {} has no {}", words.optimizer, flag);
    }
  };
  set(words.lr, "--lr", 1e6, "rate");
  set(words.momentum, "--momentum", 1, "momentum");
  set(words.weight_decay, "--weight-decay", 1e6, "weight_decay");
  set(words.clip, "--clip", 1e9, "clip");
  std::visit(
      [&](auto& settings) {
        settings.decay_matrices = index_of_name(decay_names(), words.decay, "--decay") == 1;
        settings.schedule = words.lr_schedule.empty() ? op::RateSchedule{} : op::parse_schedule(words.lr_schedule);
      },
      optimizer);
  return optimizer;
}

std::string read_schedule(const std::string& path) {
  constexpr Bytes most(std::int64_t{4} << 20);
  if (!std::filesystem::exists(path)) {
    throw usage_error("the schedule {} cannot be read: give a file, or a name: {}", path, either(schedule_names()));
  }
  return read_file(path, "the schedule " + path, most);
}

/// The name of the strategy; a layout without a name is a product.
std::string strategy_of(const JobWords& words, const Own& own) {
  if (own.strategy) {
    return own.strategy->name;
  }
  if (!words.strategy.empty()) {
    return strategy::strategy_by_name(words.strategy).name;
  }
  const bool layout = !words.dp.empty() || !words.pp.empty() || !words.tp.empty() || !words.zero.empty() ||
                      !words.schedule.empty() || own.schedule;
  return layout ? "product" : "single";
}

strategy::Precision make_precision(const JobWords& words, const cluster::Device& device) {
  const strategy::Precision precision = strategy::precision_by_name(words.precision);
  if (precision == strategy::Precision::tf32 && !device.gpu && !device.speed.rates.contains("tf32")) {
    throw usage_error("tf32 is how the matrix units of a GPU read float32 operands, and {} has none: choose another --precision",
                      device.name);
  }
  return precision;
}

std::optional<strategy::LossScale> make_loss_scale(const JobWords& words, strategy::Precision precision) {
  const std::int64_t growth = parse_integer(words.loss_scale_growth, "--loss-scale-growth", 1, 1 << 24);
  const std::string wanted = canonical(words.loss_scale);
  if (wanted == "none" || (wanted.empty() && precision != strategy::Precision::fp16)) {
    return std::nullopt;
  }
  if (wanted.empty() || wanted == "dynamic") {
    return strategy::LossScale{.growth_interval = growth};
  }
  try {
    return strategy::LossScale{.initial = parse_number(words.loss_scale, "--loss-scale", 1e-30, 1e30), .dynamic = false};
  } catch (const Error&) {
    throw usage_error("--loss-scale is '{}', but must be none, dynamic or a number from 1e-30 to 1e30", words.loss_scale);
  }
}

std::vector<std::string> sp_names() { return {"off", "on"}; }

strategy::Layout make_layout(const JobWords& words) {
  strategy::Layout layout;
  layout.bucket = parse_megabytes(words.bucket_mb, "--bucket-mb");
  layout.first_bucket = parse_megabytes(words.first_bucket_mb, "--first-bucket-mb");
  const auto count = [](const std::string& text, std::string_view flag, std::int64_t high) {
    return text.empty() ? 0 : parse_integer(text, flag, 1, high);
  };
  layout.micro_batches = count(words.micro_batches, "--micro-batches", 1 << 20);
  layout.dp = count(words.dp, "--dp", 1 << 20);
  layout.pp = count(words.pp, "--pp", 1 << 20);
  layout.tp = count(words.tp, "--tp", 1 << 20);
  layout.sp = index_of_name(sp_names(), words.sp, "--sp") == 1;
  layout.chunks = count(words.chunks, "--chunks", 1 << 10);
  if (!words.zero.empty()) {
    layout.zero = parse_integer(words.zero, "--zero", 0, 3);
  }
  layout.balance = strategy::balance_by_name(words.balance);
  layout.recompute = strategy::recompute_by_name(words.recompute);
  if (is_schedule_file(words.schedule)) {
    layout.grid = schedule::parse_csv(read_schedule(words.schedule));
  } else if (!words.schedule.empty()) {
    layout.schedule = schedule::schedule_by_name(words.schedule).name;
  }
  if (!words.split.empty()) {
    for (const std::string_view part : split(words.split, ',')) {
      layout.split.push_back(parse_integer(part, "a stage of --split", 1, 1 << 20));
    }
  }
  return layout;
}

std::vector<strategy::DelayRequest> make_delays(const std::string& text) {
  std::vector<strategy::DelayRequest> delays;
  if (!text.empty()) {
    for (const std::string_view delay : split(text, ';')) {
      delays.push_back(strategy::parse_delay(delay));
    }
  }
  return delays;
}

/// Above this number of devices, identical replicas are folded into one.
std::vector<std::string> software_names() {
  std::vector<std::string> names{"baton"};
  for (const cost::Software& known : cost::software_profiles()) {
    names.push_back(known.name);
  }
  return names;
}

std::size_t parse_fold(const std::string& text) {
  constexpr std::size_t few = 64;  // few enough to show each
  const std::string word = canonical(text);
  if (const std::vector<std::string> names = fold_names(); std::find(names.begin(), names.end(), word) == names.end()) {
    throw usage_error("--fold is '{}': choose {}", text, either(names));
  }
  return word == "auto" ? few : word == "always" ? 0 : std::numeric_limits<std::size_t>::max();
}

strategy::Loss make_loss(const JobWords& words, const model::Model& model) {
  if (!words.loss.empty()) {
    return strategy::loss_by_name(words.loss);
  }
  return model.output_kind() == model::Output::scores ? strategy::Loss::cross_entropy : strategy::Loss::mean_squared_error;
}

}  // namespace

const std::vector<JobField>& job_fields() {
  static const std::vector<JobField> fields{
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
       .help = list_backends() + " (default: the fastest one for the devices)",
       .values = exec::backend_names},
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
               "precision "
               "and host overhead; a name, or a file (default: Baton itself)",
       .values = software_names},
      {"what-if", &JobWords::what_if, "CHANGES", "simulate a changed machine, for example compute=2x,link=0.5x,latency=+10us"},
      choice("fold", &JobWords::fold, "simulate only one of many identical replicas and tensor parts: ", fold_names,
             "; auto does so above 64 devices"),
  };
  return fields;
}

bool is_this_machine(std::string_view cluster) { return canonical(cluster) == this_machine; }

bool is_schedule_file(const std::string& word) {
  return !word.empty() && schedule::find_schedule(word) == nullptr &&
         (word.ends_with(".csv") || word.find('/') != std::string::npos || std::filesystem::exists(word));
}

const JobField* find_field(std::string_view name) {
  const std::string wanted = canonical(name);
  for (const JobField& field : job_fields()) {
    if (field.name == wanted || std::find(field.also.begin(), field.also.end(), wanted) != field.also.end()) {
      return &field;
    }
  }
  return nullptr;
}

void set_word(JobWords& words, std::string_view name, std::string value) {
  if (const JobField* field = find_field(name)) {
    words.*field->word = std::move(value);
    return;
  }
  std::vector<std::string> names;
  for (const JobField& field : job_fields()) {
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
    const JobField* field = find_field(name);
    if (field == nullptr) {
      throw usage_error("[job] of the software profile {} has '{}', which is no word of a job", words.software, name);
    }
    if (words.*field->word == usual.*field->word) {
      words.*field->word = value;
    }
  }
  return words;
}

Job::Job(const JobWords& given, cluster::Machine machine, exec::World* world, Own own)
    : Job(Ready{}, with_software(given), std::move(machine), world, std::move(own)) {}

Job::Job(Ready /*ready*/, const JobWords& words, cluster::Machine machine, exec::World* world, Own own)
    : words_(words),
      own_(std::move(own)),
      world_(world),
      machine_(world == nullptr ? std::move(machine) : exec::share_of(machine, *world)),
      model_((own_.model ? *own_.model : model::parse_model(words.model)).with_seed(parse_seed(words.seed))),
      cluster_(make_cluster(words, machine_, world)),
      backend_(exec::make_backend(exec::backend_for(cluster_.devices(), words.backend))),
      seed_(static_cast<std::uint64_t>(parse_seed(words.seed))),
      samples_(parse_integer(words.samples, "--samples", 0, std::numeric_limits<std::int64_t>::max())),
      what_if_(parse_what_if(words.what_if)),
      software_(cost::software_by_name(words.software)),
      fold_beyond_(parse_fold(words.fold)),
      request_{.model = model_,
               .cluster = cluster_,
               .strategy = strategy_of(words, own_),
               .step = {.global_batch = parse_integer(words.batch, "--batch", 1, 1 << 30),
                        .loss = make_loss(words, model_),
                        .optimizer = make_optimizer(words),
                        .precision = make_precision(words, cluster_.devices()[0]),
                        .loss_scale = make_loss_scale(words, make_precision(words, cluster_.devices()[0])),
                        .label_smoothing = parse_number(words.label_smoothing, "--label-smoothing", 0, 1),
                        .wide_gradients = index_of_name(gradient_names(), words.gradients, "--gradients") == 1},
               .layout = make_layout(words),
               .target = is_imagined(words) ? imagined_target() : backend_->target(),
               .delays = make_delays(words.delay)} {
  words_.backend = backend_->name();
  words_.loss = strategy::to_text(request_.step.loss);
  if (own_.model) {
    words_.model = own_.model->name();
  }
  if (own_.strategy) {
    words_.strategy = own_.strategy->name;
  }
  if (own_.duration && !imagined()) {
    throw usage_error("a cost model of your own is for a simulated machine: name one with --cluster, \"ideal\" if none is meant");
  }
  take_schedule();
  if (request_.step.wide_gradients && request_.step.precision == strategy::Precision::fp64) {
    throw usage_error("--gradients fp32 is for 16-bit training: with --precision fp64 gradients are fp64");
  }
  if (request_.step.label_smoothing > 0 && request_.step.loss != strategy::Loss::cross_entropy) {
    throw usage_error("--label-smoothing spreads the targets of cross-entropy, but the loss is {}: add --loss cross-entropy",
                      strategy::to_text(request_.step.loss));
  }
  if (!imagined() && request_.step.precision == strategy::Precision::fp64 && words_.backend == "cpu") {
    throw usage_error(
        "the cpu backend has no kernels for fp64: --backend reference computes it, slowly, or choose another --precision");
  }
  open_data();
  if (samples_ > 0 && samples_ < request_.step.global_batch) {
    throw usage_error("--samples is {}, but a batch alone takes {}", samples_, request_.step.global_batch);
  }
}

const strategy::Strategy& Job::strategy() const {
  return own_.strategy ? *own_.strategy : strategy::strategy_by_name(request_.strategy);
}

void Job::take_schedule() {
  if (!own_.schedule) {
    return;
  }
  const strategy::NamedLayout* named = strategy().layout();
  if (named == nullptr) {
    throw usage_error("strategy {} has no pipeline, so it takes no schedule", request_.strategy);
  }
  strategy::Layout& layout = request_.layout;
  const auto devices = static_cast<std::int64_t>(cluster_.size());
  const std::int64_t others = std::max<std::int64_t>(layout.dp, 1) * std::max<std::int64_t>(layout.tp, 1);
  layout.pp = layout.pp > 0 ? layout.pp : std::max<std::int64_t>(devices / others, 1);
  const std::int64_t pieces = layout.micro_batches > 0 ? layout.micro_batches : 2 * layout.pp;
  layout.grid = own_.schedule({.devices = layout.pp, .chunks = std::max<std::int64_t>(layout.chunks, 1), .micro_batches = pieces});
  layout.schedule.clear();
  layout.chunks = 0;
}

void Job::open_data() {
  const JobWords usual;
  if (!own_.data && (words_.data.empty() || data::is_random(words_.data))) {
    for (const auto& [flag, word] :
         {std::pair("--tokenizer", &JobWords::tokenizer), std::pair("--token-type", &JobWords::token_type),
          std::pair("--normalize", &JobWords::normalize), std::pair("--augment", &JobWords::augment)}) {
      if (words_.*word != usual.*word) {
        throw usage_error("{} says how data is read, and there is none: give some with --data", flag);
      }
    }
    return;
  }
  if (simulated()) {
    throw usage_error("a simulated step reads no data: leave out --data");
  }
  if (samples_ > 0) {
    throw usage_error("--samples counts random samples, and --data brings its own: leave out one of them");
  }
  data_ = std::make_unique<JobData>(words_, model_, request_.step.loss, request_.step.global_batch, seed_, own_.data);
  request_.step.loads_ahead = true;
}

std::optional<strategy::Folded> Job::fold() const {
  return imagined() && cluster_.size() > fold_beyond_ ? strategy::fold(request_, strategy()) : std::nullopt;
}

bool Job::imagined() const { return is_imagined(words_); }

plan::Limits Job::limits(const plan::Plan& plan) const {
  plan::Limits limits = exec::limits(plan, cluster_, *backend_);
  if (imagined()) {
    limits.has_kernel = nullptr;
  }
  return limits;
}

std::optional<double> peak_flops(const Job& job) {
  const strategy::Precision precision = job.request().step.precision;
  const std::string type(precision == strategy::Precision::tf32 ? "tf32" : to_text(strategy::dtype_of(precision)));
  double sum = 0;
  for (const cluster::Device& device : job.cluster().devices()) {
    if (!device.gpu) {
      return std::nullopt;
    }
    const std::vector<cluster::Gpu> gpus = exec::find_gpus();
    const auto ordinal = static_cast<std::size_t>(device.gpu->ordinal);
    const cluster::Speed* speed = nullptr;
    const std::vector<cluster::Blueprint>& known = cluster::catalogue();
    for (const cluster::Blueprint& blueprint : known) {
      const std::string model = "NVIDIA " + blueprint.device.name;
      if (ordinal < gpus.size() && (gpus[ordinal].name == model || gpus[ordinal].name.starts_with(model + " "))) {
        speed = &blueprint.device.speed;
      }
    }
    const auto rate = speed == nullptr ? decltype(speed->rates.end())() : speed->rates.find(type);
    if (speed == nullptr || rate == speed->rates.end()) {
      return std::nullopt;
    }
    sum += rate->second / device.gpu->of;
  }
  return sum;
}

std::string Job::oversubscription() const {
  if (const std::size_t ranks = cluster_.most_ranks_on_a_gpu(); ranks > 1) {
    return fmt::format(
        "{} ranks share a GPU: their kernels take turns on it, so this run is real but slower than on GPUs of their own", ranks);
  }
  if (!cluster_.oversubscribed()) {
    return {};
  }
  std::set<std::pair<int, int>> cores;
  for (const cluster::Device& device : cluster_.devices()) {
    for (const int core : device.cores) {
      cores.emplace(device.machine, core);
    }
  }
  return fmt::format("{} devices share {} core{}: they take turns, so this run is real but slower than on cores of their own",
                     cluster_.size(), cores.size(), cores.size() == 1 ? "" : "s");
}

}  // namespace baton::lab
