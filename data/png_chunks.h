#pragma once
// SPDX-License-Identifier: MIT
//
// What a PNG says about itself (PNG specification, third edition, sections 5 and 10): its chunks, whose checksums
// stb_image does not look at, and how many bytes its pixels unpack to.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ab {

struct PngContent {
  std::int64_t height = 0, width = 0;
  /// Of the unpacked pixels, each row with its filter byte and, when interlaced, all seven passes.
  std::size_t unpacked_bytes = 0;
  std::vector<std::uint8_t> packed;  ///< the zlib stream: all IDAT chunks, one after the other
};

/// Takes a file apart that begins with the PNG signature. Throws Error(data) that begins with `name` when it is cut
/// off, when a checksum is wrong, when the header makes no sense or claims more pixels than are accepted
/// (check_image_size), or more than so short a file can hold; and when its
/// pixels begin with an empty chunk, which the format allows, but stb_image cannot read. Allocates no more than the file's size.
PngContent read_png_chunks(std::span<const std::uint8_t> file, const std::string& name);

/// The checksum of a chunk's type and content (ISO 3309).
std::uint32_t crc32(std::span<const std::uint8_t> bytes);

/// The checksum at the end of a zlib stream (RFC 1950).
std::uint32_t adler32(std::span<const std::uint8_t> bytes);

/// Four bytes, the highest first.
std::uint32_t png_number(const std::uint8_t* bytes);

}  // namespace ab
