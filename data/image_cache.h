#pragma once
// SPDX-License-Identifier: MIT
//
// Decoded images in memory that all processes of a machine share, so that an epoch reads and decodes no file that an earlier one
// kept. Images are kept as they come, until the memory is full, and none is dropped for another: the order of an epoch is a new
// permutation, under which dropping what was used longest ago would drop what is used next (CoorDL, arXiv 2007.06775). What is
// kept has all its pixels, so batches are the same bits with a cache and without.

#include <cstdint>
#include <memory>
#include <string>

#include "data/dataset.h"

namespace ab {

class ImageCache {
 public:
  /// Room for `bytes` of the pixels of at most `images` images, in memory without a name that goes with the last process that
  /// has it. It is taken from the system as images come. Throws Error(config) where the system refuses.
  ImageCache(std::int64_t images, std::int64_t bytes);
  /// That of another process of this machine, by its handle(). Throws Error(config) when that process is out of sight.
  explicit ImageCache(const std::string& handle);
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  /// As long as this process lives.
  std::string handle() const;

  /// The image of that number, or none (no pixels), as is counted. Valid as long as the cache.
  ImageView find(std::int64_t number) const;
  /// Whether another image might still be kept.
  bool has_room() const;
  /// Keeps a copy, unless it is there or being written by another thread or process, or does not fit; from the first that does not
  /// fit on, and once the machine is short of memory, which is told on stderr, none is kept.
  void keep(std::int64_t number, const ImageView& image);

  /// Of all processes.
  struct Use {
    std::int64_t images = 0, bytes = 0;  ///< that are kept
    std::int64_t found = 0, read = 0;    ///< how often an image came from here, and from its file
  };
  Use use() const;

 private:
  struct Shared;
  struct Entry;
  void map();
  void unmap();
  bool take(std::int64_t offset, std::int64_t bytes);
  Entry& entry(std::int64_t number) const;

  int file_ = -1;
  std::int64_t size_ = 0;
  Shared* shared_ = nullptr;
};

/// A data set whose images are found in a cache, or read from `set` and kept there. Their numbers in the cache begin with
/// `first_number`.
class CachedImages final : public Dataset {
 public:
  CachedImages(std::shared_ptr<const Dataset> set, std::shared_ptr<ImageCache> cache, std::int64_t first_number);

  int label(std::int64_t i) const override { return set_->label(i); }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override;
  std::string image_name(std::int64_t i) const override { return set_->image_name(i); }
  bool reads_files() const override { return set_->reads_files(); }
  std::uint64_t fingerprint() const override { return set_->fingerprint(); }
  std::vector<std::uint64_t> contents() const override { return set_->contents(); }

  ImageCache::Use use_of_cache() const { return cache_->use(); }

 private:
  std::shared_ptr<const Dataset> set_;
  std::shared_ptr<ImageCache> cache_;
  std::int64_t first_number_;
};

}  // namespace ab
