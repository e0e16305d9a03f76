// SPDX-License-Identifier: MIT
#include "data/tar.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "data/class_folder.h"
#include "engine/core/check.h"
#include "engine/core/machine.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBlock = 512;
constexpr std::int64_t kMostNameBytes = 1 << 16;
constexpr std::size_t kNameBytes = 100, kPrefixBytes = 155, kPrefixBegin = 345, kSumBegin = 148, kSumBytes = 8;
using Header = std::array<unsigned char, kBlock>;

constexpr std::int64_t padding_of(std::int64_t bytes) { return (kBlock - bytes % kBlock) % kBlock; }

std::string_view field(const Header& header, std::size_t begin, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + begin, size);
  return text.substr(0, text.find('\0'));
}

/// Octal digits among blanks, or, with the first bit set, a number in base 256; nothing if it is neither or does not fit.
std::optional<std::int64_t> number(const Header& header, std::size_t begin, std::size_t size) {
  if (header[begin] & 0x80) {
    std::uint64_t value = header[begin] & 0x7f;
    for (std::size_t i = begin + 1; i < begin + size; ++i) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | header[i];
    }
    return static_cast<std::int64_t>(value);
  }
  std::string_view digits = field(header, begin, size);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

/// Of all bytes, those of the checksum itself as blanks.
std::int64_t checksum(const Header& header) {
  std::int64_t sum = std::int64_t{' '} * static_cast<std::int64_t>(kSumBytes);
  for (std::size_t i = 0; i < header.size(); ++i)
    if (i < kSumBegin || i >= kSumBegin + kSumBytes) sum += header[i];
  return sum;
}

bool has_its_checksum(const Header& header) { return number(header, kSumBegin, kSumBytes) == checksum(header); }

/// `name` fits into its field, and `prefix` too.
std::string ustar_header(std::string_view prefix, std::string_view name, std::int64_t bytes, char type) {
  Header header{};
  const auto put = [&](std::size_t begin, std::string_view text) { std::ranges::copy(text, header.begin() + begin); };
  put(0, name), put(kPrefixBegin, prefix);
  put(100, "0000644"), put(108, "0000000"), put(116, "0000000");  // mode, user, group
  put(124, fmt::format("{:011o}", bytes)), put(136, "00000000000");
  put(156, {&type, 1}), put(257, "ustar"), put(263, "00");
  put(kSumBegin, fmt::format("{:06o}", checksum(header)));
  return {header.begin(), header.end()};
}

/// What a record of pax ("LENGTH KEY=VALUE\n") says of the file behind it.
struct PaxValues {
  std::optional<std::string> path{};
  std::optional<std::int64_t> size{};
};

/// False when it is no list of records.
bool read_pax(std::string_view text, PaxValues& values) {
  while (!text.empty() && text.front() != '\0') {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc{} || length <= digits + 2 || length > text.size() || *end != ' ' || text[length - 1] != '\n')
      return false;
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") values.path = value;
    if (key == "size") {
      std::int64_t size = 0;
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), size);
      if (parsed.ec != std::errc{} || parsed.ptr != value.data() + value.size() || size < 0) return false;
      values.size = size;
    }
    text.remove_prefix(length);
  }
  return true;
}

/// Goes through the headers of an archive.
class Scan {
 public:
  Scan(const TarArchive& archive, std::vector<TarMember>& members) : archive_(archive), members_(members) {}

  /// The archive in bytes [begin, end), whose files lie in `folder`.
  void scan(std::int64_t begin, std::int64_t end, const std::string& folder) {
    PaxValues ahead;
    for (std::int64_t at = begin;;) {
      Header header;
      check(end - at >= kBlock && read(at, kBlock, header.data()), at,
            "it has no end: it was cut off, or not copied whole");
      if (std::ranges::all_of(header, [](unsigned char byte) { return byte == 0; })) return;
      check(has_its_checksum(header), at, "this is no header of a tar archive, or it is damaged");
      const char type = static_cast<char>(header[156]);
      const bool is_empty = type >= '1' && type <= '6';  // a link, a folder or a device, whatever size it claims
      const bool tells = type == 'x' || type == 'L' || type == 'g' || type == 'K';  // of a file behind it
      const std::int64_t own_size = is_empty ? 0 : number(header, 124, 12).value_or(-1);
      const std::int64_t size = is_empty || tells ? own_size : ahead.size.value_or(own_size);
      at += kBlock;
      check(size >= 0 && size <= end - at, at - kBlock,
            "a file is longer than what follows: the archive was cut off, or not copied whole");
      if (type == 'x' || type == 'L') name_ahead(type, at, size, ahead);
      if (!tells) {
        const std::string name = ahead.path.value_or(name_in(header));
        if (type == '0' || type == '\0' || type == '7') file(name, at, size, folder);
        else check_no_image(type, name, at - kBlock);
        ahead = {};
      }
      at += size + padding_of(size);
    }
  }

 private:
  static std::string name_in(const Header& header) {
    const std::string name(field(header, 0, kNameBytes));
    const bool has_prefix = field(header, 257, 5) == "ustar" && header[262] == '\0' && header[kPrefixBegin] != '\0';
    return has_prefix ? fmt::format("{}/{}", field(header, kPrefixBegin, kPrefixBytes), name) : name;
  }

