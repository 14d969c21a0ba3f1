#include "baton/model/names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "baton/model/model.h"
#include "baton/model/parse.h"

namespace baton::model {
namespace {

std::map<std::string, StoredTensor> stored_of(const std::string& text) {
  const Model model = parse_model(text);
  std::map<std::string, Shape> parameters;
  for (const Block& block : model.blocks()) {
    for (const Parameter& parameter : block.parameters) {
      parameters[parameter.name] = parameter.shape;
    }
  }
  std::map<std::string, StoredTensor> tensors;
  for (StoredTensor& tensor : stored_tensors(parameters)) {
    tensors.emplace(tensor.name, std::move(tensor));
  }
  return tensors;
}

TEST(Names, AGptIsStoredAsGpt2OfHuggingFace) {
  const auto tensors = stored_of("gpt:depth=2,heads=4,dim=12,context=8,vocab=30");
  EXPECT_EQ(tensors.size(), 2U + 2 * 12 + 2);
  EXPECT_EQ(tensors.at("transformer.wte.weight").shape, (Shape{30, 12}));
  EXPECT_EQ(tensors.at("transformer.h.1.attn.c_attn.weight").shape, (Shape{12, 36}));
  EXPECT_EQ(tensors.at("transformer.h.1.attn.c_attn.bias").shape, Shape{36});
  EXPECT_EQ(tensors.at("transformer.h.0.attn.c_proj.weight").shape, (Shape{12, 12}));
  EXPECT_EQ(tensors.at("transformer.h.0.mlp.c_fc.weight").shape, (Shape{12, 48}));
  EXPECT_EQ(tensors.at("transformer.h.0.mlp.c_proj.weight").shape, (Shape{48, 12}));
  EXPECT_EQ(tensors.at("transformer.ln_f.bias").shape, Shape{12});
  EXPECT_FALSE(tensors.contains("lm_head.weight")) << "it is the embedding's";
}

TEST(Names, QueriesKeysAndValuesLieSideBySideInColumns) {
  const auto tensors = stored_of("gpt:depth=1,heads=2,dim=4,context=8,vocab=30");
  const StoredTensor& joined = tensors.at("transformer.h.0.attn.c_attn.weight");
  ASSERT_EQ(joined.parts.size(), 3U);
  EXPECT_EQ(joined.parts[0].parameter, "transformer.h.0.attn.c_attn.q.weight");
  EXPECT_EQ(joined.parts[1].parameter, "transformer.h.0.attn.c_attn.k.weight");
  // Output 3 of the keys (head 1, feature 1), input 2: row 2 of four, column 4 + 3 of twelve.
  EXPECT_EQ(joined.place(1, 3 * 4 + 2), 2 * 12 + 7);
  EXPECT_EQ(tensors.at("transformer.h.0.attn.c_attn.bias").place(2, 3), 8 + 3);
  EXPECT_EQ(tensors.at("transformer.h.0.mlp.c_fc.weight").place(0, 5 * 4 + 1), 1 * 16 + 5);
}

TEST(Names, LlamaVitAndResnetAreStoredAsOthersHaveThem) {
  const auto llama = stored_of("llama:depth=1,heads=4,kv-heads=2,dim=16,hidden=20,context=8,vocab=30");
  EXPECT_EQ(llama.at("model.layers.0.self_attn.q_proj.weight").shape, (Shape{16, 16}));
  EXPECT_EQ(llama.at("model.layers.0.self_attn.k_proj.weight").shape, (Shape{8, 16}));
  EXPECT_EQ(llama.at("model.layers.0.self_attn.o_proj.weight").shape, (Shape{16, 16}));
  EXPECT_EQ(llama.at("model.layers.0.mlp.down_proj.weight").shape, (Shape{16, 20}));
  const auto vit = stored_of("vit:depth=1,heads=2,dim=8,patch=2,image=4,classes=5");
  EXPECT_EQ(vit.at("vit.embeddings.cls_token").shape, (Shape{1, 1, 8}));
  EXPECT_EQ(vit.at("vit.embeddings.position_embeddings").shape, (Shape{1, 5, 8}));
  EXPECT_EQ(vit.at("vit.encoder.layer.0.attention.attention.query.weight").shape, (Shape{8, 8}));
  EXPECT_EQ(vit.at("vit.encoder.layer.0.attention.attention.query.bias").shape, Shape{8});
  EXPECT_EQ(vit.at("vit.embeddings.patch_embeddings.projection.weight").shape, (Shape{8, 3, 2, 2}));
  const auto resnet = stored_of("resnet:18,image=8,classes=5,width=2");
  EXPECT_EQ(resnet.at("bn1.num_batches_tracked").shape, Shape{});
  EXPECT_EQ(resnet.at("layer1.0.conv1.weight").shape, (Shape{2, 2, 3, 3}));
}

TEST(Names, EveryElementOfEveryModelHasAPlaceOfItsOwn) {
  for (const char* text :
       {"mlp:3-4-5", "toy-4", "cnn:4-6,image=9,channels=2,classes=5", "resnet:50,image=8,classes=3,width=2",
        "gpt:depth=1,heads=3,dim=6,context=4,vocab=9", "llama:depth=1,heads=4,kv-heads=2,dim=8,hidden=5,context=4,vocab=7",
        "vit:depth=1,heads=2,dim=6,patch=2,image=4,classes=5",
        "mixer:depth=1,dim=6,tokens=5,channels=7,patch=2,image=4,classes=5"}) {
    const Model model = parse_model(text);
    std::map<std::string, Shape> parameters;
    for (const Block& block : model.blocks()) {
      for (const Parameter& parameter : block.parameters) {
        parameters[parameter.name] = parameter.shape;
      }
    }
    for (const StoredTensor& tensor : stored_tensors(parameters)) {
      std::vector<bool> taken(static_cast<std::size_t>(tensor.shape.elements()), false);
      for (std::size_t part = 0; part < tensor.parts.size(); ++part) {
        for (std::int64_t i = 0; i < parameters.at(tensor.parts[part].parameter).elements(); ++i) {
          const std::int64_t place = tensor.place(part, i);
          ASSERT_TRUE(place >= 0 && place < tensor.shape.elements()) << text << ' ' << tensor.name;
          EXPECT_FALSE(taken[static_cast<std::size_t>(place)]) << text << ' ' << tensor.name;
          taken[static_cast<std::size_t>(place)] = true;
        }
      }
      EXPECT_TRUE(std::find(taken.begin(), taken.end(), false) == taken.end()) << text << ' ' << tensor.name;
    }
  }
}

}  // namespace
}  // namespace baton::model
