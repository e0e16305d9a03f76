// SPDX-License-Identifier: MIT
//
// JPEG by libjpeg-turbo. It is read with the library's defaults (exact integer transform, smooth chroma upsampling), as Pillow uses
// it, and written from pixels, or from another JPEG's coefficients.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include <jerror.h>
#include <jpeglib.h>

#include "data/decode.h"
#include "data/tiled_jpeg.h"
#include "engine/core/check.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "abtrain needs libjpeg-turbo; the jpeglib.h that was found belongs to a different libjpeg"
#endif

namespace ab {
namespace {

// libjpeg-turbo reports fatal errors through a function that must not return, and C code lies in between, so the way back is a
// longjmp: nothing with a destructor may come to life after its setjmp.

/// The state that the library calls back with; its first member is the library's own struct.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf way_back;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void give_up(j_common_ptr codec) {
  auto* state = reinterpret_cast<JpegErrors*>(codec->err);
  state->base.format_message(codec, state->message);
  std::longjmp(state->way_back, 1);
}

/// Damaged data is only a warning to the library, which fills in grey. These warnings leave all pixels right: the last is of
/// parameters that a sequential file has no use for.
bool harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM || warning == JWRN_JFIF_MAJOR ||
         warning == JWRN_NOT_SEQUENTIAL;
}

void on_message(j_common_ptr codec, int level) {
  const bool warning = level < 0;
  if (warning && !harmless(codec->err->msg_code)) give_up(codec);
}

/// For a codec to hold; a file's damage is an error, where the library would warn and fill in grey.
jpeg_error_mgr* begin(JpegErrors& errors) {
  jpeg_std_error(&errors.base);
  errors.base.error_exit = give_up;
  errors.base.emit_message = on_message;
  errors.message[0] = '\0';
  return &errors.base;
}

void limit_scans(j_common_ptr codec) {
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= kMaxJpegScans) return;
  auto* state = reinterpret_cast<JpegErrors*>(codec->err);
  std::snprintf(state->message, sizeof state->message, "more than %d scans", kMaxJpegScans);
  std::longjmp(state->way_back, 1);
}

constexpr int kChromaReach = 2;  // pixels that smooth chroma looks beyond a part
constexpr int kCutReach = 5;  // the same of a file that is cut: of less than three samples a row chroma is not smooth

/// v · w / 255, rounded as Pillow does.
std::uint8_t multiply_bytes(int v, int w) {
  const int product = v * w + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

/// Inverted CMYK, [width, 4], to RGB: R = (1 - C) · (1 - K), and inverted already means 1 - C.
void cmyk_to_rgb(const std::uint8_t* cmyk, int width, std::uint8_t* rgb) {
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3)
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<std::uint8_t>(cmyk[3] - multiply_bytes(255 - cmyk[c], cmyk[3]));
}

