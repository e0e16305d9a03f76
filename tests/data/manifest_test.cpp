// SPDX-License-Identifier: MIT
//
// A manifest is what we write, to the byte, or it is refused with one sentence. The seeds of the fuzzers are
// checked here too: the ones that are whole keep formats as they are, the broken ones are refused.
#include "engine/io/manifest.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/core/atomic_file.h"
#include "engine/core/hash.h"
#include "tests/error_message.h"

namespace fs = std::filesystem;
using namespace ab;
using ab::test::contains;
using ab::test::message_of;

namespace {

const fs::path kCorpus = fs::path(AB_SOURCE_DIR) / "tests/fuzz/corpus";

/// Two ranks: one tensor that both hold, one of each, under one name.
Manifest small_manifest() {
  StateDict first, second;
  for (StateDict* state : {&first, &second}) {
    state->put("conv1.weight", Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 1, 1, 3}));
    state->put("norm.running_mean", Tensor::from(std::vector<double>{state == &first ? 0.5 : 0.25}, {1}));
    state->put("rank", std::int64_t{state == &first ? 0 : 1});
  }
  first.put("bits", Tensor::from(std::vector<std::uint8_t>{1, 0}, {2}));
  return merge({describe(1200, first), describe(1200, second)});
}

/// What a manifest is refused with after `from` in it became `to` and its hash was made anew.
std::string refusal(const std::string& from, const std::string& to) {
  std::string text = to_json(small_manifest());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const std::size_t end = text.rfind(" \"hash\":");
  text = text.substr(0, end) + fmt::format(" \"hash\":\"{}\"}}\n", hash128(text.data(), end));
  const std::string message = message_of(ErrorKind::checkpoint, [&] { parse_manifest(text, "some.json"); });
  EXPECT_TRUE(contains(message, "some.json"));
  return message;
}

TEST(ManifestTest, ComesBackAsItWas) {
  const Manifest written = small_manifest();
  EXPECT_EQ(written.world_size(), 2);
  ASSERT_EQ(written.tensors.size(), 4u);
  EXPECT_EQ(written.tensors[1].name, "conv1.weight");
  EXPECT_EQ(written.tensors[1].ranks, (std::vector<int>{0, 1}));
  const Manifest read = parse_manifest(to_json(written), "m");
  EXPECT_EQ(read.step, 1200);
  EXPECT_EQ(read.values, written.values);
  ASSERT_EQ(read.tensors.size(), written.tensors.size());
  for (std::size_t i = 0; i < read.tensors.size(); ++i) {
    EXPECT_EQ(read.tensors[i].name, written.tensors[i].name);
    EXPECT_EQ(read.tensors[i].dtype, written.tensors[i].dtype);
    EXPECT_EQ(read.tensors[i].shape, written.tensors[i].shape);
    EXPECT_EQ(read.tensors[i].hash, written.tensors[i].hash);
    EXPECT_EQ(read.tensors[i].ranks, written.tensors[i].ranks);
  }
}

TEST(ManifestTest, SharesOnlyWhatIsEqualInNameTypeShapeAndBits) {
  const auto with = [](const std::string& name, const Tensor& tensor) {
    StateDict state;
    state.put(name, tensor);
    return describe(0, state);
  };
  const Tensor zeros = Tensor::zeros({2, 3});
  const auto count = [&](const std::string& name, const Tensor& other) {
    return merge({with("w", zeros), with(name, other)}).tensors.size();
  };
  EXPECT_EQ(count("w", Tensor::zeros({2, 3})), 1u);
  EXPECT_EQ(count("v", Tensor::zeros({2, 3})), 2u);
  EXPECT_EQ(count("w", Tensor::zeros({3, 2})), 2u);
  EXPECT_EQ(count("w", Tensor::zeros({3}, DType::float64)), 2u);
  EXPECT_EQ(count("w", Tensor::from(std::vector<float>{0, 0, 0, 0, 0, -0.0f}, {2, 3})), 2u);
}

