#include "baton/devices/backends.h"

#include <gtest/gtest.h>

#include "baton/base/text.h"
#include "support/usage_sentence.h"

namespace baton::devices {
namespace {

TEST(Backends, AreFoundByNameOrTheirNamesAreListed) {
  std::vector<std::string> names;
  for (const BackendKind& kind : backends()) {
    names.push_back(kind.name);
    if (kind.runs_here()) {
      EXPECT_EQ(make_backend(kind.name)->name(), kind.name);
    }
  }
  EXPECT_EQ(test::usage_sentence([] { make_backend("referense"); }),
            "unknown backend 'referense' (did you mean reference?): choose " + either(names));
}

TEST(Backends, SayWhatTheyRunOnAndWhichTypesTheyCompute) {
  for (const BackendKind& kind : backends()) {
    EXPECT_EQ(kind.runs_on_gpus, kind.name == "cuda");
    if (kind.runs_here()) {
      EXPECT_TRUE(make_backend(kind.name)->supports(DType::bf16)) << kind.name;
      EXPECT_EQ(make_backend(kind.name)->supports(DType::f64), kind.name == "reference") << kind.name;
    }
  }
}

}  // namespace
}  // namespace baton::devices
