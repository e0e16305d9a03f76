// SPDX-License-Identifier: MIT
//
// Files: what is written comes back bit for bit, and no file, however broken, does more than raise one error.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/atomic_file.h"
#include "engine/core/random.h"
#include "engine/io/metrics_log.h"
#include "engine/io/safetensors.h"
#include "tests/error_message.h"
#include "tests/folder_test.h"

namespace fs = std::filesystem;
using namespace ab;
using ab::test::contains;
using ab::test::message_of;

namespace {

class IoTest : public test::FolderTest {
 protected:
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
};

using SafetensorsTest = IoTest;
using AtomicFileTest = IoTest;
using MetricsLogTest = IoTest;

/// The bytes of a file: announced size, JSON, data.
std::vector<std::uint8_t> file_of(const std::string& json, std::size_t data_bytes) {
  std::vector<std::uint8_t> bytes(8 + json.size() + data_bytes);
  const std::uint64_t size = json.size();
  std::memcpy(bytes.data(), &size, 8);
  std::ranges::copy(json, bytes.begin() + 8);
  return bytes;
}

TensorFile parse(const std::string& json, std::size_t data_bytes) {
  return parse_safetensors(file_of(json, data_bytes), "broken.safetensors");
}

std::string refusal(const std::string& json, std::size_t data_bytes) {
  const std::string message = message_of(ErrorKind::checkpoint, [&] { parse(json, data_bytes); });
  EXPECT_TRUE(contains(message, "broken.safetensors"));
  return message;
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST_F(SafetensorsTest, EveryTypeComesBackBitForBit) {
  TensorFile content;
  content.metadata = {{"model", "resnet20"}, {"note", "quotes \" and \\ and ü"}};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  content.tensors = {{"bytes", Tensor::from(std::vector<std::uint8_t>{1, 2, 255}, {3})},
                     {"w", Tensor::from(std::vector<float>{1, -0.0f, nan, 1e-40f, 5, 6}, {2, 3})},
                     {"scalar", Tensor::from(std::vector<double>{3.25}, Shape{})},
                     {"empty", Tensor({0, 4})},
                     {"half", Tensor::from(std::vector<bfloat16>{bfloat16(1.5f)}, {1})},
                     {"counts", Tensor::from(std::vector<std::int64_t>{-1, 1ll << 60}, {2, 1})}};
  write_safetensors(path("m.safetensors"), content);
  const TensorFile back = read_safetensors(path("m.safetensors"));
  EXPECT_EQ(back.metadata, content.metadata);
  ASSERT_EQ(back.tensors.size(), content.tensors.size());
  for (const NamedTensor& t : content.tensors) {
    const Tensor* read = back.find(t.name);
    ASSERT_NE(read, nullptr) << t.name;
    EXPECT_EQ(read->shape(), t.value.shape());
    EXPECT_EQ(read->dtype(), t.value.dtype());
    EXPECT_EQ(std::memcmp(read->raw(), t.value.raw(), t.value.bytes()), 0) << t.name;
  }
  EXPECT_EQ(back.find("missing"), nullptr);
}

TEST_F(SafetensorsTest, WrittenFilesFollowTheFormat) {
  write_safetensors(
      path("m.safetensors"),
      {{{"format", "x"}},
       {{"b", Tensor::zeros({2})}, {"a", Tensor::zeros({1})}, {"d", Tensor::zeros({1}, DType::float64)}}});
  const std::string bytes = read_file(path("m.safetensors"), ErrorKind::checkpoint);
  std::uint64_t json_bytes;
  std::memcpy(&json_bytes, bytes.data(), 8);
  EXPECT_EQ(json_bytes % 8, 0u);
  EXPECT_EQ(bytes[8], '{');
  const auto json = nlohmann::json::parse(bytes.substr(8, json_bytes));
  EXPECT_EQ(json["d"]["data_offsets"], nlohmann::json({0, 8}));  // larger alignment first, then by name
  EXPECT_EQ(json["a"]["data_offsets"], nlohmann::json({8, 12}));
  EXPECT_EQ(json["b"]["data_offsets"], nlohmann::json({12, 20}));
  EXPECT_EQ(bytes.size(), 8 + json_bytes + 20);
}

TEST_F(SafetensorsTest, RefusesToWriteANameTwice) {
  const TensorFile content{{}, {{"w", Tensor::zeros({1})}, {"w", Tensor::zeros({1})}}};
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { write_safetensors(path("m"), content); }), "twice"));
  EXPECT_EQ(files(), 0u);
}

