#pragma once
// SPDX-License-Identifier: MIT
//
// Tests with a folder of their own.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace ab::test {

/// The folder is empty when the test begins, and goes with it.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("abtrain_") + test->test_suite_name() + "_" + test->name();
    std::ranges::replace(name, '/', '_');  // of parameters
    folder_ = testing::TempDir() + name;
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

}  // namespace ab::test
