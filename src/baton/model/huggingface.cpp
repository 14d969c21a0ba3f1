#include "baton/model/huggingface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/model/gpt.h"
#include "baton/model/llama.h"
#include "baton/model/resnet.h"
#include "baton/model/settings.h"
#include "baton/model/vit.h"
#include "baton/model/zoo.h"

namespace baton::model {
namespace {

using ConfigTree = nlohmann::json;

constexpr Bytes most_config(std::int64_t{8} << 20);  // a name for each of 20 000 classes, twice
constexpr Bytes most_index(std::int64_t{32} << 20);
constexpr int deepest_config = 16;

/// Keys that change neither what a model computes nor which weights it has: how it was made, how it is run, and the settings of
/// sampling.
constexpr std::array harmless{
    "_name_or_path", "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "use_cache", "use_bfloat16",
    "initializer_range", "initializer_factor", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "bad_words_ids", "suppress_tokens",
    "begin_suppress_tokens", "task_specific_params", "finetuning_task", "problem_type", "tokenizer_class", "prefix", "label2id",
    "id2label", "num_labels", "output_attentions", "output_hidden_states", "output_scores", "return_dict",
    "return_dict_in_generate", "torchscript", "tf_legacy_loss", "chunk_size_feed_forward", "gradient_checkpointing", "max_length",
    "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k",
    "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "num_return_sequences", "remove_invalid_values", "exponential_decay_length_penalty", "attn_implementation",
    "_attn_implementation", "_attn_implementation_autoset", "is_decoder", "keys_to_ignore_at_inference",
    // GPT-2: the classes of its other heads, the context under an older name, a way of computing attention
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "n_ctx",
    "n_special", "predict_special_tokens", "_num_labels", "reorder_and_upcast_attn",
    // LLaMA: how weights were divided when it was trained
    "pretraining_tp",
    // ViT and ResNet: heads that are not for classes
    "encoder_stride", "pooler_output_size", "pooler_act", "out_features", "out_indices", "stage_names"};

bool is_off(const ConfigTree& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_number() && value.get<double>() == 0) ||
         ((value.is_string() || value.is_array() || value.is_object()) && value.empty());
}

std::string shown(const ConfigTree& value) {
  const std::string text = value.dump(-1, ' ', false, ConfigTree::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string printable_key(const std::string& key) { return key.size() > 60 ? key.substr(0, 57) + "..." : key; }

/// A configuration being read: each key is asked for once, and keys that were not asked for are refused at the end.
class Config {
 public:
  Config(std::string_view json, std::string what) : what_(std::move(what)) {
    tree_ = ConfigTree::parse(
        json,
        [&](int depth, ConfigTree::parse_event_t, ConfigTree&) {
          if (depth > deepest_config) {
            throw usage_error("{} is not a configuration of a model: it is nested too deeply", what_);
          }
          return true;
        },
        false);
    if (!tree_.is_object()) {
      throw usage_error("{} is not a configuration of a model: it is not JSON that begins with {{", what_);
    }
  }

  const std::string& what() const { return what_; }
  bool has(const char* key) const { return tree_.contains(key); }
  /// nullptr if it is not there or null.
  const ConfigTree* find(const char* key) {
    asked_.insert(key);
    const auto found = tree_.find(key);
    return found == tree_.end() || found->is_null() ? nullptr : &*found;
  }

  std::int64_t size(const char* key, std::int64_t usual, std::int64_t most) {
    const ConfigTree* value = find(key);
    return value == nullptr ? usual : whole(key, *value, most);
  }
  double number(const char* key, double usual) {
    const ConfigTree* value = find(key);
    if (value != nullptr && (!value->is_number() || !(value->get<double>() >= 0) || value->get<double>() > 1)) {
      throw usage_error("{} has {} = {}, but it must be a number from 0 to 1", what_, key, shown(*value));
    }
    return value == nullptr ? usual : value->get<double>();
  }
  bool flag(const char* key, bool usual) {
    const ConfigTree* value = find(key);
    if (value != nullptr && !value->is_boolean()) {
      throw usage_error("{} has {} = {}, but it must be true or false", what_, key, shown(*value));
    }
    return value == nullptr ? usual : value->get<bool>();
  }
  std::vector<std::int64_t> sizes(const char* key, std::vector<std::int64_t> usual, std::int64_t most) {
    const ConfigTree* value = find(key);
    if (value == nullptr) {
      return usual;
    }
    if (!value->is_array() || value->empty() || value->size() > 8) {
      throw usage_error("{} has {} = {}, but it must be a list of 1 to 8 numbers", what_, key, shown(*value));
    }
    std::vector<std::int64_t> list;
    for (const ConfigTree& one : *value) {
      list.push_back(whole(key, one, most));
    }
    return list;
  }
  /// The size of square things, as a number or as two equal ones.
  std::int64_t side(const char* key, std::int64_t usual, std::int64_t most) {
    const ConfigTree* value = find(key);
    if (value != nullptr && value->is_array() && value->size() == 2 && (*value)[0] == (*value)[1]) {
      return whole(key, (*value)[0], most);
    }
    return value == nullptr ? usual : whole(key, *value, most);
  }
  /// A whole number, also as 10000.0.
  std::int64_t whole(const char* key, const ConfigTree& value, std::int64_t most) const {
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number >= 1) || number > static_cast<double>(most) || number != std::floor(number)) {
      throw usage_error("{} has {} = {}, but it must be a whole number from 1 to {}", what_, key, shown(value), most);
    }
    return static_cast<std::int64_t>(number);
  }
  std::string word(const char* key, const std::string& usual) {
    const ConfigTree* value = find(key);
    if (value != nullptr && !value->is_string()) {
      throw usage_error("{} has {} = {}, but it must be a text", what_, key, shown(*value));
    }
    return value == nullptr ? usual : value->get<std::string>();
  }

  /// The value must be one of these; otherwise an error names the key and the value.
  void only_word(const char* key, const std::string& usual, const std::vector<std::string>& known) {
    if (const std::string value = word(key, usual); std::find(known.begin(), known.end(), value) == known.end()) {
      throw usage_error("{} asks for {} = {}, which Baton does not have: it has {}", what_, key, shown(value), either(known));
    }
  }
  void only_flag(const char* key, bool usual, bool known) {
    if (flag(key, usual) != known) {
      throw usage_error("{} asks for {} = {}, which Baton does not have", what_, key, !known);
    }
  }
  void refuse(const std::string& key, const std::string& value, const std::string& why) const {
    throw usage_error("{} asks for {} = {}, which Baton does not have{}{}", what_, key, value, why.empty() ? "" : ": ", why);
  }
  /// `key = value` of the first key that was not asked for, is not off and not among these; empty if there is none.
  std::string first_unknown(const std::set<std::string>& known) const {
    for (const auto& [key, value] : tree_.items()) {
      if (!asked_.contains(key) && !known.contains(key) && !is_off(value)) {
        return fmt::format("{} = {}", printable_key(key), shown(value));
      }
    }
    return "";
  }
  void refuse_the_rest() const {
    if (const std::string unknown = first_unknown({harmless.begin(), harmless.end()}); !unknown.empty()) {
      throw usage_error("{} asks for {}, which Baton does not know: take it out if the model computes the same without it", what_,
                        unknown);
    }
  }

  std::int64_t classes() {
    if (const ConfigTree* labels = find("id2label"); labels != nullptr && labels->is_object() && !labels->empty()) {
      return static_cast<std::int64_t>(labels->size());
    }
    return size("num_labels", 2, max_width);
  }

 private:
  std::string what_;
  ConfigTree tree_;
  std::set<std::string> asked_;
};

/// Says of each of these probabilities that it is not 0.
std::vector<std::string> dropped(Config& config, const std::vector<std::pair<const char*, double>>& keys) {
  std::vector<std::string> list;
  for (const auto& [key, usual] : keys) {
    if (const double share = config.number(key, usual); share > 0) {
      list.push_back(fmt::format("{} = {}", key, share));
    }
  }
  if (list.empty()) {
    return {};
  }
  return {
      fmt::format("{} asks for dropout in training ({}), which is left out here: add dropout=X after the folder's name to have it",
                  config.what(), fmt::join(list, ", "))};
}

FolderModel read_gpt2(Config& config, const ModelSettings& settings) {
  GptSize size{.depth = config.size("n_layer", 12, max_depth),
               .heads = config.size("n_head", 12, max_width),
               .dim = config.size("n_embd", 768, max_width),
               .context = config.size("n_positions", 1024, max_width),
               .vocab = config.size("vocab_size", 50257, max_width),
               .hidden = config.size("n_inner", 0, max_width),
               .epsilon = config.number("layer_norm_epsilon", 1e-5),
               .tied = config.flag("tie_word_embeddings", true)};
  config.only_word("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  config.only_flag("scale_attn_weights", true, true);
  config.only_flag("scale_attn_by_inverse_layer_idx", false, false);
  config.only_flag("add_cross_attention", false, false);
  return {.type = {},
          .model = {"gpt", gpt_settings(size).with(settings)},
          .remarks = dropped(config, {{"resid_pdrop", 0.1}, {"embd_pdrop", 0.1}, {"attn_pdrop", 0.1}})};
}

/// Positions by another rule than base^(−2i/head) are refused.
std::int64_t rotary_base(Config& config) {
  std::int64_t base = config.size("rope_theta", 10000, max_base);
  const auto refuse_partial = [&](const std::string& key, const ConfigTree& share) {
    if (!share.is_null() && share != 1.0) {
      config.refuse(key, shown(share), "it rotates whole heads");
    }
  };
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const ConfigTree* rule = config.find(key);
    if (rule == nullptr || is_off(*rule)) {
      continue;
    }
    if (!rule->is_object()) {
      config.refuse(key, shown(*rule), "");
    }
    bool named = false;
    for (const char* type : {"rope_type", "type"}) {
      const auto found = rule->find(type);
      if (found != rule->end() && !found->is_null()) {
        named = true;
        if (*found != "default") {
          config.refuse(key, shown(*found), "it has rotary positions without scaling");
        }
      }
    }
    for (const auto& [name, value] : rule->items()) {
      if (name == "rope_theta" && !value.is_null()) {
        base = config.whole("rope_theta", value, max_base);
      } else if (name == "partial_rotary_factor") {
        refuse_partial(fmt::format("{}.{}", key, name), value);
      } else if (name != "rope_theta" && name != "rope_type" && name != "type" && !is_off(value)) {
        config.refuse(
            fmt::format("{}.{}", key, printable_key(name)), shown(value),
            named ? "it has rotary positions without scaling" : "it has rotary positions without scaling, and no type is named");
      }
    }
  }
  if (const ConfigTree* share = config.find("partial_rotary_factor"); share != nullptr) {
    refuse_partial("partial_rotary_factor", *share);
  }
  return base;
}

struct LlamaDefaults {
  std::int64_t vocab;
  std::int64_t dim;
  std::int64_t hidden;
  std::int64_t context;
  std::int64_t kv_heads;  // 0: as many as heads
};

FolderModel read_llama(Config& config, const ModelSettings& settings, const LlamaDefaults& usual, const LlamaSize& biases) {
  LlamaSize size = biases;
  size.depth = config.size("num_hidden_layers", 32, max_depth);
  size.heads = config.size("num_attention_heads", 32, max_width);
  size.kv_heads = config.size("num_key_value_heads", usual.kv_heads == 0 ? size.heads : usual.kv_heads, max_width);
  size.dim = config.size("hidden_size", usual.dim, max_width);
  size.hidden = config.size("intermediate_size", usual.hidden, max_width);
  size.context = config.size("max_position_embeddings", usual.context, max_width);
  size.vocab = config.size("vocab_size", usual.vocab, max_width);
  size.base = rotary_base(config);
  size.head = config.size("head_dim", 0, max_width);
  size.epsilon = config.number("rms_norm_eps", 1e-6);
  size.tied = config.flag("tie_word_embeddings", false);
  config.only_word("hidden_act", "silu", {"silu", "swish"});
  return {
      .type = {}, .model = {"llama", llama_settings(size).with(settings)}, .remarks = dropped(config, {{"attention_dropout", 0}})};
}

/// A window that all positions fit in changes nothing.
void refuse_window(const Config& config, const FolderModel& folder, std::int64_t window) {
  const std::int64_t context = parse_llama_size(folder.model.settings()).context;
  if (window < context) {
    config.refuse(
        "sliding_window", std::to_string(window),
        fmt::format("each of the {} positions sees all before it; context={} after the folder's name, as in DIR:context={}, "
                    "makes sequences that fit into the window",
                    context, window, window));
  }
}

FolderModel read_mistral(Config& config, const ModelSettings& settings) {
  FolderModel folder = read_llama(config, settings, {32000, 4096, 14336, 131072, 8}, {});
  const bool none = config.has("sliding_window") && config.find("sliding_window") == nullptr;
  if (const std::int64_t window = config.size("sliding_window", 4096, max_base); !none) {
    refuse_window(config, folder, window);
  }
  return folder;
}

FolderModel read_qwen2(Config& config, const ModelSettings& settings) {
  FolderModel folder = read_llama(config, settings, {151936, 4096, 22016, 32768, 32}, {.qkv_bias = true});
  const std::int64_t window = config.size("sliding_window", 4096, max_base);
  const bool windows = config.flag("use_sliding_window", false);
  const ConfigTree* first = config.find("max_window_layers");  // layers from this one on have the window
  const ConfigTree* types = config.find("layer_types");
  const bool some = types == nullptr ||
                    std::any_of(types->begin(), types->end(), [](const ConfigTree& type) { return type != "full_attention"; });
  const bool reached = first == nullptr || !first->is_number() ||
                       first->get<double>() < static_cast<double>(parse_llama_size(folder.model.settings()).depth);
  if ((windows && some && reached) || (types != nullptr && some)) {
    refuse_window(config, folder, window);
  }
  return folder;
}

FolderModel read_plain_llama(Config& config, const ModelSettings& settings) {
  const bool biases = config.flag("attention_bias", false);
  config.only_flag("mlp_bias", false, false);
  return read_llama(config, settings, {32000, 4096, 11008, 2048, 0}, {.qkv_bias = biases, .out_bias = biases});
}

FolderModel read_vit(Config& config, const ModelSettings& settings) {
  const VitSize size{.depth = config.size("num_hidden_layers", 12, max_depth),
                     .heads = config.size("num_attention_heads", 12, max_width),
                     .dim = config.size("hidden_size", 768, max_width),
                     .patch = config.side("patch_size", 16, max_image_side),
                     .image = config.side("image_size", 224, max_image_side),
                     .classes = config.classes(),
                     .hidden = config.size("intermediate_size", 3072, max_width),
                     .channels = config.size("num_channels", 3, max_width),
                     .epsilon = config.number("layer_norm_eps", 1e-12),
                     .qkv_bias = config.flag("qkv_bias", true)};
  config.only_word("hidden_act", "gelu", {"gelu"});
  return {.type = {},
          .model = {"vit", vit_settings(size).with(settings)},
          .remarks = dropped(config, {{"hidden_dropout_prob", 0}, {"attention_probs_dropout_prob", 0}})};
}

/// The settings of a ResNet whose first convolution is of 7×7, whatever image it gets.
ModelName with_stem(const ResnetSize& size, const ModelSettings& settings) {
  return {"resnet", resnet_settings(size).add("stem", "large").with(settings)};
}

FolderModel read_resnet(Config& config, const ModelSettings& settings) {
  const std::string layer = config.word("layer_type", "bottleneck");
  config.only_word("layer_type", "bottleneck", {"bottleneck", "basic"});
  config.only_word("hidden_act", "relu", {"relu"});
  const std::vector<std::int64_t> blocks = config.sizes("depths", {3, 4, 6, 3}, 1 << 12);
  const std::vector<std::int64_t> outputs = config.sizes("hidden_sizes", {256, 512, 1024, 2048}, max_width);
  ResnetSize size{.depth = layer == "basic" ? 18 : 50,
                  .classes = config.classes(),
                  .width = config.size("embedding_size", 64, max_image_side),
                  .channels = config.size("num_channels", 3, max_image_side),
                  .early = config.flag("downsample_in_bottleneck", false),
                  .first_moves = config.flag("downsample_in_first_stage", false)};
  for (const std::int64_t depth : {18, 34, 50, 101}) {
    ResnetSize known = size;
    known.depth = depth;
    const ResnetStages stages = stages_of(known);
    if (stages.bottlenecks == (layer == "bottleneck") && stages.blocks == blocks && stages.outputs == outputs) {
      return {.type = {}, .model = with_stem(known, settings)};
    }
  }
  size.blocks = blocks;
  size.outputs = outputs;
  return {.type = {}, .model = with_stem(size, settings)};
}

struct FolderType {
  const char* name;
  FolderModel (*read)(Config& config, const ModelSettings& settings);
};
constexpr std::array<FolderType, 6> folder_types{{{"gpt2", read_gpt2},
                                                  {"llama", read_plain_llama},
                                                  {"mistral", read_mistral},
                                                  {"qwen2", read_qwen2},
                                                  {"vit", read_vit},
                                                  {"resnet", read_resnet}}};

/// preprocessor_config.json of a folder; nothing if it has none.
std::optional<Config> preprocessor_in(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "preprocessor_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return std::nullopt;
  }
  return Config(read_file(path, path.string(), most_config), path.string());
}

