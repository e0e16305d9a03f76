// SPDX-License-Identifier: MIT
//
// Vectors in 8 bits, and their means over ranks that are threads.
#include "engine/sync/int8_mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/device/device.h"
#include "engine/kernels/random.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

constexpr int kBlock = 16;
constexpr Philox kRounding{.seed = 3, .stream = 5};

Tensor normal(std::int64_t n, int rank = 0) {
  Tensor x({n});
  fill_normal(x, 0, 1, {.seed = 11, .stream = static_cast<std::uint64_t>(rank)});
  for (std::int64_t i = 0; i < n; ++i) x.data<float>()[i] *= std::exp2f(static_cast<float>(i / kBlock % 20));
  return x;
}

Tensor there_and_back(const Int8Layout& layout, const Tensor& x, std::uint64_t first = 0) {
  const Tensor bytes({layout.parts * layout.part_bytes()}, DType::uint8), back(x.shape());
  quantise(layout, x, kRounding, first, bytes);
  dequantise(layout, bytes, back);
  return back;
}

/// s of the block of element i.
double scale_of(const Tensor& x, std::int64_t i) {
  double largest = 0;
  for (std::int64_t j = i / kBlock * kBlock; j < std::min(x.numel(), i / kBlock * kBlock + kBlock); ++j)
    largest = std::max(largest, std::abs(static_cast<double>(x.data<float>()[j])));
  return largest / 127;
}

TEST(Int8, EveryElementIsOffByLessThanTheScaleOfItsBlock) {
  for (const std::int64_t n : {1, 15, 16, 17, 1000})
    for (const int parts : {1, 3}) {
      const Tensor x = normal(n), back = there_and_back({n, parts, kBlock}, x);
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_LT(std::abs(back.data<float>()[i] - x.data<float>()[i]), scale_of(x, i) * (1 + 1e-5))
            << i << " of " << n;
    }
}

TEST(Int8, RoundingIsUnbiased) {
  constexpr int draws = 4000;
  const Int8Layout layout(100, 2, kBlock);
  const Tensor x = normal(100);
  std::vector<double> mean(100);
  for (int draw = 0; draw < draws; ++draw) {
    const Tensor back = there_and_back(layout, x, static_cast<std::uint64_t>(draw * layout.counters()));
    for (std::size_t i = 0; i < 100; ++i) mean[i] += static_cast<double>(back.data<float>()[i]) / draws;
  }
  // A rounded number has a deviation of at most s / 2; five of the mean's.
  for (std::int64_t i = 0; i < 100; ++i)
    EXPECT_NEAR(mean[static_cast<std::size_t>(i)], x.data<float>()[i], 2.5 * scale_of(x, i) / std::sqrt(draws)) << i;
}

TEST(Int8, ZerosStayAndABlockThatIsNotFiniteSpoilsItselfAlone) {
  Tensor x = normal(5 * kBlock);
  std::fill_n(x.data<float>(), kBlock, 0.0f);
  x.data<float>()[2 * kBlock + 1] = std::numeric_limits<float>::infinity();
  x.data<float>()[4 * kBlock - 1] = std::numeric_limits<float>::quiet_NaN();
  const Tensor back = there_and_back({5 * kBlock, 1, kBlock}, x);
  for (std::int64_t i = 0; i < 5 * kBlock; ++i) {
    const float value = back.data<float>()[i];
    const std::int64_t block = i / kBlock;
    if (block == 0) EXPECT_EQ(value, 0);
    else EXPECT_EQ(std::isfinite(value), block == 1 || block == 4) << i;
  }
}

TEST(Int8, AGpuAndATeamOfLanesMakeTheSameBytes) {
  const Int8Layout layout(1000, 3, 64);
  const Tensor x = normal(1000), bytes({3 * layout.part_bytes()}, DType::uint8);
  quantise(layout, x, kRounding, 7, bytes);
  const Tensor mean({layout.part_elements()});
  mean_of_parts(layout, bytes, mean);

  const Tensor by_lanes(bytes.shape(), DType::uint8), mean_by_lanes(mean.shape());
  run_rows_in_threads(7, layout.parts * layout.blocks,
                      kernels::QuantiseBlock{layout, x.data<float>(), by_lanes.data<std::uint8_t>(), kRounding, 7});
  EXPECT_EQ(by_lanes.to_doubles(), bytes.to_doubles());
  run_rows_in_threads(7, layout.blocks,
                      kernels::MeanOfBlocks{layout, bytes.data<std::uint8_t>(), mean_by_lanes.data<float>()});
  EXPECT_EQ(mean_by_lanes.to_doubles(), mean.to_doubles());

  if (cuda_device_count() == 0) return;
  const Device gpu{DeviceKind::cuda, 0};
  const Tensor bytes_there = Tensor(bytes.shape(), DType::uint8, gpu), back_there({1000}, DType::float32, gpu);
  quantise(layout, x.to(gpu), kRounding, 7, bytes_there);
  EXPECT_EQ(bytes_there.to({}).to_doubles(), bytes.to_doubles());
  dequantise(layout, bytes_there, back_there);
  EXPECT_EQ(back_there.to({}).to_doubles(), there_and_back(layout, x, 7).to_doubles());
}

TEST(Int8, TheMeanOverRanksIsWithinItsBoundAndEqualOnAll) {
  for (const int ranks : {2, 3, 5})
    for (const std::int64_t n : {1, 100, 1000}) {
      std::vector<Tensor> means(static_cast<std::size_t>(ranks));
      run_thread_ranks(ranks, {}, [&](Comm& comm) {
        Int8Mean mean(n, {.block = kBlock, .seed = 1}, comm, {});
        Tensor x = normal(n, comm.rank());
        mean.start(x, 0);
        mean.add_up();
        mean.finish(x);
        means[static_cast<std::size_t>(comm.rank())] = x;
        const Int8Layout layout(n, ranks, kBlock);
        EXPECT_EQ(comm.ledger().total().calls, 2);
        EXPECT_EQ(comm.ledger().total().payload_bytes, 2 * ranks * layout.part_bytes());
      });
      for (const Tensor& mean : means) EXPECT_EQ(mean.to_doubles(), means[0].to_doubles());
      std::vector<double> exact(static_cast<std::size_t>(n)), bound(exact);
      for (int rank = 0; rank < ranks; ++rank) {
        const Tensor x = normal(n, rank);
        for (std::int64_t i = 0; i < n; ++i) {
          exact[static_cast<std::size_t>(i)] += static_cast<double>(x.data<float>()[i]) / ranks;
          bound[static_cast<std::size_t>(i)] += scale_of(x, i) / ranks;
        }
      }
      // s' is of the rounded mean, whose elements are off by less than the mean of s.
      for (std::int64_t i = 0; i < n; ++i) {
        double largest = 0;
        for (std::int64_t j = i / kBlock * kBlock; j < std::min(n, i / kBlock * kBlock + kBlock); ++j)
          largest =
              std::max(largest, std::abs(exact[static_cast<std::size_t>(j)]) + bound[static_cast<std::size_t>(j)]);
        ASSERT_LT(std::abs(means[0].data<float>()[i] - exact[static_cast<std::size_t>(i)]),
                  (bound[static_cast<std::size_t>(i)] + largest / 127) * (1 + 1e-5))
            << i << " of " << n << " over " << ranks;
      }
    }
}

}  // namespace
}  // namespace ab
