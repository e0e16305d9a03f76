#pragma once
// SPDX-License-Identifier: MIT
//
// Packed sets: the images of ImageNet in tar archives of thousands, train-00000.tar … and val-00000.tar …, with CLASS/FILE for
// names and an index beside each (archive_index.h). The images of an archive are of all classes, so that a program that reads it
// from its beginning to its end sees them mixed; tar -xf gives the folders back. Equal images and options give equal bytes,
// whatever the number of threads and however often the packing was interrupted.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ab {

struct PackOptions {
  int side = 0;      ///< of an image whose shorter side is longer than this, it becomes that long; 0: of none
  int quality = 90;  ///< 1 to 100: of the JPEG that such an image is written as
  std::int64_t images_per_archive = 8192;  ///< about 1 GB of ILSVRC
  int threads = 1;
};

/// The bytes of all images before and after.
struct PackedBytes {
  std::int64_t source = 0, packed = 0;
};

/// Packs images that load_imagenet() has found into the folder `to`, which is made, or goes on with what it holds of the same
/// images and options. `progress` is called from all threads, with the numbers of images that are packed and of all that were left to. Throws Error(data)
/// for an image that cannot be decoded or has a name that archives of class folders cannot hold, Error(config) for a folder that
/// holds something else or that another process packs into, and Error(checkpoint) when it cannot be written.
PackedBytes pack_images(const TrainAndTest& source, const std::string& to, const PackOptions& options,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

/// The bytes that an image file is packed as: a JPEG in segments (tiled_jpeg.h), of the same pixels unless it is scaled; a file of
/// another format, or whose pixels would change, as it is. Throws Error(data) that begins with `name` when it cannot be decoded.
std::vector<std::uint8_t> packed_image(std::vector<std::uint8_t> file, const std::string& name,
                                       const PackOptions& options);

/// What a folder says of the set that is packed into it; empty where there is none.
std::string packed_description(const std::string& folder);
/// Throws Error(data) when a folder says that it holds a packed set of other numbers of images: of one that was interrupted.
void check_packed_whole(const std::string& folder, std::int64_t train_images, std::int64_t val_images);

}  // namespace ab
