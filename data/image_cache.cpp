// SPDX-License-Identifier: MIT
#include "data/image_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>

#include "data/decode.h"
#include "engine/core/check.h"
#include "engine/core/hash.h"
#include "engine/core/machine.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;    // of memory, taken from the system at once
constexpr std::int64_t kSparedBytes = std::int64_t{512} << 20;  // that the machine keeps for everything else

std::int64_t rounded_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

/// At the beginning of the memory; zeros are its first state. Entries and pixels follow.
struct ImageCache::Shared {
  std::int64_t token, images_most, bytes_most, disk_most;  ///< written once, before others map it
  std::atomic<std::int64_t> taken;                         ///< bytes of the file that the system has given
  std::atomic<std::int64_t> promised;              ///< bytes of pixels, to images that are kept or being written
  std::atomic<std::int64_t> disk_end, disk_slots;  ///< where the next copy and its record are written
  std::atomic<std::int64_t> images, bytes, files, file_bytes, from[4], bytes_from[4];  ///< as in Use
  std::atomic<bool> full, disk_full, disk_damaged;
};

struct ImageCache::Entry {
  static constexpr std::int64_t kNone = 0, kBeingWritten = -1;
  std::atomic<std::int64_t> place;  ///< in the file; or one of those above
  std::int32_t height, width;
  std::atomic<std::int64_t> disk_place;  ///< the offset there and 1; or one of those above
  std::atomic<std::int32_t> file_bytes;
  std::atomic<std::uint64_t> file_hash;
};

ImageCache::ImageCache(std::int64_t images, const CacheRoom& room, const std::string& set) {
  const std::int64_t bytes = room.memory_bytes;
  static_assert(std::atomic<std::int64_t>::is_always_lock_free, "processes share them");
  size_ = static_cast<std::int64_t>(sizeof(Shared)) + images * static_cast<std::int64_t>(sizeof(Entry)) + bytes;
  file_ = ::memfd_create("abtrain-images", MFD_CLOEXEC);
  const bool made = file_ >= 0 && ::ftruncate(file_, size_) == 0;
  const int error = errno;
  if (!made && file_ >= 0) ::close(file_);
  AB_CHECK(made, "cannot make a cache of images in memory: {}; leave --cache-gb and --cache-disk away",
           std::strerror(error));
  map();
  if (!take(0, size_ - bytes)) {
    unmap();
    throw Error(ErrorKind::config,
                fmt::format("this machine is short of memory: a list of {} images for a cache needs {} bytes, with {} "
                            "for everything else; leave --cache-gb and --cache-disk away",
                            images, size_ - bytes, kSparedBytes));
  }
  std::random_device random;
  shared_->token = static_cast<std::int64_t>(random()) << 31 ^ static_cast<std::int64_t>(random());
  shared_->images_most = images, shared_->bytes_most = bytes;
  shared_->full = bytes == 0;
  if (const std::int64_t left = available_host_bytes(); bytes > 0 && bytes > left - kSparedBytes)
    say(stderr,
        "warning: --cache-gb asks for {:.3g} GB, and this machine has {:.3g} GB left: fewer images stay in it\n",
        1e-9 * static_cast<double>(bytes), 1e-9 * static_cast<double>(left));
  if (room.disk.empty()) return;
  try {
    disk_ = std::make_unique<DiskFiles>(room.disk, set);
  } catch (...) {
    unmap();
    throw;
  }
  find_copies(room.disk_bytes);
}

void ImageCache::find_copies(std::int64_t most_bytes) {
  const std::string obstacle = disk_->reserve();
  shared_->disk_full = !obstacle.empty();
  if (!obstacle.empty())
    say(stderr, "warning: this run reads what is in the folder of --cache-disk and adds nothing: {}\n", obstacle);
  std::int64_t slots = 0, end = 0;
  for (const auto& [number, place] : disk_->records(slots)) {
    end = std::max(end, place.offset + place.bytes);
    if (number < 0 || number >= shared_->images_most) continue;
    Entry& copy = entry(number);  // the last record of an image counts
    if (copy.disk_place == Entry::kNone) ++shared_->files;
    shared_->file_bytes += place.bytes - (copy.disk_place == Entry::kNone ? 0 : copy.file_bytes.load());
    copy.disk_place = place.offset + 1, copy.file_bytes = place.bytes, copy.file_hash = place.hash;
  }
  shared_->disk_slots = slots, shared_->disk_end = end;
  shared_->disk_most = most_bytes > 0 ? most_bytes : (disk_->free_bytes() + end) / 10 * 9;
}