TEST_F(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(parse("{}", 0).tensors.size(), 0u);
  EXPECT_EQ(parse("  \n" + tensor("\"F32\"", "[2]", "[0,8]") + "   ", 8).tensors.size(), 1u);
  EXPECT_EQ(parse(tensor("\"F32\"", "[]", "[0,4]"), 4).tensors[0].value.numel(), 1);
  EXPECT_EQ(parse(tensor("\"F32\"", "[0,5]", "[0,0]"), 0).tensors[0].value.numel(), 0);
  EXPECT_EQ(parse(R"({"__metadata__":{}})", 0).metadata.size(), 0u);
  EXPECT_EQ(parse(R"({"__metadata__":null})", 0).metadata.size(), 0u);
}

// As the reference does (safetensors of Rust and Python).
TEST_F(SafetensorsTest, IgnoresFieldsThatItDoesNotKnow) {
  const std::string known = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  for (const char* value : {"1", "-1", "1.5", "null", "true", "\"x\"", "[]", "{}", R"([[1,{"shape":[2]}],null])"}) {
    const std::string more = std::string(R"("kind":)") + value;
    for (const std::string& fields : {more + "," + known, known + "," + more})
      EXPECT_EQ(parse(R"({"w":{)" + fields + R"(},"__metadata__":null})", 4).tensors.at(0).value.numel(), 1) << value;
  }
}

TEST_F(SafetensorsTest, TensorsThatCannotBeHeldAreNamedAndNotRead) {
  const TensorFile content = parse(
      R"({"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},"w":{"dtype":"F32","shape":[1],"data_offsets":[3,7]},)"
      R"("f8":{"dtype":"F8_E4M3","shape":[2,1],"data_offsets":[7,9]},"f4":{"dtype":"F4","shape":[2],"data_offsets":[9,10]},)"
      R"("many":{"dtype":"F32","shape":[1,1,1,1,1,1,1],"data_offsets":[10,14]}})",
      14);
  ASSERT_EQ(content.tensors.size(), 1u);
  EXPECT_EQ(content.tensors[0].name, "w");
  std::string unread;
  for (const UnreadTensor& t : content.unread) unread += t.name + " " + t.reason + "; ";
  EXPECT_EQ(unread, "mask has dtype BOOL; f8 has dtype F8_E4M3; f4 has dtype F4; many has 7 dimensions; ");
  EXPECT_TRUE(contains(refusal(tensor("\"I32\"", "[2]", "[0,4]"), 4), "its shape [2] of I32 needs 8"));
  EXPECT_TRUE(contains(refusal(tensor("\"F4\"", "[3]", "[0,2]"), 2), "of F4 ends within a byte"));
}

