// SPDX-License-Identifier: MIT
//
// JPEGs written by libjpeg-turbo: of pixels, or of another JPEG's coefficients.
#include <cstdlib>

#include "data/decode.h"
#include "data/jpeg_errors.h"
#include "data/tiled_jpeg.h"
#include "engine/core/check.h"

namespace ab {
namespace {

class JpegEncoder {
 public:
  JpegEncoder() {
    source_.err = errors_.begin();
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
