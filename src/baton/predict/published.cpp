#include "baton/predict/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "baton/base/divide.h"
#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/model/parse.h"
#include "baton/model/zoo.h"

namespace baton::predict {
namespace {

std::string trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && blank(text.back())) {
    text.remove_suffix(1);
  }
  return std::string(text);
}

/// "SeqLen (T)" is seqlen_t: letters and digits, with one underscore for all other signs between them.
std::string plain(std::string_view text) {
  std::string name;
  for (const char c : canonical(text)) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  while (!name.empty() && name.back() == '_') {
    name.pop_back();
  }
  return name;
}

/// The same without the signs between them.
std::string squeezed(std::string_view text) {
  std::string name = plain(text);
  std::erase(name, '_');
  return name;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// One record of a CSV text from `at` on, which moves after it.
std::vector<std::string> next_record(std::string_view text, std::size_t& at, std::size_t& line, char separator,
                                     const std::string& source) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  std::size_t quote = line;  // the line of the last quote that begins a cell
  for (; at < text.size(); ++at) {
    const char c = text[at];
    line += c == '\n' ? 1 : 0;
    if (quoted) {
      if (c != '"') {
        cells.back() += c;
      } else if (at + 1 < text.size() && text[at + 1] == '"') {
        cells.back() += c;
        ++at;
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
      quote = line;
    } else if (c == separator) {
      cells.emplace_back();
    } else if (c == '\n') {
      ++at;
      break;
    } else {
      cells.back() += c;
    }
  }
  if (quoted) {
    throw usage_error("line {} of the table {} begins a quoted cell that is not closed", quote, source);
  }
  std::transform(cells.begin(), cells.end(), cells.begin(), [](const std::string& cell) { return trimmed(cell); });
  return cells;
}

/// The number that a cell begins with: "1,024", "55.0 %", "8k", "1024 (not stated)".
std::optional<double> leading_number(std::string_view cell) {
  std::string digits;
  std::size_t i = 0;
  for (; i < cell.size(); ++i) {
    const bool separator = cell[i] == ',' && i + 3 < cell.size() && std::isdigit(static_cast<unsigned char>(cell[i + 1])) != 0;
    if (!separator) {
      if (std::string_view("+-.0123456789eE").find(cell[i]) == std::string_view::npos) {
        break;
      }
      digits += cell[i];
    }
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end == digits.data() || !std::isfinite(value)) {
    return std::nullopt;
  }
  const std::string_view behind = cell.substr(std::min(i, cell.size()));
  const bool alone = behind.size() == 1 || (behind.size() > 1 && std::isalpha(static_cast<unsigned char>(behind[1])) == 0);
  if (alone && (behind[0] == 'k' || behind[0] == 'K')) {
    return value * (behind[0] == 'K' || std::fmod(value, 1) == 0 ? 1024 : 1000);
  }
  return value;
}

/// The names that a column may have.
using Names = std::vector<std::string_view>;

/// A row with its columns by meaning.
class Reader {
 public:
  Reader(const PublishedTable& table) : table_(table) {
    for (const std::string& column : table.columns) {
      names_.push_back(plain(column));
    }
  }

  void row(const PublishedTable::Row& row) { row_ = &row; }

  /// The first column of these names that the table has.
  std::optional<std::size_t> column(const Names& names) const {
    for (const std::string_view name : names) {
      const auto found = std::find(names_.begin(), names_.end(), name);
      if (found != names_.end()) {
        return static_cast<std::size_t>(found - names_.begin());
      }
    }
    return std::nullopt;
  }
  bool has(const Names& names) const { return column(names).has_value(); }

  /// Empty if there is no such column, or if the cell is empty.
  std::string text(const Names& names) const {
    for (const std::string_view name : names) {
      for (std::size_t i = 0; i < names_.size() && i < row_->cells.size(); ++i) {
        if (names_[i] == name && !row_->cells[i].empty()) {
          return row_->cells[i];
        }
      }
    }
    return "";
  }
  std::optional<double> number(const Names& names) const {
    const std::string cell = text(names);
    return cell.empty() ? std::nullopt : leading_number(cell);
  }
  /// The same of a time, a rate or a size: nullopt if no cell says it, and a usage error if one is not a number above zero.
  std::optional<double> above_zero(const Names& names) const {
    const std::optional<std::size_t> place = said(names);
    if (!place) {
      return std::nullopt;
    }
    const std::optional<double> value = leading_number(row_->cells[*place]);
    if (!value || !(*value > 0)) {
      throw usage_error("'{}' in the column {} is not a number above zero", row_->cells[*place], names_[*place]);
    }
    return value;
  }
  /// A count; `otherwise` if the cell is empty. A usage error if it is not a whole number above zero, or more than `most`.
  std::int64_t count(const Names& names, std::int64_t otherwise, std::int64_t most = 1'000'000'000'000'000) const {
    const std::optional<std::size_t> place = said(names);
    if (!place) {
      return otherwise;
    }
    const std::string& cell = row_->cells[*place];
    const std::optional<double> value = leading_number(cell);
    if (!value || *value < 1 || std::fmod(*value, 1) != 0) {
      throw usage_error("'{}' in the column {} is not a whole number above zero", cell, names_[*place]);
    }
    if (*value > static_cast<double>(most)) {
      throw usage_error("'{}' in the column {} is more than {}, the most that is simulated", cell, names_[*place], most);
    }
    return static_cast<std::int64_t>(*value);
  }
  std::int64_t needed(const Names& names, std::int64_t most = 1'000'000'000'000'000) const {
    const std::int64_t value = count(names, 0, most);
    if (value == 0) {
      throw usage_error("the column {} is empty", *names.begin());
    }
    return value;
  }
  const std::string& source() const { return table_.source; }
  /// The name of a column that is there twice; empty if there is none.
  std::string twice() const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!names_[i].empty() && std::find(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(i), names_[i]) !=
                                    names_.begin() + static_cast<std::ptrdiff_t>(i)) {
        return table_.columns[i];
      }
    }
    return "";
  }

 private:
  /// The column of the first cell that says something.
  std::optional<std::size_t> said(const Names& names) const {
    for (const std::string_view name : names) {
      for (std::size_t i = 0; i < names_.size() && i < row_->cells.size(); ++i) {
        const std::string& cell = row_->cells[i];
        if (names_[i] == name && !cell.empty() && cell != "-" && canonical(cell) != "n/a") {
          return i;
        }
      }
    }
    return std::nullopt;
  }

  const PublishedTable& table_;
  std::vector<std::string> names_;
  const PublishedTable::Row* row_ = nullptr;
};

