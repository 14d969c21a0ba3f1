#include "baton/sheet/twins.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/machine.h"
#include "baton/job/step_json.h"
#include "baton/lab/json.h"
#include "baton/model/settings.h"
#include "baton/model/zoo.h"
#include "baton/sheet/texts.h"

namespace baton::sheet {
namespace {

using Conditions = std::set<std::string, std::less<>>;

std::string_view text_of(std::string_view name) {
  const auto texts = twin_texts();
  const auto found = std::find_if(texts.begin(), texts.end(),
                                  [&](const auto& one) { return one.first == fmt::format("{}.py", name); });
  check(found != texts.end(), "there is no template {} of a twin", name);
  return found->second;
}

/// Fills in a template. A line `#: if NAME` begins lines that are kept if the condition holds, `#: else` and `#: end` as usual; `#:
/// settings` stands for the settings, `#: network` for the file of the kind of model, and any other word for the file of that name.
class Template {
 public:
  Template(const Conditions& conditions, std::string settings, std::string network)
      : conditions_(conditions), settings_(std::move(settings)), network_(std::move(network)) {}

  std::string fill(std::string_view text) const {
    std::string out;
    std::vector<bool> kept;
    for (std::string_view line : split(text, '\n')) {
      const std::size_t mark = line.find("#: ");
      if (mark == std::string_view::npos || line.find_first_not_of(' ') != mark) {
        if (std::find(kept.begin(), kept.end(), false) == kept.end()) {
          out.append(line).append("\n");
        }
        continue;
      }
      const std::string_view word = line.substr(mark + 3);
      if (word.starts_with("if ")) {
        kept.push_back(conditions_.contains(word.substr(3)));
      } else if (word == "else") {
        kept.back() = !kept.back();
      } else if (word == "end") {
        kept.pop_back();
      } else if (word == "settings") {
        out += settings_;
      } else if (word == "network") {
        out += fill(text_of("network_" + network_));
      } else {
        out += fill(text_of(word));
      }
    }
    check(kept.empty(), "a template of a twin leaves an if open");
    out.resize(out.find_last_not_of('\n') + 1);
    return out + "\n";
  }

