#pragma once
// SPDX-License-Identifier: MIT
//
// For tests of what a user is told when something is wrong.

#include <gtest/gtest.h>

#include <string>

#include "engine/core/check.h"

namespace ab::test {

/// The message of the Error of this kind that `action` must throw.
template <class F> std::string message_of(ErrorKind kind, const F& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << '"' << text << "\" does not contain \"" << part << '"';
}

}  // namespace ab::test