TEST_F(SafetensorsTest, FilesOfOtherFormatsAreNamedWithWhatToDo) {
  using namespace std::string_literals;
  const std::string zip = "PK\x03\x04" + std::string(26, '\0');
  const std::pair<std::string, const char*> cases[] = {
      {"", "empty; fetch it again"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"},
      {"\n<!DOCTYPE html><html lang=\"en\">", "a web page; download the file itself"},
      {"<HTML><head>", "a web page"},
      {R"({"metadata": {"total_size": 9}, "weight_map": {"conv1.weight": "model-00001-of-00002.safetensors"}})",
       "the index of a model that is in several files; join them in its folder: python3 -c"},
      {R"({"architectures": ["ResNet"]})", "JSON text"},
      {"Entry not found", "text that begins with \"Entry not found\""},
      {zip + "archive/data.pkl", "a checkpoint of PyTorch (a zip archive of torch.save); convert it: python3 -c"},
      {zip + "resnet/data/0", "a model of TorchScript; convert it: python3 -c"},
      {zip + "weights.npy", "an archive of NumPy (.npz); save its tensors"},
      {zip + "other", "a zip archive; unpack it"},
      {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."s, "a checkpoint of PyTorch (a pickle); convert it"},
      {"\x80\x04\x95"s + std::string(20, '\0'), "a pickle"},
      {"\x1f\x8b\x08\0\0\0\0\0\0\x03"s, "compressed by gzip; unpack it"},
      {"\xfd\x37zXZ\0"s, "compressed by xz"},
      {"BZh91AY", "compressed by bzip2"},
      {"\x28\xb5\x2f\xfd\x04"s, "compressed by zstd"},
      {"model.pth" + std::string(248, '\0') + "ustar", "a tar archive"},
      {"\x93NUMPY\x01\0"s, "an array of NumPy"},
      {"\x89HDF\r\n\x1a\n"s, "an HDF5 file"},
      {"GGUF\x03\0\0\0{"s, "a GGUF file"},
      {"\x08\x07\x12\x07tf2onnx"s, "a model of ONNX"},
      {"\x1c\0\0\0TFL3"s, "a model of TensorFlow Lite"},
  };
  for (const auto& [bytes, expected] : cases) {
    write_file_atomically(path("resnet.pth"), bytes);
    const std::string message = message_of(ErrorKind::checkpoint, [&] { read_safetensors(path("resnet.pth")); });
    EXPECT_TRUE(message.starts_with(path("resnet.pth") + " is not a safetensors file but ")) << message;
    EXPECT_TRUE(contains(message, expected));
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0);
    if (message.find("import torch") != std::string::npos) {
      EXPECT_TRUE(contains(message, "load('" + path("resnet.pth") + "', 'cpu')"));
      EXPECT_TRUE(contains(message, "'" + path("resnet.safetensors") + "')\""));
    }
  }
}

// Such a size begins as gzip does.
TEST_F(SafetensorsTest, AHeaderOfAnySizeIsNotTakenForAnotherFormat) {
  const std::string json = "{}" + std::string(0x8'8b1f - 2, ' ');
  EXPECT_EQ(file_of(json, 0)[1], 0x8b);
  EXPECT_EQ(parse(json, 0).tensors.size(), 0u);
}

TEST_F(SafetensorsTest, RefusesBrokenPrefixes) {
  for (std::size_t size = 0; size < 8; ++size)
    EXPECT_TRUE(contains(
        message_of(ErrorKind::checkpoint, [&] { parse_safetensors(std::vector<std::uint8_t>(size), "short"); }),
        "short is not a safetensors file"));
  const auto announced = [](std::uint64_t json_bytes) {
    std::vector<std::uint8_t> bytes(64);
    std::memcpy(bytes.data(), &json_bytes, 8);
    return message_of(ErrorKind::checkpoint, [&] { parse_safetensors(bytes, "f"); });
  };
  EXPECT_TRUE(contains(announced(57), "announces a header of 57 bytes and has 64 in all"));
  EXPECT_TRUE(contains(announced(100'000'001), "more than the 100000000 allowed"));
  EXPECT_TRUE(contains(announced(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615"));
  EXPECT_TRUE(contains(announced(0), "not valid JSON"));
}

TEST_F(SafetensorsTest, RefusesBrokenJson) {
  EXPECT_TRUE(contains(refusal("{", 0), "not valid JSON"));
  EXPECT_TRUE(contains(refusal("{} x", 0), "not valid JSON"));
  EXPECT_TRUE(contains(refusal("{}{}", 0), "not valid JSON"));
  EXPECT_TRUE(contains(refusal("{\"\xff\xfe\":1}", 0), "not valid JSON"));
  for (const char* json : {"[]", "1", "\"x\"", "null", "true", "-1", "1.5"})
    EXPECT_TRUE(contains(refusal(json, 0), "not a JSON object")) << json;
  const std::string deep(1'000'000, '[');
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_TRUE(contains(refusal(R"({"w":{"kind":)" + deep, 0), "nests too deeply"));
  EXPECT_TRUE(contains(refusal(deep, 0), "not a JSON object"));
  EXPECT_TRUE(contains(refusal(R"({"w":)" + deep, 0), "\"w\" is no JSON object"));
  EXPECT_TRUE(contains(refusal(R"({"w":{"shape":)" + deep, 0), "\"w\" has a list of something else than numbers"));
  EXPECT_TRUE(contains(refusal(objects, 0), "nests too deeply"));
  std::string long_list(200'000, '1');
  for (std::size_t i = 1; i < long_list.size(); i += 2) long_list[i] = ',';
  EXPECT_TRUE(contains(refusal(R"({"w":{"shape":[)" + long_list + "2]}}", 0), "\"w\" has a list of too many numbers"));
}

TEST_F(SafetensorsTest, RefusesNamesTwice) {
  const std::string entry = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_TRUE(contains(refusal("{" + entry + "," + entry + "}", 4), "holds \"w\" twice"));
  EXPECT_TRUE(contains(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice"));
  EXPECT_TRUE(contains(refusal(R"({"w":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4), "twice"));
}

TEST_F(SafetensorsTest, RefusesBrokenEntriesNamingTheTensor) {
  struct Case {
    std::string dtype, shape, offsets, expected;
    std::size_t data_bytes = 8;
  };
  const Case cases[] = {
      {"\"F31\"", "[2]", "[0,8]", "unknown dtype \"F31\""},
      {"4", "[2]", "[0,8]", "a text in \"dtype\""},
      {"[\"F32\"]", "[2]", "[0,8]", "a text in \"dtype\""},
      {"\"F32\"", "2", "[0,8]", "below 2^64 in \"shape\""},
      {"\"F32\"", "[-2]", "[0,8]", "below 2^64 in \"shape\""},
      {"\"F32\"", "[2.0]", "[0,8]", "below 2^64 in \"shape\""},
      {"\"F32\"", "[18446744073709551616]", "[0,8]", "below 2^64 in \"shape\""},
      {"\"F32\"", "[\"2\"]", "[0,8]", "below 2^64 in \"shape\""},
      {"\"F32\"", "[[2]]", "[0,8]", "a list of something else than numbers"},
      {"\"F32\"", "[null]", "[0,8]", "below 2^64 in \"shape\""},
      {"\"F32\"", "[2,18446744073709551614]", "[0,8]", "overflows"},
      {"\"F32\"", "[4294967296,4294967296]", "[0,8]", "overflows"},
      {"\"F32\"", "[9223372036854775808,0]", "[0,0]", "overflows"},
      {"\"F32\"", "[3]", "[0,8]", "has 8 bytes of data, its shape [3] of F32 needs 12"},
      {"\"F64\"", "[2]", "[0,8]", "needs 16"},
      {"\"F32\"", "[2]", "[8,0]", "ends at 0 before it begins at 8"},
      {"\"F32\"", "[2]", "[-8,0]", "below 2^64 in \"data_offsets\""},
      {"\"F32\"", "[2]", "[0.0,8]", "below 2^64 in \"data_offsets\""},
      {"\"F32\"", "[2]", "[0,8,16]", "exactly two numbers"},
      {"\"F32\"", "[2]", "[0]", "exactly two numbers"},
      {"\"F32\"", "[2]", "{}", "below 2^64 in \"data_offsets\""},
      {"\"F32\"", "[2]", "[4,12]", "expected 0 (a hole)", 12},
      {"\"F32\"", "[4]", "[0,16]", "the file holds only 8: it is truncated"},
  };
  for (const Case& c : cases) {
    const std::string message = refusal(tensor(c.dtype, c.shape, c.offsets), c.data_bytes);
    EXPECT_TRUE(contains(message, "tensor \"w\"")) << c.expected;
    EXPECT_TRUE(contains(message, c.expected));
  }
  EXPECT_TRUE(contains(refusal(tensor("\"F32\"", "[2]", "[0,8]"), 9), "1 bytes follow the last tensor"));
  EXPECT_TRUE(contains(refusal("{}", 5), "5 bytes follow the last tensor"));
  EXPECT_TRUE(contains(refusal(R"({"w":{"dtype":"F32","shape":[2]}})", 8), "lacks the field \"data_offsets\""));
  EXPECT_TRUE(contains(refusal(R"({"w":{"kind":1}})", 8), "lacks the field \"dtype\""));
  EXPECT_TRUE(contains(refusal(R"({"w":3})", 8), "lacks the field \"dtype\""));
  EXPECT_TRUE(contains(refusal(R"({"__metadata__":{"a":1}})", 0), "only strings"));
  EXPECT_TRUE(contains(refusal(R"({"__metadata__":[]})", 0), "is no JSON object"));
  EXPECT_TRUE(contains(refusal(R"({"a\nb":{"dtype":1}})", 0), R"("a\nb")"));  // a name cannot forge a line of output
}

TEST_F(SafetensorsTest, RefusesHolesAndOverlapsBetweenTensors) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)") + first +
           R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(parse(two("[8,16]", "[0,8]"), 16).tensors[0].name, "b");
  EXPECT_TRUE(contains(refusal(two("[0,8]", "[4,12]"), 12), "expected 8 (an overlap)"));
  EXPECT_TRUE(contains(refusal(two("[0,8]", "[0,8]"), 8), "an overlap"));
  EXPECT_TRUE(contains(refusal(two("[0,8]", "[12,20]"), 20),
                       "tensor \"b\" begins at byte 12 of the data, expected 8 (a hole)"));
}

TEST_F(SafetensorsTest, RefusesTruncatedAndMissingFiles) {
  write_safetensors(path("m"), {{}, {{"w", Tensor::zeros({64})}}});
  const auto full = fs::file_size(path("m"));
  for (std::uintmax_t size = 0; size < full; size += 13) {
    fs::copy_file(path("m"), path("cut"), fs::copy_options::overwrite_existing);
    fs::resize_file(path("cut"), size);
    message_of(ErrorKind::checkpoint, [&] { read_safetensors(path("cut")); });
  }
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { read_safetensors(path("none")); }), "No such file"));
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { read_safetensors(folder_); }), "not a file"));
}

TEST_F(SafetensorsTest, SurvivesRandomDamage) {
  TensorFile content{{{"k", "v"}}, {{"a.weight", Tensor::zeros({3, 4})}, {"b", Tensor::zeros({5}, DType::int64)}}};
  write_safetensors(path("m"), content);
  const std::string text = read_file(path("m"), ErrorKind::checkpoint);
  const std::vector<std::uint8_t> whole(text.begin(), text.end());
  const Philox random{7, 0};
  int refused = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    std::vector<std::uint8_t> bytes = whole;
    for (std::uint64_t flips = 0; flips <= random.below(4 * i, 3); ++flips)
      bytes[random.below(4 * i + 1 + flips, bytes.size())] =
          static_cast<std::uint8_t>(random.bits(i + 1'000'000 * flips));
    try {
      parse_safetensors(bytes, "damaged");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::checkpoint);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(AtomicFileTest, ReplacesOrLeavesAlone) {
  write_file_atomically(path("f"), "old");
  {
    AtomicFile file(path("f"));
    file.write("half of the n");
    EXPECT_EQ(read_file(path("f"), ErrorKind::data), "old");
    EXPECT_EQ(files(), 2u);
  }
  EXPECT_EQ(read_file(path("f"), ErrorKind::data), "old");
  EXPECT_EQ(files(), 1u);
  write_file_atomically(path("f"), "new");
  EXPECT_EQ(read_file(path("f"), ErrorKind::data), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, ReportsWhatFails) {
  EXPECT_TRUE(
      contains(message_of(ErrorKind::checkpoint, [&] { write_file_atomically(path("no/f"), ""); }), "No such file"));
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { read_file(path("none"), ErrorKind::data); }), "cannot read"));
  write_file_atomically(path("f"), std::string(100, 'x'));
  EXPECT_TRUE(
      contains(message_of(ErrorKind::data, [&] { read_file(path("f"), ErrorKind::data, 99); }), "larger than 99"));
  fs::create_directories(path("folder/inside"));
  message_of(ErrorKind::checkpoint, [&] { write_file_atomically(path("folder"), "x"); });
  EXPECT_EQ(files(), 2u);  // no temporary file is left
}

TEST_F(MetricsLogTest, WritesOneObjectALine) {
  {
    MetricsLog log(path("m.jsonl"));
    log.write(StepMetrics{20, 1, "low-rank", 1.5, 0.1, 800, 1e6});
    log.write(StepMetrics{40, 1, "low-rank", std::nan(""), INFINITY, 800, 2e6});
    log.write(EpochMetrics{1, 40, 1.25, 0.5, 0.9});
    log.write(SplitMetrics{40, {{"fc.weight", 64, 10, 5}}});
    EXPECT_EQ(log.lost_lines(), 0);
    // Readable while the run goes on.
    EXPECT_FALSE(read_file(path("m.jsonl"), ErrorKind::data).empty());
  }
  std::istringstream lines(read_file(path("m.jsonl"), ErrorKind::data));
  std::vector<nlohmann::json> parsed;
  for (std::string line; std::getline(lines, line);) parsed.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(parsed.size(), 4u);
  EXPECT_EQ(parsed[0]["kind"], "step");
  EXPECT_EQ(parsed[0]["phase"], "low-rank");
  EXPECT_EQ(parsed[0]["loss"], 1.5);
  EXPECT_TRUE(parsed[1]["loss"].is_null());
  EXPECT_TRUE(parsed[1]["lr"].is_null());
  EXPECT_EQ(parsed[2]["val_top1"], 0.5);
  EXPECT_EQ(parsed[3]["layers"][0]["r"], 5);
}

TEST_F(MetricsLogTest, AFullDiskCostsLinesNotTheRun) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  MetricsLog log("/dev/full");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) log.write(EpochMetrics{});
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.lost_lines(), 3);
  EXPECT_TRUE(contains(warnings, "cannot write /dev/full (No space left on device)"));
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 1) << warnings;
}