ImageCache::ImageCache(const std::string& handle, const std::string& disk, const std::string& set) {
  if (!disk.empty()) disk_ = std::make_unique<DiskFiles>(disk, set);
  const std::size_t blank = handle.find(' ');
  struct stat status {};
  file_ = ::open(handle.substr(0, blank).c_str(), O_RDWR | O_CLOEXEC);
  bool found = file_ >= 0 && ::fstat(file_, &status) == 0 && status.st_size >= std::int64_t{sizeof(Shared)};
  size_ = status.st_size;
  if (found) {
    map();
    found = handle.substr(blank + 1) == std::to_string(shared_->token);
    if (!found) ::munmap(shared_, static_cast<std::size_t>(size_));
  }
  if (!found && file_ >= 0) ::close(file_);
  AB_CHECK(found,
           "the processes of this machine cannot see each other's memory, in which they would share a cache of "
           "images; start them as one user and in one container, or leave --cache-gb and --cache-disk away");
}

void ImageCache::map() {
  void* const memory =
      ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  const int error = errno;
  if (memory == MAP_FAILED) ::close(file_);
  AB_CHECK(memory != MAP_FAILED, "cannot map {} bytes for a cache of images: {}; give less to --cache-gb", size_,
           std::strerror(error));
  shared_ = static_cast<Shared*>(memory);
}

void ImageCache::unmap() {
  ::munmap(shared_, static_cast<std::size_t>(size_));
  ::close(file_);
}

ImageCache::~ImageCache() { unmap(); }

std::string ImageCache::handle() const { return fmt::format("/proc/{}/fd/{} {}", ::getpid(), file_, shared_->token); }

ImageCache::Entry& ImageCache::entry(std::int64_t number) const {
  AB_ASSERT(number >= 0 && number < shared_->images_most);
  return reinterpret_cast<Entry*>(shared_ + 1)[number];
}

ImageView ImageCache::find(std::int64_t number) const {
  const Entry& found = entry(number);
  const std::int64_t place = found.place.load(std::memory_order_acquire);
  if (place <= 0) return {};
  return {reinterpret_cast<const std::uint8_t*>(shared_) + place, found.height, found.width};
}

bool ImageCache::has_room() const { return !shared_->full.load(std::memory_order_relaxed); }

/// Bytes of the file, from the system, which a write to them could otherwise be refused with a signal.
bool ImageCache::take(std::int64_t offset, std::int64_t bytes) {
  const std::int64_t end = std::min(size_, rounded_up(offset + bytes, kPieceBytes));
  std::int64_t taken = shared_->taken.load();
  if (end <= taken) return true;
  if (available_host_bytes() < end - taken + kSparedBytes) return false;
  if (::fallocate(file_, 0, taken, end - taken) != 0) return false;
  while (taken < end && !shared_->taken.compare_exchange_weak(taken, end)) {
  }
  return true;
}

void ImageCache::keep(std::int64_t number, const ImageView& image) {
  Entry& kept = entry(number);
  std::int64_t none = Entry::kNone;
  if (!has_room() || !kept.place.compare_exchange_strong(none, Entry::kBeingWritten)) return;
  const auto bytes = static_cast<std::int64_t>(image.bytes());
  const std::int64_t begin = shared_->promised.fetch_add(bytes), place = size_ - shared_->bytes_most + begin;
  const bool fits = begin + bytes <= shared_->bytes_most;
  if (!fits || !take(place, bytes)) {
    if (!shared_->full.exchange(true) && fits)
      say(stderr, "warning: this machine is short of memory: the {} images that are in it stay, and no more\n",
          shared_->images.load());
    kept.place = Entry::kNone;
    return;
  }
  std::memcpy(reinterpret_cast<std::uint8_t*>(shared_) + place, image.pixels, image.bytes());
  kept.height = image.height, kept.width = image.width;
  kept.place.store(place, std::memory_order_release);
  ++shared_->images, shared_->bytes += bytes;
}

bool ImageCache::find_file(std::int64_t number, std::vector<std::uint8_t>& bytes) const {
  const Entry& copy = entry(number);
  const std::int64_t place = copy.disk_place;
  if (!disk_ || place <= 0) return false;
  const DiskFiles::Place at{place - 1, copy.file_bytes, copy.file_hash};
  if (copy.disk_place != place) return false;  // another thread has given it up meanwhile
  if (disk_->read(at, bytes)) return true;
  give_up_file(number);
  if (!shared_->disk_damaged.exchange(true))
    say(stderr, "warning: a copy in the folder of --cache-disk is damaged; such images are read from their files\n");
  return false;
}

void ImageCache::give_up_file(std::int64_t number) const {
  Entry& copy = entry(number);
  const std::int32_t bytes = copy.file_bytes;
  std::int64_t place = copy.disk_place;
  if (place > 0 && copy.disk_place.compare_exchange_strong(place, Entry::kNone))
    --shared_->files, shared_->file_bytes -= bytes;
}