/// True if a size is one side for both extents: a number, a shortest edge alone, or a height and an equal width.
bool is_square(const ConfigTree& size) {
  if (!size.is_object()) {
    return true;
  }
  return size.size() == 1
             ? size.contains("shortest_edge")
             : size.size() == 2 && size.contains("height") && size.contains("width") && size["height"] == size["width"];
}

/// The side of images that a key names, as a number or as an object; nothing if it names none.
std::optional<std::int64_t> side_of(Config& config, const char* key) {
  const ConfigTree* size = config.find(key);
  if (size == nullptr || !is_square(*size)) {
    return std::nullopt;
  }
  return config.whole(key, size->is_object() ? *size->begin() : *size, max_image_side);
}

/// The size of images that preprocessor_config.json names; nothing if it names none.
std::optional<std::int64_t> image_size(const std::filesystem::path& folder) {
  std::optional<Config> config = preprocessor_in(folder);
  for (const char* key : {"crop_size", "size"}) {
    if (const std::optional<std::int64_t> side = config ? side_of(*config, key) : std::nullopt) {
      return side;
    }
  }
  return std::nullopt;
}

/// One number, or a list with one per channel.
std::vector<double> per_channel(Config& config, const char* key, double usual, double least) {
  const ConfigTree* value = config.find(key);
  if (value == nullptr) {
    return {usual};
  }
  constexpr std::size_t most_channels = 16;
  const ConfigTree list = value->is_array() ? *value : ConfigTree(std::vector<ConfigTree>{*value});
  const bool numbers = !list.empty() && list.size() <= most_channels &&
                       std::all_of(list.begin(), list.end(), [&](const ConfigTree& one) {
                         return one.is_number() && one.get<double>() >= least && one.get<double>() <= 1000;
                       });
  if (!numbers) {
    throw usage_error("{} has {} = {}, but it must be numbers from {} to 1000", config.what(), key, shown(*value), least);
  }
  return list.get<std::vector<double>>();
}

