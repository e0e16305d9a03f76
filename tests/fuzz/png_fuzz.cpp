// SPDX-License-Identifier: MIT
//
// Any bytes are either an image as large as it says or one Error(data). Checksums keep a fuzzer out, so the first byte
// says how much of the file is made for it: nothing; the checksums of chunks; or everything but the header, the palette
// and the unpacked pixels.
#include <algorithm>

#include "data/decode.h"
#include "engine/core/check.h"

namespace {

using Bytes = std::vector<std::uint8_t>;
using View = std::span<const std::uint8_t>;

void put(Bytes& out, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::uint8_t>(number >> shift));
}

void put_chunk(Bytes& out, const char* type, View content) {
  put(out, static_cast<std::uint32_t>(content.size()));
  const std::size_t begin = out.size();
  out.insert(out.end(), type, type + 4);
  out.insert(out.end(), content.begin(), content.end());
  put(out, ab::crc32(View(out).subspan(begin)));
}

Bytes with_checksums(View file) {
  Bytes out(file.begin(), file.begin() + std::min<std::ptrdiff_t>(8, std::ssize(file)));
  for (View rest = file.subspan(out.size()); rest.size() >= 12;) {
    const std::size_t length = std::min<std::size_t>(ab::png_number(rest.data()), rest.size() - 12);
    put_chunk(out, reinterpret_cast<const char*>(rest.data() + 4), rest.subspan(8, length));
    rest = rest.subspan(12 + length);
  }
  return out;
}

/// A file around `parts`: width and height, bit depth, colour type and interlacing, the length of a palette, a palette,
/// and pixels as they are before they are packed.
Bytes file_around(View parts) {
  constexpr std::size_t kHeader = 6;
  if (parts.size() < kHeader) return {};
  const std::size_t palette = std::min<std::size_t>(parts[5], parts.size() - kHeader);
  const View pixels =
      parts.subspan(kHeader + palette).first(std::min<std::size_t>(parts.size() - kHeader - palette, 65535));
  Bytes out{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'}, header, packed{0x78, 1, 1};
  put(header, parts[0]), put(header, parts[1]);
  header.insert(header.end(), {parts[2], parts[3], 0, 0, parts[4]});
  for (const std::size_t n : {pixels.size(), ~pixels.size()})
    for (const int shift : {0, 8}) packed.push_back(static_cast<std::uint8_t>(n >> shift));
  packed.insert(packed.end(), pixels.begin(), pixels.end());
  put(packed, ab::adler32(pixels));
  put_chunk(out, "IHDR", header);
  if (palette > 0) put_chunk(out, "PLTE", parts.subspan(kHeader, palette));
  put_chunk(out, "IDAT", packed);
  put_chunk(out, "IEND", {});
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  if (count == 0) return 0;
  const View rest{bytes + 1, count - 1};
  const Bytes file = bytes[0] == 0   ? Bytes(rest.begin(), rest.end())
                     : bytes[0] == 1 ? with_checksums(rest)
                                     : file_around(rest);
  try {
    ab::Image image;
    ab::decode_png(file, "fuzz.png", image);
    ab::check_image_size(image.height, image.width, "fuzz.png");
    AB_ASSERT(image.pixels.size() == image.view().bytes());
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::data);
  }
  return 0;
}
