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

/// Where the rows of a chunk lie: runs of kRun neighbours, so many rows from one run to the next.
struct ChunkRows {
  static constexpr std::int64_t kRun = 8;
  std::int64_t first, run_distance, count;
  AB_HD bool is_range() const { return run_distance == kRun; }
  AB_HD std::int64_t at(std::int64_t r) const { return first + r / kRun * run_distance + r % kRun; }
};

/// body(row, group) for all rows in groups of `group`, a compile-time constant, neighbouring rows of `kTables` tables. A lane asks
/// for all of a group before it uses the first: on a GPU memory is far away, and there are registers for eight Packs.
template <class Team, int kTables, class Body> AB_HD void for_each_row_group(const ChunkRows& rows, const Body& body) {
  std::int64_t r = 0;
  const auto take = [&](auto group) {
    for (; rows.count - r >= group; r += group) body(rows.at(r), group);
  };
  if constexpr (kIsSerial<Team>) {
    if (rows.is_range())  // without the arithmetic of at()
      for (; r < rows.count; ++r) body(rows.first + r, std::integral_constant<int, 1>{});
  } else {
    if constexpr (kTables == 1) take(std::integral_constant<int, 8>{});
    take(std::integral_constant<int, 4>{});
  }
  take(std::integral_constant<int, 1>{});
}

/// The same in a GPU's reverse order: what has just been written ends in the cache, and what is read last stays there for the
/// kernel that begins at the first row.
template <class Team, int kTables, class Body>
AB_HD void for_each_row_group_from_last(const ChunkRows& rows, const Body& body) {
  if constexpr (kIsSerial<Team>) {
    for_each_row_group<Team, kTables>(rows, body);
  } else {
    constexpr std::integral_constant<int, kTables == 1 ? 8 : 4> most{};
    std::int64_t r = rows.count;
    // Down to a multiple of the next larger group, so that none reaches from one run into another.
    const auto take = [&](auto group, int until) {
      for (; r % until != 0; r -= group) body(rows.at(r - group), group);
    };
    take(std::integral_constant<int, 1>{}, 4);
    if constexpr (most > 4) take(std::integral_constant<int, 4>{}, most);
    for (; r > 0; r -= most) body(rows.at(r - most), most);
  }
}

/// Activations [pixels, channels] seen as a table in which neighbouring pixels share a row, so that a row fills the
/// lanes of a team even with few channels: column c is of channel c % channels. A chunk is a range of rows, or every so
/// many'th run of rows, so that the teams of a GPU go through memory together. Its partial results are first those of its
/// columns, [columns], and then, merged, those of its pixels, [channels].
struct PixelTable {
  std::int64_t pixels = 0, channels = 0;
  std::int64_t pixels_per_row = 1, chunk_rows = 1;  // at most so many rows to a chunk
  bool takes_turns = false;                         // chunks take runs in turn, in place of ranges

  AB_HD std::int64_t rows() const { return pixels / pixels_per_row; }
  AB_HD std::int64_t columns() const { return pixels_per_row * channels; }
  AB_HD std::int64_t chunks() const { return (rows() + chunk_rows - 1) / chunk_rows; }
  AB_HD ChunkRows rows_of(std::int64_t chunk) const {
    constexpr std::int64_t run = ChunkRows::kRun;
    if (!takes_turns) {
      const std::int64_t first = chunk * chunk_rows, left = rows() - first;
      return {first, run, left < chunk_rows ? left : chunk_rows};
    }
    const std::int64_t first = chunk * run, turn = chunks() * run, left = rows() % turn - first;
    return {first, turn, rows() / turn * run + (left < 0 ? 0 : left < run ? left : run)};
  }
  AB_HD std::int64_t pixels_in(std::int64_t chunk) const { return rows_of(chunk).count * pixels_per_row; }
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
/// multiprocessors, all at once, unless they would have no whole run of rows. For a third team the lanes would have 80
/// registers each, and those of batch norm need more.
inline PixelTable gpu_pixel_table(std::int64_t pixels, std::int64_t channels, std::int64_t width) {
  constexpr std::int64_t lanes = 256, most_chunks = 264, run = ChunkRows::kRun;
  PixelTable table = pixel_table(pixels, channels, width, width * lanes);
  const std::int64_t runs = (table.rows() + most_chunks * run - 1) / (most_chunks * run);
  table.chunk_rows = std::max<std::int64_t>(1, runs) * run;
  table.takes_turns = true;
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