class JpegDecoder {
 public:
  explicit JpegDecoder(std::span<const std::uint8_t> file) : file_(file) {
    codec_.err = begin(error_);
    progress_.progress_monitor = limit_scans;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&codec_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// False when the library gave up; message() says why.
  bool read_header() {
    if (setjmp(error_.way_back)) return false;
    jpeg_create_decompress(&codec_);
    codec_.progress = &progress_;
    jpeg_mem_src(&codec_, file_.data(), file_.size());
    jpeg_read_header(&codec_, TRUE);
    return true;
  }
  /// Of the image divided by `shrink`. From here on rows hold the columns of `part`, and some around them.
  bool start(const Box& part, int shrink) {
    if (setjmp(error_.way_back)) return false;
    codec_.out_color_space = four_components() ? JCS_CMYK : JCS_RGB;
    codec_.scale_num = 1, codec_.scale_denom = static_cast<unsigned>(shrink);
    jpeg_start_decompress(&codec_);
    first_row_ = first_row_for(part);
    first_column_ = crop_columns(part);
    if (first_row_ > 0) jpeg_skip_scanlines(&codec_, static_cast<JDIMENSION>(first_row_));
    return true;
  }
  int first_column() const { return first_column_; }
  int row_width() const { return static_cast<int>(codec_.output_width); }
  /// The rows of `part` to `rgb`; `row` has room for one of up to four components.
  bool read_rows(const Box& part, std::uint8_t* rgb, std::uint8_t* row) {
    if (setjmp(error_.way_back)) return false;
    const int end = part.top + part.height;
    const auto out = [&](int y) { return rgb + 3 * std::ptrdiff_t{y - part.top} * row_width(); };
    for (int y = first_row_; y < end; ++y) {
      std::uint8_t* to = y < part.top || four_components() ? row : out(y);
      jpeg_read_scanlines(&codec_, &to, 1);
      if (y >= part.top && four_components()) cmyk_to_rgb(row, row_width(), out(y));
    }
    // To the end of the image, so that a cut in a last scan, which no row above needed, is seen too.
    if (end == static_cast<int>(codec_.output_height)) jpeg_finish_decompress(&codec_);
    else look_for_end();
    return true;
  }

  int height() const { return static_cast<int>(codec_.image_height); }
  int width() const { return static_cast<int>(codec_.image_width); }
  /// Every block of 8 · 8 pixels takes a bit at least; then a file of a hundred bytes cannot claim the memory of a
  /// large one. (Arithmetic coding can do with less.)
  bool long_enough() const {
    const std::int64_t pixels = std::int64_t{height()} * width();
    return codec_.arith_code || pixels / (64 * 8) <= static_cast<std::int64_t>(file_.size());
  }
  /// Where the library scales chroma both by its transform and by smoothing, jpeg_crop_scanline() leaves columns unset.
  bool can_shrink() const { return codec_.max_h_samp_factor * codec_.max_v_samp_factor <= 4; }
  bool four_components() const { return codec_.num_components == 4; }
  const char* message() const { return error_.message; }

 private:
  // What is read begins and ends with whole blocks. Of a progressive file all is read until the part ends: where scans are
  // missing, the library smooths each block by those around it.
  int first_row_for(const Box& part) const {
    if (codec_.progressive_mode) return 0;
    const int rows_of_blocks = codec_.max_v_samp_factor * DCTSIZE / static_cast<int>(codec_.scale_denom);
    return std::max(0, part.top - kChromaReach) / rows_of_blocks * rows_of_blocks;
  }
  int crop_columns(const Box& part) {
    if (codec_.progressive_mode) return 0;
    const int left = std::max(0, part.left - kChromaReach);
    auto first = static_cast<JDIMENSION>(left);
    const int row_end = static_cast<int>(codec_.output_width);
    auto columns = static_cast<JDIMENSION>(std::min(row_end, part.left + part.width + kChromaReach) - left);
    jpeg_crop_scanline(&codec_, &first, &columns);
    return static_cast<int>(first);
  }

  /// A file that was cut off has no marker of its end. Coded data never look like one.
  void look_for_end() {
    if (jpeg_input_complete(&codec_) || codec_.unread_marker == JPEG_EOI) return;
    const std::uint8_t *at = codec_.src->next_input_byte, *const end = at + codec_.src->bytes_in_buffer;
    constexpr std::uint8_t kEnd[] = {0xFF, JPEG_EOI};
    if (std::search(at, end, std::begin(kEnd), std::end(kEnd)) == end)
      ERREXIT(reinterpret_cast<j_common_ptr>(&codec_), JWRN_JPEG_EOF);
  }

  std::span<const std::uint8_t> file_;
  JpegErrors error_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct codec_{};
  int first_row_ = 0, first_column_ = 0;  // that are read
};

/// Edges go to the nearest, all alike, so that a part of n · shrink pixels becomes one of at least n. The image, rounded up, has them.
Box divided(const Box& box, int shrink) {
  const auto at = [=](int edge) { return (edge + shrink / 2) / shrink; };
  const int top = at(box.top), left = at(box.left);
  return {top, left, at(box.top + box.height) - top, at(box.left + box.width) - left};
}

}  // namespace

ImageView decode_jpeg(std::span<const std::uint8_t> file, const std::string& name, Image& buffer,
                      const ChoosePart& part) {
  TiledJpeg::Cut cut;
  WantedPart wanted{Box{}};
  if (part)
    if (const std::optional<TiledJpeg> tiled = TiledJpeg::find(file)) {
      check_image_size(tiled->height(), tiled->width(), name);
      wanted = part(tiled->height(), tiled->width());
      cut = tiled->cut(wanted.box, kCutReach * wanted.shrink);
      wanted.box = cut.box;
      file = cut.file;
    }
  JpegDecoder decoder(file);
  const auto check = [&](bool good) {
    AB_CHECK_KIND(data, good, "{}: the JPEG is truncated or damaged ({}); fetch the file again", name,
                  decoder.message());
  };
  check(decoder.read_header());
  check_image_size(decoder.height(), decoder.width(), name);
  AB_CHECK_KIND(data, decoder.long_enough(),
                "{}: the JPEG is truncated or damaged ({} bytes for {} x {} pixels); fetch the file again", name,
                file.size(), decoder.width(), decoder.height());
  if (cut.file.empty())
    wanted = part ? part(decoder.height(), decoder.width()) : Box{0, 0, decoder.height(), decoder.width()};
  if (!decoder.can_shrink()) wanted.shrink = 1;
  const Box box = divided(wanted.box, wanted.shrink);
  check(decoder.start(box, wanted.shrink));
  buffer.resize(box.height, decoder.row_width());
  std::vector<std::uint8_t> row(4 * static_cast<std::size_t>(decoder.width()));
  check(decoder.read_rows(box, buffer.pixels.data(), row.data()));
  return buffer.view().part({0, box.left - decoder.first_column(), box.height, box.width});
}

