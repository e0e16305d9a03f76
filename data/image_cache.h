#pragma once
// SPDX-License-Identifier: MIT
//
// Two levels between the files of a data set and training (after the DataCache of Shi et al., arXiv 2010.10458): copies of files on
// a disk of the machine, and decoded images in memory that all its processes share, so that an epoch decodes no file that an
// earlier one kept. Images are kept as they come, until a level is full, and none is dropped for another: the order of an epoch is a
// new permutation, under which dropping what was used longest ago would drop what is used next (CoorDL, arXiv 2007.06775). What
// is kept has all its pixels, so batches are the same bits with a cache and without.

#include <cstdint>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/disk_files.h"
#include "data/image_exchange.h"

namespace ab {

/// How much a machine keeps.
struct CacheRoom {
  std::int64_t memory_bytes = 0;  ///< of pixels
  std::string disk{};             ///< a folder on it; empty: none
  std::int64_t disk_bytes = 0;    ///< of copies of files; 0: nine tenths of what the disk has left for them
};

class ImageCache {
 public:
  /// For at most `images` images, in memory without a name that goes with the last process that has it. It is taken from the
  /// system as images come. `set`: a name for the data set's files on the disk. Throws Error(config) where the system refuses.
  ImageCache(std::int64_t images, const CacheRoom& room, const std::string& set = "images");
  /// That of another process of this machine, by its handle(), with the same folder and name. Throws Error(config) when that process
  /// is out of sight.
  explicit ImageCache(const std::string& handle, const std::string& disk = {}, const std::string& set = "images");
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  /// As long as this process lives.
  std::string handle() const;

  /// The pixels of the image of that number, or none. Valid as long as the cache.
  ImageView find(std::int64_t number) const;
  /// Whether another image might still be kept.
  bool has_room() const;
  /// Keeps a copy, unless it is there or being written by another thread or process, or does not fit; from the first that does not
  /// fit on, and once the machine is short of memory, which is told on stderr, none is kept.
  void keep(std::int64_t number, const ImageView& image);

  /// The copy of the file of that image. False when there is none, or it is damaged, and so given up.
  bool find_file(std::int64_t number, std::vector<std::uint8_t>& bytes) const;
  /// No longer takes the copy for that file, which may be copied again.
  void give_up_file(std::int64_t number) const;
  /// Keeps a copy, as keep() does.
  void keep_file(std::int64_t number, std::span<const std::uint8_t> bytes);

  /// Of all processes.
  struct Use {
    std::int64_t images = 0, bytes = 0;      ///< that are kept in memory
    std::int64_t files = 0, file_bytes = 0;  ///< that are kept on the disk
    /// How often an image came from memory, from another node, by decoding the copy on the disk and the file itself.
    std::int64_t from_memory = 0, from_nodes = 0, from_disk = 0, from_files = 0;
    /// Of pixels that other nodes sent, of copies, and of files.
    std::int64_t bytes_from_nodes = 0, bytes_from_disk = 0, bytes_from_files = 0;
    /// Calls visit(name, member), by the names in files of runs.
    template <class U, class Visit> static void for_each_number(U& use, Visit&& visit) {
      visit("images_cached", use.images), visit("bytes_cached", use.bytes);
      visit("files_cached", use.files), visit("file_bytes_cached", use.file_bytes);
      visit("images_from_cache", use.from_memory), visit("images_from_nodes", use.from_nodes);
      visit("images_from_disk", use.from_disk), visit("images_from_files", use.from_files);
      visit("bytes_from_nodes", use.bytes_from_nodes), visit("bytes_from_disk", use.bytes_from_disk);
      visit("bytes_from_files", use.bytes_from_files);
    }
  };
  Use use() const;
  /// Counts an image that came from there, of so many bytes.
  enum class From : std::uint8_t { memory, node, disk, file };
  void count(From from, std::size_t bytes);

 private:
  struct Shared;
  struct Entry;
  void map();
  void unmap();
  bool take(std::int64_t offset, std::int64_t bytes);
  void find_copies(std::int64_t most_bytes);
  Entry& entry(std::int64_t number) const;

  int file_ = -1;
  std::int64_t size_ = 0;
  Shared* shared_ = nullptr;
  std::unique_ptr<DiskFiles> disk_;
};

/// The nodes of a job, each with a cache, of which the node i % nodes keeps image i; each serves what it keeps.
struct CacheNodes {
  std::shared_ptr<ImageNodes> nodes{};
  std::int64_t own = 0;                   ///< number of this node
  std::shared_ptr<ImageServer> server{};  ///< where this process is the one that serves
};

/// A data set whose images are found in a cache, or read from `set` and kept there. Their numbers in the cache begin with
/// `first_number`.
class CachedImages final : public Dataset {
 public:
  CachedImages(std::shared_ptr<const Dataset> set, std::shared_ptr<ImageCache> cache, std::int64_t first_number,
               CacheNodes nodes = {});

  int label(std::int64_t i) const override { return set_->label(i); }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override;
  std::string image_name(std::int64_t i) const override { return set_->image_name(i); }
  bool reads_files() const override { return set_->reads_files(); }
  std::uint64_t fingerprint() const override { return set_->fingerprint(); }
  std::vector<std::uint64_t> contents() const override { return set_->contents(); }

  /// The image that this node keeps, or might keep and then does: in memory of the cache, or in `buffer`. None when it has no room.
  ImageView find(std::int64_t i, Image& buffer) const;
  ImageCache::Use use_of_cache() const { return cache_->use(); }

 private:
  ImageView decode(std::int64_t i, Image& buffer, const ChoosePart& part) const;

  std::shared_ptr<const Dataset> set_;
  std::shared_ptr<ImageCache> cache_;
  std::int64_t first_number_;
  CacheNodes nodes_;
};

}  // namespace ab
