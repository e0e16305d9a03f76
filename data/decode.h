#pragma once
// SPDX-License-Identifier: MIT
//
// Image files to RGB, with the values that Pillow's convert("RGB") gives: JPEG by libjpeg-turbo, PNG by
// stb_image. The contents decide the format, never the name: ILSVRC has a PNG called .JPEG. Grey is repeated,
// CMYK is taken as Adobe writes it (inverted), transparency is dropped, of 16-bit samples the high byte
// counts, and an orientation in the EXIF data is ignored.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace ab {

/// A header that claims more is refused before anything is allocated: a file of a hundred bytes can claim
/// 4e9.
inline constexpr std::int64_t kMaxImagePixels = std::int64_t{1} << 26;
/// A progressive JPEG of a few kilobytes can hold thousands of scans, each as much work as a whole image.
inline constexpr int kMaxJpegScans = 500;

/// Decodes an image file, or the part of it that is wanted, which lies in `buffer`, with others around it. Of a JPEG that part may
/// be divided by WantedPart::shrink, its edges rounded to the nearest: up to shrink / 2 pixels of the file away. Throws Error(data)
/// that begins with `name`, for a file that is empty, of any other format, truncated, damaged, or too large. Damage of a JPEG beyond
/// the part passes unnoticed. Takes no more memory than a few times what the pixels need by the header, and little before the file
/// is known to be long enough for them.
ImageView decode_image(std::span<const std::uint8_t> file, const std::string& name, Image& buffer,
                       const ChoosePart& part = {});

/// The two formats; decode_image() chooses between them.
ImageView decode_jpeg(std::span<const std::uint8_t> file, const std::string& name, Image& buffer,
                      const ChoosePart& part = {});
void decode_png(std::span<const std::uint8_t> file, const std::string& name, Image& out);

/// The other way: a baseline JPEG of `quality` 1 to 100, chroma halved both ways. Throws Error(data) that begins with `name` for an
/// image of more than 65500 rows or columns.
std::vector<std::uint8_t> encode_jpeg(const ImageView& image, int quality, const std::string& name);

/// Throws Error(data) unless height · width is above 0 and at most kMaxImagePixels.
void check_image_size(std::int64_t height, std::int64_t width, const std::string& name);

// The contents of a PNG file (PNG specification, third edition, sections 5 and 10): its chunks, whose checksums
// stb_image does not look at, and how many bytes its pixels unpack to.

struct PngContent {
  std::int64_t height = 0, width = 0;
  /// Bytes of the unpacked pixels, each row with its filter byte and, when interlaced, all seven passes.
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
