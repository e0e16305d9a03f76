// SPDX-License-Identifier: MIT
//
// stb_image with every format but PNG compiled out, and its functions kept to this file. It takes a checksum for
// granted, and grows its memory for as long as the file gives it data. So the file is taken apart here first, and its
// pixels are unpacked once into a buffer of the size that the header tells.
#include <limits>
#include <memory>

#include "data/decode.h"
#include "data/png_chunks.h"
#include "engine/core/check.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS (1 << 15)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image.h>
#pragma GCC diagnostic pop

namespace ab {
namespace {

/// What stb_image has against a file; it does not always say.
const char* stb_reason() {
  const char* reason = stbi_failure_reason();
  return reason ? reason : "no valid PNG";
}

/// Why the compressed pixels are not those that were saved; null when they are. Adds some bytes to `content.packed`.
const char* problem_of_pixels(PngContent& content) {
  constexpr std::size_t kChecksumBytes = 4;
  const std::size_t packed_bytes = content.packed.size();
  content.packed.resize(packed_bytes + 8);  // stb_image reads ahead: so it knows where it is at the end, too
  std::vector<std::uint8_t> unpacked(content.unpacked_bytes);
  stbi__zbuf stream;
  stream.zbuffer = content.packed.data();
  stream.zbuffer_end = content.packed.data() + content.packed.size();
  if (stbi__do_zlib(&stream, reinterpret_cast<char*>(unpacked.data()), static_cast<int>(unpacked.size()), 0, 1) == 0)
    return stb_reason();
  if (stream.zout != stream.zout_end) return "it holds too few pixels";
  const std::size_t end =
      static_cast<std::size_t>(stream.zbuffer - content.packed.data()) - static_cast<std::size_t>(stream.num_bits / 8);
  if (end + kChecksumBytes > packed_bytes) return "it ends within its pixels";
  return adler32(unpacked) == png_number(content.packed.data() + end) ? nullptr : "the checksum of the pixels is wrong";
}

}  // namespace

void decode_png(std::span<const std::uint8_t> file, const std::string& name, Image& out) {
  AB_CHECK_KIND(data, file.size() <= std::size_t{std::numeric_limits<int>::max()},
                "{}: a PNG of {} bytes is too large to be an image of a data set", name, file.size());
  const auto check = [&](const char* problem) {
    AB_CHECK_KIND(data, problem == nullptr, "{}: the PNG is truncated or damaged ({}); fetch the file again", name,
                  problem);
  };
  {
    PngContent content = read_png_chunks(file, name);
    AB_CHECK_KIND(data, content.unpacked_bytes <= std::size_t{std::numeric_limits<int>::max()},
                  "{}: a PNG of {} bytes of pixels is too large to be an image of a data set", name,
                  content.unpacked_bytes);
    check(problem_of_pixels(content));
  }
  const int bytes = static_cast<int>(file.size());
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(file.data(), bytes, &width, &height, &channels, STBI_rgb), stbi_image_free);
  check(pixels ? nullptr : stb_reason());
  out.height = height;
  out.width = width;
  out.pixels.assign(pixels.get(), pixels.get() + out.view().bytes());
}

}  // namespace ab