/// Keys of preprocessor_config.json that change no number of an image which has the size of the model.
constexpr std::array harmless_for_pixels{"image_processor_type",
                                         "feature_extractor_type",
                                         "processor_class",
                                         "_processor_class",
                                         "_valid_processor_keys",
                                         "do_resize",
                                         "do_convert_rgb",
                                         "data_format",
                                         "input_data_format",
                                         "return_tensors",
                                         "device",
                                         "default_to_square",
                                         "use_fast",
                                         "disable_grouping"};

/// The first setting that is asked for and not supported, as `key = value`; empty if there is none.
std::string lacks_for_pixels(Config& config) {
  const auto say = [&](const char* key, const std::string& meaning) {
    return fmt::format("{} = {}{}", key, shown(*config.find(key)), meaning);
  };
  if (const ConfigTree* way = config.find("resample"); way != nullptr && *way != 2) {
    return say("resample", *way == 3 ? " (bicubic)" : "");
  }
  if (const ConfigTree* share = config.find("crop_pct"); share != nullptr && *share != 1.0) {
    return say("crop_pct", "");
  }
  for (const char* key : {"size", "crop_size"}) {
    if (const ConfigTree* size = config.find(key); size != nullptr && !is_square(*size)) {
      return say(key, "");
    }
  }
  const std::optional<std::int64_t> scaled = side_of(config, "size");
  const bool crops = config.flag("do_center_crop", config.has("crop_size"));
  if (const std::optional<std::int64_t> cut = side_of(config, "crop_size"); crops && cut && scaled && cut != scaled) {
    return say("crop_size", fmt::format(" of images that are scaled to {}", *scaled));
  }
  return config.first_unknown({harmless_for_pixels.begin(), harmless_for_pixels.end()});
}

}  // namespace

