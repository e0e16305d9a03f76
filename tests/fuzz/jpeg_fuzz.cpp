// SPDX-License-Identifier: MIT
//
// Any bytes are either an image as large as it says or one Error(data).
#include "data/decode.h"
#include "engine/core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  try {
    ab::Image image;
    ab::decode_image({bytes, count}, "fuzz.jpg", image);
    ab::check_image_size(image.height, image.width, "fuzz.jpg");
    AB_ASSERT(image.pixels.size() == image.view().bytes());
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::data);
  }
  return 0;
}