 private:
  const Conditions& conditions_;
  std::string settings_;
  std::string network_;
};

/// The strategies that PyTorch has as well, and its names for them.
const std::vector<std::pair<std::string, std::string>>& kinds() {
  static const std::vector<std::pair<std::string, std::string>> list{
      {"single", "single"}, {"dp", "dp"}, {"ddp", "ddp"}, {"layers", "layers"}, {"zero-3", "fsdp"}};
  return list;
}

std::string kind_of(const job::JobSpec& spec) {
  const std::string name = spec.strategy.value_or("single").name();
  for (const auto& [ours, theirs] : kinds()) {
    if (ours == name) {
      return theirs;
    }
  }
  throw usage_error("there is a PyTorch twin of single, dp, ddp, layers and fsdp, but not of {}", name);
}

void require_twin(const job::JobSpec& spec, const std::string& kind) {
  for (const std::string& name : fields_without_twin()) {
    const job::JobField* field = training::find_field(name);
    if (field->given(spec)) {
      throw usage_error("a PyTorch twin has no --{}: leave it out", name);
    }
  }
  if (!spec.delays.empty() && (kind == "dp" || kind == "layers")) {
    throw usage_error("the PyTorch twin of {} has no --delay, since one process drives all its devices: try single, ddp or fsdp",
                      kind);
  }
  if (spec.precision == strategy::Precision::fp64) {
    throw usage_error("a PyTorch twin computes in fp32, tf32, bf16 or fp16, not in fp64");
  }
}

/// The number of devices, if the list says it; nullopt if it means all GPUs there are.
std::optional<std::int64_t> device_count(const job::DeviceList& list) {
  constexpr std::int64_t most = 4096;
  if (const std::optional<std::int64_t> count = list.count()) {
    return *count >= 1 && *count <= most ? *count : parse_integer(list.text(), "--devices", 1, most);
  }
  const cluster::DeviceNames names = list.names();
  if (const std::optional<cluster::GpuNames> gpus = cluster::gpus_of(names)) {
    if (gpus->parts > 0) {
      throw usage_error("PyTorch has no parts of a GPU: give --devices cuda or cuda:0,1");
    }
    return gpus->numbers.empty() ? std::nullopt : std::optional(static_cast<std::int64_t>(gpus->numbers.size()));
  }
  if (const auto* sets = std::get_if<cluster::CoreSets>(&names)) {
    return static_cast<std::int64_t>(sets->devices.size());
  }
  const auto* cpus = std::get_if<cluster::CpuNames>(&names);
  return static_cast<std::int64_t>((cpus != nullptr ? *cpus : cluster::parse_cpu_names(std::get<std::string>(names))).devices());
}

std::string python_list(const std::vector<std::int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

std::string quoted(const std::string& text) { return lab::Json(text).dump(); }

/// The kinds of models that there are twins of.
bool reads_tokens(const std::string& kind) { return kind == "gpt" || kind == "llama"; }
bool reads_images(const std::string& kind) { return kind == "cnn" || kind == "resnet" || kind == "vit" || kind == "mixer"; }

/// The sizes of a model as settings of a script: `kv-heads=4` is KV_HEADS = 4.
std::vector<std::pair<std::string, std::string>> sizes_of(const model::ModelName& recipe) {
  const std::string& kind = recipe.kind();
  std::vector<std::pair<std::string, std::string>> sizes;
  for (const model::ModelSetting& setting : recipe.settings().list()) {
    if (!setting.key) {
      const std::string list = fmt::format("{}", fmt::join(setting.sizes("a size of the model", 1, model::max_width), ","));
      sizes.emplace_back(kind == "resnet" ? "LAYERS" : "WIDTHS", kind == "resnet" ? list : "[" + list + "]");
      continue;
    }
    std::string name = *setting.key;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
    if (kind == "mixer" && (name == "TOKENS" || name == "CHANNELS")) {
      name = name == "TOKENS" ? "TOKEN_HIDDEN" : "CHANNEL_HIDDEN";
    }
    sizes.emplace_back(name == "BASE" ? "ROTARY_BASE" : name, setting.value_text());
  }
  const auto usually = [&](const char* name, const char* value) {
    if (std::none_of(sizes.begin(), sizes.end(), [&](const auto& size) { return size.first == name; })) {
      sizes.emplace_back(name, value);
    }
  };
  if (kind == "llama") {
    usually("ROTARY_BASE", "10000");
  } else if (kind != "gpt" && kind != "cnn") {
    usually("CHANNELS", "3");
  }
  if (kind == "resnet") {
    usually("WIDTH", "64");
  }
  return sizes;
}

/// The scripts have the networks as they usually are.
void refuse_other_settings(const model::ModelName& recipe) {
  const std::set<std::string_view> usual{"depth", "heads",   "kv-heads", "dim",   "context", "vocab",  "base",
                                         "image", "classes", "width",    "group", "patch",   "dropout"};
  const std::string& kind = recipe.kind();
  for (const model::ModelSetting& setting : recipe.settings().list()) {
    const std::string key = setting.name();
    const bool own = (key == "hidden" && kind == "llama") ||
                     ((key == "channels" || key == "tokens") && (kind == "cnn" || kind == "mixer"));
    if (setting.key && !usual.contains(key) && !own) {
      throw usage_error("the PyTorch twin of a {} model does not have {}", kind, setting.text());
    }
  }
}

std::vector<std::int64_t> widths_of(const model::Model& model) {
  std::vector<std::int64_t> widths{model.input()[0]};
  for (const model::Block& block : model.blocks()) {
    const bool linear_relu = block.nodes.size() == 2 && std::holds_alternative<op::Linear>(block.nodes[0].op) &&
                             std::holds_alternative<op::Relu>(block.nodes[1].op);
    if (!linear_relu) {
      throw usage_error("there are PyTorch twins of mlp, gpt, llama, cnn, resnet, vit and mixer models, and {} is none of these",
                        model.name());
    }
    widths.push_back(block.output()[0]);
  }
  return widths;
}

/// The fields that do not have their default values.
std::string changed_fields(const job::JobSpec& spec) {
  lab::Json list = lab::Json::object();
  for (const job::JobField& field : training::job_fields()) {
    if (field.given(spec)) {
      list[field.name] = job::to_json(field.value(spec));
    }
  }
  return list.dump();
}

struct Optimizer {
  std::string kind;
  double rate = 0;
  double momentum = 0;
  double weight_decay = 0;
  op::RateSchedule schedule = {};
  bool decay_matrices = false;
};

Optimizer optimizer_of(const op::Optimizer& optimizer) {
  if (const auto* sgd = std::get_if<op::Sgd>(&optimizer)) {
    return {"sgd", sgd->rate, sgd->momentum, sgd->weight_decay, sgd->schedule, sgd->decay_matrices};
  }
  const auto& adam = std::get<op::Adam>(optimizer);
  return {adam.decoupled ? "adamw" : "adam", adam.rate, 0, adam.weight_decay, adam.schedule, adam.decay_matrices};
}

/// The factor of the learning rate at a step, numbered from 1, as Python code.
std::string factor_of(const op::RateSchedule& schedule) {
  const std::string passed = schedule.warmup > 0 ? fmt::format("(step - {})", 1 + schedule.warmup) : "(step - 1)";
  std::string factor = "1.0";
  if (schedule.every > 0) {
    factor = fmt::format("{} ** ({} // {})", schedule.gamma, passed, schedule.every);
  } else if (const std::int64_t until = std::max(schedule.linear_until, schedule.cosine_until); until > 0) {
    const std::int64_t length = until - 1 - schedule.warmup;
    const std::string gone = length > 0 ? fmt::format("min(1.0, {} / {})", passed, length) : "1.0";
    const std::string left = schedule.linear_until > 0 ? fmt::format("(1 - {})", gone)
                                                       : fmt::format("(1 + math.cos(math.pi * {})) / 2", gone);
    factor = fmt::format("{} + {} * {}", schedule.floor, 1 - schedule.floor, left);
  }
  return schedule.warmup > 0 ? fmt::format("step / {} if step <= {} else {}", schedule.warmup, schedule.warmup, factor) : factor;
}

std::string delays_of(const std::vector<strategy::DelayRequest>& delays) {
  std::string list;
  for (const strategy::DelayRequest& delay : delays) {
    list += fmt::format("{}(\"{}\", {}, {})", list.empty() ? "" : ", ", plan::to_text(delay.before),
                        delay.device < 0 ? "\"all\"" : std::to_string(delay.device),
                        static_cast<double>(delay.duration.count) / 1e9);
  }
  return "[" + list + "]";
}

/// The job is checked as one of a machine that has all kinds of devices, whatever there is here.
training::Job checked_job(job::JobSpec spec, const std::string& kind, std::optional<std::int64_t> count) {
  spec.cluster = "dgx-a100";
  spec.devices = kind == "single" ? 1 : count.value_or(1);
  return training::Job(spec, {});
}

/// Lines of a script that set its constants.
class Settings {
 public:
  void say(std::string_view name, const std::string& value, std::string_view remark = "") {
    text_ += fmt::format("{} = {}{}{}\n", name, value, remark.empty() ? "" : "  # ", remark);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_ = "\n# The options of `baton train`.\n";
};

/// A job of which there is a twin.
struct TwinJob {
  /// A usage error says why there is none.
  explicit TwinJob(const job::JobSpec& of)
      : spec(of), kind(kind_of(of)), devices(counted_devices(of, kind)), job(checked_job(of, kind, devices)) {
    strategy::compile(request());
    if (model::is_path(name())) {
      throw usage_error("there is no PyTorch twin of {}: it is a file, not a model of Baton's", name());
    }
    recipe = model::recipe_of(name());
    graph = reads_tokens(recipe.kind()) || reads_images(recipe.kind());
    require_script();
    widths = graph ? std::vector<std::int64_t>() : widths_of(job.model());
    optimizer = optimizer_of(request().step.optimizer);
    precision = strategy::to_text(request().step.precision);
    loss = strategy::to_text(request().step.loss);
    micro_batches = std::max<std::int64_t>(1, request().layout.micro_batches);
  }

  const std::string& name() const { return job.model().name(); }
  const strategy::Request& request() const { return job.request(); }

  /// The conditions that the templates ask for.
  Conditions conditions() const {
    Conditions conditions{kind, optimizer.kind, loss, precision};
    const auto set = [&](const char* condition, bool holds) {
      if (holds) {
        conditions.insert(condition);
      }
    };
    set("cross-entropy", loss == "cross-entropy" || loss == "cross_entropy");
    set("graph", graph);
    set("tokens", reads_tokens(recipe.kind()));
    set("images", reads_images(recipe.kind()));
    set("mlp", !graph);
    set("stack", !graph && std::adjacent_find(widths.begin(), widths.end(), std::not_equal_to<>()) == widths.end());
    set("micro", micro_batches > 1);
    set("smooth", request().step.label_smoothing > 0);
    set("scheduled", optimizer.schedule != op::RateSchedule{});
    set("matrices", optimizer.decay_matrices);
    set("dropped", recipe.settings().find("dropout") != nullptr);
    set("clipped", op::clip_of(request().step.optimizer) > 0);
    set("delay", !request().delays.empty());
    set("split", !request().layout.split.empty());
    set("mixed", precision == "bf16" || precision == "fp16");
    set("scaled", precision == "fp16");
    return conditions;
  }

  std::string settings(const TwinRun& run, const Conditions& conditions) const {
    Settings settings;
    say_model(settings);
    say_step(settings);
    say_optimizer(settings, conditions);
    say_precision(settings, conditions);
    say_split(settings, conditions);
    settings.say("SEED", std::to_string(job.seed()));
    settings.say("STEPS", std::to_string(run.steps), "the first ones included,");
    settings.say("WARMUP", std::to_string(run.warmup), "the number of these steps that are not timed");
    settings.say("TWIN_OF", changed_fields(spec));
    return settings.text() + "\n\n";
  }

  const job::JobSpec& spec;
  std::string kind;
  std::optional<std::int64_t> devices;  // nullopt: all GPUs there are
  training::Job job;
  model::ModelName recipe = "";  // with a kind of the zoo
  bool graph = false;            // true if the model has more than Linear and ReLU
  std::vector<std::int64_t> widths;
  Optimizer optimizer;
  std::string precision;
  std::string loss;
  std::int64_t micro_batches = 1;

 private:
  static std::optional<std::int64_t> counted_devices(const job::JobSpec& spec, const std::string& kind) {
    require_twin(spec, kind);
    return device_count(spec.devices);
  }

  /// The scripts do not have everything for every kind of model.
  void require_script() const {
    if (graph && (kind == "layers" || kind == "dp")) {
      throw usage_error("there is a PyTorch twin of {} for stacks of Linear+ReLU blocks, but none for {}: try single, ddp or fsdp",
                        kind, name());
    }
    if (graph && request().step.loss != strategy::Loss::cross_entropy) {
      throw usage_error("the PyTorch twin of {} has cross-entropy as its loss", name());
    }
    if (graph) {
      refuse_other_settings(recipe);
    }
    if (recipe.settings().find("group") != nullptr) {
      throw usage_error("PyTorch's BatchNorm has no groups of samples: leave out group=N");
    }
  }

  void say_model(Settings& settings) const {
    settings.say("MODEL", quoted(name()));
    if (graph) {
      for (const auto& [size, value] : sizes_of(recipe)) {
        settings.say(size, value);
      }
    } else {
      settings.say("WIDTHS", python_list(widths), "of the input, and of what each block of Linear + ReLU gives");
    }
    settings.say("PARAMETERS", std::to_string(job.model().parameter_count()));
  }

  void say_step(Settings& settings) const {
    settings.say("STRATEGY", quoted(kind));
    if (kind == "layers") {
      settings.say("DEVICES", devices ? std::to_string(*devices) : "None", "at most this many; None: all GPUs there are");
    } else {
      settings.say("DEVICES", devices ? std::to_string(*devices) : "torch.cuda.device_count()");
    }
    settings.say("BATCH", std::to_string(request().step.global_batch), "global: over all devices");
    settings.say("SAMPLES", std::to_string(job.samples()), "in the data set; 0: the same batch at every step");
    settings.say("LOSS", quoted(loss));
    if (request().step.label_smoothing > 0) {
      settings.say("LABEL_SMOOTHING", fmt::format("{}", request().step.label_smoothing));
    }
  }

  void say_optimizer(Settings& settings, const Conditions& conditions) const {
    settings.say("OPTIMIZER", quoted(spec.optimizer));
    settings.say("LEARNING_RATE", fmt::format("{}", optimizer.rate));
    if (optimizer.kind == "sgd") {
      settings.say("MOMENTUM", fmt::format("{}", optimizer.momentum));
    }
    if (op::clip_of(request().step.optimizer) > 0) {
      settings.say("CLIP", fmt::format("{}", op::clip_of(request().step.optimizer)), "the largest norm of all gradients together");
    }
    settings.say("WEIGHT_DECAY", fmt::format("{}", optimizer.weight_decay), optimizer.decay_matrices ? "of matrices only" : "");
    if (conditions.contains("scheduled")) {
      settings.say("RATE_FACTOR", "lambda step: " + factor_of(optimizer.schedule),
                   "of the learning rate; steps are numbered from 1");
    }
  }

  void say_precision(Settings& settings, const Conditions& conditions) const {
    settings.say("PRECISION", quoted(precision));
    if (conditions.contains("mixed")) {
      settings.say("AUTOCAST", precision == "bf16" ? "torch.bfloat16" : "torch.float16", "of products; weights stay in float32");
    }
    if (conditions.contains("scaled")) {
      settings.say("SCALER", "torch.cuda.amp.GradScaler()", "keeps small gradients from becoming zero in 16 bits");
    }
  }

  void say_split(Settings& settings, const Conditions& conditions) const {
    if (micro_batches > 1 || kind == "layers") {
      settings.say("MICRO_BATCHES", std::to_string(micro_batches));
    }
    if (kind == "ddp") {
      settings.say("BUCKET_MB", training::find_field("bucket-mb")->text(spec));
    }
    if (conditions.contains("split")) {
      settings.say("SPLIT", python_list(request().layout.split), "blocks per device");
    }
    if (conditions.contains("delay")) {
      settings.say("DELAYS", delays_of(request().delays), "before which phase, on which rank, how many seconds");
    }
  }
};

}  // namespace

std::string twin_launch(const job::JobSpec& spec, const std::string& file) {
  const std::string kind = kind_of(spec);
  if (kind != "ddp" && kind != "fsdp") {
    return "python3 " + file;
  }
  const std::optional<std::int64_t> count = device_count(spec.devices);
  // The dashes keep torchrun from taking --start for one of its own flags.
  return fmt::format("torchrun --nproc_per_node={} -- {}", count ? std::to_string(*count) : "gpu", file);
}

const std::vector<std::string>& fields_without_twin() {
  static const std::vector<std::string> names = [] {
    const std::set<std::string_view> kept{"strategy", "split", "micro-batches"};
    const std::set<std::string_view> others{"loss-scale", "loss-scale-growth", "first-bucket-mb"};
    std::vector<std::string> list;
    for (const job::JobField& field : training::job_fields()) {
      if ((field.topic == job::Topic::split && !kept.contains(field.name)) ||
          (field.topic == job::Topic::machine && field.name != "devices") || others.contains(field.name)) {
        list.push_back(field.name);
      }
    }
    return list;
  }();
  return names;
}

std::string training_twin(const job::JobSpec& spec, const TwinRun& run) {
  const TwinJob twin(spec);
  const Conditions conditions = twin.conditions();
  const std::string file = twin.kind == "fsdp" ? "ddp" : twin.kind;
  std::string script = fmt::format(
      "\"\"\"{} of {} in PyTorch, the twin of\n\n    {}\n\nRun it with\n\n    {} [--start DIR] [--json FILE]\n{}\"\"\"\n\n",
      twin.kind, twin.name(), run.command, twin_launch(spec, run.file.empty() ? twin.kind + ".py" : run.file),
      run.table.empty() ? "" : fmt::format("\nThe whole table:\n\n    {}\n", run.table));
  script += Template(conditions, twin.settings(run, conditions), twin.graph ? twin.recipe.kind() : "mlp").fill(text_of(file));
  return script;
}

std::string matrix_power_twin(std::int64_t size, std::int64_t power, std::uint64_t seed, const std::string& file) {
  const std::string settings = fmt::format("\nSIZE = {}\nPOWER = {}\nSEED = {}\n", size, power, seed);
  return fmt::format(
             "\"\"\"A^n + B^n in PyTorch, n = {}, A and B {} x {}: timed on one GPU, and on two where each raises one "
             "matrix.\n\nRun it with\n\n    python3 {} [--size N]\n\"\"\"\n\n",
             power, size, size, file) +
         Template({}, settings, "").fill(text_of("matrix_power"));
}

std::string four_way_split_twin(const model::ModelName& resnet, std::int64_t batch, const std::string& file) {
  const auto setting = [&](std::string_view name, std::int64_t usual) {
    const model::ModelSetting* given = resnet.settings().find(name);
    return given == nullptr ? usual : given->whole(name, 1, model::max_width);
  };
  const std::string settings = fmt::format(
      "\nIMAGE = {}  # pixels on a side\nCLASSES = {}\nWIDTH = {}  # channels of the stem\nBATCH = {}\nSEED = 0\nSTEPS = "
      "15\nWARMUP = "
      "5\n",
      setting("image", 224), setting("classes", 1000), setting("width", 64), batch);
  return fmt::format(
             "\"\"\"The toy model and ResNet-50 of PyTorch's tutorial on model parallelism, split over 1, 2 and 4 GPUs.\n\nRun it "
             "with\n\n    python3 {}\n\"\"\"\n\n",
             file) +
         Template({}, settings, "").fill(text_of("four_way_split"));
}

}  // namespace baton::sheet
