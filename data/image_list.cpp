// SPDX-License-Identifier: MIT
#include "data/image_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "data/datasets.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"
#include "engine/core/hash.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListTitle = "abtrain images 2", kListPrefix = "images-";
constexpr std::size_t kMostLists = 16;  // that are kept: folders that are unpacked anew for each job would fill a disk
constexpr std::size_t kHashDigits = 16;
constexpr std::uint64_t kMostListBytes = std::uint64_t{1} << 33;
constexpr std::chrono::seconds kMoment{2};

/// When a folder was last changed: as it says, which tools that copy folders set back, and as the system knows. Nanoseconds.
struct Changed {
  std::int64_t said = 0, known = 0;
  auto operator<=>(const Changed&) const = default;
};

/// Nothing where it is not seen.
std::optional<Changed> time_of(const fs::path& folder) {
  struct stat state {};
  if (::stat(folder.c_str(), &state) != 0) return std::nullopt;
  const auto nanoseconds = [](const timespec& time) {
    return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
  };
  return Changed{nanoseconds(state.st_mtim), nanoseconds(state.st_ctim)};
}

/// The folders of a part, and when they were last changed.
struct FolderTimes {
  std::optional<Changed> root;
  std::map<std::string, std::optional<Changed>> of_class{};

  /// Whether they will show it when something in them is changed from now on.
  bool are_old() const {
    const auto old = [now = std::chrono::system_clock::now().time_since_epoch()](const std::optional<Changed>& time) {
      return time && std::chrono::nanoseconds(time->said) + kMoment < now;
    };
    return old(root) && std::ranges::all_of(of_class, [&](const auto& folder) { return old(folder.second); });
  }
};

/// Of texts and numbers, each with a zero byte behind it: the only one that no name holds.
void put(std::string& words, std::string_view word) { (words += word) += '\0'; }
void put(std::string& words, std::int64_t number) { put(words, std::to_string(number)); }
void put(std::string& words, const Changed& time) { put(words, time.said), put(words, time.known); }

std::optional<std::string_view> take_word(std::string_view& words) {
  const std::size_t end = words.find('\0');
  if (end == words.npos) return std::nullopt;
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(end + 1);
  return word;
}

std::optional<std::int64_t> take_number(std::string_view& words) {
  const std::optional<std::string_view> word = take_word(words);
  std::int64_t number = 0;
  if (!word || std::from_chars(word->data(), word->data() + word->size(), number).ec != std::errc{})
    return std::nullopt;
  return number;
}

std::optional<Changed> take_time(std::string_view& words) {
  const std::optional<std::int64_t> said = take_number(words), known = take_number(words);
  return said && known ? std::optional(Changed{*said, *known}) : std::nullopt;
}

std::string hash_of(std::string_view words) { return fmt::format("{:016x}", hash64(words.data(), words.size())); }

std::string list_text(const FolderImages& images, const FolderTimes& times) {
  std::string words;
  put(words, kListTitle);
  put(words, *times.root);
  for (const LeftOutBecause reason : kReasonsToLeaveOut) {
    put(words, images.left_out.files(reason));
    put(words, images.left_out.example(reason).string());
  }
  for (const auto& [name, files] : images.files) {
    put(words, name);
    put(words, *times.of_class.at(name));
    put(words, std::ssize(files));
    for (const ImageFile& file : files) put(words, file.name);
  }
  return words + hash_of(words);
}

/// Nothing of a list that is older than a folder, or of another version.
std::optional<FolderImages> images_of_list(std::string_view words, const fs::path& root) {
  const auto check = [](bool good) { AB_CHECK_KIND(data, good, "the list is damaged"); };
  check(words.size() > kHashDigits);
  const std::string_view hash = words.substr(words.size() - kHashDigits);
  words.remove_suffix(kHashDigits);
  check(hash == hash_of(words));
  if (take_word(words) != kListTitle || take_time(words) != time_of(root)) return std::nullopt;
  FolderImages images;
  for (const LeftOutBecause reason : kReasonsToLeaveOut) {
    const std::optional<std::int64_t> files = take_number(words);
    const std::optional<std::string_view> example = take_word(words);
    check(files && example);
    if (*files > 0) images.left_out.add(reason, fs::path(*example), *files);
  }
  while (!words.empty()) {
    const std::string name(take_word(words).value_or(""));
    if (take_time(words) != time_of(root / name)) return std::nullopt;
    const std::optional<std::int64_t> count = take_number(words);
    check(count && *count >= 0 && *count <= std::ssize(words));
    std::vector<ImageFile>& files = images.files[name];
    files.resize(static_cast<std::size_t>(*count));
    for (ImageFile& file : files) {
      const std::optional<std::string_view> word = take_word(words);
      check(word.has_value());
      file.name = *word;
    }
  }
  return images;
}

