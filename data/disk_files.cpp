// SPDX-License-Identifier: MIT
#include "data/disk_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "engine/core/check.h"
#include "engine/core/hash.h"

namespace ab {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as they lie in memory");

struct StoredRecord {
  std::int64_t number, offset;
  std::int32_t bytes;
  std::uint32_t check;  ///< of the other fields
  std::uint64_t hash;

  std::uint32_t right_check() const {
    const std::array<std::uint64_t, 4> fields{static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(offset),
                                              static_cast<std::uint64_t>(bytes), hash};
    return static_cast<std::uint32_t>(hash64(fields.data(), sizeof fields));
  }
};
static_assert(sizeof(StoredRecord) == 32);

bool write_whole(int file, const void* data, std::size_t bytes, std::int64_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t some = ::pwrite(file, from, bytes, offset);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return false;
    from += some, offset += some, bytes -= static_cast<std::size_t>(some);
  }
  return true;
}

/// How many bytes there were.
std::size_t read_whole(int file, void* data, std::size_t bytes, std::int64_t offset) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t some =
        ::pread(file, static_cast<char*>(data) + done, bytes - done, offset + static_cast<std::int64_t>(done));
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) break;
    done += static_cast<std::size_t>(some);
  }
  return done;
}

}  // namespace

DiskFiles::DiskFiles(const std::filesystem::path& folder, const std::string& name) : folder_(folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const auto open = [&](const char* ending) {
    const std::string path = folder / (name + ending);
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666), why = errno;
    if (file >= 0 || (why != EACCES && why != EPERM && why != EROFS)) return file;
    writable_ = false;
    const int readable = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    errno = why;
    return readable;
  };
  if (!error) images_ = open(".images");
  if (images_ >= 0) index_ = open(".index");
  const std::string reason = error ? error.message() : std::strerror(errno);
  if (index_ < 0 && images_ >= 0) ::close(images_);
  AB_CHECK(index_ >= 0, "cannot keep images in '{}': {}; give --cache-disk a folder that can be written to",
           folder.string(), reason);
}

DiskFiles::~DiskFiles() {
  ::close(index_);
  ::close(images_);
}

std::string DiskFiles::reserve() {
  if (!writable_) return "it cannot be written to";
  if (::flock(index_, LOCK_EX | LOCK_NB) == 0) return "";
  return errno == EWOULDBLOCK ? "another run, or another node, adds to it"
                              : fmt::format("it cannot be locked ({})", std::strerror(errno));
}

std::vector<DiskFiles::Record> DiskFiles::records(std::int64_t& slots) const {
  std::vector<StoredRecord> stored(1 << 16);
  std::vector<Record> found;
  slots = 0;
  for (std::int64_t end = 0;;) {
    const std::size_t bytes = read_whole(index_, stored.data(), stored.size() * sizeof(StoredRecord), end);
    const std::size_t count = bytes / sizeof(StoredRecord);
    for (std::size_t k = 0; k < count; ++k)
      if (const StoredRecord& r = stored[k]; r.bytes > 0 && r.offset >= 0 && r.check == r.right_check())
        found.push_back({r.number, {r.offset, r.bytes, r.hash}});
    slots += static_cast<std::int64_t>((bytes + sizeof(StoredRecord) - 1) / sizeof(StoredRecord));
    if (count < stored.size()) return found;
    end += static_cast<std::int64_t>(bytes);
  }
}

bool DiskFiles::read(const Place& place, std::vector<std::uint8_t>& bytes) const {
  bytes.resize(static_cast<std::size_t>(place.bytes));
  return read_whole(images_, bytes.data(), bytes.size(), place.offset) == bytes.size() &&
         hash64(bytes.data(), bytes.size()) == place.hash;
}

bool DiskFiles::write(std::int64_t slot, const Record& record, std::span<const std::uint8_t> bytes) const {
  StoredRecord stored{record.number, record.place.offset, record.place.bytes, 0, record.place.hash};
  stored.check = stored.right_check();
  return write_whole(images_, bytes.data(), bytes.size(), record.place.offset) &&
         write_whole(index_, &stored, sizeof stored, slot * std::int64_t{sizeof stored});
}

std::int64_t DiskFiles::free_bytes() const {
  std::error_code error;
  const auto space = std::filesystem::space(folder_, error);
  return error ? 0 : static_cast<std::int64_t>(space.available);
}

}  // namespace ab
