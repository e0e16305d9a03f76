// SPDX-License-Identifier: MIT
//
// ImageNet: decoding files, sound and damaged, against Pillow; listing folders; batches from files. With
// ABTRAIN_IMAGENET_DIR set to a folder that has a manifest.tsv, real files too.
#include "data/datasets.h"
#include "data/image_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include <jpeglib.h>

#include "data/crop.h"
#include "data/decode.h"
#include "data/image_list.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "data/tiled_jpeg.h"
#include "engine/core/random.h"
#include "tests/error_message.h"
#include "tests/golden/fixtures.h"
#include "tests/golden/images.h"

namespace ab {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
using test::contains;
using test::message_of;

enum class Scans { one, progressive, one_a_colour };

/// How the library is to write a file, after its defaults.
using Written = std::function<void(jpeg_compress_struct& codec)>;

/// A JPEG of slopes and stripes, another picture for each `shade`; of one, three or four components.
Bytes make_jpeg(int height, int width, int shade, Scans scans = Scans::one, int components = 3,
                const Written& written = {}) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &memory, &size);
  codec.image_height = static_cast<JDIMENSION>(height);
  codec.image_width = static_cast<JDIMENSION>(width);
  codec.input_components = components;
  codec.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&codec);
  if (scans == Scans::progressive) jpeg_simple_progression(&codec);
  const jpeg_scan_info of_colours[] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (scans == Scans::one_a_colour) codec.scan_info = of_colours, codec.num_scans = 3;
  if (written) written(codec);
  jpeg_start_compress(&codec, TRUE);
  Bytes row(static_cast<std::size_t>(components * width));
  for (int y = 0; y < height; ++y) {
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] =
          static_cast<std::uint8_t>((shade + static_cast<int>(i) + (y * 37 + static_cast<int>(i) * 11) % 60) % 256);
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&codec, &pointer, 1);
  }
  jpeg_finish_compress(&codec);
  Bytes bytes(memory, memory + size);
  jpeg_destroy_compress(&codec);
  std::free(memory);
  return bytes;
}

void write_file(const fs::path& file, const Bytes& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

Bytes read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

std::string decode_error(const Bytes& file) {
  Image out;
  return message_of(ErrorKind::data, [&] { decode_image(file, "some/file", out); });
}

/// Luma has `across` × `down` samples for one of chroma.
Written sampled(int across, int down) {
  return [=](jpeg_compress_struct& codec) {
    codec.comp_info[0].h_samp_factor = across;
    codec.comp_info[0].v_samp_factor = down;
  };
}

// ---- PNG, piece by piece ----

std::string number(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

/// A chunk with its checksum, computed bit by bit.
std::string chunk(const std::string& type, const std::string& content) {
  std::uint32_t crc = ~0u;
  for (const char byte : type + content) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return number(static_cast<std::uint32_t>(content.size())) + type + content + number(~crc);
}

/// A PNG that claims so many pixels in 8 bits of grey and holds `packed`.
Bytes grey_png(std::uint32_t height, std::uint32_t width, const std::string& packed) {
  const std::string file = "\x89PNG\r\n\x1A\n" +
                           chunk("IHDR", number(width) + number(height) + std::string("\x08\0\0\0\0", 5)) +
                           chunk("IDAT", packed) + chunk("IEND", "");
  return Bytes(file.begin(), file.end());
}

/// A zlib stream of `n` zeros that does not compress; at most 65535.
std::string stored_zeros(std::uint32_t n) {
  const auto length = [](std::uint32_t v) {
    return std::string{static_cast<char>(v & 0xFF), static_cast<char>(v >> 8 & 0xFF)};
  };
  return "\x78\x01\x01" + length(n) + length(~n) + std::string(n, '\0') + number(n << 16 | 1);
}

// ---- Decoding ----

TEST(Decode, EqualsPillow) {
  const TensorFile fixtures = golden::read_fixtures("images.safetensors");
  const std::vector<std::string> names = golden::cases_of(fixtures, "decode");
  ASSERT_EQ(names.size(), 10u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const golden::Case c(fixtures, name);
    const std::vector<double> values = c.tensor("file").to_doubles();
    Image out;
    decode_image(Bytes(values.begin(), values.end()), name, out);
    // Versions of libjpeg-turbo may round the upsampling of chroma differently.
    golden::expect_same_image(out, c.tensor("y"), name.find("420") == std::string::npos ? 0 : 2);
  }
}

/// Files of every kind, in sizes with and without whole blocks.
std::vector<std::pair<std::string, Bytes>> files_of_all_kinds() {
  std::vector<std::pair<std::string, Bytes>> files;
  const std::pair<int, int> sizes[] = {{1, 1}, {2, 3}, {17, 33}, {16, 16}, {16, 20}, {100, 67}, {97, 160}};
  for (const auto& [height, width] : sizes) {
    const std::string size = fmt::format(", {} x {}", height, width);
    const auto add = [&, height = height, width = width](const std::string& kind, int components, Scans scans,
                                                         const Written& written) {
      files.emplace_back(kind + size, make_jpeg(height, width, 10, scans, components, written));
    };
    for (const Scans scans : {Scans::one, Scans::progressive})
      for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}})
        add(fmt::format("{} x {} of luma{}", across, down, scans == Scans::one ? "" : ", progressive"), 3, scans,
            sampled(across, down));
    add("grey", 1, Scans::one, {});
    add("grey by blocks of two", 1, Scans::one, sampled(2, 2));
    add("CMYK", 4, Scans::one, {});
    add("a scan for each colour", 3, Scans::one_a_colour, {});
    add("restarts", 3, Scans::one, [](auto& codec) { codec.restart_interval = 3; });
    add("a restart after every unit", 3, Scans::one, [](auto& codec) { codec.restart_interval = 1; });
    add("2 x 1 of luma, a restart after every unit", 3, Scans::one, [](auto& codec) {
      sampled(2, 1)(codec);
      codec.restart_interval = 1;
    });
    add("arithmetic", 3, Scans::one, [](auto& codec) { codec.arith_code = TRUE; });
  }
  const TensorFile fixtures = golden::read_fixtures("images.safetensors");
  for (const std::string& name : golden::cases_of(fixtures, "decode")) {
    const std::vector<double> values = golden::Case(fixtures, name).tensor("file").to_doubles();
    files.emplace_back(name, Bytes(values.begin(), values.end()));
  }
  return files;
}

/// The number of restart markers in it.
std::ptrdiff_t restarts_in(const Bytes& file) {
  std::ptrdiff_t count = 0;
  for (std::size_t i = 0; i + 1 < file.size(); ++i) count += file[i] == 0xFF && (file[i + 1] & 0xF8) == 0xD0;
  return count;
}

/// Boxes in an image: all of it, its corners, single pixels, and any.
std::vector<Box> boxes_in(int height, int width) {
  std::vector<Box> boxes{{0, 0, height, width},
                         {0, 0, 1, 1},
                         {height - 1, width - 1, 1, 1},
                         {0, width - 1, height, 1},
                         {height - 1, 0, 1, width}};
  const Philox random{5, 0};
  for (std::uint64_t i = 0; boxes.size() < 20; i += 4) {
    const int h = 1 + static_cast<int>(random.below(i, static_cast<std::uint64_t>(height)));
    const int w = 1 + static_cast<int>(random.below(i + 1, static_cast<std::uint64_t>(width)));
    boxes.push_back({static_cast<int>(random.below(i + 2, static_cast<std::uint64_t>(height - h + 1))),
                     static_cast<int>(random.below(i + 3, static_cast<std::uint64_t>(width - w + 1))), h, w});
  }
  return boxes;
}