FolderModel read_config(std::string_view json, const ModelSettings& settings, const std::string& what) {
  Config config(json, what);
  const std::string type = config.word("model_type", "");
  const auto found = std::find_if(folder_types.begin(), folder_types.end(),
                                  [&](const FolderType& one) { return one.name == type; });
  if (found == folder_types.end()) {
    std::vector<std::string> names;
    for (const FolderType& one : folder_types) {
      names.emplace_back(one.name);
    }
    throw usage_error("{} is of a model of the type {}, but Baton has {}", what,
                      type.empty() ? "that it does not name" : shown(type), either(names));
  }
  FolderModel folder = found->read(config, settings);
  folder.type = type;
  config.refuse_the_rest();
  return folder;
}

FolderModel read_model_folder(const std::filesystem::path& folder, const ModelSettings& settings) {
  const std::filesystem::path path = folder / "config.json";
  FolderModel model = read_config(read_file(path, path.string(), most_config), settings, path.string());
  if (model.type == "resnet" && settings.find("image") == nullptr) {
    if (const std::optional<std::int64_t> image = image_size(folder)) {
      model.model = model.model.with(ModelSettings().add("image", *image));
    }
  }
  return model;
}

std::vector<std::string> remarks_on(const ModelName& name) {
  const std::optional<ModelPath> path = path_of(name);
  return !path || path->onnx ? std::vector<std::string>() : read_model_folder(path->path, path->settings).remarks;
}

