#include "baton/model/huggingface.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"

namespace baton::model {
namespace {

using test::says;
using test::usage_sentence;

std::string text_of(const std::string& json, const std::string& settings = "") {
  return read_config(json, settings, "config.json").model.text();
}

/// In a folder of its own, so that paths without a slash can be tried.
class HuggingFaceFolder : public test::OwnFolder {
 protected:
  void SetUp() override {
    test::OwnFolder::SetUp();
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    test::OwnFolder::TearDown();
  }

  std::filesystem::path before_;
};

TEST(HuggingFace, AConfigurationIsAModelOfTheZoo) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"model_type": "gpt2"})", "gpt2"},
      {R"({"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_embd": 1024, "n_ctx": 1024, "n_positions": 1024,
           "vocab_size": 50257, "n_inner": null, "summary_type": "cls_index", "task_specific_params": {"a": {"b": 1}}})",
       "gpt2-medium"},
      {R"({"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 4, "vocab_size": 9, "n_inner": 20,
           "layer_norm_epsilon": 1e-6, "tie_word_embeddings": false, "activation_function": "gelu_pytorch_tanh"})",
       "gpt:depth=1,heads=2,dim=8,context=4,vocab=9,hidden=20,eps=1e-06,tied=off"},
      {R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "vocab_size": 128256,
           "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "torch_dtype": "bfloat16", "pretraining_tp": 1})",
       "llama3-8b"},
      {R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
           "max_position_embeddings": 4, "vocab_size": 9, "head_dim": 6, "attention_bias": true, "tie_word_embeddings": true,
           "rope_parameters": {"rope_type": "default", "rope_theta": 500}})",
       "llama:depth=1,heads=2,kv-heads=2,dim=8,hidden=12,context=4,vocab=9,base=500,head-dim=6,eps=1e-06,qkv-bias=on,out-bias=on,"
       "tied=on"},
      {R"({"model_type": "mistral", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
           "num_key_value_heads": 1, "max_position_embeddings": 4, "vocab_size": 9, "head_dim": 4, "sliding_window": null})",
       "llama:depth=1,heads=2,kv-heads=1,dim=8,hidden=12,context=4,vocab=9,eps=1e-06"},
      {R"({"model_type": "mistral", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
           "num_key_value_heads": 1, "max_position_embeddings": 4, "vocab_size": 9, "sliding_window": 4})",
       "llama:depth=1,heads=2,kv-heads=1,dim=8,hidden=12,context=4,vocab=9,eps=1e-06"},
      {R"({"model_type": "qwen2", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
           "num_key_value_heads": 2, "max_position_embeddings": 40, "vocab_size": 9, "sliding_window": 4, "use_sliding_window": false,
           "max_window_layers": 28, "layer_types": ["full_attention"]})",
       "llama:depth=1,heads=2,kv-heads=2,dim=8,hidden=12,context=40,vocab=9,eps=1e-06,qkv-bias=on"},
      {R"({"model_type": "vit", "id2label": {"0": "cat", "1": "dog", "2": "cow"}, "hidden_size": 8, "num_hidden_layers": 1,
           "num_attention_heads": 2, "intermediate_size": 20, "image_size": [16, 16], "patch_size": 8, "num_channels": 1,
           "qkv_bias": false, "layer_norm_eps": 1e-6})",
       "vit:depth=1,heads=2,dim=8,patch=8,image=16,classes=3,hidden=20,channels=1,eps=1e-06,qkv-bias=off"},
      {R"({"model_type": "resnet", "num_labels": 1000})", "resnet:50,image=224,classes=1000"},
      {R"({"model_type": "resnet", "layer_type": "basic", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512]})",
       "resnet:18,image=224,classes=2"},
      {R"({"model_type": "resnet", "depths": [1, 2], "hidden_sizes": [8, 16], "embedding_size": 4, "num_channels": 1,
           "downsample_in_bottleneck": true, "downsample_in_first_stage": true})",
       "resnet:50,image=224,classes=2,width=4,channels=1,blocks=1-2,outputs=8-16,early=on,first-moves=on"},
  };
  for (const auto& [json, name] : cases) {
    EXPECT_EQ(parse_model(text_of(json)).name(), name) << json;
  }
}

