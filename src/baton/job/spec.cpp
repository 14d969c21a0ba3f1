#include "baton/job/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/cost/software.h"
#include "baton/job/spec_text.h"
#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "baton/op/optimizer.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/strategies.h"

namespace baton::job {
namespace {

std::string list_models() {
  std::vector<std::string> forms;
  for (const model::Family& kind : model::zoo()) {
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

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    names.push_back(strategy.name());
  }
  return names;
}

std::vector<std::string> software_names() {
  std::vector<std::string> names{"baton"};
  for (const cost::Software& known : cost::software_profiles()) {
    names.push_back(known.name);
  }
  return names;
}

std::vector<std::string> cluster_names() { return names_of(cluster::catalogue()); }

std::vector<std::string> decay_names() { return {"all", "matrices"}; }
std::vector<std::string> fold_names() { return {"auto", "always", "never"}; }
std::vector<std::string> gradient_names() { return {"same", "fp32"}; }
std::vector<std::string> schedule_names() { return names_of(schedule::schedules()); }
std::vector<std::string> sp_names() { return {"off", "on"}; }

std::string text_of(const FieldValue& value) {
  return std::visit([](const auto& one) { return fmt::format("{}", one); }, value);
}

bool is_empty(const FieldValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr && text->empty();
}

/// A number within a range. Text is parsed; a number is compared, and only a refused number becomes text, for the sentence.
struct WholeRange {
  std::int64_t low;
  std::int64_t high = std::numeric_limits<std::int64_t>::max();

  std::int64_t take(const FieldValue& value, const std::string& what) const {
    const auto* number = std::get_if<std::int64_t>(&value);
    return number != nullptr && *number >= low && *number <= high ? *number : parse_integer(text_of(value), what, low, high);
  }
  std::string type() const { return range_text(low, high); }
};
struct RealRange {
  double low;
  double high;