TEST(Decode, APartIsThatOfTheWhole) {
  for (const auto& [name, file] : files_of_all_kinds()) {
    Image whole, expected, buffer, part;
    decode_image(file, name, whole);
    for (const Box& box : boxes_in(whole.height, whole.width)) {
      cut_out(whole.view().part(box), expected);
      const ImageView seen = decode_image(file, name, buffer, [&](int height, int width) {
        EXPECT_EQ(std::pair(height, width), std::pair(whole.height, whole.width));
        return box;
      });
      cut_out(seen, part);
      ASSERT_EQ(std::pair(part.height, part.width), std::pair(box.height, box.width)) << name;
      ASSERT_EQ(part.pixels, expected.pixels)
          << name << ": " << box.height << " x " << box.width << " from " << box.top << ", " << box.left;
    }
  }
}

// Of every kind of file, and of files whose first rows are a segment each.
TEST(Decode, TiledFilesHaveTheSamePixelsAndEachPartOfThem) {
  int tiled_files = 0, cut_files = 0;
  for (const auto& [name, file] : files_of_all_kinds()) {
    SCOPED_TRACE(name);
    Image whole, again, expected, buffer, part;
    decode_image(file, name, whole);
    const std::optional<Bytes> tiled = tile_jpeg(file);
    EXPECT_EQ(tiled.has_value(), file[0] == 0xFF) << "all but a PNG";
    if (!tiled) continue;
    ++tiled_files;
    decode_image(*tiled, name, again);
    ASSERT_EQ(again.pixels, whole.pixels);
    EXPECT_EQ(tile_jpeg(*tiled), tiled) << "twice is once";
    const auto found = TiledJpeg::find(*tiled);
    ASSERT_TRUE(found);
    for (const Box& box : boxes_in(whole.height, whole.width)) {
      cut_out(whole.view().part(box), expected);
      const TiledJpeg::Cut cut = found->cut(box, 2);
      cut_files += restarts_in(cut.file) < restarts_in(*tiled);
      const ImageView seen = decode_image(*tiled, name, buffer, [&](int height, int width) {
        EXPECT_EQ(std::pair(height, width), std::pair(whole.height, whole.width));
        return box;
      });
      cut_out(seen, part);
      ASSERT_EQ(part.pixels, expected.pixels)
          << box.height << " x " << box.width << " from " << box.top << ", " << box.left;
    }
  }
  EXPECT_GT(tiled_files, 80);
  EXPECT_GT(cut_files, 500);
}

/// Of that box, one pixel for each shrink · shrink.
ChoosePart shrunk(const Box& box, int shrink) {
  return [=](int, int) { return WantedPart(box, shrink); };
}

/// Files of every kind that can be divided by a number, with it, and with the number that they are divided by.
void for_shrunk_files(
    const std::function<void(const std::string& name, const Bytes& file, int asked, int shrink)>& body) {
  for (const auto& [name, file] : files_of_all_kinds()) {
    Image whole;
    decode_image(file, name, whole);
    const bool divides = file[0] == 0xFF && !name.starts_with("4 x 2") && !name.starts_with("2 x 4");
    for (const int asked : {2, 4, 8})
      if (std::min(whole.height, whole.width) >= asked)
        body(fmt::format("{}, by {}", name, asked), file, asked, divides ? asked : 1);
  }
}

/// How far an image is from the means of shrink · shrink pixels of another, where these are whole: on average, and at most.
std::pair<double, int> distance_to_means(const Image& image, const Image& of, int shrink) {
  const int height = of.height / shrink, width = of.width / shrink;
  double sum = 0;
  int largest = 0;
  for (int y = 0; y < height; ++y)
    for (int i = 0; i < 3 * width; ++i) {
      int mean = shrink * shrink / 2;
      for (int pixel = 0; pixel < shrink * shrink; ++pixel)
        mean += of.view().row(y * shrink + pixel / shrink)[3 * (i / 3 * shrink + pixel % shrink) + i % 3];
      const int distance = std::abs(image.view().row(y)[i] - mean / (shrink * shrink));
      sum += distance, largest = std::max(largest, distance);
    }
  return {sum / (3.0 * height * width), largest};
}

TEST(Decode, AShrunkImageIsNearTheMeansOfItsPixels) {
  int images = 0;
  for_shrunk_files([&](const std::string& name, const Bytes& file, int asked, int shrink) {
    SCOPED_TRACE(name);
    Image whole, buffer, out;
    decode_image(file, name, whole);
    cut_out(decode_image(file, name, buffer, shrunk({0, 0, whole.height, whole.width}, asked)), out);
    EXPECT_EQ(out.height, (whole.height + shrink / 2) / shrink);
    EXPECT_EQ(out.width, (whole.width + shrink / 2) / shrink);
    const auto [mean, largest] = distance_to_means(out, whole, shrink);
    EXPECT_TRUE(shrink > 1 || out.pixels == whole.pixels);
    EXPECT_LT(mean, 8);
    EXPECT_LT(largest, 80);
    ++images;
  });
  EXPECT_GT(images, 200);
}

// Tiled or not. Its edges go to the nearest multiple.
TEST(Decode, AShrunkPartIsThatOfTheShrunkWhole) {
  int parts = 0;
  for_shrunk_files([&](const std::string& name, const Bytes& file, int asked, int shrink) {
    Image whole, shrunk_whole, expected, buffer, part;
    decode_image(file, name, whole);
    cut_out(decode_image(file, name, buffer, shrunk({0, 0, whole.height, whole.width}, asked)), shrunk_whole);
    const std::optional<Bytes> tiled = tile_jpeg(file);
    std::vector<Box> boxes = boxes_in(whole.height, whole.width);
    boxes.push_back({0, std::min(4, whole.width - asked), asked, asked});  // inside one unit
    for (const Box& box : boxes) {
      if (std::min(box.height, box.width) < asked) continue;
      const auto at = [=](int edge) { return static_cast<int>(std::floor(0.5 + static_cast<double>(edge) / shrink)); };
      const int top = at(box.top), left = at(box.left);
      cut_out(shrunk_whole.view().part({top, left, at(box.top + box.height) - top, at(box.left + box.width) - left}),
              expected);
      for (const Bytes& bytes : {file, tiled.value_or(file)}) {
        cut_out(decode_image(bytes, name, buffer, shrunk(box, asked)), part);
        ASSERT_EQ(part.pixels, expected.pixels)
            << name << ": " << box.height << " x " << box.width << " from " << box.top << ", " << box.left;
        ++parts;
      }
    }
  });
  EXPECT_GT(parts, 1000);
}

TEST(Decode, SegmentsDivideARowOfBlocks) {
  for (const auto& [width, restarts] : {std::pair{16 * 8, 1}, {16 * 10, 1}, {16 * 12, 3}, {16 * 13, 0}, {16 * 2, 0}}) {
    const std::optional<Bytes> tiled = tile_jpeg(make_jpeg(16, width, 7, Scans::one, 3, sampled(2, 2)));
    EXPECT_EQ(restarts_in(*tiled), restarts) << width;
  }
}

