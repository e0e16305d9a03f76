// SPDX-License-Identifier: MIT
//
// stb_image with every format but PNG compiled out, and its functions kept to this file.
#include <limits>
#include <memory>

#include "data/decode.h"
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

void decode_png(std::span<const std::uint8_t> file, const std::string& name, Image& out) {
  AB_CHECK_KIND(data, file.size() <= std::size_t{std::numeric_limits<int>::max()},
                "{}: a PNG of {} bytes is too large to be an image of a data set", name, file.size());
  const int bytes = static_cast<int>(file.size());
  int width = 0, height = 0, channels = 0;
  const auto check = [&](bool good) {
    AB_CHECK_KIND(data, good, "{}: the PNG is truncated or damaged ({}); fetch the file again", name,
                  stbi_failure_reason());
  };
  check(stbi_info_from_memory(file.data(), bytes, &width, &height, &channels) != 0);
  check_image_size(height, width, name);
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(file.data(), bytes, &width, &height, &channels, STBI_rgb), stbi_image_free);
  check(pixels != nullptr);
  out.height = height;
  out.width = width;
  out.pixels.assign(pixels.get(), pixels.get() + out.view().bytes());
}

}  // namespace ab
