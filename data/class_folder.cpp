// SPDX-License-Identifier: MIT
#include "data/class_folder.h"

#include <algorithm>
#include <string_view>

#include "engine/core/check.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

struct ReasonWords {
  const char* files;
  const char* remedy;
};

/// In the order of LeftOutBecause.
constexpr ReasonWords kReasons[] = {
    {"of another format than JPEG and PNG", "convert them to JPEG or PNG"},
    {"without an extension", "end their names in .jpg or .png"},
    {"in folders inside a class's folder", "move them up into the folder of their class"},
    {"in no folder of a class", "sort or unpack them into the folders of their classes"},
    {"as a link to a folder that is not there", "repair the link"},
};

/// Files that operating systems, file servers and archives leave in folders.
constexpr std::string_view kOfSystems[] = {"thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir", "__macosx"};
/// Files that tell about images and are none.
constexpr std::string_view kNotes[] = {".txt", ".md",   ".csv",  ".tsv", ".json", ".xml",
                                       ".yml", ".yaml", ".html", ".log", ".mat"};

template <std::size_t N> bool is_one_of(const std::string_view (&list)[N], const std::string& name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

std::string extension_of(const fs::path& file) { return lower(file.extension().string()); }

bool is_note(const fs::path& file) { return is_one_of(kNotes, extension_of(file)); }

/// Calls visit(entry) for what is in a folder and not hidden, in no order.
template <class Visit> void for_each_entry(const fs::path& folder, const Visit& visit) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (!is_hidden(entry->path().filename())) visit(*entry);
  AB_CHECK_KIND(data, !error, "imagenet: cannot list '{}': {}", printable(folder), error.message());
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code ignored;  // a loop of links is no folder
  return entry.is_directory(ignored);
}

/// Adds the files below `inner`, a folder inside that of a class; links to folders are not followed.
void add_deeper(const fs::directory_entry& inner, LeftOut& left_out) {
  const fs::path name = inner.path().filename();
  std::error_code error;
  if (inner.is_symlink(error)) return left_out.add(LeftOutBecause::deeper, name);
  for (fs::recursive_directory_iterator at(inner.path(), error), end; !error && at != end; at.increment(error)) {
    const fs::path file = at->path().filename();
    std::error_code ignored;
    const bool folder = at->is_directory(ignored);
    if (is_hidden(file)) {
      if (folder) at.disable_recursion_pending();
    } else if (!folder && !is_note(file)) {
      left_out.add(LeftOutBecause::deeper, name / at->path().lexically_relative(inner.path()));
    }
  }
  if (error) left_out.add(LeftOutBecause::deeper, name);
}

}  // namespace

bool is_hidden(const fs::path& name) {
  const std::string text = lower(name.string());
  return text.starts_with('.') || is_one_of(kOfSystems, text);
}

bool has_image_extension(const fs::path& file) {
  const std::string extension = extension_of(file);
  return extension == ".jpeg" || extension == ".jpg" || extension == ".jpe" || extension == ".jfif" ||
         extension == ".png";
}

std::string printable(const fs::path& path) {
  std::string text;
  for (const char c : path.string())
    if (c < ' ' || c > '~') text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else text += c;
  return text;
}

void LeftOut::add(LeftOutBecause reason, const fs::path& example, std::int64_t files) {
  Count& count = counts_[static_cast<std::size_t>(reason)];
  count.files += files;
  // Folders are listed in any order: the first by name is the same everywhere.
  if (count.example.empty() || example < count.example) count.example = example;
}

void LeftOut::add(const LeftOut& of_folder, const std::string& name) {
  for (std::size_t i = 0; i < counts_.size(); ++i)
    if (const Count& count = of_folder.counts_[i]; count.files > 0)
      add(static_cast<LeftOutBecause>(i), fs::path(name) / count.example, count.files);
}

std::int64_t LeftOut::files() const {
  std::int64_t sum = 0;
  for (const Count& count : counts_) sum += count.files;
  return sum;
}