// Whatever is done to its markers: the same pixels or the same refusal as of the whole.
TEST(Decode, PartsOfTiledFilesWithDamagedMarkersAreThoseOfTheWholeOrRefused) {
  const Bytes file = *tile_jpeg(make_jpeg(64, 96, 20, Scans::one, 3, sampled(2, 2)));
  const Box box{20, 40, 20, 30};
  int refused = 0, decoded = 0;
  for (std::size_t at = 0; at + 1 < file.size(); ++at) {
    if (file[at] != 0xFF) continue;
    for (const int marker : {0x00, 0xD0, 0xD3, 0xD7, 0xD9, 0xDA, 0xFF}) {
      Bytes damaged = file;
      damaged[at + 1] = static_cast<std::uint8_t>(marker);
      Image whole, expected, buffer, part;
      try {
        decode_image(damaged, "whole", whole);
      } catch (const Error&) {
        ++refused;
        continue;
      }
      cut_out(whole.view().part(box), expected);
      cut_out(decode_image(damaged, "part", buffer, [&](int, int) { return box; }), part);
      EXPECT_EQ(part.pixels, expected.pixels) << "marker " << marker << " at " << at;
      ++decoded;
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(decoded, 5);
}

TEST(Decode, APartOfATruncatedFileIsRefusedAndDamageBeyondItIsNot) {
  const ChoosePart top = [](int, int width) { return Box{0, 0, 8, width}; };
  Image out;
  for (const bool progressive : {false, true}) {
    const Bytes whole = make_jpeg(120, 50, 20, progressive ? Scans::progressive : Scans::one);
    for (std::size_t size = 0; size < whole.size(); size += 7)
      EXPECT_TRUE(message_of(ErrorKind::data,
                             [&] {
                               decode_image({whole.data(), size}, "some/file", out, top);
                             })
                      .starts_with("some/file: "))
          << size;
  }
  Bytes damaged = make_jpeg(120, 50, 20);
  for (std::size_t i = damaged.size() - 200; i < damaged.size() - 100; ++i) damaged[i] = 0x55;
  EXPECT_FALSE(decode_error(damaged).empty());
  decode_image(damaged, "damaged at its end", out, top);
}

TEST(Decode, RefusesTruncatedFilesWhereverTheyAreCut) {
  for (const bool progressive : {false, true}) {
    const Bytes whole = make_jpeg(40, 50, 20, progressive ? Scans::progressive : Scans::one);
    Image out;
    decode_image(whole, "whole", out);
    EXPECT_EQ(out.height, 40);
    EXPECT_EQ(out.width, 50);
    for (std::size_t size = 0; size < whole.size(); size += size < 700 ? 13 : 3) {
      const std::string message = decode_error(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
      EXPECT_TRUE(message.starts_with("some/file: ")) << message;
    }
    Bytes longer = whole;
    longer.insert(longer.end(), 4096, 0);
    decode_image(longer, "bytes after the end", out);
  }
  const TensorFile fixtures = golden::read_fixtures("images.safetensors");
  const std::vector<double> png = golden::Case(fixtures, "decode/png_rgb").tensor("file").to_doubles();
  for (const std::ptrdiff_t cut : {9, 20, 60, 200})
    EXPECT_TRUE(contains(decode_error(Bytes(png.begin(), png.begin() + cut)), "the PNG is truncated"));
}

TEST(Decode, RefusesWhatIsDamagedOrForeign) {
  EXPECT_TRUE(contains(decode_error({}), "some/file: the file is empty"));
  EXPECT_TRUE(contains(decode_error({'G', 'I', 'F', '8', '9', 'a', 0, 0}), "neither a JPEG nor a PNG"));
  Bytes broken = make_jpeg(64, 64, 9);
  for (std::size_t i = broken.size() / 2; i < broken.size() - 2; ++i) broken[i] = 0xFF;
  EXPECT_TRUE(contains(decode_error(broken), "the JPEG is truncated or damaged ("));
}

// Pillow decodes such files too.
TEST(Decode, ParametersThatASequentialFileHasNoUseForAreNoDamage) {
  const Bytes good = make_jpeg(20, 30, 9);
  const std::uint8_t marker[] = {0xFF, 0xDA};
  const auto scan = std::search(good.begin(), good.end(), std::begin(marker), std::end(marker)) - good.begin();
  Bytes odd = good;
  const std::size_t last_coefficient =
      static_cast<std::size_t>(scan) + 5 + 2 * good[static_cast<std::size_t>(scan) + 4] + 1;
  ASSERT_EQ(odd[last_coefficient], 63);
  odd[last_coefficient] = 0;
  Image expected, out;
  decode_image(good, "good", expected);
  decode_image(odd, "odd", out);
  EXPECT_EQ(out.pixels, expected.pixels);
}

TEST(Decode, RefusesHugeClaimsFromTheHeader) {
  Bytes file = make_jpeg(8, 8, 0);
  // Height and width of the frame header, which begins with FF C0.
  const std::uint8_t marker[] = {0xFF, 0xC0};
  const auto frame = std::search(file.begin(), file.end(), std::begin(marker), std::end(marker));
  ASSERT_NE(frame, file.end());
  std::fill(frame + 5, frame + 9, std::uint8_t{0xF0});
  EXPECT_TRUE(contains(decode_error(file), "claims 61680 x 61680 pixels"));
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [] { check_image_size(0, 5, "x"); }), "no pixels"));
  check_image_size(1 << 13, 1 << 13, "x");
}

TEST(Decode, RefusesClaimsThatSoShortAFileCannotHold) {
  for (const bool progressive : {false, true}) {
    Bytes file = make_jpeg(8, 8, 0, progressive ? Scans::progressive : Scans::one);
    const std::uint8_t marker[] = {0xFF, static_cast<std::uint8_t>(progressive ? 0xC2 : 0xC0)};
    const auto frame = std::search(file.begin(), file.end(), std::begin(marker), std::end(marker));
    ASSERT_NE(frame, file.end());
    const std::uint8_t side[] = {0x1F, 0xFF, 0x1F, 0xFF};
    std::copy(std::begin(side), std::end(side), frame + 5);
    EXPECT_TRUE(contains(decode_error(file), "bytes for 8191 x 8191 pixels"));
  }
  EXPECT_TRUE(contains(decode_error(grey_png(8191, 8191, stored_zeros(0))), "too short for its number of pixels"));
  EXPECT_TRUE(contains(decode_error(grey_png(1 << 30, 1 << 30, "")), "claims 1073741824 x 1073741824"));
}

TEST(Decode, APngUnpacksToWhatItsHeaderTellsAndNoMore) {
  constexpr std::uint32_t kRows = 8 * 9;  // each of the 8 rows with its filter
  Image out;
  decode_image(grey_png(8, 8, stored_zeros(kRows)), "small", out);
  EXPECT_EQ(out.height, 8);
  EXPECT_TRUE(contains(decode_error(grey_png(8, 8, stored_zeros(60000))), "output buffer limit"));
  EXPECT_TRUE(contains(decode_error(grey_png(8, 8, stored_zeros(kRows - 1))), "too few pixels"));
  Bytes file = grey_png(8, 8, stored_zeros(kRows));
  const std::string empty = chunk("IDAT", "");
  file.insert(file.begin() + 8 + 25, empty.begin(), empty.end());  // behind the signature and the header
  EXPECT_TRUE(contains(decode_error(file), "its pixels begin with an empty chunk"));
}

TEST(Decode, OneWrongByteOfAPngIsNoticed) {
  const TensorFile fixtures = golden::read_fixtures("images.safetensors");
  const std::vector<double> values = golden::Case(fixtures, "decode/png_rgb").tensor("file").to_doubles();
  Bytes file(values.begin(), values.end());
  for (std::size_t i = 0; i < file.size(); ++i) {
    file[i] ^= 0x10;
    EXPECT_TRUE(decode_error(file).starts_with("some/file: ")) << i;
    file[i] ^= 0x10;
  }
  // An encoder whose own memory was damaged: the checksum of the file is right, that of the pixels is not.
  std::string packed = stored_zeros(8 * 9);
  packed[20] ^= 1;
  EXPECT_TRUE(contains(decode_error(grey_png(8, 8, packed)), "the checksum of the pixels is wrong"));
}

// One scan for each of red, green and blue, and the last one again and again: nothing forbids that.
TEST(Decode, RefusesThousandsOfScans) {
  const Bytes file = make_jpeg(16, 16, 50, Scans::one_a_colour);
  const std::uint8_t marker[] = {0xFF, 0xDA};
  const auto last = std::find_end(file.begin(), file.end(), std::begin(marker), std::end(marker));
  const auto with_scans = [&](int more) {
    Bytes many = file;
    for (int i = 0; i < more; ++i) many.insert(many.end() - 2, last, file.end() - 2);
    return many;
  };
  Image out;
  decode_image(with_scans(497), "as many as may be", out);
  EXPECT_EQ(out.height, 16);
  EXPECT_TRUE(contains(decode_error(with_scans(600)), "more than 500 scans"));
}