const Names hidden_names{"hidden", "hidden_size", "d_model", "dim", "h"};
const Names layer_names{"layers", "num_layers", "n_layers", "depth", "l"};
const Names head_names{"heads", "num_heads", "attention_heads", "num_attention_heads", "n_heads", "a"};
const Names gpu_count_names{"gpus", "num_gpus", "n_gpus", "gpu_count", "number_of_gpus", "devices", "world_size", "ngpus", "n"};
const Names gpu_names{"gpu", "gpu_name", "gpu_type", "system", "hardware", "device", "accelerator", "section"};
const Names software_names{"software", "framework"};
const Names model_names{"model", "model_name"};
const Names batch_names{"global_batch", "global_batch_size", "globalbatchsize", "gbs", "batch_size", "batch"};
const Names micro_names{"micro_batch", "micro_batch_size", "microbatchsize", "mbs", "local_batch", "local_batch_size"};
const Names parts_names{"micro_batches", "gradaccum", "grad_accum", "gradient_accumulation", "gas", "num_microbatches"};
const Names sequence_names{"seq", "seq_len", "seqlen", "seqlen_t", "sequence_length", "seq_length", "sequence", "context"};
const Names token_rate_names{"throughput_t_s", "tokens_per_s", "tokens_s", "tokens_sec", "tok_s", "tokens_per_second"};
const Names device_token_names{
    "tokens_per_s_per_gpu", "throughput_t_s_gpu",        "tokens_s_gpu", "tokens_sec_gpu",           "tps",
    "wps_per_gpu",          "tokens_per_second_per_gpu", "tok_s_gpu",    "median_tokens_second_gpu", "tokens_per_sec_per_gpu"};
const Names sample_rate_names{"throughput_s_s", "samples_per_s", "samples_s", "samples_sec", "sequences_per_s"};
const Names image_rate_names{"images_per_s", "images_s", "images_sec", "img_s"};
const Names millisecond_names{"iteration_ms", "step_ms", "iteration_time_ms", "step_time_ms", "time_per_step_ms"};
const Names second_names{"iteration_s", "iteration_s_derived", "step_s",    "iteration_time_s",
                         "step_time_s", "time_per_step_s",     "step_time", "iteration_time"};
const Names precision_names{"precision", "dtype", "data_type"};
const Names bus_names{"busbw_gbps", "busbw", "bus_bandwidth_gbps", "busbw_gb_s"};
const Names collective_time_names{"time_us", "out_of_place_time_us", "latency_us"};

/// More than any machine or model has: an error names the column of such a row.
constexpr std::int64_t most_gpus = 1 << 17;
constexpr std::int64_t most_layers = 10'000;
constexpr std::int64_t most_features = 1 << 20;
constexpr std::int64_t most_chunks = 1 << 10;
constexpr std::int64_t most_positions = 1 << 27;
constexpr std::int64_t most_samples = 1 << 30;

std::string cluster_for(const Reader& row, const PublishedDefaults& defaults) {
  std::string known = cluster_of_device(row.text({"cluster"}));
  for (const std::string_view name : gpu_names) {
    if (known.empty()) {
      known = cluster_of_device(row.text({name}));
    }
  }
  known = known.empty() ? defaults.cluster : known;
  known = known.empty() ? cluster_of_device(row.source()) : known;
  if (known.empty()) {
    const std::string given = row.text(gpu_names);
    if (!given.empty()) {
      throw usage_error("no cluster is known for the GPU '{}': add --cluster", given);
    }
    throw usage_error("no column, and not the file's name, says which GPU it ran on: add --cluster");
  }
  return known;
}

/// MPT of a size that llm-foundry gives by name; nullopt if it gives none.
std::optional<model::ModelName> mpt(std::string_view size, std::int64_t sequence) {
  struct Size {
    std::string_view name;
    std::int64_t depth, heads, dim;
  };
  constexpr std::array<Size, 9> sizes{{{"125m", 12, 12, 768},
                                       {"350m", 24, 16, 1024},
                                       {"760m", 24, 12, 1536},
                                       {"1b", 24, 16, 2048},
                                       {"3b", 32, 20, 2560},
                                       {"7b", 32, 32, 4096},
                                       {"13b", 40, 40, 5120},
                                       {"30b", 48, 56, 7168},
                                       {"70b", 80, 64, 8192}}};
  for (const Size& one : sizes) {
    if (size == one.name) {
      return model::ModelName("gpt", model::ModelSettings()
                                         .add("depth", one.depth)
                                         .add("heads", one.heads)
                                         .add("dim", one.dim)
                                         .add("context", sequence)
                                         .add("vocab", std::int64_t{50368}));
    }
  }
  return std::nullopt;
}