std::optional<PixelScale> read_pixel_scale(const std::filesystem::path& folder) {
  std::optional<Config> config = preprocessor_in(folder);
  if (!config) {
    return std::nullopt;
  }
  PixelScale scale{.mean = per_channel(*config, "image_mean", 0.5, -1000),
                   .deviation = per_channel(*config, "image_std", 0.5, 1e-6)};
  if (!config->flag("do_normalize", true)) {
    scale = {.mean = {0}, .deviation = {1}};
  }
  for (const auto& [key, list, other] :
       {std::tuple("image_mean", &scale.mean, &scale.deviation), std::tuple("image_std", &scale.deviation, &scale.mean)}) {
    if (!config->has(key)) {
      list->resize(other->size(), list->front());
    }
  }
  if (scale.mean.size() != scale.deviation.size()) {
    throw usage_error("{} has {} numbers in image_mean and {} in image_std, but must have as many of each", config->what(),
                      scale.mean.size(), scale.deviation.size());
  }
  const std::vector<double> factor = per_channel(*config, "rescale_factor", 1.0 / 255, 1e-6);
  const double rescaled = config->flag("do_rescale", true) ? factor[0] * 255 : 255;  // pixels lie between 0 and this
  if (std::abs(rescaled - 1) > 1e-6) {
    for (std::vector<double>* list : {&scale.mean, &scale.deviation}) {
      std::transform(list->begin(), list->end(), list->begin(), [&](double value) { return value / rescaled; });
    }
  }
  if (!is_in_range(scale)) {
    throw usage_error("{} gives pixels means and deviations of {}, beyond what --normalize takes", config->what(), to_text(scale));
  }
  if (const std::string lacks = lacks_for_pixels(*config); !lacks.empty()) {
    throw usage_error("{} asks for {}, which Baton does not have: give --normalize {} to prepare images as docs/data.md says",
                      config->what(), lacks, to_text(scale));
  }
  return scale;
}