  /// The name of the file that follows, too long for its own header.
  void name_ahead(char type, std::int64_t at, std::int64_t size, PaxValues& ahead) {
    std::string text(static_cast<std::size_t>(std::min(size, kMostNameBytes)), '\0');
    check(size <= kMostNameBytes && read(at, size, text.data()), at, "the name of a file is too long");
    if (type == 'L') ahead.path = text.substr(0, text.find('\0'));
    else check(read_pax(text, ahead), at, "a header of pax is damaged");
  }

  /// An image must not be left out in silence.
  void check_no_image(char type, const std::string& name, std::int64_t at) const {
    const bool may_be_image = (type == '1' || type == '2' || type == 'S') && has_image_extension(name);
    check(!may_be_image || is_hidden(fs::path(name).filename()), at,
          "an image is a link or a sparse file; make the archive with tar's --dereference and --hard-dereference, and "
          "without --sparse");
  }

  void file(const std::string& name, std::int64_t at, std::int64_t size, const std::string& folder) {
    constexpr std::string_view extension = ".tar";
    const std::size_t begin = name.rfind('/') + 1;
    if (folder.empty() && name.ends_with(extension) && !is_hidden(name.substr(begin)))
      return scan(at, at + size, name.substr(begin, name.size() - begin - extension.size()));
    members_.push_back({{at, size}, folder.empty() ? name : folder + '/' + name});
  }

  void check(bool good, std::int64_t at, const char* reason) const {
    AB_CHECK_KIND(data, good, "imagenet: cannot read '{}' at byte {}: {}", printable(archive_.path()), at, reason);
  }

  /// Copies bytes of the archive, a header with the two of a long name before it at a time; false where it ends before.
  bool read(std::int64_t offset, std::int64_t bytes, void* to) {
    constexpr std::int64_t kWindow = 4 * kBlock;
    if (bytes > archive_.bytes() - offset) return false;
    if (offset < window_begin_ || offset + bytes > window_begin_ + std::ssize(window_)) {
      window_ = archive_.read(offset, std::min(std::max(kWindow, bytes), archive_.bytes() - offset), archive_.path());
      window_begin_ = offset;
    }
    std::memcpy(to, window_.data() + (offset - window_begin_), static_cast<std::size_t>(bytes));
    return true;
  }

  const TarArchive& archive_;
  std::vector<TarMember>& members_;
  std::vector<std::uint8_t> window_;
  std::int64_t window_begin_ = 0;
};

/// Shards may be more than the files that a process is given at first.
int open_to_read(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0 || errno != EMFILE) return file;
  take_more_descriptors();
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

std::string tar_header(const std::string& name, std::int64_t bytes) {
  if (name.size() <= kNameBytes) return ustar_header("", name, bytes, '0');
  const std::size_t slash = name.rfind('/');
  if (slash != std::string::npos && slash <= kPrefixBytes && name.size() - slash - 1 <= kNameBytes)
    return ustar_header({name.data(), slash}, {name.data() + slash + 1, name.size() - slash - 1}, bytes, '0');
  const std::size_t rest = std::string_view(" path=\n").size() + name.size();
  std::size_t length = rest + 1;  // which counts its own digits
  while (std::to_string(length).size() + rest != length) ++length;
  const std::string record = fmt::format("{} path={}\n", length, name);
  const auto record_bytes = static_cast<std::int64_t>(record.size());
  return ustar_header("", "pax", record_bytes, 'x') + record + tar_padding(record_bytes) +
         ustar_header("", {name.data(), kNameBytes}, bytes, '0');
}

std::string tar_padding(std::int64_t bytes) { return std::string(static_cast<std::size_t>(padding_of(bytes)), '\0'); }

std::string tar_end() { return std::string(2 * kBlock, '\0'); }

TarArchive::TarArchive(std::string path) : path_(std::move(path)), file_(open_to_read(path_)) {
  struct stat status {};
  const bool good = file_ >= 0 && ::fstat(file_, &status) == 0;
  const int error = errno;
  if (!good && file_ >= 0) ::close(file_);
  AB_CHECK_KIND(data, good, "imagenet: cannot read '{}': {}", printable(path_), std::strerror(error));
  size_ = status.st_size;
  ::posix_fadvise(file_, 0, 0, POSIX_FADV_RANDOM);  // what lies behind an image is not the next that is read
}

TarArchive::~TarArchive() { ::close(file_); }

std::vector<TarMember> TarArchive::members() const {
  std::vector<TarMember> members;
  Scan(*this, members).scan(0, size_, "");
  return members;
}

std::vector<std::uint8_t> TarArchive::read(std::int64_t offset, std::int64_t bytes, const std::string& what) const {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(bytes));
  for (std::int64_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(file_, result.data() + done, static_cast<std::size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    AB_CHECK_KIND(data, got > 0, "imagenet: cannot read '{}': {}", printable(what),
                  got < 0 ? std::strerror(errno) : "the archive became shorter");
    done += got;
  }
  return result;
}

}  // namespace ab