/// Mean red, green and blue of every file of a real sample, as its manifest.tsv has them from Pillow.
TEST(RealImageNet, DecodesAsPillowDoes) {
  const char* folder = std::getenv("ABTRAIN_IMAGENET_DIR");
  if (!folder) GTEST_SKIP() << "ABTRAIN_IMAGENET_DIR is not set";
  std::ifstream manifest(fs::path(folder) / "manifest.tsv");
  if (!manifest) GTEST_SKIP() << folder << " has no manifest.tsv";
  std::string line;
  std::getline(manifest, line);
  double largest = 0;
  int decoded = 0, refused = 0;
  while (std::getline(manifest, line)) {
    std::vector<std::string> field;
    std::istringstream columns(line);
    for (std::string text; std::getline(columns, text, '\t');) field.push_back(text);
    SCOPED_TRACE(field[0]);
    const Bytes bytes = read_file(fs::path(folder) / field[0]);
    Image image;
    if (field[10].starts_with("decode:")) {
      message_of(ErrorKind::data, [&] { decode_image(bytes, field[0], image); });
      ++refused;
      continue;
    }
    ASSERT_NO_THROW(decode_image(bytes, field[0], image));
    EXPECT_EQ(std::to_string(image.width) + " " + std::to_string(image.height), field[3] + " " + field[4]);
    for (std::size_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (std::size_t i = c; i < image.pixels.size(); i += 3) sum += image.pixels[i];
      const double deviation = std::abs(3 * sum / static_cast<double>(image.pixels.size()) - std::stod(field[10 + c]));
      EXPECT_LT(deviation, 0.02);
      largest = std::max(largest, deviation);
    }
    Image buffer, seen, expected;
    const Box box = draw_resized_crop({0, 0, decoded}, image.height, image.width).box;
    cut_out(decode_image(bytes, field[0], buffer, [&](int, int) { return box; }), seen);
    cut_out(image.view().part(box), expected);
    EXPECT_EQ(seen.pixels, expected.pixels);
    ++decoded;
  }
  EXPECT_GT(decoded, 0);
  RecordProperty("largest_deviation_of_a_mean", std::to_string(largest));
  std::printf("%d files decoded, %d refused; largest deviation of a mean: %.4f\n", decoded, refused, largest);
}

TEST(RealImageNet, GivesBatches) {
  const char* folder = std::getenv("ABTRAIN_IMAGENET_DIR");
  if (!folder) GTEST_SKIP() << "ABTRAIN_IMAGENET_DIR is not set";
  const TrainAndTest data = load_imagenet(folder, 64, 20);
  EXPECT_EQ(data.train->count, 64);
  for (const auto& set : {data.train, data.test}) {
    Loader loader(*set, {.batch_size = 16, .training = set == data.train});
    loader.start_epoch(0);
    const auto batch = loader.next();
    ASSERT_EQ(batch->images.shape(), (Shape{16, 224, 224, 3}));
    // Normalised by ImageNet's statistics, photographs come out around 0 with a deviation around 1.
    double sum = 0, square = 0;
    for (float v : batch->images.span<float>()) sum += v, square += double{v} * v;
    const auto n = static_cast<double>(batch->images.numel());
    EXPECT_LT(std::abs(sum / n), 0.8);
    EXPECT_GT(square / n, 0.3);
    EXPECT_LT(square / n, 3);
  }
}

// ---- Folders ----

/// A small ImageNet of its own for each test, removed at its end.
class ImageNetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "abtrain-imagenet-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Two classes, five images to train on and three to test on, of different sizes.
  void write_images() {
    for (const char* name : {"train/n02/b.JPEG", "train/n01/z.JPEG", "train/n01/a.jpg", "train/n02/a.JPEG",
                             "train/n01/B.jpeg", "val/n02/y.JPEG", "val/n01/x.JPEG", "val/n02/A.JPEG"}) {
      write_file(folder_ / name, make_jpeg(30 + 3 * images_, 50 - 2 * images_, 25 * images_));
      ++images_;
    }
  }
  std::string load_error() {
    return message_of(ErrorKind::data, [&] { load_imagenet(folder_.string()); });
  }

  fs::path folder_;
  int images_ = 0;
};

std::vector<std::string> files_of(const Dataset& set) {
  const auto& folder = dynamic_cast<const ImageFiles&>(set);
  std::vector<std::string> files;
  for (std::int64_t i = 0; i < set.count; ++i) {
    const fs::path path = folder.path(i);
    files.push_back(
        fmt::format("{}/{} {}", path.parent_path().filename().string(), path.filename().string(), set.label(i)));
  }
  return files;
}

TEST_F(ImageNetTest, ListsClassesAndFilesByName) {
  write_images();
  write_file(folder_ / "train/n01/notes.txt", {1});
  write_file(folder_ / "train/n01/.hidden.JPEG", {1});
  write_file(folder_ / "train/LICENSE", {1});
  write_file(folder_ / "train/classes.txt", {1});
  for (const char* name : {"n01/.DS_Store", "n01/Thumbs.db", "n02/desktop.ini", "n02/@eaDir/a.JPEG", ".cache/a.JPEG"})
    write_file(folder_ / "val" / name, {1});
  const TrainAndTest data = load_imagenet(folder_.string());
  EXPECT_TRUE(data.train->warnings.empty()) << data.train->warnings.front();
  EXPECT_TRUE(data.test->warnings.empty()) << data.test->warnings.front();
  EXPECT_EQ(files_of(*data.train),
            (std::vector<std::string>{"n01/B.jpeg 0", "n01/a.jpg 0", "n01/z.JPEG 0", "n02/a.JPEG 1", "n02/b.JPEG 1"}));
  EXPECT_EQ(files_of(*data.test), (std::vector<std::string>{"n01/x.JPEG 0", "n02/A.JPEG 1", "n02/y.JPEG 1"}));
  EXPECT_EQ(data.train->classes, 2);
  EXPECT_EQ(data.test->classes, 2);
  EXPECT_EQ(data.train->height, 224);
  const TrainAndTest few = load_imagenet(folder_.string(), 3, 2);
  EXPECT_EQ(files_of(*few.train), (std::vector<std::string>{"n01/B.jpeg 0", "n01/a.jpg 0", "n02/a.JPEG 1"}));
  EXPECT_EQ(files_of(*few.test), (std::vector<std::string>{"n01/x.JPEG 0", "n02/A.JPEG 1"}));
}