std::string LeftOut::text() const {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i].files > 0)
      parts.push_back(fmt::format("{} {} ('{}')", counts_[i].files, kReasons[i].files, printable(counts_[i].example)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string LeftOut::remedy() const {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i].files > 0) parts.push_back(kReasons[i].remedy);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::string> class_folders(const fs::path& folder, LeftOut& left_out) {
  std::vector<std::string> names;
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    const fs::path name = entry.path().filename();
    std::error_code ignored;
    if (is_folder(entry)) names.push_back(name.string());
    else if (entry.is_symlink(ignored) && !fs::exists(entry.path(), ignored))
      left_out.add(LeftOutBecause::broken_folder, name);
    else if (name.has_extension() && !is_note(name)) left_out.add(LeftOutBecause::beside, name);
  });
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

/// Of two with one name in an archive, as where it was appended to, the later one counts.
void sort_by_name(std::vector<ImageFile>& files) {
  std::ranges::stable_sort(files, {}, &ImageFile::name);
  const auto end = std::unique(files.rbegin(), files.rend(), [](const ImageFile& later, const ImageFile& earlier) {
    return later.name == earlier.name && later.archive == earlier.archive;
  });
  files.erase(files.begin(), end.base());
}

/// A file that is no image.
void add_other(const fs::path& name, const fs::path& shown, LeftOut& left_out) {
  if (is_note(name)) return;
  left_out.add(name.has_extension() ? LeftOutBecause::format : LeftOutBecause::no_extension, shown);
}

}  // namespace

std::vector<ImageFile> image_files(const fs::path& folder, LeftOut& left_out) {
  std::vector<ImageFile> files;
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    const fs::path name = entry.path().filename();
    if (has_image_extension(name)) {
      std::error_code error;
      const bool regular = entry.is_regular_file(error);
      if (!regular && is_folder(entry)) return add_deeper(entry, left_out);
      AB_CHECK_KIND(data, regular, "imagenet: '{}' cannot be read ({}); repair the link, or move it elsewhere",
                    printable(entry.path()), error ? error.message() : "not a regular file");
      files.push_back({{}, name.string()});
    } else if (is_folder(entry)) {
      add_deeper(entry, left_out);
    } else {
      add_other(name, name, left_out);
    }
  });
  sort_by_name(files);
  return files;
}

std::map<std::string, std::vector<ImageFile>> image_files(const std::vector<TarMember>& members, LeftOut& left_out) {
  struct Placed {
    std::vector<std::string> folders;
    ImageFile file;
  };
  std::vector<Placed> images;
  for (const TarMember& member : members) {
    const fs::path path = fs::path(member.name).lexically_normal().relative_path();
    if (std::ranges::any_of(path, is_hidden)) continue;
    if (!has_image_extension(path)) {
      add_other(path.filename(), path, left_out);
      continue;
    }
    Placed& image = images.emplace_back(Placed{{}, {member, path.filename().string()}});
    for (const fs::path& folder : path.parent_path()) image.folders.push_back(folder.string());
  }
  // The folders of classes lie in those that all images share.
  std::vector<std::string> shared = images.empty() ? std::vector<std::string>{} : images.front().folders;
  bool all_in_one = true;
  for (const Placed& image : images) {
    all_in_one = all_in_one && image.folders == images.front().folders;
    shared.erase(std::ranges::mismatch(shared, image.folders).in1, shared.end());
  }
  if (all_in_one && !shared.empty()) shared.pop_back();
  std::map<std::string, std::vector<ImageFile>> by_class;
  for (Placed& image : images) {
    const std::size_t left = image.folders.size() - shared.size();
    const std::string name = left > 0 ? image.folders[shared.size()] : "";
    if (left > 1)
      left_out.add(LeftOutBecause::deeper, fs::path(name) / image.folders[shared.size() + 1] / image.file.name);
    else by_class[name].push_back(std::move(image.file));
  }
  for (auto& [name, files] : by_class) sort_by_name(files);
  return by_class;
}

namespace {

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
  return in_order_of_numbers(text.substr(begin, end + 1 - begin));
}

}  // namespace

std::string in_order_of_numbers(const std::string& name) {
  return name.find_first_not_of("0123456789") == std::string::npos ? fmt::format("{:0>5}", name) : name;
}

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