/// A model that a table calls by name; nullopt if the name says nothing.
std::optional<model::ModelName> model_by_name(std::string_view given, std::int64_t sequence, bool foundry) {
  const std::string name = squeezed(given);
  if (foundry || name.starts_with("mpt")) {
    return mpt(name.starts_with("mpt") ? std::string_view(name).substr(3) : name, sequence);
  }
  const auto with_context = [&](const char* kind, model::ModelSettings sizes = {}) {
    return model::ModelName(kind, std::move(sizes.add("context", sequence)));
  };
  if (contains(name, "llama3")) {
    for (const auto& [size, model] :
         {std::pair("405b", "llama3-405b"), std::pair("70b", "llama3-70b"), std::pair("8b", "llama3-8b")}) {
      if (contains(name, size)) {
        return with_context(model);
      }
    }
  }
  if (contains(name, "llama2") || contains(name, "llama7b") || contains(name, "llama13b") || contains(name, "llama70b")) {
    if (contains(name, "70b")) {
      return with_context("llama", "depth=80,heads=64,kv-heads=8,dim=8192,hidden=28672,vocab=32000");
    }
    if (contains(name, "13b")) {
      return with_context("llama", "depth=40,heads=40,kv-heads=40,dim=5120,hidden=13824,vocab=32000");
    }
    return with_context("llama", "depth=32,heads=32,kv-heads=32,dim=4096,hidden=11008,vocab=32000");
  }
  if (contains(name, "gpt3")) {
    for (const auto& [size, shape] :
         {std::pair("175b", "depth=96,heads=96,dim=12288"), std::pair("20b", "depth=44,heads=48,dim=6144"),  // NeMo's recipes
          std::pair("5b", "depth=24,heads=32,dim=4096")}) {
      if (contains(name, size)) {
        return with_context("gpt", shape).with(model::ModelSettings().add("vocab", std::int64_t{51200}));
      }
    }
  }
  if (contains(name, "gpt2xl")) {
    return with_context("gpt2-xl");
  }
  return std::nullopt;
}

/// A model that `--model` takes by its name, and the sequence of one sample if that is of tokens.
struct NamedModel {
  model::ModelName name;
  std::int64_t context = 0;  // 0: not of tokens
};