  double take(const FieldValue& value, const std::string& what) const {
    if (const auto* text = std::get_if<std::string>(&value)) {
      return parse_number(*text, what, low, high);
    }
    const auto* whole = std::get_if<std::int64_t>(&value);
    const double number = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
    return number >= low && number <= high ? number : parse_number(text_of(value), what, low, high);
  }
  std::string type() const { return range_text(low, high); }
};

template <typename T>
constexpr bool is_optional = false;
template <typename T>
constexpr bool is_optional<std::optional<T>> = true;

/// A field that is one member. `take` makes its value, `print` its text; a member that is optional is left out by an empty text.
template <typename Member>
JobField field_of(std::string name, Member JobSpec::*member, std::string type, std::string help, auto take, auto print) {
  const std::string flag = "--" + name;
  JobField field{.name = std::move(name),
                 .type = std::move(type),
                 .help = std::move(help),
                 .set = nullptr,
                 .reset = [member](JobSpec& spec) { spec.*member = JobSpec{}.*member; },
                 .text = nullptr,
                 .value = nullptr,
                 .same = [member](const JobSpec& a, const JobSpec& b) { return a.*member == b.*member; }};
  field.set = [member, flag, take](JobSpec& spec, const FieldValue& value) {
    if constexpr (is_optional<Member>) {
      if (is_empty(value)) {
        spec.*member = std::nullopt;
        return;
      }
    }
    spec.*member = take(value, flag);
  };
  field.text = [member, print](const JobSpec& spec) -> std::string {
    if constexpr (is_optional<Member>) {
      return spec.*member ? print(*(spec.*member)) : "";
    } else {
      return print(spec.*member);
    }
  };
  field.value = field.text;
  return field;
}

/// Lets the value of a field be a number: `number_of` gives it for a value of the member, or nullopt if it is not a number.
template <typename Member>
void give_number(JobField& field, Member JobSpec::*member, auto number_of) {
  field.value = [member, number_of, text = field.text](const JobSpec& spec) -> FieldValue {
    if constexpr (is_optional<Member>) {
      return spec.*member ? FieldValue(number_of(*(spec.*member))) : FieldValue("");
    } else {
      const auto number = number_of(spec.*member);
      if constexpr (is_optional<std::decay_t<decltype(number)>>) {
        return number ? FieldValue(*number) : FieldValue(text(spec));
      } else {
        return number;
      }
    }
  };
}

/// A field that is a number in a range.
template <typename Member, typename Range>
JobField number(std::string name, Member JobSpec::*member, Range range, std::string help) {
  JobField field = field_of(
      std::move(name), member, range.type(), std::move(help),
      [range](const FieldValue& value, const std::string& flag) { return range.take(value, flag); },
      [](auto value) { return fmt::format("{}", value); });
  field.numeric = true;
  give_number(field, member, [](auto value) { return value; });
  return field;
}

constexpr double mebibyte = 1 << 20;

/// A number, and how many digits it is written with.
struct WrittenNumber {
  double value;
  int digits;
};

/// The shortest number of MiB that is this size in whole bytes.
WrittenNumber in_mebibytes(Bytes size) {
  constexpr int most_digits = std::numeric_limits<double>::max_digits10;
  const double exact = static_cast<double>(size.count) / mebibyte;
  const int exponent = exact > 0 ? static_cast<int>(std::floor(std::log10(exact))) : 0;
  for (int digits = 1; digits < most_digits; ++digits) {
    const int places = digits - 1 - exponent;  // after the point
    const double power = std::pow(10.0, std::abs(places));
    const double rounded = places >= 0 ? std::nearbyint(exact * power) / power : std::nearbyint(exact / power) * power;
    if (static_cast<std::int64_t>(rounded * mebibyte) == size.count) {
      return {rounded, digits};
    }
  }
  return {exact, most_digits};
}

std::string mebibytes_text(Bytes size) {
  const WrittenNumber number = in_mebibytes(size);
  return fmt::format("{:.{}g}", number.value, number.digits);
}

/// A field of bytes that is given in MiB.
JobField mebibytes(std::string name, Bytes JobSpec::*member, std::string help) {
  static constexpr RealRange range{0, 1e6};
  JobField field = field_of(
      std::move(name), member, "MiB", std::move(help),
      [](const FieldValue& value, const std::string& flag) {
        return Bytes(static_cast<std::int64_t>(range.take(value, flag) * mebibyte));
      },
      mebibytes_text);
  field.numeric = true;
  give_number(field, member, [](Bytes size) { return in_mebibytes(size).value; });
  return field;
}

/// A field that is one of a few names, in the order of its values. The help lists them between `before` and `after`.
template <typename Member>
JobField choice(std::string name, Member JobSpec::*member, const std::string& before,
                const std::function<std::vector<std::string>()>& values, const std::string& after = "",
                std::function<std::size_t(const std::string& name, const std::string& flag)> find = nullptr) {
  if (!find) {
    find = [values](const std::string& wanted, const std::string& flag) { return index_of_name(values(), wanted, flag); };
  }
  JobField field = field_of(
      std::move(name), member, "NAME", before + either(values()) + after,
      [find](const FieldValue& value, const std::string& flag) {
        const std::size_t index = find(text_of(value), flag);
        if constexpr (is_optional<Member>) {
          return static_cast<typename Member::value_type>(index);
        } else {
          return static_cast<Member>(index);
        }
      },
      [values](auto value) { return values()[static_cast<std::size_t>(value)]; });
  field.values = values;
  return field;
}
/// The index of the entry that a function finds by its name, with its own sentence for unknown names.
template <typename Find>
auto found_by(Find find) {
  return [find](const std::string& name, const std::string& /*flag*/) { return static_cast<std::size_t>(find(name)); };
}

/// A field that stays text. `check` may refuse it; otherwise it returns the name in the spelling of its table.
JobField text(std::string name, std::string JobSpec::*member, std::string type, std::string help,
              std::function<std::string(const std::string& text)> check = nullptr) {
  return field_of(
      std::move(name), member, std::move(type), std::move(help),
      [check](const FieldValue& value, const std::string& /*flag*/) {
        const std::string given = text_of(value);
        return check && !given.empty() ? check(given) : given;
      },
      [](const std::string& value) { return value; });
}

/// A field with a parser and a printer of its own.
template <typename Member>
JobField parsed(std::string name, Member JobSpec::*member, std::string type, std::string help, auto parse) {
  return field_of(
      std::move(name), member, std::move(type), std::move(help),
      [parse](const FieldValue& value, const std::string& /*flag*/) { return parse(text_of(value)); },
      [](const auto& value) { return flag_text(value); });
}

LossScaling parse_scaling(const FieldValue& value, const std::string& flag) {
  constexpr RealRange range{1e-30, 1e30};
  if (is_empty(value)) {
    return {};
  }
  const std::string name = canonical(text_of(value));
  if (name == "none" || name == "dynamic") {
    return {.mode = name == "none" ? LossScaling::Mode::none : LossScaling::Mode::dynamic};
  }
  try {
    return {.mode = LossScaling::Mode::fixed, .scale = range.take(value, flag)};
  } catch (const Error&) {
    throw usage_error("{} is '{}', but must be none, dynamic or a number from 1e-30 to 1e30", flag, text_of(value));
  }
}

constexpr WholeRange stage_blocks{1, 1 << 20};
constexpr const char* a_stage = "a stage of --split";

std::vector<std::int64_t> parse_split(const FieldValue& value) {
  std::vector<std::int64_t> blocks;
  if (!is_empty(value)) {
    const std::string text = text_of(value);
    for (const std::string_view part : split(text, ',')) {
      blocks.push_back(stage_blocks.take(std::string(part), a_stage));
    }
  }
  return blocks;
}

std::vector<strategy::DelayRequest> parse_delays(const std::string& text) {
  std::vector<strategy::DelayRequest> delays;
  if (!text.empty()) {
    for (const std::string_view delay : split(text, ';')) {
      delays.push_back(strategy::parse_delay(delay));
    }
  }
  return delays;
}

JobField with(JobField field, Topic topic, std::vector<std::string> also = {},
              std::function<std::vector<std::string>()> values = nullptr) {
  field.topic = topic;
  field.also = std::move(also);
  field.values = values ? std::move(values) : std::move(field.values);
  field.beside_axes = field.beside_axes || topic == Topic::step;
  return field;
}

/// An experiment may be given it in addition to its axes, though its topic is another than the step; or may not.
JobField beside_axes(JobField field, bool taken = true) {
  field.beside_axes = taken;
  return field;
}

JobField devices_field() {
  JobField field = field_of(
      "devices", &JobSpec::devices, "DEVICES",
      "cpu (one device), cpu:4 (four, called cpu:0 to cpu:3), cpu:0-3,4-7 (by cores), cuda (every GPU), cuda:0,1, cuda:0/4 (four "
      "parts of one GPU)",
      [](const FieldValue& value, const std::string& /*flag*/) {
        const auto* count = std::get_if<std::int64_t>(&value);
        return count != nullptr ? DeviceList(*count) : DeviceList(text_of(value));
      },
      [](const DeviceList& list) { return list.text(); });
  give_number(field, &JobSpec::devices, [](const DeviceList& list) { return list.count(); });
  field.require = [](const FieldValue& value) {
    if (std::holds_alternative<std::int64_t>(value)) {
      WholeRange{1}.take(value, "--devices");
    }
  };
  return field;
}

JobField model_field() {
  JobField field = parsed("model", &JobSpec::model, "MODEL", list_models(),
                          [](const std::string& value) { return model::ModelName(value); });
  field.require = [](const FieldValue& value) { model::parse_model(text_of(value)); };
  return field;
}

JobField delay_field() {
  JobField field = parsed("delay", &JobSpec::delays, "DELAY",
                          "make a device wait: before=forward|backward|update,device=all|N,ms=10; may be given several times",
                          parse_delays);
  field.add = [](JobSpec& spec, std::string_view value) {
    const std::vector<strategy::DelayRequest> more = parse_delays(std::string(value));
    spec.delays.insert(spec.delays.end(), more.begin(), more.end());
  };
  return field;
}

JobField split_field() {
  JobField field = field_of(
      "split", &JobSpec::split, "N,N,...", "blocks per pipeline stage, for example 3,3",
      [](const FieldValue& value, const std::string& /*flag*/) { return parse_split(value); },
      [](const std::vector<std::int64_t>& blocks) { return fmt::format("{}", fmt::join(blocks, ",")); });
  field.set_list = [](JobSpec& spec, const std::vector<std::int64_t>& blocks) {
    for (const std::int64_t count : blocks) {
      stage_blocks.take(count, a_stage);
    }
    spec.split = blocks;
  };
  return field;
}

/// Adds the fields of the split of the work over the devices.
void add_split_fields(std::vector<JobField>& list) {
  constexpr WholeRange devices{1, 1 << 20};
  const auto add = [&](JobField field, std::vector<std::string> also = {}) {
    list.push_back(with(std::move(field), Topic::split, std::move(also)));
  };
  add(number("dp", &JobSpec::dp, devices, "number of replicas of the model; dp × pp × tp is the number of devices"));
  add(number("pp", &JobSpec::pp, devices, "number of devices that the layers of each replica are spread over"));
  add(number("tp", &JobSpec::tp, devices, "number of devices that each pair of Linear layers is split over"));
  add(choice("sp", &JobSpec::sp, "with --tp: divide the sequence over the same devices between the divided layers: ", sp_names));
  add(number("zero", &JobSpec::zero, WholeRange{0, 3},
             "ZeRO stage: 1 shards optimizer states over the replicas, 2 also gradients, 3 also parameters; 0 shards nothing"));
  JobField schedule = text(
      "schedule", &JobSpec::schedule, "NAME",
      "schedule of a pipeline: " + either(schedule_names()) + ", or a file in PyTorch's notation (.csv)",
      [](const std::string& name) { return is_schedule_file(name) ? name : schedule::schedule_by_name(name).name; });
  schedule.values = schedule_names;
  schedule.takes_beside = is_schedule_file;
  add(std::move(schedule));
  add(number("chunks", &JobSpec::chunks, WholeRange{1, 1 << 10},
             "pipeline stages per device, for schedules that interleave stages (default: 2)"));
  add(split_field());
  add(choice("balance", &JobSpec::balance, "without --split: assign blocks to stages by ", strategy::balance_names));
  add(beside_axes(
      choice("recompute", &JobSpec::recompute,
             "free activations in the forward and recompute them in the backward (light: of norms, GELUs and gates; alternate: of "
             "every second block; full: of every block; all: of all blocks but some, least memory): ",
             strategy::recompute_names)));
  add(beside_axes(
          number("micro-batches", &JobSpec::micro_batches, WholeRange{1, 1 << 20},
                 "split the batch of each replica into N micro-batches and accumulate their gradients (default: 1; with a pipeline "
                 "schedule: twice the number of its devices)")),
      {"accumulate"});
}

/// Adds the fields of one step's computation.
void add_step_fields(std::vector<JobField>& list) {
  const auto add = [&](JobField field, std::vector<std::string> also = {}) {
    list.push_back(with(std::move(field), Topic::step, std::move(also)));
  };
  add(mebibytes("bucket-mb", &JobSpec::bucket, "ddp: size of the buckets in which gradients are all-reduced"));
  add(mebibytes("first-bucket-mb", &JobSpec::first_bucket, "ddp: size of the first bucket"));
  add(choice("loss", &JobSpec::loss, "", strategy::loss_names,
             " (default: cross-entropy for models that give scores of classes or tokens, mse for the others)",
             found_by(strategy::loss_by_name)));
  add(number("label-smoothing", &JobSpec::label_smoothing, RealRange{0, 1},
             "cross-entropy: the share of a target that is spread evenly over all classes (default: 0)"));
  JobField optimizer = text("optimizer", &JobSpec::optimizer, "NAME", either(op::optimizer_names()), [](const std::string& name) {
    op::optimizer_by_name(name);  // throws if there is none
    return canonical(name);
  });
  optimizer.values = op::optimizer_names;
  add(std::move(optimizer));
  add(number("lr", &JobSpec::lr, RealRange{0, 1e6}, "learning rate (default: 0.01 for sgd and momentum, 0.001 for adam and adamw)"),
      {"learning-rate"});
  add(number("momentum", &JobSpec::momentum, RealRange{0, 1}, "momentum of sgd"));
  add(number("weight-decay", &JobSpec::weight_decay, RealRange{0, 1e6},
             "weight decay (default: 0.01 for adamw, 0 for the others)"));
  add(choice("decay", &JobSpec::decay,
             "which parameters weight decay acts on; matrices leaves out biases and gains of norms: ", decay_names));
  add(parsed("lr-schedule", &JobSpec::lr_schedule, "SCHEDULE",
             "how the learning rate changes over the steps: cosine:until=1000,warmup=100,floor=0.1, linear:until=1000, "
             "step:every=300,gamma=0.1 or constant:warmup=100 (default: it does not change)",
             [](const std::string& value) { return value.empty() ? op::RateSchedule{} : op::parse_schedule(value); }));
  add(number("clip", &JobSpec::clip, RealRange{0, 1e9},
             "clip gradients: if the norm of all of them together exceeds this, scale them down to it (default: 0, which clips "
             "nothing)"),
      {"clip-norm", "clip-grad-norm", "grad-clip", "max-grad-norm"});
  add(choice("precision", &JobSpec::precision, "", strategy::precision_names,
             "; bf16 and fp16 keep float32 weights (mixed is fp16), tf32 needs a GPU, fp64 needs the reference backend",
             found_by(strategy::precision_by_name)));
  add(choice("gradients", &JobSpec::gradients, "in 16-bit training, the type of the gradients of parameters: ", gradient_names,
             "; same is the 16-bit type, fp32 is what PyTorch's autocast has"));
  JobField scaling = field_of(
      "loss-scale", &JobSpec::loss_scale, "SCALE",
      "none, dynamic (halved after an overflow) or a fixed number (default: dynamic for fp16, none otherwise)", parse_scaling,
      [](const LossScaling& one) { return flag_text(one); });
  give_number(scaling, &JobSpec::loss_scale, [](const LossScaling& one) {
    return one.mode == LossScaling::Mode::fixed ? std::optional(one.scale) : std::nullopt;
  });
  add(std::move(scaling));
  add(number("loss-scale-growth", &JobSpec::loss_scale_growth, WholeRange{1, 1 << 24},
             "double a dynamic loss scale after N steps without overflow"));
  list.push_back(beside_axes(with(delay_field(), Topic::step), false));
}

/// Adds the fields of the machine in addition to its devices, and of the data.
void add_machine_and_data_fields(std::vector<JobField>& list) {
  const auto add = [&](JobField field, Topic topic = Topic::machine) { list.push_back(with(std::move(field), topic)); };
  add(beside_axes(parsed(
      "link", &JobSpec::link, "LINK",
      "slow down the links between devices: bandwidth=1GB/s,latency=50us (in a simulation also core=0.2, the share of a core "
      "that a transfer takes)",
      [](const std::string& value) { return cluster::parse_link(value); })));
  add(beside_axes(field_of(
      "memory", &JobSpec::memory, "SIZE", "memory per device, for example 512M (default: an even share of the machine's memory)",
      [](const FieldValue& value, const std::string& flag) {
        const auto* bytes = std::get_if<std::int64_t>(&value);
        return bytes != nullptr && *bytes >= 0 ? Bytes(*bytes) : parse_bytes(text_of(value), flag);
      },
      [](Bytes size) { return flag_text(size); })));
  add(text("backend", &JobSpec::backend, "NAME", "what computes on the devices (default: the fastest one for them)"));
  add(number("seed", &JobSpec::seed, WholeRange{0}, "seed of the random weights and data, at least 0"), Topic::step);
  add(number("samples", &JobSpec::samples, WholeRange{0}, "random samples in the data set; 0 means the same batch in every step"),
      Topic::step);
  add(text(
          "data", &JobSpec::data, "SOURCE",
          "train on this: a file or folder of tokens, text, images or arrays, as docs/data.md lists them (default: random, numbers "
          "drawn from the seed)"),
      Topic::data);
  add(text("tokenizer", &JobSpec::tokenizer, "NAME",
           "with a text as --data: bytes, chars, or the file or folder of a tokenizer (default: what lies next to the data, or "
           "bytes)"),
      Topic::data);
  add(choice("token-type", &JobSpec::token_type, "with token files that have no header: ", token_type_names), Topic::data);
  add(parsed("normalize", &JobSpec::normalize, "NAME",
             "with images: none, mnist, fashion-mnist, cifar10, cifar100, imagenet or MEAN/DEVIATION (default: what the model's "
             "folder says, else pixels from -1 to 1)",
             parse_pixel_scale),
      Topic::data);
  add(parsed("augment", &JobSpec::augment, "CHANGES",
             "with images, random changes while training: none, flip, crop=4 or crop=4,flip", parse_augmentation),
      Topic::data);
  list.push_back(with(text("cluster", &JobSpec::cluster, "CLUSTER",
                           "the machine to simulate: machine (this one), a name from `baton clusters`, NAME+NETWORK, or a file; "
                           "--devices is then the number of its devices"),
                      Topic::machine, {}, cluster_names));
  list.push_back(with(text("software", &JobSpec::software, "NAME",
                           "with --cluster: the training program to simulate, a name in profiles/ or a file that says its fusions, "
                           "recomputation, overlap, precision and host overhead (default: Baton itself)"),
                      Topic::machine, {}, software_names));
  add(parsed("what-if", &JobSpec::what_if, "CHANGES", "simulate a changed machine, for example compute=2x,link=0.5x,latency=+10us",
             [](const std::string& value) { return parse_what_if(value); }));
  add(choice("fold", &JobSpec::fold, "simulate only one of many identical replicas and tensor parts: ", fold_names,
             "; auto does so above 64 devices"));
}

}  // namespace

DeviceList::DeviceList(std::string text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos && text.size() < 10;
  if (digits) {
    count_ = parse_integer(text, "--devices", 0, std::numeric_limits<std::int64_t>::max());
  } else {
    names_ = std::move(text);
  }
}

cluster::DeviceNames DeviceList::names() const { return count_ ? cluster::DeviceNames(text()) : names_; }

std::string DeviceList::text() const {
  if (count_) {
    return fmt::format("{}", *count_);
  }
  return std::visit(
      [](const auto& names) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(names)>, std::string>) {
          return names;
        } else {
          return to_text(names);
        }
      },
      names_);
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return high <= 100 ? fmt::format("{}..{}", low, high) : low <= 1 ? "N" : fmt::format("N>={}", low);
}

