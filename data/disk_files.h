#pragma once
// SPDX-License-Identifier: MIT
//
// Copies of image files on a disk of this machine, which a shared file system need not be asked for again, in later epochs or by the
// next job. NAME.images holds them one after the other, NAME.index a record of 32 bytes for each, written after it: what a kill
// or a full disk leaves half-written has no record, and a record is believed when its own hash and that of the copy are right.
// One job adds to the files at a time; others read what they found.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ab {

class DiskFiles {
 public:
  /// Of one copy.
  struct Place {
    std::int64_t offset = 0;
    std::int32_t bytes = 0;
    std::uint64_t hash = 0;  ///< XXH3
  };
  struct Record {
    std::int64_t number;  ///< of the image
    Place place;
  };

  /// Opens both files in `folder`, which are made where they are not there; only to be read where they cannot be written to. Throws Error(config) when that fails.
  DiskFiles(const std::filesystem::path& folder, const std::string& name);
  ~DiskFiles();
  DiskFiles(const DiskFiles&) = delete;
  DiskFiles& operator=(const DiskFiles&) = delete;

  /// Why this job may not add to them ("another run, or another node, adds to it"); empty: it may, and others not, as long as this object lives.
  std::string reserve();
  /// All records that are right, in the order of their numbers in the index, up to `slots` (where the next one is to be written).
  std::vector<Record> records(std::int64_t& slots) const;

  /// The copy at that place. False when it cannot be read, or is damaged.
  bool read(const Place& place, std::vector<std::uint8_t>& bytes) const;
  /// Writes a copy and its record, number `slot` of the index. False when the disk refuses.
  bool write(std::int64_t slot, const Record& record, std::span<const std::uint8_t> bytes) const;

  /// Bytes that the disk has left.
  std::int64_t free_bytes() const;

 private:
  std::filesystem::path folder_;
  int images_ = -1, index_ = -1;
  bool writable_ = true;
};

}  // namespace ab