/// Returns nullopt if the cell is not such a name. Folders and files are not.
std::optional<NamedModel> named_model(const std::string& cell) {
  if (cell.empty() || model::is_path(cell)) {
    return std::nullopt;
  }
  try {
    const model::ModelName name = canonical(cell);
    const std::string kind = model::recipe_of(name).kind();
    const model::Model parsed = model::parse_model(name);
    return NamedModel{name, kind == "gpt" || kind == "llama" ? parsed.input().elements() : 0};
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The number of positions in a sample of the row's model, if the table does not say: as many as the model itself has, or 2048.
std::int64_t usual_sequence(const Reader& row, bool foundry) {
  if (!row.text(hidden_names).empty()) {
    return 2048;
  }
  const std::string name = row.text(model_names);
  const std::optional<model::ModelName> known = model_by_name(name, 1, foundry);
  if (known && (known->kind() == "gpt" || known->kind() == "llama")) {
    return 2048;
  }
  const std::optional<NamedModel> preset = named_model(known ? known->kind() : name);
  return !preset || preset->context == 0 ? 2048 : preset->context;
}

/// The sizes of a GPT by columns, or a model by name. `layers` is their number.
model::ModelName model_of(const Reader& row, std::int64_t sequence, bool foundry, std::int64_t vocabulary_multiple,
                          std::int64_t& layers) {
  const std::string name = row.text(model_names);
  if (row.has(hidden_names) && !row.text(hidden_names).empty()) {
    layers = row.needed(layer_names, most_layers);
    const std::int64_t vocabulary = row.count({"vocab", "vocab_size", "vocabulary"}, 51200);
    const std::int64_t kv_heads = row.count({"kv_heads", "num_kv_heads", "query_groups"}, 0);
    const std::int64_t inner = row.count({"ffn_hidden", "ffn_hidden_size", "intermediate_size"}, 0);
    const std::int64_t heads = row.needed(head_names, most_features);
    const std::int64_t dim = row.needed(hidden_names, most_features);
    const std::int64_t rounded = (vocabulary + vocabulary_multiple - 1) / vocabulary_multiple * vocabulary_multiple;
    if (contains(squeezed(name), "llama")) {
      return {"llama", model::ModelSettings()
                           .add("depth", layers)
                           .add("heads", heads)
                           .add("kv-heads", kv_heads == 0 ? heads : kv_heads)
                           .add("dim", dim)
                           .add("hidden", inner == 0 ? 4 * dim : inner)
                           .add("context", sequence)
                           .add("vocab", rounded)};
    }
    return {"gpt", model::ModelSettings()
                       .add("depth", layers)
                       .add("heads", heads)
                       .add("dim", dim)
                       .add("context", sequence)
                       .add("vocab", rounded)
                       .add_unless("hidden", inner, std::int64_t{0})};
  }
  std::optional<model::ModelName> model = model_by_name(name, sequence, foundry);
  if (const auto named = named_model(name); !model && named && named->context > 0) {
    model = named->name.with(model::ModelSettings().add("context", sequence));
  }
  if (!model) {
    throw usage_error("the model '{}' is not known by name, and the table has no columns hidden, layers and heads", name);
  }
  const model::Model parsed = model::parse_model(*model);
  layers = (static_cast<std::int64_t>(parsed.blocks().size()) - 2) / 2;
  return *model;
}

/// Seconds per step, from the first column that gives it.
double seconds_per_step(const Reader& row, double batch, double sequence, double devices) {
  if (const auto ms = row.above_zero(millisecond_names)) {
    return *ms * 1e-3;
  }
  if (const auto s = row.above_zero(second_names)) {
    return *s;
  }
  if (const auto rate = row.above_zero(device_token_names)) {
    return batch * sequence / (*rate * devices);
  }
  if (const auto rate = row.above_zero(token_rate_names)) {
    return batch * sequence / *rate;
  }
  if (const auto rate = row.above_zero(image_rate_names)) {
    return batch / *rate;
  }
  if (const auto rate = row.above_zero({"images_per_s_per_gpu"})) {
    return batch / (*rate * devices);
  }
  if (const auto rate = row.above_zero(sample_rate_names)) {
    return batch / *rate;
  }
  throw usage_error("no column says how long a step takes, or how many tokens, samples or images per second there are");
}

/// The number of blocks of each stage: an embedding before the first layer, scores after the last, two per layer. If the stages do
/// not divide the layers, the embedding and the scores count as a layer each, as in Llama 3's and torchtitan's pipelines.
std::vector<std::int64_t> split_of(std::int64_t layers, std::int64_t stages) {
  const bool even = layers % stages == 0;
  const std::int64_t units = even ? layers : layers + 2;
  if (units < stages) {
    throw usage_error("{} layers are too few for {} stages", layers, stages);
  }
  std::vector<std::int64_t> blocks;
  for (std::int64_t s = 0; s < stages; ++s) {
    const bool first = s == 0;
    const bool last = s + 1 == stages;
    const std::int64_t alone = (first ? 1 : 0) + (last ? 1 : 0);  // the embedding, the scores
    const std::int64_t own = 2 * divide(units, stages, s, Remainder::first).size();
    blocks.push_back(even ? own + alone : own - alone);
  }
  return blocks;
}

std::string software_for(const Reader& row, const PublishedDefaults& defaults, const std::string& cluster, bool foundry,
                         bool images) {
  if (!defaults.software.empty()) {
    return defaults.software;
  }
  if (const std::string named = canonical(row.text(software_names)); !named.empty()) {
    for (const cost::Software& known : cost::software_profiles()) {
      if (contains(named, known.name)) {
        return known.name;
      }
    }
    for (const char* family : {"torchtitan", "nemo", "megatron", "fsdp", "foundry"}) {
      if (contains(named, family)) {
        return family == std::string("torchtitan")                                 ? "torchtitan"
               : family == std::string("fsdp") || family == std::string("foundry") ? "fsdp"
                                                                                   : "megatron-core";
      }
    }
  }
  if (contains(squeezed(row.source()), "vtrain") || contains(squeezed(row.source()), "deepspeed")) {
    return "megatron-deepspeed";  // the program that vTrain measured; its columns do not say
  }
  if (images) {
    return "mxnet-resnet";
  }
  if (foundry) {
    return "fsdp";
  }
  if (row.has({"techniques"}) || row.has({"fsdp"})) {
    const std::string techniques = canonical(row.text({"techniques", "technique"}));
    return techniques.empty() || contains(techniques, "compile") ? "torchtitan" : "torchtitan-eager";
  }
  return contains(cluster, "a100") || contains(cluster, "v100") || contains(cluster, "dgx-2") ? "megatron-2021" : "megatron-core";
}

std::string precision_of(const std::string& text, const std::string& software, const std::string& cluster, bool& fp8) {
  const std::string name = canonical(text);
  fp8 = contains(name, "fp8") || contains(name, "float8") || contains(name, "f8");
  if (fp8) {
    return "bf16";
  }
  for (const char* known : {"bf16", "fp16", "tf32", "fp32"}) {
    if (contains(name, known)) {
      return known;
    }
  }
  if (name == "mixed" || name == "half" || name == "float16") {
    return "fp16";
  }
  if (name == "bfloat16") {
    return "bf16";
  }
  if (!name.empty()) {
    throw usage_error("the precision '{}' is not known", text);
  }
  return contains(software, "2021") || contains(cluster, "v100") || contains(software, "resnet") ? "fp16" : "bf16";
}

void refuse_unknown_axes(const Reader& row) {
  for (const Names& names :
       {Names{"cp", "context_parallel", "context_parallel_size"}, Names{"ep", "expert_parallel", "expert_parallel_size"}}) {
    if (row.count(names, 1) > 1) {
      throw usage_error("it divides the work along {}, an axis that Baton does not have", *names.begin());
    }
  }
  if (contains(squeezed(row.text({"techniques"})), "asynctp")) {
    throw usage_error("asynchronous tensor parallelism cuts products into pieces, which Baton's plans do not");
  }
  if (const std::string offload = canonical(row.text({"activation_cpuoffload"})); offload == "true") {
    throw usage_error("it keeps activations in the memory of the host, which Baton's plans do not");
  }
}

bool is_yes(std::string_view cell) {
  const std::string word = canonical(cell);
  return word == "yes" || word == "true" || word == "on";
}

const Names sequence_parallel_names{"sequence_parallel", "sp", "sequence_parallel_size"};

/// True if tensor ranks divide the sequence too. A column may say yes or no, or a number of parts, that of the ranks. If no column
/// says it, it is true for programs that do so in all their recipes.
bool divides_sequence(const Reader& row, std::int64_t tp, std::string_view software) {
  const std::string cell = row.text(sequence_parallel_names);
  if (cell.empty()) {
    // torchtitan: parallelize_llama.py makes norms SequenceParallel. NeMo's recipes set sequence_parallel wherever tensors are
    // divided.
    return contains(software, "torchtitan") || contains(software, "megatron-core");
  }
  const std::optional<double> parts = leading_number(cell);
  if (!parts || *parts <= 0) {
    return is_yes(cell);
  }
  const bool flag = *parts == 1 && row.has({"sequence_parallel"});  // a flag, where sp = 1 is a degree
  if (!flag && *parts != 1 && *parts != static_cast<double>(tp)) {
    throw usage_error("it divides the sequence into {} parts, but only its {} tensor ranks can divide it", cell, tp);
  }
  return flag || *parts > 1;
}

/// The chunks of a stage: those that a column counts, or two if the schedule is only said to be interleaved.
std::int64_t chunks_of(const Reader& row, const std::string& schedule) {
  const Names flags{"interleave", "interleaved"};
  const std::string interleaved = row.text(flags);
  const bool counted = leading_number(interleaved).value_or(0) > 0;
  const std::int64_t usual = schedule.starts_with("interleaved") || is_yes(interleaved) ? 2 : 1;
  return row.count({"chunks", "vp", "vpp", "virtual_pipeline", "virtual_stages", "chunks_per_stage"},
                   counted ? row.count(flags, usual, most_chunks) : usual, most_chunks);
}

bool is_full(const std::string& recompute) { return recompute.starts_with("full") || recompute == "true" || recompute == "yes"; }

/// True if every layer was computed twice, of a table that has no column for that but gives arithmetic per second in addition to
/// the time: by the formulas of Megatron-LM's papers a step of a GPT has 72 B s l h² (1 + s/6h + V/12lh) floating-point operations,
/// and 96 B s l h² (1 + s/6h + V/16lh) with recomputation. The one that gives the table's own figure within 2 % is taken.
bool says_recomputed(const Reader& row, double seconds, double batch, double sequence, double devices) {
  const std::optional<double> rate = row.number({"tflops_per_gpu", "tflops_gpu", "tflop_s_per_gpu", "tflops"});
  if (!rate || row.text(hidden_names).empty() || row.text(layer_names).empty()) {
    return false;
  }
  const auto h = static_cast<double>(row.needed(hidden_names, most_features));
  const auto l = static_cast<double>(row.needed(layer_names, most_layers));
  const auto vocabulary = static_cast<double>(row.count({"vocab", "vocab_size", "vocabulary"}, 51200));
  const double done = *rate * 1e12 * seconds * devices;
  const double layers = batch * sequence * l * h * h;
  const double twice = 96 * layers * (1 + sequence / (6 * h) + vocabulary / (16 * l * h));
  return std::abs(done / twice - 1) < 0.02;
}

/// Reads the row of a training step: each part of the job from the parts before it.
class TrainingReader {
 public:
  explicit TrainingReader(const Reader& row)
      : row_(row),
        foundry_(row.has({"sharding_strategy"}) && row.has({"gradaccum"})),
        images_(row.has(image_rate_names) || row.has({"images_per_s_per_gpu"}) ||
                (row.text(hidden_names).empty() && squeezed(row.text(model_names)) == "resnet50")) {}

  void read(const PublishedDefaults& defaults, PublishedCase& one) {
    refuse_unknown_axes(row_);
    read_program(defaults);
    read_mesh();
    read_model();
    read_batch();
    one.seconds = seconds_per_step(row_, static_cast<double>(batch_), static_cast<double>(sequence_),
                                   static_cast<double>(devices_));
    one.memory = row_.above_zero({"memory_gib", "peak_memory_gib", "memory_gb"});
    if (batch_ % dp_ != 0) {
      throw usage_error("a batch of {} cannot be divided over {} replicas", batch_, dp_);
    }
    spec_.fold = job::Fold::always;
    read_sharding();
    read_recompute(one.seconds);
    spec_.software += fp8_ ? "+fp8" : "";
    if (pp_ > 1) {
      read_schedule();
    }
    one.job = jobs();
    one.what = what();
    one.assumed = assumed(defaults);
  }

 private:
  void read_program(const PublishedDefaults& defaults) {
    spec_.cluster = cluster_for(row_, defaults);
    spec_.software = software_for(row_, defaults, spec_.cluster, foundry_, images_);
    spec_.precision = strategy::precision_by_name(precision_of(row_.text(precision_names), spec_.software, spec_.cluster, fp8_));
  }

  void read_mesh() {
    devices_ = row_.needed(gpu_count_names, most_gpus);
    tp_ = row_.count({"tp", "tensor_parallel", "tensor_parallel_size", "t"}, 1, most_gpus);
    pp_ = row_.count({"pp", "pipeline_parallel", "pipeline_parallel_size", "p"}, 1, most_gpus);
    sharded_ = row_.count({"fsdp", "dp_shard"}, 0, most_gpus);
    dp_ = row_.count({"dp", "data_parallel", "data_parallel_size", "d"},
                     sharded_ > 0 ? sharded_ : std::max<std::int64_t>(1, devices_ / (tp_ * pp_)), most_gpus);
    if (dp_ * tp_ * pp_ != devices_) {
      throw usage_error("dp {} x pp {} x tp {} is not its {} GPUs", dp_, pp_, tp_, devices_);
    }
    spec_.devices = devices_;
    spec_.dp = dp_;
    spec_.pp = pp_;
    spec_.tp = tp_;
  }

  void read_model() {
    sequence_ = images_ ? 1 : row_.count(sequence_names, usual_sequence(row_, foundry_), most_positions);
    program_ = cost::software_by_name(spec_.software);
    const std::int64_t multiple = tp_ == 1 && !program_.pads_alone ? 1 : program_.vocabulary * (program_.vocabulary > 1 ? tp_ : 1);
    spec_.model = images_ ? model::ModelName("resnet50:group=1") : model_of(row_, sequence_, foundry_, multiple, layers_);
  }

  void read_batch() {
    micro_ = row_.count(micro_names, 0, most_samples);
    parts_ = row_.count(parts_names, 0, most_samples);
    batch_ = row_.count(batch_names, micro_ * std::max<std::int64_t>(1, parts_) * dp_, most_samples);
    if (batch_ == 0) {
      throw usage_error("no column says how large the batch is");
    }
    spec_.batch = batch_;
  }

  void read_sharding() {
    const std::string sharding = canonical(row_.text({"sharding_strategy", "zero"}));
    if (sharding == "shard-grad-op" || sharding == "2") {
      spec_.zero = 2;
    } else if (sharding == "full-shard" || sharding == "3" || sharded_ > 0) {
      spec_.zero = 3;
    } else if (sharding == "1") {
      spec_.zero = 1;
    }
  }

  void read_recompute(double seconds) {
    const std::string recompute = canonical(row_.text({"recompute", "activation_checkpointing", "recomputation", "ac"}));
    const bool twice = recompute.empty() && says_recomputed(row_, seconds, static_cast<double>(batch_),
                                                            static_cast<double>(sequence_), static_cast<double>(devices_));
    spec_.recompute = is_full(recompute) || twice ? strategy::Recompute::full : spec_.recompute;
    if (!recompute.starts_with("selective") && contains(spec_.software, "torchtitan")) {
      spec_.software += "+keep";  // `recompute` alone says if it recomputes
    }
    spec_.sp = tp_ > 1 && divides_sequence(row_, tp_, spec_.software);
    if (recompute.starts_with("selective") && program_.scores_forward > 0) {
      spec_.software += "+scores";  // Megatron-LM: the attention of a layer, from its queries, keys and values on
    }
  }

  void read_schedule() {
    const std::string schedule = canonical(row_.text({"schedule", "pipeline_schedule"}));
    const std::int64_t chunks = chunks_of(row_, schedule);
    spec_.schedule = chunks > 1 ? "interleaved" : schedule.empty() ? "1f1b" : schedule;
    spec_.chunks = chunks > 1 ? std::optional(chunks) : std::nullopt;
    spec_.split = split_of(layers_, pp_ * chunks);
  }

  /// The job of the row, or several if the table does not say how large a micro-batch is.
  PublishedJobs jobs() const {
    const std::int64_t of_replica = batch_ / dp_;
    const auto with_micro_batches = [&](std::int64_t count) {
      job::JobSpec spec = spec_;
      spec.micro_batches = count;
      return spec;
    };
    if (micro_ > 0 || parts_ > 0) {
      const std::int64_t each = micro_ > 0 ? micro_ : of_replica / parts_;
      if (each == 0 || of_replica % each != 0) {
        throw usage_error("the {} samples of a replica cannot be divided into micro-batches of {}", of_replica, each);
      }
      return {with_micro_batches(of_replica / each)};
    }
    if (images_) {
      return {with_micro_batches(1)};
    }
    PublishedJobs jobs;
    const std::int64_t largest = pp_ > 1 ? std::max<std::int64_t>(1, of_replica / (4 * pp_)) : 16;  // so that few stages idle
    for (std::int64_t each = 1; each <= largest && of_replica % each == 0; each *= 2) {
      jobs.push_back(with_micro_batches(of_replica / each));
    }
    return jobs;
  }

  std::string what() const {
    return fmt::format(
        "{}{} on {} {}, dp {} pp {} tp {}, batch {}{}{}", spec_.model.text(), fp8_ ? " fp8" : "", devices_, spec_.cluster, dp_, pp_,
        tp_, batch_, micro_ > 0 ? fmt::format(", micro-batch {}", micro_) : "",
        spec_.recompute == strategy::Recompute::none ? "" : fmt::format(", recompute {}", strategy::to_text(spec_.recompute)));
  }

  std::vector<std::string> assumed(const PublishedDefaults& defaults) const {
    std::vector<std::string> list;
    if (!images_ && row_.text(sequence_names).empty()) {
      list.push_back(fmt::format("sequence {}", sequence_));
    }
    if (row_.text(precision_names).empty()) {
      list.emplace_back(strategy::to_text(spec_.precision));
    }
    if (defaults.software.empty() && row_.text(software_names).empty()) {
      list.push_back("software " + spec_.software.substr(0, spec_.software.find('+')));
    }
    if (cluster_of_device(row_.text({"cluster"})) != spec_.cluster && defaults.cluster != spec_.cluster) {
      list.push_back("cluster " + spec_.cluster);
    }
    if (spec_.sp && row_.text(sequence_parallel_names).empty()) {
      list.emplace_back("tensor ranks divide the sequence too");
    }
    return list;
  }

  const Reader& row_;
  bool foundry_;  // a table of LLM Foundry
  bool images_;
  job::JobSpec spec_;
  bool fp8_ = false;
  cost::Software program_;
  std::int64_t devices_ = 1;
  std::int64_t tp_ = 1;
  std::int64_t pp_ = 1;
  std::int64_t dp_ = 1;
  std::int64_t sharded_ = 0;
  std::int64_t sequence_ = 1;
  std::int64_t layers_ = 0;
  std::int64_t micro_ = 0;  // samples of a micro-batch; 0 if no column says it
  std::int64_t parts_ = 0;  // micro-batches of a step, likewise
  std::int64_t batch_ = 0;
};

/// A training step.
void read_training(const Reader& row, const PublishedDefaults& defaults, PublishedCase& one) {
  TrainingReader(row).read(defaults, one);
}

void read_all_reduce(const Reader& row, const PublishedDefaults& defaults, PublishedCase& one) {
  if (const std::string kind = squeezed(row.text({"collective", "operation"})); !kind.empty() && kind != "allreduce") {
    throw usage_error("the collective '{}' is not compared", row.text({"collective", "operation"}));
  }
  PublishedAllReduce job{cluster_for(row, defaults), row.needed(gpu_count_names, most_gpus),
                         row.needed({"bytes", "size", "size_b", "message_bytes"}),
                         squeezed(row.text({"algorithm", "algo"})) == "ring"};
  const auto n = static_cast<double>(job.devices);
  if (const auto time = row.above_zero(collective_time_names)) {
    one.seconds = *time * 1e-6;
  } else if (const auto rate = row.above_zero(bus_names)) {
    one.seconds = static_cast<double>(job.bytes) * 2 * (n - 1) / n / (*rate * 1e9);
  } else {
    throw usage_error("no column says how long it takes, or at which bus bandwidth");
  }
  one.what = fmt::format("all_reduce of {} between {} devices of {}{}", to_text(Bytes(job.bytes)), job.devices, job.cluster,
                         job.ring ? ", ring" : "");
  one.job = job;
}

/// One case for the forward and one for the backward.
void read_kernels(const Reader& row, const PublishedDefaults& defaults, PublishedCase one, std::vector<PublishedCase>& cases) {
  const bool norm = row.has({"norm_type"});
  PublishedKernel job;
  try {
    job.cluster = cluster_for(row, defaults);
    const std::string type = canonical(row.text({"data_type", "precision", "dtype"}));
    if (contains(type, "fp8") || contains(type, "float8")) {
      throw usage_error("a kernel in fp8 has no op here");
    }
    job.precision = contains(type, "bf") ? "bf16" : contains(type, "16") ? "fp16" : "fp32";
    const std::string backend = canonical(row.text({"backend", "software", "implementation"}));
    job.software = !defaults.software.empty() ? defaults.software : backend.empty() ? "cudnn" : backend;
    if (norm) {
      const std::string kind = squeezed(row.text({"norm_type"}));
      job.kind = kind == "rmsnorm" ? PublishedKernel::Kind::rms_norm : PublishedKernel::Kind::layer_norm;
      job.positions = row.needed({"n", "rows", "tokens"});
      job.features = row.needed({"c", "features", "hidden"});
      one.what = fmt::format("{} of {} x {}, {}, {}", row.text({"norm_type"}), job.positions, job.features, job.software,
                             job.precision);
    } else {
      job.batch = row.count({"batch_size", "batch", "b"}, 1);
      job.positions = row.needed({"q_seqlen", "seqlen", "seq", "seq_len"});
      if (row.count({"kv_seqlen"}, job.positions) != job.positions) {
        throw usage_error("attention over more keys than queries has no op here");
      }
      if (row.count({"sliding_window_size", "window"}, 0) > 0) {
        throw usage_error("attention within a sliding window has no op here");
      }
      job.heads = row.needed({"num_q_heads", "heads", "num_heads"});
      job.kv_heads = row.count({"num_kv_heads", "kv_heads"}, job.heads);
      job.features = row.needed({"head_dim_qk", "head_dim", "d"});
      const std::string mask = canonical(row.text({"attn_mask", "mask", "causal"}));
      job.causal = !(contains(mask, "no") || mask == "false" || mask == "full");
      one.what = fmt::format("attention of {} x {} positions, {} heads of {}, {}{}", job.batch, job.positions, job.heads,
                             job.features, job.precision, job.causal ? ", causal" : "");
    }
  } catch (const Error& error) {
    one.reason = error.what();
    cases.push_back(one);
    return;
  }
  bool any = false;
  for (const bool backward : {false, true}) {
    const auto ms = backward ? row.number({"bwd_time_ms", "backward_ms"}) : row.number({"fwd_time_ms", "forward_ms"});
    if (ms && *ms > 0) {
      PublishedCase part = one;
      job.backward = backward;
      part.seconds = *ms * 1e-3;
      part.what = (backward ? "backward: " : "forward: ") + one.what;
      part.job = job;
      cases.push_back(std::move(part));
      any = true;
    }
  }
  if (!any) {
    one.reason = "it has no time";
    cases.push_back(one);
  }
}

enum class TableKind : std::uint8_t { training, all_reduce, kernels };

TableKind kind_of(const Reader& table, const std::string& source) {
  const bool times = table.has({"fwd_time_ms", "forward_ms", "bwd_time_ms", "backward_ms"});
  if (times && (table.has({"norm_type"}) || table.has({"head_dim_qk", "head_dim"}))) {
    return TableKind::kernels;
  }
  if (table.has({"bytes", "size", "size_b", "message_bytes"}) && (table.has(bus_names) || table.has(collective_time_names))) {
    return TableKind::all_reduce;
  }
  const bool timed = table.has(millisecond_names) || table.has(second_names) || table.has(token_rate_names) ||
                     table.has(device_token_names) || table.has(sample_rate_names) || table.has(image_rate_names) ||
                     table.has({"images_per_s_per_gpu"});
  const bool sized = table.has(model_names) || (table.has(hidden_names) && table.has(layer_names) && table.has(head_names)) ||
                     table.has(image_rate_names) || table.has({"images_per_s_per_gpu"});
  std::vector<std::string> missing;
  if (!sized) {
    missing.emplace_back("the model (hidden, layers and heads, or model)");
  }
  if (!table.has(gpu_count_names)) {
    missing.emplace_back("the number of GPUs (gpus)");
  }
  if (!timed) {
    missing.emplace_back("a time or a rate (iteration_ms, step_ms, tokens_per_s, tokens_per_s_per_gpu, images_per_s, ...)");
  }
  if (!missing.empty()) {
    std::string list;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      list += (i == 0 ? "" : i + 1 == missing.size() ? " and " : ", ") + missing[i];
    }
    throw usage_error(
        "the table {} has no column for {}; a table of collectives has bytes, gpus and busbw_GBps or time_us, one of kernels "
        "fwd_time_ms with norm_type or head_dim_qk",
        source, list);
  }
  return TableKind::training;
}

}  // namespace

