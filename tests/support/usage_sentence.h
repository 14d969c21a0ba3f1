#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "baton/base/error.h"

namespace baton::test {

/// What a user is told when `ask` cannot be done. Fails unless it is refused, as a usage error, in one
/// sentence.
template <typename Ask>
std::string usage_sentence(Ask&& ask) {
  try {
    std::forward<Ask>(ask)();
  } catch (const Error& error) {
    const std::string sentence = error.what();
    EXPECT_EQ(error.kind(), Error::Kind::usage) << sentence;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
    EXPECT_GE(sentence.size(), 10U) << sentence;
    return sentence;
  } catch (const std::exception& other) {
    ADD_FAILURE() << "refused, but not with a usage error: " << other.what();
    return {};
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

/// Whether a sentence names what was wrong.
inline ::testing::AssertionResult says(const std::string& sentence, const std::string& part) {
  return sentence.find(part) != std::string::npos
             ? ::testing::AssertionSuccess()
             : ::testing::AssertionFailure() << "'" << sentence << "' does not say '" << part << "'";
}
/// Whether it does not.
inline ::testing::AssertionResult silent_on(const std::string& all, const std::string& part) {
  return all.find(part) == std::string::npos ? ::testing::AssertionSuccess()
                                             : ::testing::AssertionFailure() << "'" << all << "' says '" << part << "'";
}

}  // namespace baton::test