std::map<std::string, std::string> read_weight_map(const std::filesystem::path& path) {
  Config index(read_file(path, path.string(), most_index), path.string());
  const ConfigTree* list = index.find("weight_map");
  if (list == nullptr || !list->is_object() || list->empty()) {
    throw usage_error("{} has no weight_map that says which file holds a tensor", path.string());
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : list->items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos ||
        !file.get<std::string>().ends_with(".safetensors")) {
      throw usage_error("{} has {} in {}, which is not a safetensors file next to it", path.string(), tensor, shown(file));
    }
    files[tensor] = file.get<std::string>();
  }
  return files;
}

namespace {

void add_classes(ConfigTree& config, std::int64_t classes, const std::vector<std::string>& names) {
  const bool named = static_cast<std::int64_t>(names.size()) == classes;
  for (std::int64_t i = 0; i < classes; ++i) {
    const std::string label = named ? names[static_cast<std::size_t>(i)] : fmt::format("LABEL_{}", i);
    config["id2label"][std::to_string(i)] = label;
    config["label2id"][label] = i;
  }
}

void add_gpt(ConfigTree& config, const ModelSettings& settings) {
  const GptSize size = parse_gpt_size(settings);
  config.update({{"model_type", "gpt2"},
                 {"architectures", {"GPT2LMHeadModel"}},
                 {"n_layer", size.depth},
                 {"n_head", size.heads},
                 {"n_embd", size.dim},
                 {"n_positions", size.context},
                 {"n_ctx", size.context},
                 {"vocab_size", size.vocab},
                 {"n_inner", size.hidden == 0 ? ConfigTree() : ConfigTree(size.hidden)},
                 {"layer_norm_epsilon", size.epsilon},
                 {"tie_word_embeddings", size.tied},
                 {"activation_function", "gelu_new"},
                 {"resid_pdrop", 0.0},
                 {"embd_pdrop", 0.0},
                 {"attn_pdrop", 0.0}});
}

void add_llama(ConfigTree& config, const ModelSettings& settings, const std::string& name) {
  const LlamaSize size = parse_llama_size(settings);
  if (size.out_bias && !size.qkv_bias) {
    throw usage_error("{} has a bias after attention and none before it, which no model of Hugging Face's has", name);
  }
  const bool qwen = size.qkv_bias && !size.out_bias;
  config.update({{"model_type", qwen ? "qwen2" : "llama"},
                 {"architectures", {qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
                 {"num_hidden_layers", size.depth},
                 {"num_attention_heads", size.heads},
                 {"num_key_value_heads", size.kv_heads},
                 {"hidden_size", size.dim},
                 {"intermediate_size", size.hidden},
                 {"max_position_embeddings", size.context},
                 {"vocab_size", size.vocab},
                 {"rope_theta", static_cast<double>(size.base)},
                 {"rms_norm_eps", size.epsilon},
                 {"tie_word_embeddings", size.tied},
                 {"hidden_act", "silu"},
                 {"attention_dropout", 0.0}});
  if (size.head != 0) {
    config["head_dim"] = size.head;
  }
  if (qwen) {
    config["use_sliding_window"] = false;
  } else {
    config["attention_bias"] = size.qkv_bias;
  }
}

void add_vit(ConfigTree& config, const ModelSettings& settings, const std::vector<std::string>& class_names) {
  const VitSize size = parse_vit_size(settings);
  config.update({{"model_type", "vit"},
                 {"architectures", {"ViTForImageClassification"}},
                 {"num_hidden_layers", size.depth},
                 {"num_attention_heads", size.heads},
                 {"hidden_size", size.dim},
                 {"intermediate_size", size.hidden == 0 ? 4 * size.dim : size.hidden},
                 {"patch_size", size.patch},
                 {"image_size", size.image},
                 {"num_channels", size.channels},
                 {"layer_norm_eps", size.epsilon},
                 {"qkv_bias", size.qkv_bias},
                 {"hidden_act", "gelu"},
                 {"hidden_dropout_prob", 0.0},
                 {"attention_probs_dropout_prob", 0.0}});
  add_classes(config, size.classes, class_names);
}

void add_resnet(ConfigTree& config, const ModelSettings& settings, const std::string& name,
                const std::vector<std::string>& class_names) {
  const ResnetSize size = parse_resnet_size(settings);
  if (!has_large_stem(size)) {
    throw usage_error("{} begins with a convolution of 3x3, but the ResNets of Hugging Face begin with one of 7x7", name);
  }
  const ResnetStages stages = stages_of(size);
  config.update({{"model_type", "resnet"},
                 {"architectures", {"ResNetForImageClassification"}},
                 {"layer_type", stages.bottlenecks ? "bottleneck" : "basic"},
                 {"depths", stages.blocks},
                 {"hidden_sizes", stages.outputs},
                 {"embedding_size", size.width},
                 {"num_channels", size.channels},
                 {"hidden_act", "relu"},
                 {"downsample_in_bottleneck", size.early},
                 {"downsample_in_first_stage", size.first_moves}});
  add_classes(config, size.classes, class_names);
}

}  // namespace

std::string config_of(const Model& model, const std::vector<std::string>& class_names) {
  const ModelName recipe = is_path(model.name()) ? ModelName("") : recipe_of(model.name());
  ConfigTree config{{"torch_dtype", "float32"}, {"transformers_version", "4.40.0"}};
  if (recipe.kind() == "gpt") {
    add_gpt(config, recipe.settings());
  } else if (recipe.kind() == "llama") {
    add_llama(config, recipe.settings(), model.name());
  } else if (recipe.kind() == "vit") {
    add_vit(config, recipe.settings(), class_names);
  } else if (recipe.kind() == "resnet") {
    add_resnet(config, recipe.settings(), model.name(), class_names);
  } else {
    throw usage_error("{} has no counterpart in Hugging Face's libraries: gpt, llama, vit and resnet models have one",
                      model.name());
  }
  return config.dump(2, ' ', false, ConfigTree::error_handler_t::replace) + "\n";  // names may be no UTF-8
}

std::string preprocessor_of(const Model& model, const PixelScale& scale) {
  const ModelName recipe = is_path(model.name()) ? ModelName("") : recipe_of(model.name());
  std::int64_t image = 0;
  std::int64_t channels = 0;
  if (recipe.kind() == "vit") {
    const VitSize size = parse_vit_size(recipe.settings());
    image = size.image;
    channels = size.channels;
  } else if (recipe.kind() == "resnet") {
    const ResnetSize size = parse_resnet_size(recipe.settings());
    image = size.image;
    channels = size.channels;
  } else {
    return "";
  }
  const auto per_channel = [&](const std::vector<double>& values) {
    return values.size() == 1 ? std::vector<double>(static_cast<std::size_t>(channels), values[0]) : values;
  };
  const ConfigTree config{{"image_processor_type", "BitImageProcessor"},
                          {"do_convert_rgb", channels == 3},
                          {"do_resize", true},
                          {"size", {{"shortest_edge", image}}},
                          {"resample", 2},
                          {"do_center_crop", true},
                          {"crop_size", {{"height", image}, {"width", image}}},
                          {"do_rescale", true},
                          {"rescale_factor", 1.0 / 255},
                          {"do_normalize", true},
                          {"image_mean", per_channel(scale.mean)},
                          {"image_std", per_channel(scale.deviation)}};
  return config.dump(2) + "\n";
}

}  // namespace baton::model