std::string range_text(double low, double high) {
  return high <= 100 ? fmt::format("{}..{}", low, high) : low <= 0 ? "NUMBER" : fmt::format("NUMBER>={}", low);
}

const std::vector<JobField>& fields() {
  static const std::vector<JobField> list = [] {
    std::vector<JobField> all;
    all.push_back(with(model_field(), Topic::step, {"m"}));
    all.push_back(
        with(field_of(
                 "strategy", &JobSpec::strategy, "NAME",
                 either(strategy_names()) + " (default: single; product if --dp, --pp, --tp, --zero or --schedule is given)",
                 [](const FieldValue& value, const std::string& /*flag*/) { return strategy::Strategy(text_of(value)); },
                 [](const strategy::Strategy& strategy) { return strategy.name(); }),
             Topic::split, {"s"}, strategy_names));
    all.push_back(with(devices_field(), Topic::machine, {"d"}));
    all.push_back(with(
        number("batch", &JobSpec::batch, WholeRange{1, 1 << 30}, "global batch: the samples per step over all devices together"),
        Topic::step, {"b", "global-batch", "batch-size"}));
    add_split_fields(all);
    add_step_fields(all);
    add_machine_and_data_fields(all);
    return all;
  }();
  return list;
}

bool JobField::given(const JobSpec& spec) const {
  static const JobSpec usual;
  return !same(spec, usual);
}