TEST(ManifestTest, RefusesWhatItWouldNotWrite) {
  EXPECT_TRUE(contains(refusal("abtrain checkpoint", "other"), "not one of an abtrain checkpoint"));
  EXPECT_TRUE(contains(refusal("\"version\":1", "\"version\":7"), "version 7, this program reads version 1"));
  EXPECT_TRUE(contains(refusal("uint8", "uint7"), "there is no dtype uint7"));
  EXPECT_TRUE(contains(refusal("[2,1,1,3]", "[2,1,1,1,1,1,3]"), "at most 6 dimensions, got 7"));
  EXPECT_TRUE(contains(refusal("\"step\":1200", "\"step\":1e3"), "1000.0, which is no whole number"));
  const std::pair<const char*, const char*> damages[] = {
      {"\"step\":1200", "\"step\":-1"},
      {"\"step\":1200", "\"step\":9223372036854775808"},
      {"\"step\":1200", "\"step\":1e999"},
      {"\"step\":1200,", ""},
      {"\"world_size\":2", "\"world_size\":3"},
      {"\"values\":[", "\"values\":[1,"},
      {"\"tensors\":[", "\"tensors\":[[],"},
      {"[2,1,1,3]", "[2,1,1,-3]"},
      {"[2,1,1,3]", "6"},
      {"\"ranks\":[0,1]", "\"ranks\":[1,0]"},
      {"\"ranks\":[0,1]", "\"ranks\":[0,2]"},
      {"\"ranks\":[0,1]", "\"ranks\":[-1,1]"},
      {"\"ranks\":[0,1]", "\"ranks\":[0,4294967297]"},
      {"\"ranks\":[0,1]", "\"ranks\":[]"},
      {"\"ranks\":[1]", "\"ranks\":[0]"},  // two tensors of one name
      {"\"bits\"", "\"zbits\""},           // out of order
      {"\"bits\"", "\"bi\\nts\""},
      {"\"bits\"", "\"\""},
      // Fields twice or unknown, and other ways to write the same: none of them is what we write.
      {"\"step\":1200,", "\"step\":1,\"step\":1200,"},
      {"\"step\":1200,", "\"step\":1200,\"more\":0,"},
      {"\"step\":1200,", "\"step\": 1200,"}};
  for (const auto& [from, to] : damages) EXPECT_TRUE(contains(refusal(from, to), "it is damaged")) << to;
}

TEST(ManifestTest, RefusesWhatIsNotJsonInBoundedTime) {
  const auto message = [](const std::string& text) {
    return message_of(ErrorKind::checkpoint, [&] { parse_manifest(text, "m"); });
  };
  for (const std::string& text : {std::string(), std::string("{\"format\":\"\xff\"}"), to_json(small_manifest()) + "x",
                                  std::string("[]"), std::string("3")})
    EXPECT_TRUE(contains(message(text), "the manifest m cannot be used: it is damaged")) << text;
  EXPECT_TRUE(contains(message(std::string(10'000'000, '[')), "nests too deeply"));
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(contains(message(objects), "nests too deeply"));
}

TEST(ManifestTest, TheFormatIsThatOfTheFuzzersSeed) {
  EXPECT_EQ(to_json(small_manifest()), read_file(kCorpus / "manifest/whole.json", ErrorKind::data));
}

TEST(ManifestTest, TheOtherSeedsAreRefused) {
  int seeds = 0;
  for (const auto& seed : fs::directory_iterator(kCorpus / "manifest")) {
    if (seed.path().filename() == "whole.json") continue;
    const std::string text = read_file(seed.path(), ErrorKind::data);
    message_of(ErrorKind::checkpoint, [&] { parse_manifest(text, seed.path()); });
    ++seeds;
  }
  EXPECT_GT(seeds, 3);
}

}  // namespace
