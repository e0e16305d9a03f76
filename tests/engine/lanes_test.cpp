// SPDX-License-Identifier: MIT
//
// The way a GPU reaches memory, in Packs of 16 bytes where addresses are aligned and element by element elsewhere,
// run on this processor and compared with the CPU's loops. A Pack at an address that is not aligned ends the
// program in builds with the address sanitizer.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/kernels/batch_norm.h"
#include "engine/kernels/batch_norm_functors.h"
#include "engine/kernels/elementwise_functors.h"
#include "engine/kernels/layer_norm.h"
#include "engine/kernels/map.h"
#include "engine/kernels/pool.h"
#include "engine/kernels/random.h"
#include "engine/kernels/reduce_functors.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using namespace kernels;

template <class T> class LanesOf : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;  // Packs of 4, 8 (as of float16) and 2
TYPED_TEST_SUITE(LanesOf, Types);

/// Elements of a tensor, beginning `offset` elements behind an aligned address.
template <class T> struct Elements {
  Tensor all;
  std::int64_t offset;

  Elements(std::int64_t n, std::int64_t offset, std::uint64_t stream)
      : all(Shape{n + offset}, dtype_of<T>), offset(offset) {
    fill_normal(all, 0.3, 1.0, Philox{.seed = 5, .stream = stream});
  }
  T* data() const { return all.data<T>() + offset; }
  std::vector<double> values() const {
    const std::vector<double> v = all.to_doubles();
    return {v.begin() + offset, v.end()};
  }
};

/// How far rounding to T and sums in another order may take a value apart.
template <class T> double tolerance() {
  return std::is_same_v<T, double> ? 1e-12 : std::is_same_v<T, float> ? 2e-5 : 1e-2;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << "element " << i;
}

TEST(Packs, NeedAlignedRows) {
  alignas(16) const float x[8] = {};
  const float* const none = nullptr;
  EXPECT_TRUE(packable<4>(4, x, none));
  EXPECT_TRUE(packable<4>(8, x + 4));
  EXPECT_FALSE(packable<4>(4, x, x + 1));
  EXPECT_FALSE(packable<4>(6, x)) << "the second row would not be aligned";
  EXPECT_TRUE(packable<2>(2, x + 2)) << "a Pack of eight bytes";
  EXPECT_EQ((kPackWidth<bfloat16>), 8);
  EXPECT_EQ((kPackWidth<bfloat16, float>), 4) << "16 bytes on the wider side";
}

TYPED_TEST(LanesOf, MapEveryElementOnceWhateverTheBlock) {
  using T = TypeParam;
  using C = compute_t<T>;
  using Kernel = Axpy<C>;
  constexpr int width = kPackWidth<T>;
  for (const std::int64_t n : {0, 1, width - 1, width, 3 * width + 1, 1025}) {
    const Elements<T> x(n, 0, 1), y(n, 0, 2), blocks(n, 0, 2), elements(n, 0, 2);
    map(Device{}, n, y.data(), Kernel{2}, x.data(), y.data());
    const auto run = [&]<class Block>(Block, const Elements<T>& to) {
      const Map<Block, Kernel, T, T, T> kernel{{2}, n, to.data(), {x.data(), to.data()}};
      for (std::int64_t block = 0; block * Block::value < n; ++block) kernel(block);
    };
    run(Packed<width>{}, blocks);
    run(std::integral_constant<int, 1>{}, elements);
    EXPECT_EQ(blocks.values(), y.values());
    EXPECT_EQ(elements.values(), y.values());
    const auto expected = Elements<T>(n, 0, 2).values(), xs = x.values();
    for (std::size_t i = 0; i < xs.size(); ++i) EXPECT_NEAR(y.values()[i], 2 * xs[i] + expected[i], tolerance<T>() * 8);
  }
}

TYPED_TEST(LanesOf, CastAndNumberElements) {
  using T = TypeParam;
  constexpr std::int64_t n = 1003;
  const Elements<float> from(n, 0, 1);
  const Elements<T> loops(n, 0, 2), packs(n, 0, 3);
  map(Device{}, n, loops.data(), Same<float>{}, from.data());
  constexpr int width = kPackWidth<T, float>;
  const Map<Packed<width>, Same<float>, T, float> kernel{{}, n, packs.data(), {from.data()}};
  for (std::int64_t block = 0; block * width < n; ++block) kernel(block);
  EXPECT_EQ(packs.values(), loops.values());

  const Uniform uniform{0, 1, Philox{.seed = 9}};  // takes the index
  map(Device{}, n, loops.data(), uniform);
  const Map<Packed<kPackWidth<T>>, Uniform, T> numbers{uniform, n, packs.data(), {}};
  for (std::int64_t block = 0; block * kPackWidth<T> < n; ++block) numbers(block);
  EXPECT_EQ(packs.values(), loops.values());
}