bool is_imagined(const JobSpec& spec) { return !spec.cluster.empty() && !is_this_machine(spec.cluster); }

bool is_this_machine(std::string_view cluster) { return canonical(cluster) == this_machine; }

bool is_schedule_file(const std::string& name) {
  return !name.empty() && schedule::find_schedule(name) == nullptr &&
         (name.ends_with(".csv") || name.find('/') != std::string::npos || std::filesystem::exists(name));
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

namespace {

const JobField& known_field(std::string_view name) {
  if (const JobField* field = find_field(fields(), name)) {
    return *field;
  }
  std::vector<std::string> names;
  for (const JobField& field : fields()) {
    names.push_back(field.name);
  }
  throw usage_error("a job has no '{}'{}: choose {}", name, did_you_mean(name, names), either(names));
}

}  // namespace

void set_field(JobSpec& spec, std::string_view name, const FieldValue& value) { known_field(name).set(spec, value); }

void set_list_field(JobSpec& spec, std::string_view name, const std::vector<std::int64_t>& values) {
  const JobField& field = known_field(name);
  if (!field.set_list) {
    throw usage_error("--{} takes one value, not a list of numbers", field.name);
  }
  field.set_list(spec, values);
}

std::string flags_of(const JobSpec& spec, const std::function<std::string(const std::string& text)>& quote,
                     const std::function<bool(const JobField& field)>& wanted) {
  std::string flags;
  for (const JobField& field : fields()) {
    if (field.given(spec) && (!wanted || wanted(field))) {
      const std::string text = field.text(spec);
      flags += fmt::format("{}--{} {}", flags.empty() ? "" : " ", field.name, quote ? quote(text) : text);
    }
  }
  return flags;
}

JobSpec with_software(JobSpec spec) {
  if (spec.software.empty()) {
    return spec;
  }
  if (!is_imagined(spec)) {
    throw usage_error("--software says which program runs on a simulated machine: add --cluster");
  }
  for (const auto& [name, value] : cost::software_by_name(spec.software).job) {
    const JobField* field = find_field(fields(), name);
    if (field == nullptr) {
      throw usage_error("[job] of the software profile {} has '{}', which is not a field of a job", spec.software, name);
    }
    if (!field->given(spec)) {
      field->set(spec, value);
    }
  }
  return spec;
}

}  // namespace baton::job
