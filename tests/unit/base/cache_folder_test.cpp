#include "baton/base/cache_folder.h"

#include <gtest/gtest.h>

#include "support/variable.h"

namespace baton {
namespace {

using test::Variable;

TEST(CacheFolder, IsWhatTheEnvironmentNames) {
  const Variable cache("XDG_CACHE_HOME", "/somewhere/cache");
  const Variable home("HOME", "/home/somebody");
  EXPECT_EQ(cache_folder(), "/somewhere/cache/baton");
  const Variable no_cache("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(cache_folder(), "/home/somebody/.cache/baton");
  const Variable no_home("HOME", nullptr);
  EXPECT_EQ(cache_folder(), "");
}

}  // namespace
}  // namespace baton