FolderImages images_in(const fs::path& root, FolderTimes& times) {
  times.root = time_of(root);
  FolderImages images;
  for (const std::string& name : class_folders(root, images.left_out)) {
    times.of_class[name] = time_of(root / name);  // before it is read: a change meanwhile is one
    LeftOut of_class;
    images.files[name] = image_files(root / name, of_class);
    images.left_out.add(of_class, name);
  }
  return images;
}

/// Keeps the newest lists in `folder`.
void remove_old_lists(const fs::path& folder) {
  std::vector<std::pair<std::optional<Changed>, fs::path>> lists;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(kListPrefix))
      lists.emplace_back(time_of(entry.path()), entry.path());
  std::ranges::sort(lists, std::greater{});
  for (std::size_t i = kMostLists; i < lists.size(); ++i) fs::remove(lists[i].second);
}

bool are_worth_saving(const FolderImages& images) {
  std::int64_t count = 0;
  for (const auto& [name, files] : images.files) count += std::ssize(files);
  return count >= kImagesWorthSaving && images.left_out.files(LeftOutBecause::broken_folder) == 0;
}

}  // namespace

FolderImages read_class_folders(const fs::path& root, bool saves, std::string& damaged) {
  std::error_code error;
  const std::string place = fs::canonical(root, error).string();
  const fs::path cache = cache_folder();
  const fs::path list = cache / fmt::format("{}{}", kListPrefix, hash_of(place));
  if (!cache.empty() && fs::exists(list, error)) try {
      if (auto images = images_of_list(read_file(list.string(), ErrorKind::data, kMostListBytes), root)) {
        fs::last_write_time(list, fs::file_time_type::clock::now(), error);  // it is in use
        return std::move(*images);
      }
    } catch (const Error&) {
      damaged = list.string();
    }
  FolderTimes times;
  FolderImages images = images_in(root, times);
  if (saves && !cache.empty() && are_worth_saving(images) && times.are_old()) try {
      fs::create_directories(cache);
      write_file_atomically(list.string(), list_text(images, times));
      remove_old_lists(cache);
    } catch (const std::exception&) {  // the folders are read again next time
    }
  return images;
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::map<std::string, std::vector<ImageFile>> read_image_list(const fs::path& list) {
  std::map<std::string, std::vector<ImageFile>> files;
  std::unordered_set<std::string> seen;
  std::ifstream in(list);
  std::int64_t number = 0;
  constexpr const char* blank = " \t\r";
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::size_t begin = line.find_first_not_of(blank), end = line.find_last_not_of(blank);
    if (begin == line.npos) continue;
    line = line.substr(begin, end + 1 - begin);
    const std::size_t label = line.find_last_of(blank) + 1;  // 0: there is one word
    const std::string path = line.substr(0, line.find_last_not_of(blank, label == 0 ? 0 : label - 1) + 1);
    const auto check = [&](bool good, const char* reason) {
      AB_CHECK_KIND(data, good, "imagenet: line {} of '{}' {}: '{}'", number, printable(list), reason, printable(line));
    };
    check(label > 0, "is no path of an image and its class");
    check(has_image_extension(last_part(path)), "names no file of an image (.JPEG, .jpg, .png)");
    check(seen.insert(path).second, "names an image a second time");
    files[in_order_of_numbers(line.substr(label))].push_back({{}, path});
  }
  AB_CHECK_KIND(data, in.eof() && !files.empty(), "imagenet: '{}' cannot be read, or names no image", printable(list));
  const auto order = [](const ImageFile& file) { return std::pair(last_part(file.name), std::string_view(file.name)); };
  for (auto& [name, of_class] : files) std::ranges::sort(of_class, {}, order);
  return files;
}

}  // namespace ab
