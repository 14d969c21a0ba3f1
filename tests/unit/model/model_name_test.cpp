#include "baton/model/model_name.h"

#include <gtest/gtest.h>

#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "support/usage_sentence.h"

namespace baton::model {
namespace {

using test::says;
using test::usage_sentence;

TEST(ModelName, GivesTheTextAgainThatItWasReadFrom) {
  for (const char* text :
       {"", "gpt2", "mlp:", "mlp:dim=64,depth=2", "mlp:1000-2000-1000", "mlp:8-", "mlp:dim=064", "resnet:50,stem=large",
        "./folder:x", "C:/folder:context=128", "gpt:dropout=0.10,eps=1e-05", "MLP:Dim=+8,,=", "./net.onnx", "a,b:c:d=e=f"}) {
    EXPECT_EQ(ModelName(text).text(), text);
    EXPECT_EQ(ModelName(ModelName(text).text()), ModelName(text));
  }
}

TEST(ModelName, HasNumbersAsNumbers) {
  const ModelName name = "resnet:50,image=128,blocks=3-4-6-3,dropout=0.25,stem=large,width=064";
  const std::vector<ModelSetting>& list = name.settings().list();
  ASSERT_EQ(list.size(), 6U);
  EXPECT_EQ(name.kind(), "resnet");
  EXPECT_EQ(list[0], (ModelSetting{std::nullopt, std::int64_t{50}}));
  EXPECT_EQ(list[1], (ModelSetting{"image", std::int64_t{128}}));
  EXPECT_EQ(list[2], (ModelSetting{"blocks", std::vector<std::int64_t>{3, 4, 6, 3}}));
  EXPECT_EQ(list[3], (ModelSetting{"dropout", 0.25}));
  EXPECT_EQ(list[4], (ModelSetting{"stem", "large"}));
  EXPECT_EQ(list[5], (ModelSetting{"width", "064"})) << "not written as numbers are";
  EXPECT_EQ(list[5].whole("width", 1, 100), 64);
}

TEST(ModelName, MadeOfNumbersIsTheOneThatIsReadFromItsText) {
  EXPECT_EQ(mlp_name(1024, 2), ModelName("mlp:dim=1024,depth=2"));
  const ModelName name{"gpt", ModelSettings().add("depth", std::int64_t{2}).add("dropout", 0.1).add_switch("tied", false)};
  EXPECT_EQ(name, ModelName("gpt:depth=2,dropout=0.1,tied=off"));
  EXPECT_EQ(parse_model(mlp_name(8, 3)).name(), "mlp:dim=8,depth=3");
}

TEST(ModelName, TakesSettingsInPlaceOfItsOwn) {
  EXPECT_EQ(ModelName("gpt2").with("context=128").text(), "gpt2:context=128");
  EXPECT_EQ(ModelName("gpt:depth=2,context=64,vocab=9").with("Context=128").text(), "gpt:depth=2,vocab=9,Context=128");
  EXPECT_EQ(ModelName("gpt:depth=2").with("").text(), "gpt:depth=2");
  EXPECT_EQ(recipe_of("gpt2:context=128").settings().find("context")->whole("context", 1, 1024), 128);
  EXPECT_EQ(recipe_of("resnet50:image=32").text(), "resnet:50,image=32");
}

TEST(ModelName, AKeyWithoutItsValueIsNamed) {
  EXPECT_EQ(usage_sentence([] { parse_model("gpt:depth=2,heads=2,dim=8,context=4,vocab"); }),
            "vocab of the gpt model has no value: write vocab=NUMBER");
}

TEST(ModelName, ASettingOutOfItsRangeIsRefusedByTheSentenceOfItsNumber) {
  const ModelSettings settings = "dim=0,eps=2,blocks=3-0,list=a-b,depth=2,depth=3";
  EXPECT_EQ(usage_sentence([&] { settings.find("dim")->whole("dim of it", 1, 8); }),
            "dim of it is '0', but must be a whole number from 1 to 8");
  EXPECT_EQ(usage_sentence([&] { settings.find("eps")->number("eps of it", 0, 1); }),
            "eps of it is '2', but must be a number from 0 to 1");
  EXPECT_TRUE(says(usage_sentence([&] { settings.find("blocks")->sizes("a block", 1, 8); }), "a block is '0'"));
  EXPECT_TRUE(says(usage_sentence([&] { settings.find("list")->sizes("a size", 1, 8); }), "a size is 'a'"));
  EXPECT_TRUE(says(usage_sentence([&] { settings.for_each([](const ModelSetting&, const std::string&) {}); }), "has depth twice"));
}

}  // namespace
}  // namespace baton::model