void ImageCache::keep_file(std::int64_t number, std::span<const std::uint8_t> bytes) {
  Entry& copy = entry(number);
  std::int64_t none = Entry::kNone;
  if (!disk_ || shared_->disk_full || !copy.disk_place.compare_exchange_strong(none, Entry::kBeingWritten)) return;
  const auto size = static_cast<std::int32_t>(bytes.size());
  const std::int64_t offset = shared_->disk_end.fetch_add(size);
  const std::uint64_t hash = hash64(bytes.data(), bytes.size());
  const bool fits = offset + size <= shared_->disk_most;
  if (!fits || !disk_->write(shared_->disk_slots.fetch_add(1), {number, {offset, size, hash}}, bytes)) {
    if (!shared_->disk_full.exchange(true) && fits)
      say(stderr, "warning: the disk of --cache-disk takes no more: the copies of {} images that are on it stay\n",
          shared_->files.load());
    copy.disk_place = Entry::kNone;
    return;
  }
  copy.file_bytes = size, copy.file_hash = hash;
  copy.disk_place = offset + 1;
  ++shared_->files, shared_->file_bytes += size;
}

ImageCache::Use ImageCache::use() const {
  return {.images = shared_->images,
          .bytes = shared_->bytes,
          .files = shared_->files,
          .file_bytes = shared_->file_bytes,
          .from_memory = shared_->from[0],
          .from_nodes = shared_->from[1],
          .from_disk = shared_->from[2],
          .from_files = shared_->from[3],
          .bytes_from_nodes = shared_->bytes_from[1],
          .bytes_from_disk = shared_->bytes_from[2],
          .bytes_from_files = shared_->bytes_from[3]};
}

void ImageCache::count(From from, std::size_t bytes) {
  ++shared_->from[static_cast<int>(from)];
  shared_->bytes_from[static_cast<int>(from)] += static_cast<std::int64_t>(bytes);
}

CachedImages::CachedImages(std::shared_ptr<const Dataset> set, std::shared_ptr<ImageCache> cache,
                           std::int64_t first_number, CacheNodes nodes)
    : Dataset(*set),
      set_(std::move(set)),
      cache_(std::move(cache)),
      first_number_(first_number),
      nodes_(std::move(nodes)) {}

/// From the disk, or from the image's own file, of which the disk then gets a copy.
ImageView CachedImages::decode(std::int64_t i, Image& buffer, const ChoosePart& part) const {
  thread_local std::vector<std::uint8_t> bytes;
  if (cache_->find_file(first_number_ + i, bytes)) try {
      const ImageView image = decode_image(bytes, image_name(i), buffer, part);
      cache_->count(ImageCache::From::disk, bytes.size());
      return image;
    } catch (const Error&) {  // of a file that was damaged where no part had been seen; it may be mended
      cache_->give_up_file(first_number_ + i);
    }
  bytes = set_->file(i);
  const ImageView image = decode_image(bytes, image_name(i), buffer, part);
  cache_->keep_file(first_number_ + i, bytes);
  cache_->count(ImageCache::From::file, bytes.size());
  return image;
}

ImageView CachedImages::find(std::int64_t i, Image& buffer) const {
  if (const ImageView kept = cache_->find(first_number_ + i); kept.pixels) return kept;
  if (!cache_->has_room()) return {};
  const ImageView whole = decode(i, buffer, {});
  cache_->keep(first_number_ + i, whole);
  return whole;
}

ImageView CachedImages::read(std::int64_t i, Image& buffer, const ChoosePart& part) const {
  const std::int64_t keeper = nodes_.nodes ? i % nodes_.nodes->count() : nodes_.own;
  const auto answer =
      keeper == nodes_.own ? ImageNodes::Answer::none : nodes_.nodes->fetch(keeper, first_number_ + i, part, buffer);
  if (answer == ImageNodes::Answer::image) {
    cache_->count(ImageCache::From::node, buffer.view().bytes());
    return buffer.view();
  }
  if (answer == ImageNodes::Answer::none) try {  // this node keeps it in place of one that is gone, too
      thread_local Image decoded;
      Image& whole_buffer = part ? decoded : buffer;
      if (const ImageView whole = find(i, whole_buffer); whole.pixels) {
        if (whole.pixels != whole_buffer.pixels.data()) cache_->count(ImageCache::From::memory, whole.bytes());
        return part ? whole.part(part(whole.height, whole.width).box) : whole;
      }
    } catch (const Error& error) {  // damage beyond the part passes without a cache, and so it does with one
      if (!part || error.kind() != ErrorKind::data) throw;
    }
  return decode(i, buffer, part);
}

}  // namespace ab
