// SPDX-License-Identifier: MIT
//
// Any bytes are either an image as large as it says or one Error(data), also shrunk; and a part of an image is that of the whole, also where
// it was cut into segments.
#include <algorithm>
#include <numeric>

#include "data/decode.h"
#include "data/tiled_jpeg.h"
#include "engine/core/check.h"

namespace {

/// Anywhere in the image, as the bytes have it.
ab::Box box_of(const std::uint8_t* bytes, std::size_t count, int height, int width) {
  unsigned drawn =
      std::accumulate(bytes, bytes + count, 2166136261u, [](unsigned h, unsigned b) { return (h ^ b) * 16777619u; });
  const auto below = [&](int n) {
    drawn = drawn * 1664525u + 1013904223u;
    return static_cast<int>((drawn >> 8) % static_cast<unsigned>(n));
  };
  const int h = 1 + below(height), w = 1 + below(width);
  return {below(height - h + 1), below(width - w + 1), h, w};
}

/// Decodes a part and the whole and compares them; false when the file is refused.
bool check(std::span<const std::uint8_t> file) {
  ab::Image image, buffer, part, expected;
  const auto choose = [&](int height, int width) { return box_of(file.data(), file.size(), height, width); };
  try {
    ab::cut_out(ab::decode_image(file, "fuzz.jpg", buffer, choose), part);
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::data);
  }
  for (const int shrink : {2, 4, 8}) {
    try {
      ab::decode_image(file, "fuzz.jpg", buffer, [&](int height, int width) {
        const ab::Box box = choose(height, width);
        return ab::WantedPart(box, std::min(box.height, box.width) < shrink ? 1 : shrink);
      });
    } catch (const ab::Error& error) {
      AB_ASSERT(error.kind() == ab::ErrorKind::data);
    }
  }
  try {
    ab::decode_image(file, "fuzz.jpg", image);
    ab::check_image_size(image.height, image.width, "fuzz.jpg");
    AB_ASSERT(image.pixels.size() == image.view().bytes());
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::data);
    return false;
  }
  ab::cut_out(image.view().part(choose(image.height, image.width)), expected);
  AB_ASSERT(part.pixels == expected.pixels);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::span file(bytes, count);
  if (!check(file)) return 0;
  if (const auto tiled = ab::tile_jpeg(file)) check(*tiled);
  return 0;
}
