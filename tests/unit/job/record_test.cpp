#include "baton/job/record.h"

#include <gtest/gtest.h>

#include "baton/job/keys.h"

namespace baton::job {
namespace {

Record parsed(const char* text) { return Record(Json::parse(text)); }

TEST(Record, RefusesAValueOfAnotherTypeInsteadOfReadingItWrongly) {
  const Record damaged = parsed(
      R"({"time_per_step_ns":"5","origin":7,"oversubscribed":1,"trained":5,"quantiles_ns":[1,2,1e300],"device_list":[1],"batch":1e300})");
  EXPECT_THROW(damaged[key::time_per_step_ns], BugError);
  EXPECT_THROW(damaged[key::origin], BugError);
  EXPECT_THROW(damaged[key::oversubscribed], BugError);
  EXPECT_THROW(damaged.value(key::trained, {}), BugError);
  EXPECT_THROW(damaged[key::quantiles_ns], BugError) << "no whole number is so large";
  EXPECT_THROW(damaged[key::device_list], BugError);
  EXPECT_THROW(damaged[key::batch], BugError);
  EXPECT_EQ(number(damaged, key::time_per_step_ns, 3), 3) << "what is no number was not measured";
}

TEST(Record, GivesTheOtherValueWhereThereIsNoneOrItIsNull) {
  const Record empty = parsed(R"({"interval_level":null,"batch":null})");
  EXPECT_EQ(empty.value(key::batch, 8), 8);
  EXPECT_EQ(empty.value(key::time_per_step_ns, Nanoseconds(4)), Nanoseconds(4));
  EXPECT_EQ(empty[key::interval_level], std::nullopt);
  EXPECT_THROW(empty[key::time_per_step_ns], BugError);
}

TEST(Record, ReadsWhatItWrites) {
  Record record;
  record.set(key::seed, std::uint64_t{18'000'000'000'000'000'000U});
  record.set(key::quantiles_ns, {1, 2, 3});
  record.set(key::losses, {0.5, 0.25});
  EXPECT_EQ(record[key::seed], std::uint64_t{18'000'000'000'000'000'000U});
  EXPECT_EQ(record[key::quantiles_ns], (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(record[key::losses], (std::vector<double>{0.5, 0.25}));
}

}  // namespace
}  // namespace baton::job
