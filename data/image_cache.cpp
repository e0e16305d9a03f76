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

#include "engine/core/check.h"
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
  std::int64_t token, images_most, bytes_most;           ///< written once, before others map it
  std::atomic<std::int64_t> taken;                       ///< bytes of the file that the system has given
  std::atomic<std::int64_t> promised;                    ///< bytes of pixels, to images that are kept or being written
  std::atomic<std::int64_t> images, bytes, found, read;  ///< as in Use
  std::atomic<bool> full;
};

struct ImageCache::Entry {
  static constexpr std::int64_t kNone = 0, kBeingWritten = -1;
  std::atomic<std::int64_t> place;  ///< in the file; or one of those above
  std::int32_t height, width;
};

ImageCache::ImageCache(std::int64_t images, std::int64_t bytes) {
  static_assert(std::atomic<std::int64_t>::is_always_lock_free, "processes share them");
  size_ = static_cast<std::int64_t>(sizeof(Shared)) + images * static_cast<std::int64_t>(sizeof(Entry)) + bytes;
  file_ = ::memfd_create("abtrain-images", MFD_CLOEXEC);
  const bool made = file_ >= 0 && ::ftruncate(file_, size_) == 0;
  const int error = errno;
  if (!made && file_ >= 0) ::close(file_);
  AB_CHECK(made, "cannot make a cache of images in memory: {}; give --cache-gb 0", std::strerror(error));
  map();
  if (!take(0, size_ - bytes)) {
    unmap();
    throw Error(ErrorKind::config,
                fmt::format("this machine is short of memory: a list of {} images for a cache needs {} bytes, with {} "
                            "for everything else; give --cache-gb 0",
                            images, size_ - bytes, kSparedBytes));
  }
  std::random_device random;
  shared_->token = static_cast<std::int64_t>(random()) << 31 ^ static_cast<std::int64_t>(random());
  shared_->images_most = images, shared_->bytes_most = bytes;
}

ImageCache::ImageCache(const std::string& handle) {
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
           "images; start them as one user and in one container, or give --cache-gb 0");
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
  ++(place > 0 ? shared_->found : shared_->read);
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

ImageCache::Use ImageCache::use() const { return {shared_->images, shared_->bytes, shared_->found, shared_->read}; }

CachedImages::CachedImages(std::shared_ptr<const Dataset> set, std::shared_ptr<ImageCache> cache,
                           std::int64_t first_number)
    : Dataset(*set), set_(std::move(set)), cache_(std::move(cache)), first_number_(first_number) {}

ImageView CachedImages::read(std::int64_t i, Image& buffer, const ChoosePart& part) const {
  const auto part_of = [&](const ImageView& whole) {
    if (!part) return whole;
    cut_out(whole, part(whole.height, whole.width), buffer);
    return buffer.view();
  };
  if (const ImageView kept = cache_->find(first_number_ + i); kept.pixels) return part_of(kept);
  if (cache_->has_room()) {
    thread_local Image decoded;
    try {
      const ImageView whole = set_->read(i, part ? decoded : buffer);
      cache_->keep(first_number_ + i, whole);
      return part_of(whole);
    } catch (const Error& error) {  // damage beyond the part passes without a cache, and so it does with one
      if (!part || error.kind() != ErrorKind::data) throw;
    }
  }
  return set_->read(i, buffer, part);
}

}  // namespace ab
