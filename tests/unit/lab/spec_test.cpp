#include "baton/lab/spec.h"

#include "baton/lab/prediction.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::says;
using test::usage_sentence;

TEST(Spec, AnAxisIsNamedWithUnderscoresLikeEveryColumn) {
  const Experiment experiment = parse_spec("[axes]\nbucket-mb = [1, 25]\nmicro_batches = [1]\n", "mine");
  EXPECT_EQ(experiment.axes[0].name, "bucket_mb");
  EXPECT_EQ(experiment.columns[0].key, "bucket_mb");
  EXPECT_EQ(experiment.axes[1].name, "micro_batches");
  EXPECT_EQ(prediction({}, {{"bucket-mb", {1}}}).axes[0].name, "bucket_mb");
}

TEST(Spec, AnAxisMayHaveAnySpellingThatTrainTakes) {
  EXPECT_EQ(parse_spec("[axes]\naccumulate = [1, 2]\n", "mine").axes[0].name, "accumulate");
  EXPECT_EQ(parse_spec("[axes]\nglobal-batch = [1, 2]\n", "mine").axes[0].name, "global_batch");
}

TEST(Spec, AnAxisThatIsSpeltTwiceIsRefused) {
  EXPECT_TRUE(
      says(usage_sentence([] { parse_spec("[axes]\nbucket-mb = [1]\nbucket_mb = [2]\n", "mine"); }), "the axis 'bucket_mb' twice"));
}

}  // namespace
}  // namespace baton::lab