TEST_F(MetricsLogTest, AHalfLineOfAnEarlierStartDoesNotSpoilTheNext) {
  write_file_atomically(path("m.jsonl"), "{\"kind\": \"step\"}\n{\"kind\": \"sp");
  MetricsLog(path("m.jsonl"), 1000).write(EpochMetrics{7});
  std::istringstream lines(read_file(path("m.jsonl"), ErrorKind::data));
  std::string line;
  for (int i = 0; i < 3; ++i) std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line)["epoch"], 7);
}

TEST_F(MetricsLogTest, AHalfWrittenLineDoesNotSpoilTheNext) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  {
    MetricsLog log(path("m.jsonl"));
    rlimit small = before;
    small.rlim_cur = 150;  // the second line does not fit
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    testing::internal::CaptureStderr();
    log.write(EpochMetrics{1});
    log.write(EpochMetrics{2});
    log.write(EpochMetrics{3});
    setrlimit(RLIMIT_FSIZE, &before);
    log.write(EpochMetrics{4});
    EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "File too large"));
    EXPECT_EQ(log.lost_lines(), 2);
  }
  std::signal(SIGXFSZ, old_handler);
  std::istringstream lines(read_file(path("m.jsonl"), ErrorKind::data));
  std::vector<std::int64_t> whole;
  for (std::string line; std::getline(lines, line);)
    if (const auto json = nlohmann::json::parse(line, nullptr, false); json.is_object()) whole.push_back(json["epoch"]);
  EXPECT_EQ(whole, (std::vector<std::int64_t>{1, 4}));
}

TEST_F(MetricsLogTest, ReportsAFileThatCannotBeCreated) {
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { MetricsLog log(path("no/m.jsonl")); }), "cannot create"));
}

}  // namespace
