// SPDX-License-Identifier: MIT
#include "engine/kernels/tiles.h"

#include "engine/kernels/elementwise_functors.h"
#include "engine/kernels/map.h"
#include "engine/kernels/tile_codes.h"
#include "engine/kernels/tile_entries.h"

namespace ab {

TileGrid tile_grid(const Shape& shape) {
  const std::int64_t n = shape.numel(), rows = shape.rank() > 1 && n > 0 ? shape[0] : 1;
  return {rows, n / rows};
}

void to_tiles(const TileGrid& grid, const Tensor& x, const Tensor& tiles) {
  AB_ASSERT(x.numel() == grid.rows * grid.columns && tiles.numel() == grid.elements());
  for_each_row(x.device(), grid.tiles(), grid.tile_size(), kernels::ToTile{grid, x.data<float>(), tiles.data<float>()});
}

namespace {

template <bool kSubtract> void read_tiles(const TileGrid& grid, const Tensor& tiles, const Tensor& x) {
  AB_ASSERT(x.numel() == grid.rows * grid.columns && tiles.numel() == grid.elements());
  for_each_row(x.device(), grid.tiles(), grid.tile_size(),
               kernels::FromTile<kSubtract>{grid, tiles.data<float>(), x.data<float>()});
}

}  // namespace

void from_tiles(const TileGrid& grid, const Tensor& tiles, const Tensor& x) { read_tiles<false>(grid, tiles, x); }
void subtract_tiles(const TileGrid& grid, const Tensor& tiles, const Tensor& x) { read_tiles<true>(grid, tiles, x); }

void largest_of_tiles(const TileTopk& topk, const Tensor& x, const FiniteCheck& marked, const Tensor& positions,
                      const Tensor& values) {
  const std::int64_t slots = topk.slots();
  AB_ASSERT(topk.k >= 1 && x.numel() == topk.grid.rows * topk.grid.columns);
  AB_ASSERT(positions.bytes() == static_cast<std::size_t>(2 * slots) && values.numel() == slots);
  for_each_row(x.device(), topk.grid.tiles(), topk.grid.tile_size(),
               kernels::LargestOfTile{topk, x.data<float>(), marked.failed().data<double>(),
                                      reinterpret_cast<std::uint16_t*>(positions.data<std::uint8_t>()),
                                      values.data<float>()});
}

void encode_tiles(const TileCodes& codes, const Tensor& positions, const Tensor& values, const Tensor& bytes) {
  const Device device = values.device();
  const std::int64_t slots = codes.topk.slots();
  AB_ASSERT(values.numel() == slots && codes.floats % 4 == 0);
  const auto* const places = reinterpret_cast<const std::uint16_t*>(positions.data<std::uint8_t>());
  auto* const to = bytes.data<std::uint8_t>();
  auto* const floats = reinterpret_cast<float*>(to + codes.floats);
  const float* const from = values.data<float>();
  const Tensor rule({2}, DType::float64, device);
  auto* const rule_there = reinterpret_cast<kernels::CodeRule*>(rule.data<double>());
  if (codes.bits == 32) map(device, slots, floats, kernels::Same<float>{}, from);
  else for_each_row(device, 1, slots, kernels::MakeCodebook{codes.topk, from, slots, rule_there, floats});
  if (codes.bytes_per_group() == 0) return;
  for_each_index(device, codes.group_count(), kernels::PackGroup{codes, places, from, slots, rule_there, to},
                 TileCodes::kGroup);
}

void add_tiles(const TileCodes& codes, const Tensor& bytes, int ranks, double factor, const Tensor& y) {
  AB_ASSERT(bytes.numel() % ranks == 0 && y.numel() == codes.topk.grid.rows * codes.topk.grid.columns);
  for_each_row(y.device(), codes.topk.grid.tiles(), codes.topk.slots_per_tile() * ranks,
               kernels::AddTile{codes, bytes.data<std::uint8_t>(), bytes.numel() / ranks, ranks,
                                static_cast<float>(factor), y.data<float>()});
}

void select_of_tiles(const TileEntries& layout, const TileGroup& group, const Tensor& tiles, const Tensor& payload) {
  AB_ASSERT(payload.numel() == layout.bytes());
  dispatch_float(layout.wire, "select_of_tiles", [&]<class Wire>() {
    for_each_row(tiles.device(), group.tiles, group.size,
                 kernels::SelectOfTile<Wire>{tiles.data<float>() + group.first_element,
                                             static_cast<Wire*>(payload.raw()) + group.first_entry,
                                             layout.places(payload, group), group.size, group.k});
  });
}

void mean_of_senders(const TileEntries& layout, const TileGroup& group, const Tensor& payloads, const Tensor& tiles,
                     const Tensor& counts) {
  AB_ASSERT(payloads.numel() % layout.bytes() == 0 && counts.numel() == tiles.numel());
  dispatch_float(layout.wire, "mean_of_senders", [&]<class Wire>() {
    const auto* const values =
        reinterpret_cast<const std::uint8_t*>(static_cast<Wire*>(payloads.raw()) + group.first_entry);
    const auto* const places = reinterpret_cast<const std::uint8_t*>(layout.places(payloads, group));
    for_each_row(tiles.device(), group.tiles, group.size,
                 kernels::MeanOfSenders<Wire>{values, places, payloads.numel() / layout.bytes(), layout.bytes(),
                                              group.size, group.k, tiles.data<float>() + group.first_element,
                                              counts.data<float>() + group.first_element});
  });
}

}  // namespace ab