TEST(HuggingFace, SettingsBehindTheFolderReplaceSizes) {
  EXPECT_EQ(parse_model(text_of(R"({"model_type": "gpt2"})", "context=128,depth=2")).name(),
            "gpt:depth=2,heads=12,dim=768,context=128,vocab=50257");
  EXPECT_EQ(parse_model(text_of(R"({"model_type": "resnet"})", "image=32")).name(), "resnet:50,image=32,classes=2,stem=large");
  EXPECT_NE(text_of(R"({"model_type": "mistral", "max_position_embeddings": 32768, "sliding_window": 4096})", "context=4096"), "");
}

TEST(HuggingFace, WhatBatonLacksIsNamedAndRefused) {
  const std::string small = R"("hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
      "num_key_value_heads": 2, "max_position_embeddings": 40, "vocab_size": 9)";
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"model_type": "gpt2", "activation_function": "relu"})", "activation_function = \"relu\""},
      {R"({"model_type": "gpt2", "activation_function": "gelu"})", "activation_function = \"gelu\""},
      {R"({"model_type": "gpt2", "scale_attn_weights": false})", "scale_attn_weights = false"},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})", "scale_attn_by_inverse_layer_idx = true"},
      {R"({"model_type": "gpt2", "add_cross_attention": true})", "add_cross_attention = true"},
      {R"({"model_type": "gpt2", "quantization_config": {"bits": 4}})", "quantization_config"},
      {R"({"model_type": "gpt2", "pruned_heads": {"0": [1]}})", "pruned_heads"},
      {R"({"model_type": "llama", "hidden_act": "gelu", )" + small + "}", "hidden_act = \"gelu\""},
      {R"({"model_type": "llama", "mlp_bias": true, )" + small + "}", "mlp_bias = true"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8}, )" + small + "}",
       "rope_scaling = \"llama3\""},
      {R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}, )" + small + "}", "rope_scaling = \"linear\""},
      {R"({"model_type": "llama", "partial_rotary_factor": 0.5, )" + small + "}", "partial_rotary_factor = 0.5"},
      {R"({"model_type": "llama", "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}, )" + small + "}",
       "rope_parameters.partial_rotary_factor = 0.5"},
      {R"({"model_type": "llama", "rope_parameters": {"full_attention": {"rope_theta": 1e6}}, )" + small + "}",
       "rope_parameters.full_attention = {\"rope_theta\":"},
      {R"({"model_type": "llama", "rope_scaling": {"factor": 2.0}, )" + small + "}", "rope_scaling.factor = 2.0"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": null, "type": "linear", "factor": 2.0}, )" + small + "}",
       "rope_scaling = \"linear\""},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "default", "type": "yarn"}, )" + small + "}",
       "rope_scaling = \"yarn\""},
      {R"({"model_type": "llama", "rope_theta": 0.5, )" + small + "}", "rope_theta = 0.5"},
      {R"({"model_type": "llama", "use_qk_norm": true, )" + small + "}", "use_qk_norm = true"},
      {R"({"model_type": "mistral", "sliding_window": 8, )" + small + "}", "sliding_window = 8"},
      {R"({"model_type": "mistral", "max_position_embeddings": 8192})", "sliding_window = 4096"},
      {R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0, )" + small + "}",
       "sliding_window = 8"},
      {R"({"model_type": "qwen2", "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"], )" + small + "}",
       "sliding_window = 8"},
      {R"({"model_type": "vit", "hidden_act": "relu"})", "hidden_act = \"relu\""},
      {R"({"model_type": "vit", "image_size": [224, 192]})", "image_size"},
      {R"({"model_type": "resnet", "hidden_act": "silu"})", "hidden_act = \"silu\""},
      {R"({"model_type": "resnet", "layer_type": "other"})", "layer_type = \"other\""},
      {R"({"model_type": "bert"})", "gpt2, llama, mistral, qwen2, vit or resnet"},
      {R"({})", "gpt2, llama, mistral, qwen2, vit or resnet"},
  };
  for (const auto& [json, expected] : cases) {
    EXPECT_TRUE(says(usage_sentence([&] { text_of(json); }), expected)) << json;
  }
  EXPECT_NO_THROW(text_of(R"({"model_type": "gpt2", "use_new_thing": false, "other": null, "list": [], "none": 0})"));
}

