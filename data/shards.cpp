// SPDX-License-Identifier: MIT
#include "data/shards.h"

#include <algorithm>

#include "engine/core/check.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClass = ".cls";

/// Up to the first dot of the last part; the rest is what kind of file it is.
std::string key_of(const fs::path& path) {
  const std::string file = path.filename().string();
  return (path.parent_path() / file.substr(0, file.find('.'))).string();
}

std::string class_in(const TarArchive& shard, const TarMember& member) {
  constexpr std::int64_t most = 256;
  const std::vector<std::uint8_t> bytes = shard.read(member.offset, std::min(member.bytes, most), member.name);
  const std::string text(bytes.begin(), bytes.end());
  const std::size_t begin = text.find_first_not_of(" \n\r\t"), end = text.find_last_not_of(" \n\r\t");
  AB_CHECK_KIND(data, begin != std::string::npos && member.bytes < most, "imagenet: '{}' in '{}' names no class",
                printable(member.name), printable(shard.path()));
  const std::string name = text.substr(begin, end + 1 - begin);
  return name.find_first_not_of("0123456789") == std::string::npos ? fmt::format("{:0>5}", name) : name;
}

}  // namespace

bool are_of_shard(const std::vector<TarMember>& members) {
  return std::ranges::any_of(members, [](const TarMember& member) { return member.name.ends_with(kClass); });
}

std::map<std::string, std::vector<ImageFile>> shard_images(const std::vector<std::shared_ptr<const TarArchive>>& shards,
                                                           const std::vector<TarMember>& members, LeftOut& left_out) {
  std::map<std::pair<std::uint16_t, std::string>, std::string> classes;  // by shard and key
  std::vector<ImageFile> images;
  for (const TarMember& member : members) {
    const fs::path path = fs::path(member.name).lexically_normal();
    if (std::ranges::any_of(path, is_hidden)) continue;
    if (member.name.ends_with(kClass))
      classes[{member.archive, key_of(path)}] = class_in(*shards[member.archive], member);
    else if (has_image_extension(path)) images.push_back({member, path.string()});
    else if (path.extension() != ".json" && path.extension() != ".txt") left_out.add(LeftOutBecause::format, path);
  }
  std::map<std::string, std::vector<ImageFile>> by_class;
  for (ImageFile& image : images) {
    const auto found = classes.find({image.archive, key_of(image.name)});
    AB_CHECK_KIND(data, found != classes.end(), "imagenet: '{}' in '{}' has no {} beside it", printable(image.name),
                  printable(shards[image.archive]->path()), kClass);
    by_class[found->second].push_back(std::move(image));
  }
  for (auto& [name, files] : by_class) std::ranges::stable_sort(files, {}, &ImageFile::name);
  return by_class;
}

}  // namespace ab
