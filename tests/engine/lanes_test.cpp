// SPDX-License-Identifier: MIT
//
// The way a GPU reaches memory, in Packs of 16 bytes where addresses are aligned and element by element elsewhere,
// run on this processor and compared with the CPU's loops. A Pack at an address that is not aligned ends the
// program in builds with the address sanitizer.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/kernels/batch_norm.h"
#include "engine/kernels/batch_norm_functors.h"
#include "engine/kernels/batch_norm_moments.h"
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

/// Batch normalisation with ReLU, forward and backward, as the kernels do it over one table.
template <class T, ReluGate kGate, bool kResidual> struct BatchNormRun {
  using C = compute_t<T>;
  std::vector<double> mean, rstd, y, dgamma, dbeta, dx, dresidual;

  template <class Runner>
  BatchNormRun(const PixelTable& t, std::int64_t merge_width, std::int64_t offset, const Runner& run) {
    const std::int64_t n = t.pixels * t.channels;
    const Elements<T> x(n, offset, 1), residual(n, offset, 2), dy(n, offset, 3);
    const Elements<T> out_y(n, offset, 4), out_dx(n, offset, 5), out_dresidual(n, offset, 6);
    const auto per_channel = [&](std::uint64_t stream) { return Elements<C>(t.channels, 0, stream); };
    const Elements<C> gamma = per_channel(7), beta = per_channel(8), out_mean = per_channel(9),
                      out_rstd = per_channel(10), running_mean = per_channel(11), running_var = per_channel(12),
                      out_dgamma = per_channel(13), out_dbeta = per_channel(14);
    const Elements<C> first(t.chunks() * t.columns(), 0, 15), second(t.chunks() * t.columns(), 0, 16);
    std::vector<std::uint8_t> bits(static_cast<std::size_t>(n / kPackWidth<T>));
    const std::int64_t blocks = (t.channels + merge_width - 1) / merge_width;
    const C pixels = static_cast<C>(t.pixels);

    run(t.chunks(), ChunkMoments<T>{t, x.data(), first.data(), second.data()});
    const SetMoments<C> set{pixels,  out_mean.data(), out_rstd.data(), running_mean.data(), running_var.data(),
                            C(1e-5), C(0.1)};
    run(blocks, MergeMoments<C, SetMoments<C>>{t, first.data(), second.data(), set});
    run(t.chunks(), Normalise<T, kGate, kResidual>{t, x.data(), residual.data(), out_mean.data(), out_rstd.data(),
                                                   gamma.data(), beta.data(), out_y.data(), bits.data()});
    const GateOf<T, kGate> gate{out_y.data(), bits.data()};
    run(t.chunks(),
        ChunkGradSums<T, kGate>{t, dy.data(), x.data(), gate, out_mean.data(), first.data(), second.data()});
    run(blocks, MergeGradSums<C>{t, first.data(), second.data(), out_rstd.data(), out_dbeta.data(), out_dgamma.data()});
    run(t.chunks(), NormaliseBackward<T, kGate, kResidual>{
                        t, dy.data(), x.data(), gate, out_mean.data(), out_rstd.data(), gamma.data(), out_dbeta.data(),
                        out_dgamma.data(), C{1} / pixels, out_dx.data(), out_dresidual.data()});
    mean = out_mean.values(), rstd = out_rstd.values(), y = out_y.values(), dgamma = out_dgamma.values(),
    dbeta = out_dbeta.values(), dx = out_dx.values(), dresidual = out_dresidual.values();
  }
};