/// y = 2x and, per row, the sum and the largest of x.
template <class T> struct ReadsAndWritesRows {
  const T* x;
  T* y;
  double* sum;
  double* largest;
  std::int64_t n;
  template <class Team> void operator()(const Team& team, std::int64_t row) const {
    const T* from = x + row * n;
    const double total = lane_sum<double>(
        team, n, [](double v) { return v; }, from);
    const double most = lane_max<double>(
        team, n, -1e30, [](double v) { return v; }, from);
    lane_map(team, n, y + row * n, Scale<compute_t<T>>{2}, from);
    if (team.lane() != 0) return;
    sum[row] = total;
    largest[row] = most;
  }
};

TYPED_TEST(LanesOf, RowsOfAnyLengthAndAddress) {
  using T = TypeParam;
  constexpr std::int64_t rows = 3;
  for (const std::int64_t n : {1, 3, 16, 100, 513})
    for (const std::int64_t offset : {0, 1, 3}) {
      const Elements<T> x(rows * n, offset, 1);
      const auto run = [&](const Elements<T>& y, const auto& runner) {
        std::vector<double> results(2 * rows);
        runner(ReadsAndWritesRows<T>{x.data(), y.data(), results.data(), results.data() + rows, n});
        return results;
      };
      const Elements<T> serial_y(rows * n, 0, 2);
      const auto serial = run(serial_y, [](const auto& kernel) {
        for (std::int64_t row = 0; row < rows; ++row) kernel(SerialTeam{}, row);
      });
      for (const int lanes : {1, 3, 8}) {
        const Elements<T> y(rows * n, offset, 3);
        expect_near(run(y, [=](const auto& kernel) { run_rows_in_threads(lanes, rows, kernel); }), serial, 1e-12);
        EXPECT_EQ(y.values(), serial_y.values()) << n << " elements at " << offset;
      }
    }
}

TEST(PixelTables, HaveRowsOfWholePacks) {
  for (const std::int64_t width : {2, 4, 8})
    for (const std::int64_t channels : {1, 3, 16, 64, 100, 512, 513, 4096}) {
      const PixelTable t = gpu_pixel_table(512 * 16, channels, width);
      EXPECT_EQ(t.columns() % width, 0) << channels << " channels";
      EXPECT_LE(t.columns(), std::max(256 * width, width * channels));
      EXPECT_LE(t.chunks(), 264);
      EXPECT_EQ(gpu_pixel_table(8191, channels, width).pixels_per_row, 1) << "a prime number of pixels";
    }
  EXPECT_EQ(gpu_pixel_table(512 * 32 * 32, 64, 8).columns(), 256 * 8);
  EXPECT_GT(gpu_pixel_table(512 * 4 * 4, 512, 8).chunks(), 132);
}

TEST(PixelTables, ChunksHaveEveryRowOnceInGroupsOfNeighbours) {
  for (const std::int64_t rows : {1, 7, 8, 9, 63, 2113, 4223, 12544})
    for (const bool takes_turns : {false, true}) {
      PixelTable table = gpu_pixel_table(rows, 2048, 8);
      table.takes_turns = takes_turns;
      std::vector<int> serial(rows), eight(rows), four(rows), eight_from_last(rows), four_from_last(rows);
      const auto count_in = [](std::vector<int>& counts) {
        return [&counts](std::int64_t row, auto group) {
          for (int u = 0; u < group; ++u) ++counts.at(static_cast<std::size_t>(row + u));
        };
      };
      for (std::int64_t chunk = 0; chunk < table.chunks(); ++chunk) {
        const ChunkRows of_chunk = table.rows_of(chunk);
        for_each_row_group<SerialTeam, 1>(of_chunk, count_in(serial));
        for_each_row_group<ThreadTeam, 1>(of_chunk, count_in(eight));
        for_each_row_group<ThreadTeam, 2>(of_chunk, count_in(four));
        for_each_row_group_from_last<ThreadTeam, 1>(of_chunk, count_in(eight_from_last));
        for_each_row_group_from_last<ThreadTeam, 2>(of_chunk, count_in(four_from_last));
      }
      for (const auto& counts : {serial, eight, four, eight_from_last, four_from_last})
        EXPECT_EQ(counts, std::vector<int>(rows, 1)) << rows << " rows";
    }
}

// An image that is brighter by a thousand deviations than all others, first in its batch.
TEST(BatchNormMoments, KeepTheVarianceBesideAFirstChunkOfAnotherMean) {
  constexpr std::int64_t pixels = 1 << 20, channels = 2;
  const Tensor x({pixels, channels});
  const Philox random{3, 5};
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float v = 0.1f * random.normal(static_cast<std::uint64_t>(i)) + (i < 512 ? 100.0f : 0.0f);
    x.data<float>()[i] = v;
    if (i % channels == 0) sum += v, squares += static_cast<double>(v) * v;
  }
  const double mean = sum / pixels, variance = squares / pixels - mean * mean;
  const Tensor running_mean = Tensor::zeros({channels}), running_var = Tensor::zeros({channels});
  const BatchMoments moments = batch_moments(x, {}, 0, running_mean, running_var, 0.1, {});
  EXPECT_NEAR(moments.mean.to_doubles()[0], mean, 1e-5 * mean);
  EXPECT_NEAR(moments.rstd.to_doubles()[0] * std::sqrt(variance), 1, 1e-4);
}

}  // namespace
}  // namespace ab
