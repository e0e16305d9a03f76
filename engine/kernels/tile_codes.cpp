// SPDX-License-Identifier: MIT
#include "engine/kernels/tile_codes.h"

#include "engine/kernels/elementwise_functors.h"
#include "engine/kernels/map.h"

namespace ab {

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

}  // namespace ab