/// By threads over the table of a GPU, and in one lane over that of a CPU.
template <class T, bool kResidual>
void compare_batch_norm(std::int64_t pixels, std::int64_t channels, std::int64_t offset) {
  using C = compute_t<T>;
  SCOPED_TRACE(fmt::format("{} pixels, {} channels, offset {}, residual {}", pixels, channels, offset, kResidual));
  const auto serial = [](std::int64_t rows, const auto& kernel) {
    for (std::int64_t row = 0; row < rows; ++row) kernel(SerialTeam{}, row);
  };
  using OnCpu = BatchNormRun<T, ReluGate::result, kResidual>;
  const OnCpu expected(cpu_pixel_table(pixels, channels), kLaneWidth<SerialTeam>, offset, serial);
  const auto threads = [](std::int64_t rows, const auto& kernel) { run_rows_in_threads(5, rows, kernel); };
  const double statistics = std::is_same_v<T, double> ? 1e-12 : 2e-5, sums = statistics * static_cast<double>(pixels);
  const auto expect_same = [&](const auto& got) {
    expect_near(got.mean, expected.mean, statistics);
    expect_near(got.rstd, expected.rstd, statistics);
    expect_near(got.dgamma, expected.dgamma, sums);
    expect_near(got.dbeta, expected.dbeta, sums);
    expect_near(got.y, expected.y, tolerance<T>());
    expect_near(got.dx, expected.dx, tolerance<T>());
    EXPECT_EQ(got.dresidual, expected.dresidual);
  };
  const PixelTable table = gpu_pixel_table(pixels, channels, kPackWidth<T>);
  expect_same(OnCpu(table, kPackWidth<C>, offset, threads));
  if (offset > 0 || table.columns() % kPackWidth<T> != 0) return;
  using WithBits = BatchNormRun<T, ReluGate::bits, kResidual>;
  expect_same(WithBits(table, kPackWidth<C>, offset, threads));
  expect_same(WithBits(table, kLaneWidth<SerialTeam>, offset, serial));
}

