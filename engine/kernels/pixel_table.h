#pragma once
// SPDX-License-Identifier: MIT
//
// Activations as a table, for kernels that compute something per channel: rows that fill the lanes of a team, in
// chunks that are summed one by one. The chunks depend on the shape and the device alone, so that a sum does not
// depend on the number of threads.

#include <algorithm>
#include <numeric>

#include "engine/kernels/lanes.h"

namespace ab::kernels {

/// Activations [pixels, channels] seen as a table in which neighbouring pixels share a row, so that a row fills the
/// lanes of a team even with few channels: column c is of channel c % channels. A chunk is a range of rows. Its partial
/// results are first those of its columns, [columns], and then, merged, those of its pixels, [channels].
struct PixelTable {
  std::int64_t pixels = 0, channels = 0;
  std::int64_t pixels_per_row = 1, chunk_rows = 1;

  AB_HD std::int64_t rows() const { return pixels / pixels_per_row; }
  AB_HD std::int64_t columns() const { return pixels_per_row * channels; }
  AB_HD std::int64_t chunks() const { return (rows() + chunk_rows - 1) / chunk_rows; }
  AB_HD std::int64_t first_row(std::int64_t chunk) const { return chunk * chunk_rows; }
  AB_HD std::int64_t rows_in(std::int64_t chunk) const {
    const std::int64_t left = rows() - first_row(chunk);
    return left < chunk_rows ? left : chunk_rows;
  }
  AB_HD std::int64_t pixels_in(std::int64_t chunk) const { return rows_in(chunk) * pixels_per_row; }
};

/// A table whose rows are whole blocks of `width` elements, if the number of pixels allows it, and at most
/// `columns` elements long, if one block is not longer.
inline PixelTable pixel_table(std::int64_t pixels, std::int64_t channels, std::int64_t width, std::int64_t columns) {
  const std::int64_t unit = width / std::gcd(width, channels);
  std::int64_t per_row = std::max<std::int64_t>(1, columns / (unit * channels)) * unit;
  while (per_row > unit && pixels % per_row != 0) per_row -= unit;
  return {.pixels = pixels, .channels = channels, .pixels_per_row = pixels % per_row == 0 ? per_row : 1};
}
/// Chunks fit the second-level cache.
inline PixelTable cpu_pixel_table(std::int64_t pixels, std::int64_t channels) {
  constexpr std::int64_t width = kLaneWidth<SerialTeam>, chunk_elements = 16384;
  PixelTable table = pixel_table(pixels, channels, width, width);
  table.chunk_rows = std::max<std::int64_t>(16, chunk_elements / table.columns());
  return table;
}
/// A row has a Pack of `width` elements for each of 256 lanes. There are chunks for two such teams on each of 132
/// multiprocessors, all at once, unless they would have too few rows to be worth their partial results. For a third team
/// the lanes would have 80 registers each, and those of batch norm need more.
inline PixelTable gpu_pixel_table(std::int64_t pixels, std::int64_t channels, std::int64_t width) {
  constexpr std::int64_t lanes = 256, most_chunks = 264, group = 4;
  PixelTable table = pixel_table(pixels, channels, width, width * lanes);
  const std::int64_t groups = (table.rows() + most_chunks * group - 1) / (most_chunks * group);
  table.chunk_rows = std::max<std::int64_t>(2, groups) * group;
  return table;
}

/// values[j] = per_channel[channel of column + j]
template <class C, class Count>
AB_HD void load_of_channels(C* values, const C* per_channel, std::int64_t channels, std::int64_t column, Count count) {
  std::int64_t c = column % channels;
  for (int done = 0; done < count; c = 0) {
    const int run = channels - c < count - done ? static_cast<int>(channels - c) : count - done;
    for (int j = 0; j < run; ++j) values[done + j] = per_channel[c + j];
    done += run;
  }
}
template <class C>
AB_HD void load_of_channels(C* values, const C* per_channel, std::int64_t channels, std::int64_t column,
                            std::integral_constant<int, 1>) {
  values[0] = per_channel[column % channels];
}
template <class C, int N>
AB_HD void load_of_channels(C* values, const C* per_channel, std::int64_t channels, std::int64_t column,
                            Packed<N> count) {
  std::int64_t c = column % channels;
  if (packable<N>(channels, per_channel)) {
    const auto loaded = load(per_channel + c, count);
    for (int j = 0; j < N; ++j) values[j] = loaded[j];
  } else {
    for (int j = 0; j < N; ++j, c = c + 1 < channels ? c + 1 : 0) values[j] = per_channel[c];
  }
}

/// How many columns become one at a time: few rounds, and still work for many lanes.
inline constexpr std::int64_t kMergedColumns = 16;

/// Merges the columns of each channel of a chunk in place: the first becomes that of all pixels of the chunk.
/// merge(c, first, last, span) puts columns first, first + span, … of channel c, counted in steps of `channels`, into
/// the first of them. Each stands for `span` columns, but for the last, which ends at `last`.
template <class Team, class Merge>
AB_HD void merge_columns(const Team& team, const PixelTable& table, const Merge& merge) {
  for (std::int64_t span = 1; span < table.pixels_per_row; span *= kMergedColumns) {
    team.barrier();
    const std::int64_t step = span * kMergedColumns, groups = (table.pixels_per_row + step - 1) / step;
    for (std::int64_t i = team.lane(); i < groups * table.channels; i += team.size()) {
      const std::int64_t first = i / table.channels * step, last = first + step;
      merge(i % table.channels, first, last < table.pixels_per_row ? last : table.pixels_per_row, span);
    }
  }
}

}  // namespace ab::kernels