void run_shell(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

TEST_F(ImageNetTest, IsTheSameSetFromFoldersArchivesAndAFlatVal) {
  write_images();
  const TrainAndTest folders = load_imagenet(folder_.string());
  const auto expect_same = [&](const fs::path& where) {
    const TrainAndTest other = load_imagenet(where.string());
    EXPECT_EQ(other.fingerprint(), folders.fingerprint()) << where;
    EXPECT_EQ(other.contents(), folders.contents()) << where;
    for (const auto& [set, same] : {std::pair{other.train, folders.train}, std::pair{other.test, folders.test}})
      for (std::int64_t i = 0; i < same->count; ++i) {
        Image image, expected;
        set->read(i, image), same->read(i, expected);
        EXPECT_EQ(set->label(i), same->label(i));
        EXPECT_EQ(image.pixels, expected.pixels);
      }
    const TrainAndTest few = load_imagenet(where.string(), 3, 2);
    EXPECT_EQ(few.fingerprint(), load_imagenet(folder_.string(), 3, 2).fingerprint());
  };
  const auto make = [&](const fs::path& where, const std::string& commands) {
    fs::create_directories(folder_ / where);
    run_shell(fmt::format("cd '{}' && {}", (folder_ / where).string(), commands));
    expect_same(folder_ / where);
  };
  make("archives", "tar -C .. -cf train.tar train && tar -C ../val -cf val.tar n02 n01");
  make(
      "official",
      "for c in n02 n01; do (cd ../train/$c && tar -cf ../../official/$c.tar *); done && tar -cf ILSVRC2012_img_train.tar n0*.tar && "
      "mkdir flat && cp ../val/*/* flat && tar -C flat -cf ILSVRC2012_img_val.tar x.JPEG y.JPEG A.JPEG && "
      "printf 'ImageId,PredictionString\\nA,n02 1 2 3 4 \\ny,n02 1 2 3 4 n02 5 6 7 8\\nx,n01 1 2 3 4\\n' > LOC_val_solution.csv");
  make("lists",
       "ls ../train/*/* | sort -r | awk -F/ '{print $0, $3}' > train.txt && "
       "ls \"$PWD\"/../val/*/* | awk -F/ '{print \"\"; print \"  \" $0 \" \\t\" $(NF-1) \"\\r\"}' > val.txt");
  make(
      "flat",
      "cp -r ../train . && mkdir val && cp ../val/*/* val && printf 'A.JPEG n02\\ny.JPEG n02\\nx.JPEG n01\\n' > val.txt");
}

TEST_F(ImageNetTest, FilesOfOneNameInTwoArchivesAreTwoImages) {
  write_images();
  const fs::path where = folder_ / "archives";
  fs::create_directories(where);
  run_shell(fmt::format(
      "cd '{}' && tar -C .. -cf val.tar val && mv ../train train && tar -C train -cf train-0.tar n01 && cp train/*/z.JPEG . && "
      "tar -C train -cf train-1.tar n01/z.JPEG n02 -C .. z.JPEG && rm -r train",
      where.string()));
  const auto train = load_imagenet(where.string()).train;
  EXPECT_EQ(files_of(*train), (std::vector<std::string>{"n01/B.jpeg 0", "n01/a.jpg 0", "n01/z.JPEG 0", "n01/z.JPEG 0",
                                                        "n02/a.JPEG 1", "n02/b.JPEG 1"}));
  const auto& files = dynamic_cast<const ImageFiles&>(*train);
  EXPECT_TRUE(contains(files.path(2), "train-0.tar/"));
  EXPECT_TRUE(contains(files.path(3), "train-1.tar/"));
  ASSERT_EQ(train->warnings.size(), 1u);
  EXPECT_TRUE(contains(train->warnings[0], "1 file in '" + (where / "train-0.tar").string() +
                                               "' is left out: 1 in no folder of a class ('z.JPEG')"));
}

TEST_F(ImageNetTest, ShardsOfAWebDatasetAreTheSameSetToo) {
  for (const char* name : {"train/n01/p.JPEG", "train/n01/q.JPEG", "train/n02/r.JPEG", "val/n02/s.JPEG"})
    write_file(folder_ / name, make_jpeg(30 + 3 * images_++, 50, 25));
  const TrainAndTest folders = load_imagenet(folder_.string());
  const fs::path where = folder_ / "shards";
  const auto pack = [&](const std::string& first, const std::string& second) {
    fs::remove_all(where);
    fs::create_directories(where);
    run_shell(fmt::format(
        "cd '{}' && cp ../*/*/*.JPEG . && printf '{}\\n' | tee p.cls > q.cls && printf '{}' | tee r.cls > s.cls && "
        "echo '{{}}' > p.json && tar -cf train-000.tar p.* r.* && tar -cf train-001.tar q.* && tar -cf data-val-0.tar s.*",
        where.string(), first, second));
  };
  pack("n01", "n02");
  const TrainAndTest shards = load_imagenet(where.string());
  EXPECT_EQ(shards.fingerprint(), folders.fingerprint());
  EXPECT_EQ(shards.contents(), folders.contents());
  EXPECT_TRUE(shards.train->warnings.empty());
  fs::rename(where / "data-val-0.tar", where / "data-validation-0.tar");
  std::ofstream(where / "._data-validation-0.tar") << "of a file manager";
  EXPECT_EQ(load_imagenet(where.string()).fingerprint(), folders.fingerprint());
  for (std::int64_t i = 0; i < 3; ++i) {
    Image image, expected;
    shards.train->read(i, image), folders.train->read(i, expected);
    EXPECT_EQ(image.pixels, expected.pixels);
  }
  pack("2", "10");
  const TrainAndTest numbered = load_imagenet(where.string());
  EXPECT_EQ(dynamic_cast<const ImageFiles&>(*numbered.train).class_names(),
            (std::vector<std::string>{"00002", "00010"}));
  EXPECT_TRUE(contains(dynamic_cast<const ImageFiles&>(*numbered.train).path(1), "train-001.tar/q.JPEG"));
  const auto error = [&](const std::string& command) {
    run_shell(fmt::format("cd '{}' && {}", where.string(), command));
    return message_of(ErrorKind::data, [&] { load_imagenet(where.string()); });
  };
  EXPECT_TRUE(contains(error("tar -cf train-001.tar q.JPEG"),
                       "'q.JPEG' in '" + (where / "train-001.tar").string() + "' has no .cls"));
  EXPECT_TRUE(contains(error("tar -cf train-000.tar p.JPEG"), "train-000.tar' has no class folders"));
}

TEST_F(ImageNetTest, AFlatValNeedsAClassForEveryImage) {
  write_images();
  run_shell(fmt::format("cd '{}' && mv val/*/* val && rmdir val/n0*", folder_.string()));
  EXPECT_TRUE(contains(load_error(), "val' has no class folders, but 3 in no folder of a class"));
  const auto with_list = [&](const char* text) {
    std::ofstream(folder_ / "val.txt") << text;
    return load_error();
  };
  EXPECT_TRUE(contains(with_list("A.JPEG n02\nx.JPEG n01\n"), "has no line for 'y.JPEG'"));
  EXPECT_TRUE(
      contains(with_list("A.JPEG 2\nx.JPEG 1\ny.JPEG 2\n"),
               "gives 'A.JPEG' the class 2, which is no folder of train; numbers are in one order in the devkit"));
  EXPECT_TRUE(
      contains(with_list("A.JPEG n02\nx.JPEG n03\ny.JPEG n02\n"), "val has the class 'n03', which train lacks"));
  EXPECT_TRUE(contains(with_list("A.JPEG n02\nx.JPEG\n"), "line 2 of '"));
}

TEST_F(ImageNetTest, AListNamesAnImageAndItsClassOnEachLine) {
  write_images();
  fs::rename(folder_ / "train", folder_ / "images of all");
  const auto with_list = [&](const std::string& text) {
    std::ofstream(folder_ / "train.txt") << text;
    return load_error();
  };
  const std::string list = (folder_ / "train.txt").string();
  EXPECT_TRUE(contains(with_list("images of all/n01/z.JPEG n01\n\na.JPEG\n"),
                       "line 3 of '" + list + "' is no path of an image and its class: 'a.JPEG'"));
  EXPECT_TRUE(contains(with_list("a.webp n01\n"),
                       "line 1 of '" + list + "' names no file of an image (.JPEG, .jpg, .png): 'a.webp n01'"));
  EXPECT_TRUE(contains(with_list("a.JPEG n01\nb.JPEG n02\na.JPEG n02\n"),
                       "line 3 of '" + list + "' names an image a second time: 'a.JPEG n02'"));
  EXPECT_TRUE(contains(with_list("\n"), "'" + list + "' cannot be read, or names no image"));
  EXPECT_TRUE(
      contains(with_list("images of all/n01/z.JPEG n03\n"), "('n01' is the first) is named as a class of train"));
  std::ofstream(folder_ / "train.txt")
      << "images of all/n02/a.JPEG n02\nimages of all/n01/z.JPEG n01\nn01/z.JPEG n01\n";
  const auto train = load_imagenet(folder_.string()).train;
  EXPECT_EQ(files_of(*train), (std::vector<std::string>{"n01/z.JPEG 0", "n01/z.JPEG 0", "n02/a.JPEG 1"}));
  const auto& files = dynamic_cast<const ImageFiles&>(*train);
  EXPECT_EQ(files.path(0), (folder_ / "images of all/n01/z.JPEG").string());
  EXPECT_EQ(files.file_name(0), "z.JPEG");
  fs::rename(folder_ / "val", folder_ / "away");
  std::ofstream(folder_ / "val.txt") << "away/n01/x.JPEG 1\n";
  EXPECT_TRUE(contains(load_error(),
                       "no class in '" + (folder_ / "val.txt").string() + "' ('00001' is the first) is named as"));
  fs::create_directories(folder_ / "train/n01");
  EXPECT_TRUE(contains(load_error(), "there are no images (.JPEG, .jpg, .png) in the class folders of '"))
      << "a folder comes before its list";
}

/// A part of many files, in folders that nobody changes.
class ListOfManyFilesTest : public ImageNetTest {
 protected:
  void SetUp() override {
    ImageNetTest::SetUp();
    cache_home_ = std::getenv("XDG_CACHE_HOME") ? std::getenv("XDG_CACHE_HOME") : "";
    keep_lists_in(folder_ / "cache");
    for (const char* name : {"n01", "n02"}) {
      fs::create_directories(folder_ / "train" / name);
      write_file(folder_ / "val" / name / "a.JPEG", {1});
      for (std::int64_t i = 0; i <= kImagesWorthSaving / 2; ++i)
        std::ofstream(folder_ / "train" / name / fmt::format("{}.JPEG", i));
    }
    for (const char* name : {"n01/c.webp", "n02/more/a.JPEG", "n03.tar"}) write_file(folder_ / "train" / name, {1});
    age();
  }
  void TearDown() override {
    keep_lists_in(cache_home_);
    ImageNetTest::TearDown();
  }

  static void keep_lists_in(const fs::path& home) {
    if (home.empty()) ::unsetenv("XDG_CACHE_HOME");
    else ::setenv("XDG_CACHE_HOME", home.c_str(), 1);
  }
  /// The folders of train were last changed an hour ago, and then that much later.
  void age(std::chrono::nanoseconds later = {}) const {
    for (const char* name : {"train", "train/n01", "train/n02"}) fs::last_write_time(folder_ / name, hour_ago_ + later);
  }
  /// Changes the folder and sets its time back, as tools do that copy folders.
  void remove_in_secret(const fs::path& file) const {
    const auto time = fs::last_write_time(file.parent_path());
    ASSERT_TRUE(fs::remove(file));
    fs::last_write_time(file.parent_path(), time);
  }
  /// Whether the list tells, which gets the time of its last use then and is not written anew.
  bool list_serves() const {
    const fs::path list = lists().at(0);
    const auto file = [&] {
      struct stat state {};
      EXPECT_EQ(::stat(list.c_str(), &state), 0);
      return state.st_ino;
    };
    fs::last_write_time(list, hour_ago_);
    const auto before = file();
    load();
    return file() == before && fs::last_write_time(list) > hour_ago_;
  }
  TrainAndTest load(bool saves_lists = true) const { return load_imagenet(folder_.string(), 0, 0, saves_lists); }
  std::int64_t images() const { return load().train->count; }
  std::vector<fs::path> lists() const {
    std::vector<fs::path> found;
    std::error_code none;
    for (fs::directory_iterator at(folder_ / "cache/abtrain", none), end; at != end; ++at) found.push_back(at->path());
    return found;
  }

  std::string cache_home_;
  fs::file_time_type hour_ago_ = fs::file_time_type::clock::now() - std::chrono::hours(1);
  static constexpr std::int64_t kFiles = 2 * (kImagesWorthSaving / 2 + 1);
};

TEST_F(ListOfManyFilesTest, IsSavedAndServesAsLongAsNoFolderChanges) {
  const TrainAndTest first = load();
  EXPECT_EQ(lists().size(), 1u) << "of train; val is small";
  const TrainAndTest again = load();
  EXPECT_EQ(again.fingerprint(), first.fingerprint());
  EXPECT_EQ(files_of(*again.train), files_of(*first.train));
  EXPECT_EQ(again.train->warnings, first.train->warnings);
  ASSERT_EQ(first.train->warnings.size(), 1u);
  EXPECT_TRUE(contains(first.train->warnings[0], "3 files in '"));

  EXPECT_TRUE(list_serves());
  remove_in_secret(folder_ / "train/n01/0.JPEG");
  const TrainAndTest changed = load();
  EXPECT_EQ(changed.train->count, kFiles - 1);
  EXPECT_EQ(changed.train->warnings, first.train->warnings);
  EXPECT_TRUE(list_serves()) << "the second list";
  fs::rename(folder_ / "train/n02", folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / "train/n02");
  age();
  EXPECT_EQ(images(), kFiles - 1) << "a third";
  fs::remove(folder_ / "elsewhere/0.JPEG");
  EXPECT_EQ(images(), kFiles - 2) << "a link leads to the folder that has changed";
  age(std::chrono::microseconds(1));
  EXPECT_EQ(images(), kFiles - 2) << "a fourth list";
  write_file(folder_ / "train/n03/a.JPEG", {1});
  EXPECT_EQ(images(), kFiles - 1) << "a new class";
}

TEST_F(ListOfManyFilesTest, IsReplacedWhenItIsDamaged) {
  const TrainAndTest first = load();
  const fs::path list = lists().at(0);
  const Bytes whole = read_file(list);
  Bytes flipped = whole;
  flipped[whole.size() / 2] ^= 1;
  for (const Bytes& damaged : {flipped, Bytes(whole.begin(), whole.begin() + 5000), Bytes{}}) {
    write_file(list, damaged);
    const TrainAndTest read = load();
    EXPECT_EQ(read.fingerprint(), first.fingerprint());
    ASSERT_EQ(read.train->warnings.size(), 2u);
    EXPECT_TRUE(contains(read.train->warnings[0], "imagenet: the list '" + list.string() + "' of the files in '"));
    EXPECT_EQ(read.train->warnings[1], first.train->warnings[0]);
    EXPECT_EQ(read_file(list), whole) << "it is written anew";
    EXPECT_EQ(load().train->warnings, first.train->warnings);
  }
}

TEST_F(ListOfManyFilesTest, IsNotSavedWhereItCouldMislead) {
  const TrainAndTest unsaved = load(/*saves_lists=*/false);
  EXPECT_TRUE(lists().empty()) << "another process saves it";
  age(std::chrono::hours(2));
  load();
  EXPECT_TRUE(lists().empty()) << "a folder changed a moment ago";
  fs::create_directory_symlink("gone", folder_ / "train/n04");
  age();
  load();
  EXPECT_TRUE(lists().empty()) << "the folder may be there next time";
  fs::remove(folder_ / "train/n04");
  age();
  keep_lists_in(folder_ / "val/n01/a.JPEG/none");
  EXPECT_EQ(load().train->warnings, unsaved.train->warnings) << "where no list can be written";
  keep_lists_in(folder_ / "cache");
  load();
  EXPECT_EQ(lists().size(), 1u);
}

TEST_F(ListOfManyFilesTest, OldListsOfOtherFoldersGo) {
  for (int i = 0; i < 20; ++i) {
    const fs::path other = folder_ / fmt::format("cache/abtrain/images-{}", i);
    write_file(other, {1});
    fs::last_write_time(other, hour_ago_ + std::chrono::seconds(i));
  }
  write_file(folder_ / "cache/abtrain/synthetic", {1});
  load();
  EXPECT_EQ(lists().size(), 17u) << "16 lists, and what is none";
  EXPECT_FALSE(fs::exists(folder_ / "cache/abtrain/images-4"));
  EXPECT_TRUE(fs::exists(folder_ / "cache/abtrain/images-5"));
}

TEST_F(ImageNetTest, MoreClassesThanLabelsAreRefused) {
  fs::create_directories(folder_ / "val");
  std::ofstream list(folder_ / "train.txt");
  for (int i = 0; i <= 65536; ++i) list << fmt::format("{0}.jpg class{0}\n", i);
  list.close();
  EXPECT_TRUE(contains(load_error(), "has 65537 classes, expected 1 to 65536"));
}

TEST_F(ImageNetTest, FingerprintTellsListsApart) {
  write_images();
  const auto fingerprint = [&] { return load_imagenet(folder_.string()).train->fingerprint(); };
  const std::uint64_t first = fingerprint();
  EXPECT_EQ(fingerprint(), first);
  fs::rename(folder_ / "train/n01/z.JPEG", folder_ / "train/n02/z.JPEG");
  const std::uint64_t moved = fingerprint();
  EXPECT_NE(moved, first);
  fs::rename(folder_ / "train/n02/z.JPEG", folder_ / "train/n01/y.JPEG");
  EXPECT_NE(fingerprint(), first);
  EXPECT_NE(fingerprint(), moved);
}

TEST_F(ImageNetTest, ContentsTellFilesOfTheSameNamesApart) {
  write_images();
  const auto contents = [&] { return load_imagenet(folder_.string()).contents(); };
  const std::vector<std::uint64_t> first = contents();
  EXPECT_EQ(contents(), first);
  for (const char* file : {"train/n02/a.JPEG", "val/n01/x.JPEG"}) {
    const Bytes before = read_file(folder_ / file);
    Bytes after = before;
    after.push_back(0);
    write_file(folder_ / file, after);
    EXPECT_NE(contents(), first) << file;
    write_file(folder_ / file, before);
  }
  EXPECT_EQ(contents(), first);
  const TrainAndTest data = load_imagenet(folder_.string());
  fs::rename(folder_ / "train", folder_ / "unmounted");
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { data.contents(); }),
                       "5 of 5 files that were looked at are not there, '" + (folder_ / "train/n01/B.jpeg").string()));
}