TYPED_TEST(LanesOf, BatchNormOverTheTableOfAGpu) {
  using T = TypeParam;
  for (const std::int64_t channels : {1, 3, 16, 100, 513})
    for (const std::int64_t pixels : {37, 480}) compare_batch_norm<T, true>(pixels, channels, 0);
  for (const std::int64_t offset : {1, 3}) compare_batch_norm<T, true>(480, 16, offset);
  // Rows of one pixel, so that a chunk has several runs of them, the last of odd length.
  EXPECT_GT(gpu_pixel_table(4243, 16, kPackWidth<T>).chunk_rows, 2 * ChunkRows::kRun);
  compare_batch_norm<T, true>(4243, 16, 0);
  compare_batch_norm<T, false>(4243, 16, 0);
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

/// Column sums and the gradients of layer norm's parameters, as the kernels take them over one table: Σ dy,
/// then Σ dy · xhat, then the column sums of x.
template <class T, class Runner>
std::vector<double> column_sums_over(const PixelTable& t, std::int64_t merge_width, std::int64_t offset,
                                     const Runner& run) {
  using C = compute_t<T>;
  const std::int64_t n = t.pixels * t.channels;
  const Elements<T> x(n, offset, 1), dy(n, offset, 2), sums_of_x(t.channels, 0, 8);
  const Elements<C> mean(t.pixels, 0, 3), rstd(t.pixels, 0, 4), sums(2 * t.channels, 0, 5);
  const Elements<C> first(t.chunks() * t.columns(), 0, 6), second(t.chunks() * t.columns(), 0, 7);
  const std::int64_t blocks = (t.channels + merge_width - 1) / merge_width;
  run(t.chunks(),
      LayerNormChunkGradSums<T>{t, dy.data(), x.data(), mean.data(), rstd.data(), first.data(), second.data()});
  run(blocks, SumColumnPartials<C>{t, first.data(), sums.data()});
  run(blocks, SumColumnPartials<C>{t, second.data(), sums.data() + t.channels});
  run(t.chunks(), ChunkColumnSums<T>{t, x.data(), first.data()});
  run(blocks, SumColumnPartials<T>{t, first.data(), sums_of_x.data()});
  std::vector<double> results = sums.values();
  for (const double v : sums_of_x.values()) results.push_back(v);
  return results;
}

TYPED_TEST(LanesOf, ColumnSumsOverTheTableOfAGpu) {
  using T = TypeParam;
  const auto compare = [](std::int64_t pixels, std::int64_t channels, std::int64_t offset) {
    SCOPED_TRACE(fmt::format("{} pixels, {} channels, offset {}", pixels, channels, offset));
    const auto serial = [](std::int64_t rows, const auto& kernel) {
      for (std::int64_t row = 0; row < rows; ++row) kernel(SerialTeam{}, row);
    };
    const PixelTable of_a_cpu{.pixels = pixels, .channels = channels, .chunk_rows = 16};
    const auto expected = column_sums_over<T>(of_a_cpu, kLaneWidth<SerialTeam>, offset, serial);
    const auto threads = [](std::int64_t rows, const auto& kernel) { run_rows_in_threads(5, rows, kernel); };
    const PixelTable of_a_gpu = gpu_pixel_table(pixels, channels, kPackWidth<T>);
    const auto got = column_sums_over<T>(of_a_gpu, kPackWidth<compute_t<T>>, offset, threads);
    expect_near(got, expected, tolerance<T>() * static_cast<double>(pixels));
  };
  for (const std::int64_t channels : {1, 3, 16, 100, 513})
    for (const std::int64_t pixels : {37, 480}) compare(pixels, channels, 0);
  for (const std::int64_t offset : {1, 3}) compare(480, 16, offset);
}

/// All pooling kernels, those of largest elements with these constants, by threads and in one lane.
template <class T, int kKernel, int kCovers> void compare_pooling(const PoolSpec& spec, std::int64_t offset) {
  SCOPED_TRACE(fmt::format("{} channels, offset {}, kernel {}", spec.channels, offset, kKernel));
  const std::int64_t inputs = spec.in_shape().numel(), outputs = spec.out_shape().numel();
  const Elements<T> x(inputs, offset, 1), dy(outputs, offset, 2);
  const auto run = [&](const auto& runner) {
    const Elements<T> y(outputs, offset, 3), dx(inputs, offset, 4), mean(outputs, offset, 5), dmean(inputs, offset, 6);
    const Tensor winner(Shape{outputs}, DType::uint8);
    runner(spec.batch * spec.rows.out, MaxPool<T, kKernel>{spec, x.data(), y.data(), winner.data<std::uint8_t>()});
    runner(spec.batch * spec.rows.in,
           MaxPoolBackward<T, kCovers>{spec, dy.data(), winner.data<std::uint8_t>(), dx.data()});
    runner(spec.batch * spec.rows.out, AvgPool<T>{spec, x.data(), mean.data()});
    runner(spec.batch * spec.rows.in, AvgPoolBackward<T>{spec, dy.data(), dmean.data()});
    return std::vector{y.values(), dx.values(), mean.values(), dmean.values()};
  };
  const auto serial = run([](std::int64_t rows, const auto& kernel) {
    for (std::int64_t row = 0; row < rows; ++row) kernel(SerialTeam{}, row);
  });
  const auto got = run([](std::int64_t rows, const auto& kernel) { run_rows_in_threads(5, rows, kernel); });
  for (const int exact : {0, 1}) EXPECT_EQ(got[exact], serial[exact]);
  // Means multiply and add: the compiler may fuse the two for one kind of team and not for the other.
  for (const int rounded : {2, 3}) expect_near(got[rounded], serial[rounded], tolerance<T>());
}

TYPED_TEST(LanesOf, PoolingOfWholePacksAndOfOddChannels) {
  using T = TypeParam;
  const auto windows = [](std::int64_t in, std::int64_t kernel) {
    return PoolWindows::regular(in, kernel, 2, kernel == 3 ? 1 : 0);
  };
  for (const std::int64_t channels : {1, 3, 16, 24})
    for (const std::int64_t offset : {0, 1}) {
      compare_pooling<T, 0, 0>({2, channels, windows(6, 2), windows(7, 3)}, offset);
      compare_pooling<T, 3, 2>({2, channels, windows(6, 3), windows(7, 3)}, offset);
      compare_pooling<T, 2, 1>({2, channels, windows(6, 2), windows(7, 2)}, offset);
    }
}

}  // namespace
}  // namespace ab
