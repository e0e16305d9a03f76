#pragma once
// SPDX-License-Identifier: MIT
//
// What is taken of the tiles of a tensor as it travels (SparseLoCo, arXiv 2508.15706). Slots lie in groups of four: their
// places, of 12 bits, two in three bytes, unless every tile is taken whole; then, of a tensor with 2 bits a value, their codes
// in one byte. Values of 32 bits lie apart, and so does a codebook:
//   m, σ = mean and unbiased deviation of the values of the tensor
//   code of v = round((v − m) / (1.5 σ) + 2), 0 to 3; ties to even; σ = 0 counts as 2/3
//   code c stands for the mean of the values with that code

#include "engine/kernels/tiles.h"

namespace ab {

/// Where a tensor lies in the bytes of a rank.
struct TileCodes {
  TileTopk topk;
  int bits = 2;             ///< of a value: 2, or 32: as it is
  std::int64_t floats = 0;  ///< its codebook of four, or its values, which begin at this multiple of 4
  std::int64_t groups = 0;  ///< its groups begin there

  static constexpr std::int64_t kCodes = 4, kGroup = 4, kPlaceBytes = 6;

  std::int64_t float_bytes() const { return 4 * (bits == 32 ? topk.slots() : kCodes); }
  AB_HD std::int64_t bytes_per_group() const { return (topk.takes_all() ? 0 : kPlaceBytes) + (bits == 32 ? 0 : 1); }
  std::int64_t group_count() const { return (topk.slots() + kGroup - 1) / kGroup; }
  std::int64_t group_bytes() const { return group_count() * bytes_per_group(); }
};

/// bytes: uint8, those of a rank. positions, values: what largest_of_tiles() has found.
void encode_tiles(const TileCodes& codes, const Tensor& positions, const Tensor& values, const Tensor& bytes);
/// y += factor · what each of `ranks` ranks has sent, in their order. bytes: uint8, equal parts. y: the tensor, float32
void add_tiles(const TileCodes& codes, const Tensor& bytes, int ranks, double factor, const Tensor& y);

namespace kernels {

/// The codes of a tensor: (v − mean) · per_value + 2, rounded.
struct CodeRule {
  double mean, per_value;
  AB_HD int code(float v) const {
    const double at = rint((v - mean) * per_value + 2);
    return at < 0 ? 0 : at > 3 ? 3 : static_cast<int>(at);
  }
};

/// One row: rule and codebook of a tensor.
struct MakeCodebook {
  TileTopk topk;
  const float* values;
  std::int64_t slots;
  CodeRule* rule;
  float* codebook;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t) const {
    const auto sum_of = [&](const auto& f) {
      double sum = 0;
      for (std::int64_t slot = team.lane(); slot < slots; slot += team.size())
        if (slot % topk.slots_per_tile() < topk.taken(slot / topk.slots_per_tile())) sum += f(values[slot]);
      return team.sum(sum);
    };
    const double count = sum_of([](float) { return 1; });
    const double mean = sum_of([](double v) { return v; }) / count;
    const double squares = sum_of([mean](double v) { return (v - mean) * (v - mean); });
    const double scale = squares > 0 ? 1.5 * sqrt(squares / (count - 1)) : 1;
    const CodeRule found{mean, 1 / scale};
    for (int c = 0; c < TileCodes::kCodes; ++c) {
      const double total = sum_of([&](float v) { return found.code(v) == c ? static_cast<double>(v) : 0.0; });
      const double with = sum_of([&](float v) { return found.code(v) == c ? 1 : 0; });
      if (team.lane() == 0) codebook[c] = with > 0 ? static_cast<float>(total / with) : 0;
    }
    if (team.lane() == 0) *rule = found;
  }
};

/// One group.
struct PackGroup {
  TileCodes codes;
  const std::uint16_t* positions;
  const float* values;
  std::int64_t slots;
  const CodeRule* rule;
  std::uint8_t* bytes;

  AB_HD void operator()(std::int64_t group) const {
    constexpr std::int64_t each = TileCodes::kGroup;
    std::uint8_t* to = bytes + codes.groups + group * codes.bytes_per_group();
    const auto place = [&](std::int64_t slot) { return slot < slots ? static_cast<unsigned>(positions[slot]) : 0u; };
    for (std::int64_t j = group * each; !codes.topk.takes_all() && j < (group + 1) * each; j += 2) {
      const unsigned a = place(j), b = place(j + 1);
      *to++ = static_cast<std::uint8_t>(a & 255);
      *to++ = static_cast<std::uint8_t>(a >> 8 | (b & 15) << 4);
      *to++ = static_cast<std::uint8_t>(b >> 4);
    }
    if (codes.bits == 32) return;
    unsigned packed = 0;
    for (std::int64_t j = 0; j < each && group * each + j < slots; ++j)
      packed |= static_cast<unsigned>(rule->code(values[group * each + j])) << 2 * j;
    *to = static_cast<std::uint8_t>(packed);
  }
};

/// One tile by a team: a rank after the other, as two may have sent the same element.
struct AddTile {
  TileCodes codes;
  const std::uint8_t* bytes;
  std::int64_t rank_bytes, ranks;
  float factor;
  float* y;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t tile) const {
    const TileTopk& topk = codes.topk;
    const std::int64_t taken = topk.taken(tile), first = tile * topk.slots_per_tile();
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::uint8_t* const from = bytes + rank * rank_bytes;
      for (std::int64_t j = team.lane(); j < taken; j += team.size()) {
        const std::int64_t to = topk.grid.place(tile, topk.takes_all() ? whole(tile, j) : place(from, first + j));
        if (to >= 0) y[to] += factor * value(from, first + j);
      }
      team.barrier();
    }
  }

 private:
  AB_HD const std::uint8_t* group(const std::uint8_t* from, std::int64_t slot) const {
    return from + codes.groups + slot / TileCodes::kGroup * codes.bytes_per_group();
  }
  /// Of element j of a tile that is taken whole.
  AB_HD std::int64_t whole(std::int64_t tile, std::int64_t j) const {
    const std::int64_t columns = codes.topk.grid.columns_of(tile);
    return j / columns * kTileSide + j % columns;
  }
  AB_HD std::int64_t place(const std::uint8_t* from, std::int64_t slot) const {
    const std::uint8_t* const pair = group(from, slot) + slot % TileCodes::kGroup / 2 * 3;
    return slot % 2 == 0 ? pair[0] | (pair[1] & 15) << 8 : pair[1] >> 4 | pair[2] << 4;
  }
  AB_HD float value(const std::uint8_t* from, std::int64_t slot) const {
    const auto* const floats = reinterpret_cast<const float*>(from + codes.floats);
    if (codes.bits == 32) return floats[slot];
    const std::uint8_t packed = group(from, slot)[codes.bytes_per_group() - 1];
    return floats[packed >> 2 * (slot % TileCodes::kGroup) & 3];
  }
};

}  // namespace kernels
}  // namespace ab