TEST_F(ImageNetTest, ClassesComeFromTrain) {
  write_images();
  fs::remove_all(folder_ / "val/n01");
  const auto val = load_imagenet(folder_.string()).test;
  EXPECT_EQ(files_of(*val), (std::vector<std::string>{"n02/A.JPEG 1", "n02/y.JPEG 1"}))
      << "a class without images in val keeps its number";
  EXPECT_EQ(val->warnings, std::vector<std::string>{"imagenet: val has no images of 1 of 2 classes, 'n01' first"});
  fs::create_directories(folder_ / "val/n015");
  EXPECT_TRUE(contains(load_error(), "val has the class 'n015', which train lacks"));
  fs::create_directories(folder_ / "train/n015");
  EXPECT_TRUE(contains(load_error(), "the class folder 'n015' in train holds no images"));
}

TEST_F(ImageNetTest, SaysWhatIsMissing) {
  EXPECT_TRUE(contains(load_error(), "there is no folder '" + (folder_ / "train").string() + "'"));
  fs::create_directories(folder_ / "train");
  EXPECT_TRUE(contains(load_error(), "there is no folder '" + (folder_ / "val").string() + "'"));
  fs::create_directories(folder_ / "val");
  EXPECT_TRUE(contains(load_error(), "train' has no class folders; sort its images"));
  write_file(folder_ / "train/a.JPEG", make_jpeg(8, 8, 1));
  EXPECT_TRUE(contains(load_error(), "train' has no class folders, but 1 in no folder of a class ('a.JPEG'); "));
  fs::create_directory(folder_ / "train/n01");
  fs::rename(folder_ / "train/a.JPEG", folder_ / "train/n01/a.JPEG");
  EXPECT_TRUE(contains(load_error(), "val' has no class folders; sort its images"));
  write_file(folder_ / "val/n01/a.JPEG", make_jpeg(8, 8, 1));
  const std::vector<std::string> said = load_imagenet(folder_.string()).train->warnings;
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(contains(said[0], "has the images of one class, 'n01', and so nothing to tell apart"));
}

