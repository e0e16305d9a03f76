// SPDX-License-Identifier: MIT
#include "data/archive_index.h"

#include <charconv>
#include <filesystem>
#include <utility>

#include "data/class_folder.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"
#include "engine/core/hash.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTarHeaderBytes = 512;  // of a file in an archive; more than its line in nearly every index
constexpr std::string_view kFirstWords = "abtrain index 1 ";

std::string last_line(std::string_view lines) { return fmt::format("{:016x}\n", hash64(lines.data(), lines.size())); }

/// Takes a number and the `end` behind it from the beginning of a text.
template <class Number> bool take(std::string_view& text, Number& number, char end, int base = 10) {
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{} || at == text.data() + text.size() || *at != end || std::cmp_less(number, 0)) return false;
  text.remove_prefix(static_cast<std::size_t>(at - text.data()) + 1);
  return true;
}

}  // namespace

std::string index_path(const std::string& archive) { return fs::path(archive).replace_extension(".index").string(); }

std::string archive_index(const std::vector<TarMember>& members, std::int64_t archive_bytes, const std::string& where) {
  std::string lines = fmt::format("{}{}\n", kFirstWords, archive_bytes);
  for (const TarMember& member : members) {
    AB_CHECK_KIND(data, member.name.find('\n') == std::string::npos,
                  "imagenet: '{}' in '{}' has a line break in its name, which an index cannot hold",
                  printable(member.name), printable(where));
    lines += fmt::format("{} {} {} {:016x} {}\n", member.offset, member.bytes, member.source_bytes, member.hash,
                         member.name);
  }
  return lines + last_line(lines);
}

std::vector<TarMember> read_archive_index(std::string_view index, std::int64_t archive_bytes,
                                          const std::string& where) {
  const auto check = [&](bool good, const char* reason) {
    AB_CHECK_KIND(data, good, "'{}' {}", printable(where), reason);
  };
  constexpr const char* damaged = "is damaged, or no index of an archive";
  check(index.starts_with(kFirstWords) && index.ends_with('\n'), damaged);
  const std::size_t last = index.rfind('\n', index.size() - 2) + 1;
  check(index.substr(last) == last_line(index.substr(0, last)), damaged);
  std::string_view lines = index.substr(kFirstWords.size(), last - kFirstWords.size());
  std::int64_t bytes = 0;
  check(take(lines, bytes, '\n'), damaged);
  check(bytes == archive_bytes, "is older than its archive, which has another size");
  std::vector<TarMember> members;
  while (!lines.empty()) {
    check(std::ssize(members) < archive_bytes / kTarHeaderBytes, "names more files than its archive can hold");
    TarMember& member = members.emplace_back();
    check(take(lines, member.offset, ' ') && take(lines, member.bytes, ' ') && take(lines, member.source_bytes, ' ') &&
              take(lines, member.hash, ' ', 16),
          damaged);
    check(member.bytes <= archive_bytes && member.offset <= archive_bytes - member.bytes,
          "names a file beyond the end of its archive");
    const std::size_t end = lines.find('\n');
    check(end != lines.npos && end > 0, damaged);
    member.name = lines.substr(0, end);
    lines.remove_prefix(end + 1);
  }
  return members;
}

std::optional<std::vector<TarMember>> read_archive_index(const std::string& archive, std::int64_t archive_bytes,
                                                         std::string& problem) {
  const std::string file = index_path(archive);
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  try {
    return read_archive_index(read_file(file, ErrorKind::data, 2 * static_cast<std::uint64_t>(archive_bytes)),
                              archive_bytes, file);
  } catch (const Error& error) {
    problem = error.what();
    return std::nullopt;
  }
}

std::string make_archive_index(const TarArchive& archive) {
  std::vector<TarMember> members = archive.members();
  for (TarMember& member : members) {
    member.source_bytes = member.bytes;
    if (member.bytes > kMaxImageFileBytes) continue;  // which nobody reads
    const std::vector<std::uint8_t> bytes = archive.read(member.offset, member.bytes, member.name);
    member.hash = hash64(bytes.data(), bytes.size());
  }
  return archive_index(members, archive.bytes(), archive.path());
}

}  // namespace ab
