// SPDX-License-Identifier: MIT
#include <cstdlib>

#include "data/decode.h"
#include "data/jpeg_errors.h"
#include "data/tiled_jpeg.h"

namespace ab {
namespace {

/// From one file to another, coefficient by coefficient.
class Transcoder {
 public:
  Transcoder() {
    source_.err = errors_.begin();
    target_.err = &errors_.base;
  }
  ~Transcoder() {
    jpeg_destroy_compress(&target_);
    jpeg_destroy_decompress(&source_);
    std::free(bytes_);
  }
  Transcoder(const Transcoder&) = delete;
  Transcoder& operator=(const Transcoder&) = delete;

  /// False when the library gave up.
  bool run(std::span<const std::uint8_t> file) {
    if (setjmp(errors_.way_back)) return false;
    jpeg_create_decompress(&source_);
    jpeg_create_compress(&target_);
    jpeg_mem_src(&source_, file.data(), file.size());
    jpeg_read_header(&source_, TRUE);
    if (std::int64_t{source_.image_height} * source_.image_width > kMaxImagePixels) return false;
    jvirt_barray_ptr* const coefficients = jpeg_read_coefficients(&source_);
    jpeg_copy_critical_parameters(&source_, &target_);
    target_.optimize_coding = TRUE;
    target_.restart_interval = restart_interval();
    jpeg_mem_dest(&target_, &bytes_, &count_);
    jpeg_write_coefficients(&target_, coefficients);
    jpeg_finish_compress(&target_);
    jpeg_finish_decompress(&source_);
    return true;
  }
  std::span<const std::uint8_t> bytes() const { return {bytes_, count_}; }

 private:
  unsigned restart_interval() const {
    const auto side = static_cast<unsigned>(DCTSIZE * (source_.num_components == 1 ? 1 : source_.max_h_samp_factor));
    const unsigned units = (source_.image_width + side - 1) / side;
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

std::optional<std::vector<std::uint8_t>> tile_jpeg(std::span<const std::uint8_t> file) {
  Transcoder transcoder;
  if (!transcoder.run(file)) return std::nullopt;
  const auto bytes = transcoder.bytes();
  return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
}

}  // namespace ab