TEST_F(ImageNetTest, FilesThatAreLeftOutAreCountedByReason) {
  write_images();
  for (const char* name : {"n01/c.webp", "n02/d.BMP", "n02/e.tiff", "n01/f.gif", "n02/g.heic", "n01/h.jpg.part"})
    write_file(folder_ / "train" / name, {1});
  for (const char* name : {"n02/00017", "n02/more/a.JPEG", "n02/more/deep/b.webp", "n02/shots.jpg/c.jpg", "n03.tar"})
    write_file(folder_ / "train" / name, {1});
  for (const char* name : {"n02/.thumbnails/a.JPEG", "n02/more/.hidden.JPEG", "n02/more/notes.txt"})
    write_file(folder_ / "train" / name, {1});
  fs::create_directories(folder_ / "train/n01/empty");
  fs::create_directory_symlink("gone", folder_ / "train/n04");
  write_file(folder_ / "val/z.JPEG", {1});
  const TrainAndTest data = load_imagenet(folder_.string());
  EXPECT_EQ(data.train->count, 5);
  ASSERT_EQ(data.train->warnings.size(), 1u);
  EXPECT_TRUE(
      contains(data.train->warnings[0],
               "12 files in '" + (folder_ / "train").string() +
                   "' are left out: 6 of another format than JPEG and PNG ('n01/c.webp'), 1 without an extension "
                   "('n02/00017'), 3 in folders inside a class's folder ('n02/more/a.JPEG'), 1 in no "
                   "folder of a class ('n03.tar'), 1 as a link to a folder that is not there ('n04')"));
  ASSERT_EQ(data.test->warnings.size(), 1u);
  EXPECT_TRUE(contains(data.test->warnings[0],
                       "1 file in '" + (folder_ / "val").string() + "' is left out: 1 in no folder of a class"));
}

TEST_F(ImageNetTest, AFolderWithoutImagesToReadIsToldByWhatItHolds) {
  write_images();
  write_file(folder_ / "train/n03/a.bmp", {1});
  write_file(folder_ / "train/n03/b.bmp", {1});
  const std::string formats = load_error();
  EXPECT_TRUE(contains(formats,
                       "the class folder 'n03' in train holds no images (.JPEG, .jpg, .png), but 2 of another format "
                       "than JPEG and PNG ('a.bmp'); convert them to JPEG or PNG"));
  EXPECT_EQ(formats.find("remove"), std::string::npos) << formats;

  // As Tiny-ImageNet has them.
  fs::remove_all(folder_ / "train");
  for (const char* name : {"n01/images/n01_0.JPEG", "n01/n01_boxes.txt", "n02/images/n02_0.JPEG", "n02/n02_boxes.txt"})
    write_file(folder_ / "train" / name, make_jpeg(8, 8, 1));
  EXPECT_TRUE(contains(load_error(),
                       "in the class folders of '" + (folder_ / "train").string() +
                           "', but 2 in folders inside a class's folder ('n01/images/n01_0.JPEG'); move them up"));
  for (const char* name : {"n01", "n02"})
    fs::rename(folder_ / "train" / name / "images" / (std::string(name) + "_0.JPEG"),
               folder_ / "train" / name / "0.JPEG");
  fs::remove_all(folder_ / "val");
  write_file(folder_ / "val/images/val_0.JPEG", {1});
  write_file(folder_ / "val/val_annotations.txt", {1});
  EXPECT_TRUE(contains(load_error(), "('images' is the first) is named as a class of train; sort its images"));
}

TEST_F(ImageNetTest, LinksAndOddNames) {
  write_images();
  fs::rename(folder_ / "train/n02", folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / "train/n02");
  fs::create_directory_symlink(folder_ / "train", folder_ / "train/n01/loop");
  fs::create_directory_symlink("itself", folder_ / "train/itself");
  const std::string odd = "a\nb\xff.JPEG";
  write_file(folder_ / "train/n01" / odd, {1, 2, 3, 4});
  const TrainAndTest data = load_imagenet(folder_.string());
  EXPECT_EQ(data.train->count, 6);
  EXPECT_EQ(data.train->classes, 2);
  ASSERT_EQ(data.train->warnings.size(), 1u);
  EXPECT_TRUE(contains(data.train->warnings[0], "1 in folders inside a class's folder ('n01/loop'), 1 as a link"));
  Image buffer;
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { data.train->read(1, buffer); }),
                       "n01/a\\x0ab\\xff.JPEG: neither a JPEG"));
  fs::create_symlink("gone.JPEG", folder_ / "train/n01/link.JPEG");
  EXPECT_TRUE(contains(load_error(), "train/n01/link.JPEG' cannot be read"));
}

