// SPDX-License-Identifier: MIT
#include "data/decode.h"

#include <algorithm>
#include <array>

#include "engine/core/check.h"

namespace ab {
namespace {

template <std::size_t N>
bool starts_with(std::span<const std::uint8_t> file, const std::array<std::uint8_t, N>& magic) {
  return file.size() >= N && std::equal(magic.begin(), magic.end(), file.begin());
}

constexpr std::array<std::uint8_t, 3> kJpegMagic{0xFF, 0xD8, 0xFF};
constexpr std::array<std::uint8_t, 8> kPngMagic{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

}  // namespace

void check_image_size(std::int64_t height, std::int64_t width, const std::string& name) {
  AB_CHECK_KIND(data, height > 0 && width > 0, "{}: the image has no pixels ({} x {})", name, width, height);
  AB_CHECK_KIND(data, height <= kMaxImagePixels / width,
                "{}: the header claims {} x {} pixels, more than the {} that are accepted; the file is damaged, or "
                "has to be scaled down",
                name, width, height, kMaxImagePixels);
}

ImageView decode_image(std::span<const std::uint8_t> file, const std::string& name, Image& buffer,
                       const ChoosePart& part) {
  AB_CHECK_KIND(data, !file.empty(), "{}: the file is empty; fetch it again", name);
  if (starts_with(file, kJpegMagic)) return decode_jpeg(file, name, buffer, part);
  if (starts_with(file, kPngMagic)) {
    decode_png(file, name, buffer);
    return part ? buffer.view().part(part(buffer.height, buffer.width).box) : buffer.view();
  }
  throw Error(ErrorKind::data,
              fmt::format("{}: neither a JPEG nor a PNG by its first bytes; fetch the file again or convert it", name));
}

}  // namespace ab
