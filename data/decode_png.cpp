// SPDX-License-Identifier: MIT
//
// stb_image with every format but PNG compiled out, and its functions kept to this file. It takes a checksum for
// granted, and grows its memory for as long as the file gives it data. So the file is taken apart here first, and its
// pixels are unpacked once into a buffer of the size that the header tells.
#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "data/decode.h"
#include "engine/core/check.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS (1 << 26)  // kMaxImagePixels
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image.h>
#pragma GCC diagnostic pop

namespace ab {
namespace {

static_assert(STBI_MAX_DIMENSIONS == kMaxImagePixels);

constexpr std::size_t kSignatureBytes = 8, kHeaderBytes = 13;
constexpr std::size_t kAroundChunk = 12;       // length, type and checksum
constexpr std::size_t kMaxCompression = 1032;  // a deflate stream makes at most so many bytes of one

/// CRC-32 with the polynomial of ISO 3309, lowest bit first.
constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t n = 0; n < 256; ++n) {
    std::uint32_t c = n;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
    table[n] = c;
  }
  return table;
}

/// Samples a pixel of a colour type; 0 for none that exists.
std::size_t channels_of(int colour_type) {
  switch (colour_type) {
    case 0:
    case 3: return 1;
    case 2: return 3;
    case 4: return 2;
    case 6: return 4;
    default: return 0;
  }
}

std::size_t bytes_of_pass(std::size_t height, std::size_t width, std::size_t bits_per_pixel) {
  return width == 0 ? 0 : height * (1 + (width * bits_per_pixel + 7) / 8);
}

/// Interlacing by Adam7: where each pass begins, and the distance of its pixels.
std::size_t unpacked_bytes(std::size_t height, std::size_t width, std::size_t bits_per_pixel, bool interlaced) {
  if (!interlaced) return bytes_of_pass(height, width, bits_per_pixel);
  struct Pass {
    std::size_t x, y, dx, dy;
  };
  constexpr Pass passes[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                             {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
  std::size_t total = 0;
  for (const Pass& p : passes)
    total += bytes_of_pass((height + p.dy - 1 - p.y) / p.dy, (width + p.dx - 1 - p.x) / p.dx, bits_per_pixel);
  return total;
}

}  // namespace

std::uint32_t png_number(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
  static constexpr std::array<std::uint32_t, 256> table = make_crc_table();
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const std::uint8_t byte : bytes) crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t adler32(std::span<const std::uint8_t> bytes) {
  constexpr std::uint32_t kModulus = 65521;
  constexpr std::size_t kBlock = 5552;  // the sums of so many bytes fit into 32 bits
  std::uint32_t a = 1, b = 0;
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min(kBlock, bytes.size()));
    for (const std::uint8_t byte : block) b += a += byte;
    a %= kModulus, b %= kModulus;
    bytes = bytes.subspan(block.size());
  }
  return b << 16 | a;
}

PngContent read_png_chunks(std::span<const std::uint8_t> file, const std::string& name) {
  const auto check = [&](bool good, std::string_view problem) {
    AB_CHECK_KIND(data, good, "{}: the PNG is truncated or damaged ({}); fetch the file again", name, problem);
  };
  PngContent content;
  bool begun = false;
  for (auto rest = file.subspan(std::min(kSignatureBytes, file.size()));;) {
    check(rest.size() >= kAroundChunk, "it ends before its end mark");
    const std::size_t length = png_number(rest.data());
    check(length <= rest.size() - kAroundChunk, "a chunk is longer than the file");
    const std::string_view type(reinterpret_cast<const char*>(rest.data() + 4), 4);
    check(crc32(rest.subspan(4, 4 + length)) == png_number(rest.data() + 8 + length), "a checksum is wrong");
    const auto chunk = rest.subspan(8, length);
    rest = rest.subspan(kAroundChunk + length);
    check(begun == (type != "IHDR"), "the header is not where it has to be");
    if (!begun) {
      check(length == kHeaderBytes, "the header has a wrong size");
      content.width = png_number(chunk.data()), content.height = png_number(chunk.data() + 4);
      check_image_size(content.height, content.width, name);
      const std::size_t channels = channels_of(chunk[9]);
      check(channels > 0 && chunk[8] <= 16 && chunk[12] <= 1, "the header names a format that does not exist");
      content.unpacked_bytes =
          unpacked_bytes(static_cast<std::size_t>(content.height), static_cast<std::size_t>(content.width),
                         channels * chunk[8], chunk[12] == 1);
      check(content.unpacked_bytes / kMaxCompression <= file.size(), "it is too short for its number of pixels");
      begun = true;
    } else if (type == "IDAT") {
      check(length > 0 || !content.packed.empty(),
            "its pixels begin with an empty chunk");  // stb_image has no memory yet
      content.packed.insert(content.packed.end(), chunk.begin(), chunk.end());
    } else if (type == "IEND") {
      return content;
    }
  }
}

namespace {

/// The reason why stb_image refuses a file; it does not always say.
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
  const auto check = [&](const char* problem) {
    AB_CHECK_KIND(data, problem == nullptr, "{}: the PNG is truncated or damaged ({}); fetch the file again", name,
                  problem);
  };
  {
    PngContent content = read_png_chunks(file, name);
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
