// SPDX-License-Identifier: MIT
//
// Selections by magnitude against a sort.
#include "engine/kernels/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/device/device.h"
#include "engine/kernels/random.h"
#include "engine/kernels/sparse.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using namespace kernels;

/// [4·k] bytes
Tensor room(std::int64_t k) { return Tensor::zeros({4 * k}, DType::uint8); }
std::uint32_t* numbers(const Tensor& t) { return reinterpret_cast<std::uint32_t*>(t.data<std::uint8_t>()); }
std::vector<std::uint32_t> list(const Tensor& t) { return {numbers(t), numbers(t) + t.numel() / 4}; }

Tensor values(const std::string& kind, std::int64_t n) {
  Tensor x({n});
  fill_normal(x, 0, 1, {.seed = 11, .stream = stream_of(kind)});
  for (float& v : x.span<float>()) {
    if (kind == "cauchy") v = 1 / v;
    if (kind == "few values") v = std::round(v);
    if (kind == "equal") v = -0.25f;
    if (kind == "zero") v = 0;
    if (kind == "tiny") v *= 1e-41f;  // subnormal
  }
  return x;
}

const char* const kKinds[] = {"normal", "cauchy", "few values", "equal", "zero", "tiny"};
constexpr std::int64_t kSizes[] = {1, 5, 255, 257, 20000, 65536, 70001};

std::vector<std::uint32_t> sorted_selection(const Tensor& x, std::int64_t k) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(x.numel()));
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::abs(x.data<float>()[a]) > std::abs(x.data<float>()[b]);
  });
  order.resize(static_cast<std::size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(Selector, ExactIsWhatASortGives) {
  for (const std::int64_t n : kSizes)
    for (const char* kind : kKinds) {
      const Tensor x = values(kind, n);
      const Selector selector(n, Device{});
      for (const std::int64_t k : {std::int64_t{1}, std::int64_t{3}, n / 100, n / 2, n - 1, n}) {
        if (k < 1 || k > n) continue;
        const Tensor indices = room(k);
        selector.exact(x, k, numbers(indices));
        EXPECT_EQ(list(indices), sorted_selection(x, k)) << kind << ", " << k << " of " << n;
      }
    }
}

TEST(Selector, AGpuTakesTheSame) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  const Device gpu{DeviceKind::cuda, 0};
  for (const std::int64_t n : {std::int64_t{5}, std::int64_t{257}, kSelectChunk + 777})
    for (const char* kind : {"normal", "few values", "equal"}) {
      const Tensor x = values(kind, n), there = x.to(gpu);
      const Selector selector(n, gpu), here(n, Device{});
      for (const std::int64_t k : {std::int64_t{1}, n / 100, n - 1}) {
        if (k < 1) continue;
        SCOPED_TRACE(fmt::format("{}, {} of {}", kind, k, n));
        const Tensor indices = room(k).to(gpu), expected = room(k);
        const auto numbers_there = static_cast<std::uint32_t*>(indices.raw());
        selector.exact(there, k, numbers_there);
        EXPECT_EQ(list(indices.to({})), sorted_selection(x, k));
        selector.multi_sampling(there, k, 25, {.seed = 1, .stream = 2}, 3, numbers_there);
        here.multi_sampling(x, k, 25, {.seed = 1, .stream = 2}, 3, numbers(expected));
        EXPECT_EQ(list(indices.to({})), list(expected));
      }
    }
}

TEST(ChunkSelect, AGpuTakesTheSame) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  for (const std::int64_t rate : {5, 64, 300}) {
    const ChunkedVector v{.elements = 3001, .rate = rate};
    const auto settled = [&](Device device) {
      const Tensor x = values("few values", v.elements).to(device), memory = values("normal", v.elements).to(device);
      const FiniteCheck check{device};
      const Tensor offsets({v.offset_bytes()}, DType::uint8, device);
      const Tensor taken({v.chunks()}, DType::float32, device);
      largest_of_chunks(v, x, offsets);
      take_of_chunks(v, x, offsets, check, taken);
      settle_chunks(v, offsets, taken, 0.25, check, memory, x);
      std::vector<double> all = offsets.to_doubles();
      for (const Tensor& t : {taken, x, memory})
        for (const double e : t.to_doubles()) all.push_back(e);
      return all;
    };
    const std::vector<double> here = settled({}), there = settled({DeviceKind::cuda, 0});
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t i = 0; i < here.size(); ++i) ASSERT_NEAR(here[i], there[i], 1e-6) << rate << ", " << i;
  }
}

TEST(Selector, CountsDigitsAsATeamDoes) {
  constexpr std::int64_t n = kSelectChunk + 777;
  const Tensor x = values("few values", n);
  RadixSearch search{0x3f800000u, 1};
  for (const auto& [shift, width] : {std::pair{28, 3}, std::pair{24, 4}, std::pair{20, 4}}) {
    std::vector<std::int64_t> serial(32, -1), team(32, -1);
    for (std::int64_t chunk = 0; chunk < 2; ++chunk)
      CountDigits{x.data<float>(), &search, serial.data(), n, shift, width}(SerialTeam{}, chunk);
    run_rows_in_threads(4, 2, CountDigits{x.data<float>(), &search, team.data(), n, shift, width});
    EXPECT_EQ(serial, team) << shift;
    EXPECT_GT(std::accumulate(serial.begin(), serial.begin() + (2 << width), std::int64_t{0}), 1000);
  }
}

