// SPDX-License-Identifier: MIT
#include "data/tiled_jpeg.h"

#include <algorithm>
#include <cstring>

namespace ab {
namespace {

// Second bytes of markers (T.81, table B.1).
enum Marker : std::uint8_t {
  kBaseline = 0xC0,
  kHuffmanTables = 0xC4,
  kFirstRestart = 0xD0,
  kStart = 0xD8,
  kEnd = 0xD9,
  kScan = 0xDA,
  kRestartInterval = 0xDD,
};

constexpr int kBlockSide = 8;

int number_at(std::span<const std::uint8_t> bytes, std::size_t at) { return bytes[at] << 8 | bytes[at + 1]; }

void put_number(int value, std::uint8_t* to) {
  to[0] = static_cast<std::uint8_t>(value >> 8);
  to[1] = static_cast<std::uint8_t>(value);
}

int divided_up(int a, int b) { return (a + b - 1) / b; }

/// What a file says before its scan.
struct JpegHeader {
  std::size_t size_at = 0, scan_end = 0;
  int height = 0, width = 0, components = 0, restart_interval = 0;
  int unit_height = 0, unit_width = 0;  ///< of what is coded together: the blocks of all components over an area

  /// Of a baseline frame.
  bool read_frame(std::span<const std::uint8_t> segment, std::size_t at) {
    constexpr std::size_t fixed = 6, each = 3;
    if (components > 0 || segment.size() < fixed || segment[0] != 8) return false;
    size_at = at + 1;
    height = number_at(segment, 1), width = number_at(segment, 3), components = segment[5];
    if (segment.size() != fixed + each * static_cast<std::size_t>(components)) return false;
    int across = 1, down = 1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(components); ++i) {
      across = std::max(across, segment[fixed + each * i + 1] >> 4);
      down = std::max(down, segment[fixed + each * i + 1] & 15);
    }
    if (components == 1) across = down = 1;  // its blocks are coded one by one
    unit_height = kBlockSide * down, unit_width = kBlockSide * across;
    return height > 0 && width > 0;
  }
};

/// Nothing for a file of another kind.
std::optional<JpegHeader> read_jpeg_header(std::span<const std::uint8_t> file) {
  if (file.size() < 4 || file[0] != 0xFF || file[1] != kStart) return std::nullopt;
  JpegHeader header;
  for (std::size_t at = 2; at + 4 <= file.size();) {
    if (file[at] != 0xFF) return std::nullopt;
    const std::uint8_t marker = file[at + 1];
    if (marker == 0xFF) {
      ++at;  // markers may have any number of these before them
      continue;
    }
    const bool has_length = marker > kEnd || (marker >= kBaseline && marker < kFirstRestart);
    const std::size_t length = static_cast<std::size_t>(number_at(file, at + 2));
    if (!has_length || length < 2 || at + 2 + length > file.size()) return std::nullopt;
    const auto segment = file.subspan(at + 4, length - 2);
    const bool other_frame = marker > kBaseline && marker < kFirstRestart && marker != kHuffmanTables;
    if (other_frame || (marker == kBaseline && !header.read_frame(segment, at + 4))) return std::nullopt;
    if (marker == kRestartInterval) {
      if (segment.size() != 2) return std::nullopt;
      header.restart_interval = number_at(segment, 0);
    }
    at += 2 + length;
    if (marker != kScan) continue;
    header.scan_end = at;
    const bool has_all = header.components > 0 && !segment.empty() && segment[0] == header.components;
    return has_all ? std::optional(header) : std::nullopt;
  }
  return std::nullopt;
}

/// Where the segments of a scan end that has so many; fewer where markers are missing, in disorder or of another kind.
std::vector<std::size_t> segment_ends(std::span<const std::uint8_t> file, std::size_t begin, std::size_t count) {
  std::vector<std::size_t> ends;
  for (std::size_t at = begin; ends.size() < count;) {
    const void* const found = std::memchr(file.data() + at, 0xFF, file.size() - at);
    if (!found) break;
    at = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - file.data());
    if (at + 1 == file.size()) break;
    const std::uint8_t marker = file[at + 1];
    const bool is_last = ends.size() + 1 == count;
    if (marker != 0 && marker != (is_last ? int{kEnd} : kFirstRestart + static_cast<int>(ends.size() % 8))) break;
    if (marker != 0) ends.push_back(at);
    at += 2;
  }
  return ends;
}

}  // namespace

std::optional<TiledJpeg> TiledJpeg::find(std::span<const std::uint8_t> file) {
  const std::optional<JpegHeader> header = read_jpeg_header(file);
  if (!header || header->restart_interval == 0) return std::nullopt;
  const int units_across = divided_up(header->width, header->unit_width);
  if (units_across % header->restart_interval != 0) return std::nullopt;
  TiledJpeg found;
  found.file_ = file;
  found.size_at_ = header->size_at, found.data_at_ = header->scan_end;
  found.height_ = header->height, found.width_ = header->width;
  found.segment_height_ = header->unit_height;
  found.segment_width_ = header->restart_interval * header->unit_width;
  found.across_ = units_across / header->restart_interval;
  const auto count = static_cast<std::size_t>(found.across_) *
                     static_cast<std::size_t>(divided_up(found.height_, found.segment_height_));
  if (count > file.size()) return std::nullopt;
  found.ends_ = segment_ends(file, found.data_at_, count);
  if (found.ends_.size() < count) return std::nullopt;
  return found;
}

TiledJpeg::Cut TiledJpeg::cut(const Box& box, int reach) const {
  const int first_row = std::max(0, box.top - reach) / segment_height_;
  const int first_column = std::max(0, box.left - reach) / segment_width_;
  const int end_row = divided_up(std::min(height_, box.top + box.height + reach), segment_height_);
  const int end_column = divided_up(std::min(width_, box.left + box.width + reach), segment_width_);
  const int top = first_row * segment_height_, left = first_column * segment_width_;

  Cut result;
  result.box = {box.top - top, box.left - left, box.height, box.width};
  std::vector<std::uint8_t>& out = result.file;
  out.reserve(file_.size());
  out.assign(file_.begin(), file_.begin() + static_cast<std::ptrdiff_t>(data_at_));
  put_number(std::min(height_, end_row * segment_height_) - top, out.data() + size_at_);
  put_number(std::min(width_, end_column * segment_width_) - left, out.data() + size_at_ + 2);
  int written = 0;
  for (int row = first_row; row < end_row; ++row)
    for (int column = first_column; column < end_column; ++column) {
      if (written > 0) out.insert(out.end(), {0xFF, static_cast<std::uint8_t>(kFirstRestart + (written - 1) % 8)});
      const auto i = static_cast<std::size_t>(row * across_ + column);
      const std::size_t begin = i == 0 ? data_at_ : ends_[i - 1] + 2;
      out.insert(out.end(), file_.begin() + static_cast<std::ptrdiff_t>(begin),
                 file_.begin() + static_cast<std::ptrdiff_t>(ends_[i]));
      ++written;
    }
  out.insert(out.end(), {0xFF, kEnd});
  return result;
}

}  // namespace ab
