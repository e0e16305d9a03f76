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

#include "data/image.h"

namespace ab {

/// A header that claims more is refused before anything is allocated: a file of a hundred bytes can claim
/// 4e9.
inline constexpr std::int64_t kMaxImagePixels = std::int64_t{1} << 26;
/// A progressive JPEG of a few kilobytes can hold thousands of scans, each as much work as a whole image.
inline constexpr int kMaxJpegScans = 500;

/// Decodes a whole image file. Throws Error(data) that begins with `name`, for a file that is empty, of
/// any other format, truncated, damaged, or too large. Takes no more memory than a few times what the pixels need by the
/// header, and little before the file is known to be long enough for them.
void decode_image(std::span<const std::uint8_t> file, const std::string& name, Image& out);

/// The two formats; decode_image() chooses between them.
void decode_jpeg(std::span<const std::uint8_t> file, const std::string& name, Image& out);
void decode_png(std::span<const std::uint8_t> file, const std::string& name, Image& out);

/// Throws Error(data) unless height · width is above 0 and at most kMaxImagePixels.
void check_image_size(std::int64_t height, std::int64_t width, const std::string& name);

}  // namespace ab