namespace {

class JpegEncoder {
 public:
  JpegEncoder() {
    source_.err = begin(errors_);
    target_.err = &errors_.base;
  }
  ~JpegEncoder() {
    jpeg_destroy_compress(&target_);
    jpeg_destroy_decompress(&source_);
    std::free(bytes_);
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;

  /// False when the library gave up; message() says why.
  bool write(const ImageView& image, int quality) {
    if (setjmp(errors_.way_back)) return false;
    jpeg_create_compress(&target_);
    jpeg_mem_dest(&target_, &bytes_, &count_);
    target_.image_height = static_cast<JDIMENSION>(image.height);
    target_.image_width = static_cast<JDIMENSION>(image.width);
    target_.input_components = 3;
    target_.in_color_space = JCS_RGB;
    jpeg_set_defaults(&target_);
    jpeg_set_quality(&target_, quality, TRUE);
    target_.optimize_coding = TRUE;
    target_.restart_interval = restart_interval(target_.image_width, 2);
    jpeg_start_compress(&target_, TRUE);
    for (int y = 0; y < image.height; ++y) {
      JSAMPROW row = const_cast<JSAMPROW>(image.row(y));
      jpeg_write_scanlines(&target_, &row, 1);
    }
    jpeg_finish_compress(&target_);
    return true;
  }

  /// From one file to another, coefficient by coefficient.
  bool transcode(std::span<const std::uint8_t> file) {
    if (setjmp(errors_.way_back)) return false;
    jpeg_create_decompress(&source_);
    jpeg_create_compress(&target_);
    jpeg_mem_src(&source_, file.data(), file.size());
    jpeg_read_header(&source_, TRUE);
    if (std::int64_t{source_.image_height} * source_.image_width > kMaxImagePixels) return false;
    jvirt_barray_ptr* const coefficients = jpeg_read_coefficients(&source_);
    jpeg_copy_critical_parameters(&source_, &target_);
    target_.optimize_coding = TRUE;
    target_.restart_interval =
        restart_interval(source_.image_width, source_.num_components == 1 ? 1 : source_.max_h_samp_factor);
    jpeg_mem_dest(&target_, &bytes_, &count_);
    jpeg_write_coefficients(&target_, coefficients);
    jpeg_finish_compress(&target_);
    jpeg_finish_decompress(&source_);
    return true;
  }

  std::vector<std::uint8_t> bytes() const { return {bytes_, bytes_ + count_}; }
  const char* message() const { return errors_.message; }

 private:
  /// In units of `blocks` blocks beside each other.
  static unsigned restart_interval(unsigned width, int blocks) {
    const auto side = static_cast<unsigned>(DCTSIZE * blocks);
    const unsigned units = (width + side - 1) / side;
    for (const unsigned each : {3u, 4u, 5u, 6u, 7u, 8u})
      if (units % each == 0) return each;
    return units;
  }

  JpegErrors errors_{};
  jpeg_decompress_struct source_{};
  jpeg_compress_struct target_{};
  unsigned char* bytes_ = nullptr;
  unsigned long count_ = 0;
};

}  // namespace

std::vector<std::uint8_t> encode_jpeg(const ImageView& image, int quality, const std::string& name) {
  JpegEncoder encoder;
  AB_CHECK_KIND(data, encoder.write(image, quality), "{}: the image cannot be written as JPEG ({})", name,
                encoder.message());
  return encoder.bytes();
}

std::optional<std::vector<std::uint8_t>> tile_jpeg(std::span<const std::uint8_t> file) {
  JpegEncoder encoder;
  if (!encoder.transcode(file)) return std::nullopt;
  return encoder.bytes();
}

}  // namespace ab
