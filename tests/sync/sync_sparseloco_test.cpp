// SPDX-License-Identifier: MIT
//
// SparseLoCo and the kernels under it: selection in tiles, the quantiser, what travels. What it has in common with other
// methods is in strategy_laws_test.cpp, eight steps from its publication in golden/methods.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/device/device.h"
#include "engine/kernels/random.h"
#include "engine/kernels/tile_select.h"
#include "tests/exchange_steps.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

Tensor normal(const Shape& shape, const std::string& name) {
  Tensor x(shape);
  fill_normal(x, 0, 1, {.seed = 5, .stream = stream_of(name)});
  return x;
}

/// Few values, so that many magnitudes are equal.
Tensor rounded(const Shape& shape, const std::string& name) {
  const Tensor x = normal(shape, name);
  for (float& v : x.span<float>()) v = std::round(2 * v);
  return x;
}

const std::uint16_t* positions_of(const Tensor& t) {
  return reinterpret_cast<const std::uint16_t*>(t.data<std::uint8_t>());
}

struct Taken {
  Tensor positions, values;
  explicit Taken(const TileTopk& topk, Device device = {})
      : positions({2 * topk.slots()}, DType::uint8, device), values({topk.slots()}, DType::float32, device) {}
};

const Shape kOddShapes[] = {Shape{67, 131}, Shape{10, 64}, Shape{5, 3, 7, 7}, Shape{130}, Shape{3}};

TEST(TileTopk, IsWhatASortOfEveryTileGives) {
  for (const Shape& shape : kOddShapes)
    for (const std::int64_t k : {1, 7, 64, 4096}) {
      SCOPED_TRACE(fmt::format("{} of {}", k, shape.str()));
      const TileTopk topk{tile_grid(shape), k};
      const Tensor x = rounded(shape, "x");
      const Taken taken(topk), by_team(topk);
      const FiniteCheck finite{Device{}};
      largest_of_tiles(topk, x, finite, taken.positions, taken.values);
      run_rows_in_threads(4, topk.grid.tiles(),
                          kernels::LargestOfTile{topk, x.data<float>(), finite.failed().data<double>(),
                                                 const_cast<std::uint16_t*>(positions_of(by_team.positions)),
                                                 by_team.values.data<float>()});
      EXPECT_EQ(taken.positions.to_doubles(), by_team.positions.to_doubles());
      EXPECT_EQ(taken.values.to_doubles(), by_team.values.to_doubles());
      for (std::int64_t tile = 0; tile < topk.grid.tiles(); ++tile) {
        std::vector<std::int64_t> order;
        for (std::int64_t at = 0; at < topk.grid.tile_size(); ++at)
          if (topk.grid.place(tile, at) >= 0) order.push_back(at);
        const auto value = [&](std::int64_t at) { return x.data<float>()[topk.grid.place(tile, at)]; };
        std::stable_sort(order.begin(), order.end(),
                         [&](auto a, auto b) { return std::abs(value(a)) > std::abs(value(b)); });
        order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
        std::sort(order.begin(), order.end());
        ASSERT_EQ(static_cast<std::int64_t>(order.size()), topk.taken(tile));
        for (std::size_t j = 0; j < order.size(); ++j) {
          const std::int64_t slot = tile * topk.slots_per_tile() + static_cast<std::int64_t>(j);
          ASSERT_EQ(positions_of(taken.positions)[slot], order[j]);
          ASSERT_EQ(taken.values.data<float>()[slot], value(order[j]));
        }
      }
    }
}

}  // namespace
}  // namespace ab