PublishedTable parse_table(std::string_view text, std::string source) {
  if (text.starts_with("\xef\xbb\xbf")) {
    text.remove_prefix(3);
  }
  if (!is_utf8(text)) {
    throw usage_error("the table {} is not text in UTF-8", source);
  }
  const std::string_view first = text.substr(0, text.find('\n'));
  char separator = ',';
  for (const char other : {';', '\t'}) {
    if (std::count(first.begin(), first.end(), other) > std::count(first.begin(), first.end(), separator)) {
      separator = other;
    }
  }
  PublishedTable table{.source = std::move(source), .columns = {}, .rows = {}};
  std::size_t at = 0;
  std::size_t line = 1;
  table.columns = next_record(text, at, line, separator, table.source);
  if (table.columns.size() < 2) {
    throw usage_error("the table {} has no line of column names separated by commas", table.source);
  }
  while (at < text.size()) {
    PublishedTable::Row row{.line = line, .cells = {}};
    row.cells = next_record(text, at, line, separator, table.source);
    if (std::all_of(row.cells.begin(), row.cells.end(), [](const std::string& cell) { return cell.empty(); })) {
      continue;
    }
    if (row.cells.size() > table.columns.size()) {
      throw usage_error("line {} of the table {} has {} cells, but there are {} columns", row.line, table.source, row.cells.size(),
                        table.columns.size());
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string cluster_of_device(std::string_view text) {
  for (const cluster::Blueprint& known : cluster::catalogue()) {
    if (known.in_node > 0 && known.name == canonical(text)) {
      return known.name;
    }
  }
  const std::string name = squeezed(text);
  for (const char* newer : {"h200", "h100", "a100", "v100"}) {
    if (contains(name, newer)) {
      if (newer == std::string_view("h100") && contains(name, "96gb")) {
        return "h100-96gb";
      }
      if (newer == std::string_view("a100") && contains(name, "40gb")) {
        return "dgx-a100-40gb";
      }
      if (newer == std::string_view("v100") && contains(name, "dgx2")) {
        return "dgx-2";
      }
      return fmt::format("dgx-{}", newer);
    }
  }
  return contains(name, "dgx2") ? "dgx-2" : "";
}

std::vector<PublishedCase> published_cases(const PublishedTable& table, const PublishedDefaults& defaults) {
  Reader reader(table);
  if (const std::string twice = reader.twice(); !twice.empty()) {
    throw usage_error("the table {} has the column {} twice", table.source, twice);
  }
  const TableKind kind = kind_of(reader, table.source);
  const bool many_rows = table.rows.size() >= 20;
  std::vector<PublishedCase> cases;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    reader.row(table.rows[r]);
    PublishedCase one{.source = table.source,
                      .line = table.rows[r].line,
                      .what = {},
                      .memory = {},
                      .fitted = many_rows && r % 10 == 0,
                      .assumed = {},
                      .job = PublishedJobs{},
                      .reason = {}};
    if (table.rows[r].cells.size() < table.columns.size()) {
      one.reason = fmt::format("the row has {} cell{}, but the table has {} columns", table.rows[r].cells.size(),
                               table.rows[r].cells.size() == 1 ? "" : "s", table.columns.size());
      cases.push_back(std::move(one));
      continue;
    }
    if (kind == TableKind::kernels) {
      read_kernels(reader, defaults, std::move(one), cases);
      continue;
    }
    try {
      kind == TableKind::all_reduce ? read_all_reduce(reader, defaults, one) : read_training(reader, defaults, one);
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::usage) {
        throw;
      }
      one.reason = error.what();
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace baton::predict