TEST(Selector, WritesAsATeamDoes) {
  constexpr std::int64_t n = kSelectChunk + 777, blocks = n / kSelectBlock + 1, k = n / 5;
  const Tensor x = values("few values", n), indices = room(k);
  const std::vector<std::uint32_t> expected = sorted_selection(x, k);
  std::uint32_t least = 0x7fffffffu;
  for (const std::uint32_t i : expected) least = std::min(least, magnitude(x.data<float>()[i]));
  const auto above = std::count_if(expected.begin(), expected.end(),
                                   [&](std::uint32_t i) { return magnitude(x.data<float>()[i]) > least; });
  const Cut cut{least + 1, least, 0, k - above};
  for (const int lanes : {3, 5}) {
    std::vector<CutCount> of_blocks(blocks), of_chunks(2);
    run_rows_in_threads(lanes, blocks, CountBlock{x.data<float>(), &cut, of_blocks.data(), n});
    run_rows_in_threads(lanes, 2, ScanBlocks{of_blocks.data(), of_chunks.data(), blocks});
    run_rows_in_threads(lanes, 1, ScanChunks{of_chunks.data(), 2});
    run_rows_in_threads(
        lanes, blocks,
        WriteSelected{x.data<float>(), &cut, of_blocks.data(), of_chunks.data(), numbers(indices), n, k});
    EXPECT_EQ(list(indices), expected) << lanes << " lanes";
  }
}

double energy(const Tensor& x, const std::vector<std::uint32_t>& indices) {
  double sum = 0;
  for (const std::uint32_t i : indices) sum += double{x.data<float>()[i]} * x.data<float>()[i];
  return sum;
}

TEST(Selector, MultiSamplingTakesKDifferentElementsAndNearlyTheLargest) {
  for (const std::int64_t n : kSizes)
    for (const char* kind : kKinds) {
      const Tensor x = values(kind, n);
      const Selector selector(n, Device{});
      for (const std::int64_t k : {std::int64_t{1}, std::int64_t{3}, n / 1000, n / 10, n * 6 / 10, n}) {
        if (k < 1 || k > n) continue;
        SCOPED_TRACE(fmt::format("{}, {} of {}", kind, k, n));
        const Tensor indices = room(k);
        selector.multi_sampling(x, k, 25, {.seed = 1, .stream = 2}, 3, numbers(indices));
        const std::vector<std::uint32_t> got = list(indices);
        EXPECT_EQ(std::set(got.begin(), got.end()).size(), static_cast<std::size_t>(k));
        EXPECT_LT(*std::max_element(got.begin(), got.end()), n);
        EXPECT_GE(energy(x, got), 0.999 * energy(x, sorted_selection(x, k)));
      }
    }
}

TEST(Selector, MultiSamplingFillsUpFromARandomPlace) {
  constexpr std::int64_t n = 20000, k = 10;
  Tensor x = values("equal", n);
  x.data<float>()[17000] = 3;  // the only one above the others
  const Selector selector(n, Device{});
  std::set<std::uint32_t> starts;
  for (std::uint64_t draw = 0; draw < 8; ++draw) {
    const Tensor indices = room(k);
    selector.multi_sampling(x, k, 25, {.seed = 1, .stream = 2}, draw, numbers(indices));
    std::vector<std::uint32_t> got = list(indices);
    EXPECT_EQ(std::erase(got, 17000u), 1u);
    EXPECT_LE(got.back() - got.front(), static_cast<std::uint32_t>(k - 1)) << "one run";
    starts.insert(got.front());
  }
  EXPECT_GT(starts.size(), 6u);
}

TEST(Selector, FewRoundsTakeWhatTheyCan) {
  const Tensor x = values("cauchy", 20000);
  const Selector selector(20000, Device{});
  const Tensor indices = room(200);
  selector.multi_sampling(x, 200, 2, {.seed = 1, .stream = 2}, 0, numbers(indices));
  const std::vector<std::uint32_t> got = list(indices);
  EXPECT_EQ(std::set(got.begin(), got.end()).size(), 200u);
}

TEST(Selector, NaNAndInfinityWriteNothingOutside) {
  constexpr std::int64_t n = 1000, k = 20;
  for (const float bad : {std::nanf(""), INFINITY}) {
    Tensor x = values("normal", n);
    for (std::int64_t i = 0; i < n; i += 3) x.data<float>()[i] = bad;
    const Selector selector(n, Device{});
    for (const bool exact : {true, false}) {
      const Tensor indices = Tensor::zeros({4 * (k + 5)}, DType::uint8);
      if (exact) selector.exact(x, k, numbers(indices));
      else selector.multi_sampling(x, k, 25, {.seed = 1, .stream = 2}, 0, numbers(indices));
      for (std::int64_t i = 0; i < k; ++i) EXPECT_LT(numbers(indices)[i], n);
      for (std::int64_t i = k; i < k + 5; ++i) EXPECT_EQ(numbers(indices)[i], 0u);
    }
  }
}

}  // namespace
}  // namespace ab