// ---- Batches ----

TEST_F(ImageNetTest, BatchesAreScaledAndNormalised) {
  write_images();
  const TrainAndTest data = load_imagenet(folder_.string());
  for (const bool training : {true, false}) {
    Loader loader(*data.train, {.batch_size = 5, .seed = 3, .training = training, .image_size = 20});
    loader.start_epoch(4);
    const auto batch = loader.next();
    ASSERT_EQ(batch->images.shape(), (Shape{5, 20, 20, 3}));
    const auto order = training ? Sampler{5, 5, 0, 1, 3, true}.samples(4) : std::vector<std::int64_t>{0, 1, 2, 3, 4};
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(batch->labels.span<std::int64_t>()[i], data.train->label(order[i]));
      Image decoded, expected;
      Resizer resizer;
      const ImageView image = data.train->read(order[i], decoded);
      if (training)
        resized_crop(image, draw_resized_crop({3, 4, order[i]}, image.height, image.width), 20, 20, resizer, expected);
      else centre_crop(image, 20, 20, resizer, expected);
      const float mean[3] = {0.485f, 0.456f, 0.406f}, stddev[3] = {0.229f, 0.224f, 0.225f};
      for (std::size_t k = 0; k < expected.pixels.size(); ++k)
        ASSERT_NEAR(batch->images.span<float>()[i * expected.pixels.size() + k],
                    (expected.pixels[k] / 255.0 - mean[k % 3]) / stddev[k % 3], 3e-6);
    }
  }
}

TEST(ImageTransform, FastDecodingShrinksByTheLargestNumberThatLeavesEnough) {
  ImageSet set;
  set.cropping = Cropping::resized;
  int seen[9] = {};
  for (std::int64_t i = 0; i < 200; ++i) {
    const SampleKey key{3, 4, i};
    const Box box = draw_resized_crop(key, 250, 170, 0.01).box;
    int expected = 1;
    for (const int shrink : {2, 4, 8})
      if (box.height >= shrink * 21 && box.width >= shrink * 14) expected = shrink;
    ++seen[expected];
    for (const Decode decode : {Decode::exact, Decode::fast}) {
      const ImageTransform transform(set, 21, 14, {.min_area = 0.01, .decode = decode});
      const WantedPart part = transform.part_seen({}, key)(250, 170);
      EXPECT_EQ(part.box, box);
      EXPECT_EQ(part.shrink, decode == Decode::fast ? expected : 1);
    }
  }
  for (const int shrink : {1, 2, 4, 8}) EXPECT_GT(seen[shrink], 5) << shrink;
}

TEST_F(ImageNetTest, FastDecodingShrinksWhatTrainingSeesAtMostHalfAsLarge) {
  write_images();
  const auto train = load_imagenet(folder_.string()).train;
  const auto pass = [&](LoaderOptions options, std::int64_t first = 0) {
    options.seed = 3;
    Loader loader(*train, options);
    loader.start_epoch(2, first);
    std::vector<std::vector<float>> batches;
    while (const auto batch = loader.next())
      batches.emplace_back(batch->images.span<float>().begin(), batch->images.span<float>().end());
    return batches;
  };
  const LoaderOptions exact{.batch_size = 1, .image_size = 8};
  LoaderOptions fast = exact;
  fast.framing.decode = Decode::fast;
  const auto one_rank = pass(fast);
  double sum = 0;
  int shrunk_images = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const auto expected = pass(exact)[i];
    shrunk_images += one_rank[i] != expected;
    for (std::size_t k = 0; k < expected.size(); ++k) sum += std::abs(one_rank[i][k] - expected[k]);
  }
  EXPECT_GE(shrunk_images, 3);
  EXPECT_LT(sum / (5.0 * 8 * 8 * 3), 0.1);

  // Whatever prepares them, and from wherever on.
  LoaderOptions other = fast;
  other.threads = 8;
  EXPECT_EQ(pass(other), one_rank);
  EXPECT_EQ(pass(other, 3), (std::vector{one_rank[3], one_rank[4]}));
  other.world_size = 2;
  for (other.rank = 0; other.rank < 2; ++other.rank)
    EXPECT_EQ(pass(other), (std::vector{one_rank.at(static_cast<std::size_t>(other.rank)),
                                        one_rank.at(static_cast<std::size_t>(other.rank) + 2)}));

  // Nothing is twice as large; and validation.
  for (const bool training : {true, false}) {
    LoaderOptions same = fast;
    same.training = training, same.image_size = training ? 26 : 8;
    const auto images = pass(same);
    same.framing.decode = Decode::exact;
    EXPECT_EQ(pass(same), images);
  }
}

TEST_F(ImageNetTest, TrainingCanGoOnWithoutADamagedImage) {
  write_images();
  const TrainAndTest whole = load_imagenet(folder_.string());
  const auto pass = [&](const LoaderOptions& options) {
    Loader loader(*whole.train, options);
    loader.start_epoch(0);
    std::vector<std::pair<std::int64_t, std::vector<double>>> images;
    while (const auto batch = loader.next())
      images.emplace_back(batch->labels.data<std::int64_t>()[0], batch->images.to_doubles());
    return images;
  };
  LoaderOptions options{.batch_size = 1, .image_size = 16, .threads = 1};
  options.augmentation.crop_and_flip = false;
  const auto before = pass(options);
  const std::string damaged = dynamic_cast<const ImageFiles&>(*whole.train).path(0);
  fs::resize_file(damaged, 20);
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { pass(options); }), damaged));
  const auto bad = options.bad_images = std::make_shared<BadImages>(1);
  testing::internal::CaptureStderr();
  const auto after = pass(options);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(said, "warning: ") && contains(said, damaged) &&
              contains(said, "; another image takes its place\n"))
      << said;
  ASSERT_EQ(after.size(), before.size());
  int changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) changed += after[i] != before[i];
  EXPECT_EQ(changed, 1) << "the others are as they were";
  EXPECT_EQ(pass(options), after) << "the same image again";
  EXPECT_EQ(bad->names(), std::set<std::string>{damaged});
  options.training = false;
  EXPECT_EQ(std::ssize(pass(options)), whole.train->count - 1) << "a validation counts one less";
}

TEST_F(ImageNetTest, AFileThatIsThereAgainIsRead) {
  write_images();
  const TrainAndTest data = load_imagenet(folder_.string());
  const fs::path file = dynamic_cast<const ImageFiles&>(*data.train).path(0), away = folder_ / "away";
  fs::rename(file, away);
  std::thread disk([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    fs::rename(away, file);
  });
  Image buffer;
  EXPECT_GT(data.train->read(0, buffer).width, 0);
  disk.join();
}

TEST_F(ImageNetTest, DamagedFileReachesTheCallerWithItsName) {
  write_images();
  const TrainAndTest data = load_imagenet(folder_.string());
  const fs::path file = folder_ / "train/n02/a.JPEG";
  for (const int threads : {1, 3}) {
    fs::resize_file(file, 300);
    Loader loader(*data.train, {.batch_size = 1, .training = false, .image_size = 16, .threads = threads});
    loader.start_epoch(0);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next().has_value()) << "batches before the damaged file";
    for (int again = 0; again < 2; ++again)
      EXPECT_TRUE(
          contains(message_of(ErrorKind::data, [&] { loader.next(); }), file.string() + ": the JPEG is truncated"));
  }
  fs::remove(file);
  Image buffer;
  EXPECT_TRUE(
      contains(message_of(ErrorKind::data, [&] { data.train->read(3, buffer); }), "cannot read '" + file.string()));
}

}  // namespace
}  // namespace ab