TEST(HuggingFace, RotarySettingsThatAskForNothingAreTaken) {
  const std::string plain = R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2)";
  const auto name = [&](const std::string& more) { return parse_model(text_of(plain + more + "}")).name(); };
  for (const char* rule : {"{}", R"({"rope_type": null})", R"({"rope_type": null, "type": "default"})",
                           R"({"rope_type": "default", "partial_rotary_factor": 1.0})", R"({"factor": null})"}) {
    EXPECT_EQ(name(fmt::format(R"(, "rope_scaling": {})", rule)), name("")) << rule;
    EXPECT_EQ(name(fmt::format(R"(, "rope_parameters": {})", rule)), name("")) << rule;
  }
}

TEST(HuggingFace, AConfigurationThatIsNoneIsRefusedInASentence) {
  for (const std::string json :
       {"", "[]", "{", "3", "\"gpt2\"", R"({"model_type": 3})", R"({"model_type": "gpt2", "n_layer": 0})",
        R"({"model_type": "gpt2", "n_layer": -1})", R"({"model_type": "gpt2", "n_layer": 1e300})",
        R"({"model_type": "gpt2", "n_layer": 1.5})", R"({"model_type": "gpt2", "n_layer": "12"})",
        R"({"model_type": "gpt2", "n_layer": [12]})", R"({"model_type": "gpt2", "layer_norm_epsilon": -1})",
        R"({"model_type": "gpt2", "tie_word_embeddings": "yes"})", R"({"model_type": "resnet", "depths": []})",
        R"({"model_type": "resnet", "depths": [1, 2]})", R"({"model_type": "resnet", "depths": {"a": 1}})",
        R"({"model_type": "resnet", "hidden_sizes": [1, 1, 1, 1]})", R"({"model_type": "llama", "rope_scaling": 3})"}) {
    EXPECT_FALSE(usage_sentence([&] { parse_model(text_of(json)); }).empty()) << json;
  }
  EXPECT_TRUE(says(usage_sentence([&] { text_of(std::string(100'000, '[')); }), "nested too deeply"));
  EXPECT_TRUE(says(usage_sentence([&] { parse_model(text_of(R"({"model_type": "gpt2", "n_embd": 770})")); }), "12 heads"));
}

TEST(HuggingFace, DropoutThatTrainingWouldHaveIsRemarked) {
  EXPECT_TRUE(says(read_config(R"({"model_type": "gpt2"})", "", "x").remarks.at(0), "resid_pdrop = 0.1"));
  EXPECT_TRUE(
      read_config(R"({"model_type": "gpt2", "resid_pdrop": 0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})", "", "x").remarks.empty());
}

TEST(HuggingFace, AWrittenConfigurationReadsAsTheSameModel) {
  std::mt19937 random(7);
  const auto below = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)) + 1; };
  const auto or_none = [&](const std::string& setting) { return random() % 2 == 0 ? "" : setting; };
  for (int i = 0; i < 60; ++i) {
    const int heads = below(4);
    const std::string gpt = fmt::format("gpt:depth={},heads={},dim={},context={},vocab={}{}{}{}", below(3), heads, heads * below(9),
                                        below(20), below(99), or_none(",hidden=17"), or_none(",eps=3e-07"), or_none(",tied=off"));
    const std::string llama = fmt::format("llama:depth={},heads={},kv-heads={},dim={},hidden={},context={},vocab={}{}{}{}{}{}",
                                          below(3), 2 * heads, heads, 4 * heads * below(5), below(40), below(20), below(99),
                                          or_none(",base=77"), or_none(",head-dim=14"), or_none(",eps=0.0625"),
                                          or_none(",qkv-bias=on"), or_none(",tied=on"));
    const std::string vit = fmt::format("vit:depth={},heads={},dim={},patch=4,image={},classes={}{}{}{}{}", below(3), heads,
                                        heads * below(9), 4 * below(5), below(30), or_none(",hidden=17"), or_none(",channels=1"),
                                        or_none(",eps=1e-05"), or_none(",qkv-bias=off"));
    const std::string resnet = fmt::format("resnet:{},image=224,classes={}{}{}{}{}", random() % 2 == 0 ? 18 : 50, below(30),
                                           or_none(",width=8"), or_none(",blocks=1-3,outputs=8-24"), or_none(",early=on"),
                                           or_none(",first-moves=on"));
    for (const std::string& text : {gpt, llama, vit, resnet}) {
      const Model model = parse_model(text);
      EXPECT_EQ(parse_model(text_of(config_of(model))).name(), model.name()) << text;
    }
  }
}

TEST(HuggingFace, ModelsThatItDoesNotHaveAreNotExported) {
  EXPECT_TRUE(says(usage_sentence([] { config_of(parse_model("mlp:dim=8,depth=2")); }), "mlp:dim=8,depth=2"));
  EXPECT_TRUE(says(usage_sentence([] { config_of(parse_model("resnet:18,image=32")); }), "7x7"));
}

TEST_F(HuggingFaceFolder, APathIsAFolderUnlessAModelHasItsName) {
  std::filesystem::create_directories("gpt2");
  std::filesystem::create_directories("mine:old");
  std::ofstream("gpt2/config.json")
      << R"({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8, "n_positions": 4, "vocab_size": 9})";
  std::ofstream("mine:old/config.json") << R"({"model_type": "vit", "num_labels": 5})";
  EXPECT_EQ(parse_model("gpt2").blocks().size(), 26U);
  EXPECT_EQ(parse_model("./gpt2").blocks().size(), 6U);
  EXPECT_EQ(parse_model("gpt2/").name(), "gpt:depth=2,heads=2,dim=8,context=4,vocab=9");
  EXPECT_EQ(parse_model("./gpt2:context=3").input(), Shape{3});
  EXPECT_EQ(parse_model("mine:old").output(), Shape{5});
  EXPECT_TRUE(says(usage_sentence([] { parse_model("./none"); }), "./none/config.json"));
  EXPECT_TRUE(says(usage_sentence([] { parse_model("./none.onnx"); }), "./none.onnx"));
  EXPECT_TRUE(says(usage_sentence([] { parse_model("nothing"); }), "unknown model 'nothing'"));
  EXPECT_TRUE(says(usage_sentence([] { parse_model("./gpt2:size=3"); }), "size=3"));
}

TEST_F(HuggingFaceFolder, APreprocessorSaysHowPixelsBecomeNumbers) {
  const auto scale = [](const std::string& json) {
    std::ofstream("preprocessor_config.json") << json;
    return to_text(read_pixel_scale(".").value());
  };
  EXPECT_FALSE(read_pixel_scale("."));
  EXPECT_EQ(scale("{}"), "0.5/0.5");
  EXPECT_EQ(scale(R"({"do_normalize": true, "do_resize": true, "do_rescale": true, "image_mean": [0.485, 0.456, 0.406],
                      "image_std": [0.229, 0.224, 0.225], "image_processor_type": "ViTImageProcessor", "resample": 2,
                      "rescale_factor": 0.00392156862745098, "size": {"height": 224, "width": 224}})"),
            "0.485,0.456,0.406/0.229,0.224,0.225");
  EXPECT_EQ(scale(R"({"do_normalize": false, "image_mean": [0.4], "image_std": [0.2]})"), "0/1");
  EXPECT_EQ(scale(R"({"do_rescale": false, "image_mean": [127.5], "image_std": [255]})"), "0.5/1");
  EXPECT_EQ(scale(R"({"rescale_factor": 0.00784313725490196, "image_mean": 1, "image_std": 1})"), "0.5/0.5");
  EXPECT_EQ(scale(R"({"image_std": [0.1, 0.2, 0.3]})"), "0.5,0.5,0.5/0.1,0.2,0.3") << "what is missing has its default";
  const Model vit = parse_model("vit:depth=1,heads=1,dim=8,patch=4,image=8,classes=3");
  EXPECT_EQ(scale(preprocessor_of(vit, {.mean = {0.1, 0.2, 0.3}, .deviation = {0.4}})), "0.1,0.2,0.3/0.4,0.4,0.4");
}

TEST_F(HuggingFaceFolder, APreprocessorThatAsksForMoreIsRefusedWithWhatToGive) {
  const auto refused = [](const std::string& json) {
    std::ofstream("preprocessor_config.json") << json;
    return usage_sentence([] { read_pixel_scale("."); });
  };
  const std::string resnet = refused(R"({"crop_pct": 0.875, "do_normalize": true, "do_resize": true, "image_mean": [0.4, 0.5, 0.6],
      "image_std": [0.1, 0.2, 0.3], "feature_extractor_type": "ConvNextFeatureExtractor", "resample": 3, "size": 224})");
  EXPECT_TRUE(says(resnet, "preprocessor_config.json asks for resample = 3 (bicubic)"));
  EXPECT_TRUE(says(resnet, "give --normalize 0.4,0.5,0.6/0.1,0.2,0.3"));
  EXPECT_TRUE(says(refused(R"({"crop_pct": 0.875})"), "crop_pct = 0.875"));
  EXPECT_TRUE(says(refused(R"({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}})"), "scaled to 256"));
  EXPECT_TRUE(says(refused(R"({"do_pad": true})"), "do_pad = true"));
  EXPECT_TRUE(says(refused(R"({"offset": true})"), "offset = true"));
  EXPECT_TRUE(says(refused(R"({"image_std": [0.5, 0]})"), "image_std"));
  EXPECT_TRUE(says(refused(R"({"image_mean": [0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})"), "as many of each"));
  EXPECT_TRUE(says(refused(R"({"size": {"height": 224, "width": 448}})"), "asks for size = {"));
  EXPECT_TRUE(says(refused(R"({"size": {"longest_edge": 512}})"), "longest_edge"));
  EXPECT_TRUE(says(refused(R"({"crop_size": {"height": 8, "width": 8, "depth": 8}})"), "asks for crop_size"));
  EXPECT_TRUE(says(refused(R"({"do_normalize": "yes"})"), "do_normalize"));
  EXPECT_TRUE(says(refused(R"({"do_rescale": false, "image_std": 0.0001})"), "beyond what --normalize takes"));
  EXPECT_TRUE(says(refused("[]"), "preprocessor_config.json"));
}

TEST_F(HuggingFaceFolder, AnIndexNamesFilesBesideIt) {
  const auto read = [](const std::string& json) {
    std::ofstream("index.json") << json;
    return read_weight_map("index.json");
  };
  EXPECT_EQ(read(R"({"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})").at("b"), "2.safetensors");
  for (const std::string json : {"", "{}", R"({"weight_map": {}})", R"({"weight_map": 3})", R"({"weight_map": {"a": 3}})",
                                 R"({"weight_map": {"a": "../x.safetensors"}})", R"({"weight_map": {"a": "x.bin"}})"}) {
    EXPECT_TRUE(says(usage_sentence([&] { read(json); }), "index.json")) << json;
  }
}

}  // namespace
}  // namespace baton::model
