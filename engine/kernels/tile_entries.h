#pragma once
// SPDX-License-Identifier: MIT
//
// The elements of tiles that ranks have selected, as they travel: of every rank all values, in the type of the wire, then
// their places in the tile as 16-bit numbers, k of each tile.

#include <cstdint>

#include "engine/kernels/tiles.h"

namespace ab {

/// Tiles of one size in a buffer of tiles, and their entries in a payload.
struct TileGroup {
  std::int64_t tiles = 0, size = 0, k = 0;
  std::int64_t first_element = 0, first_entry = 0;

  std::int64_t elements() const { return tiles * size; }
  std::int64_t entries() const { return tiles * k; }
};

/// How a payload is laid out.
struct TileEntries {
  std::int64_t entries = 0;  ///< of all groups
  DType wire = DType::float32;

  std::int64_t value_bytes() const { return entries * static_cast<std::int64_t>(size_of(wire)); }
  /// Of a rank, in whole floats.
  std::int64_t bytes() const { return (value_bytes() + 2 * entries + 3) / 4 * 4; }
  /// The places of a group in a rank's payload.
  std::uint16_t* places(const Tensor& payload, const TileGroup& group) const {
    return reinterpret_cast<std::uint16_t*>(payload.data<std::uint8_t>() + value_bytes()) + group.first_entry;
  }
};

/// The payload receives the largest elements of every tile by magnitude with their places, of equal ones the first. What is not
/// finite is larger than all else.
void select_of_tiles(const TileEntries& layout, const TileGroup& group, const Tensor& tiles, const Tensor& payload);
/// Every element becomes the mean of the values that ranks have sent for it, added in rank order, or zero where none has.
/// payloads: one of each rank. counts: scratch of the size of `tiles`
void mean_of_senders(const TileEntries& layout, const TileGroup& group, const Tensor& payloads, const Tensor& tiles,
                     const Tensor& counts);

namespace kernels {

/// One tile by a team.
template <class Wire> struct SelectOfTile {
  const float* tiles;
  Wire* values;
  std::uint16_t* places;
  std::int64_t size, k;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t tile) const {
    const TileRows rows{tiles + tile * size, kTileSide, static_cast<int>(size / kTileSide), kTileSide};
    take_largest(team, rows, static_cast<int>(k), [&](int j, int at, float v) {
      places[tile * k + j] = static_cast<std::uint16_t>(at);
      values[tile * k + j] = v;
    });
  }
};

/// One tile by a team.
template <class Wire> struct MeanOfSenders {
  const std::uint8_t *values, *places;  // of rank 0
  std::int64_t ranks, rank_bytes, size, k;
  float *tiles, *counts;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t tile) const {
    float *const sum = tiles + tile * size, *const count = counts + tile * size;
    for (std::int64_t i = team.lane(); i < size; i += team.size()) sum[i] = count[i] = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      team.barrier();
      const auto* const v = reinterpret_cast<const Wire*>(values + rank * rank_bytes) + tile * k;
      const auto* const at = reinterpret_cast<const std::uint16_t*>(places + rank * rank_bytes) + tile * k;
      for (std::int64_t i = team.lane(); i < k; i += team.size()) sum[at[i]] += v[i], count[at[i]] += 1;
    }
    team.barrier();
    for (std::int64_t i = team.lane(); i < size; i += team.size())
      if (count[i] > 1) sum[i] /= count[i];
  }
};

}  // namespace kernels
}  // namespace ab
