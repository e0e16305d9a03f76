// SPDX-License-Identifier: MIT
#include "data/datasets.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "data/archive_index.h"
#include "data/image_files.h"
#include "data/image_list.h"
#include "data/pack.h"
#include "engine/core/check.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr int kSideSeen = 224;
constexpr std::size_t kMaxClasses = std::size_t{std::numeric_limits<std::uint16_t>::max()} + 1;

/// A part of the set as it is found: its images by class, and what is not read.
struct FoundPart {
  ImagePlace place;
  std::map<std::string, std::vector<ImageFile>> files;
  LeftOut left_out;
  std::vector<std::string> warnings{};
};

bool is_known(const std::vector<std::string>& classes, const std::string& name) {
  return std::ranges::binary_search(classes, name);
}

bool is_number(const std::string& text) { return text.find_first_not_of("0123456789") == std::string::npos; }

/// The class of each image, by its name without extension.
using ImageLabels = std::map<std::string, std::string>;

/// The list beside val: LOC_val_solution.csv, as Kaggle has it, or val.txt, an image and its class on each line. Empty when there is
/// none. Throws Error(data) when it cannot be read, or does not name a class on every line.
ImageLabels read_image_labels(const fs::path& folder) {
  ImageLabels labels;
  for (const char* name : {"LOC_val_solution.csv", "val.txt"}) {
    const fs::path file = folder / name;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    std::ifstream in(file);
    std::int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      std::ranges::replace(line, ',', ' ');
      std::istringstream words(line);
      std::string image, label;
      if (!(words >> image)) continue;
      if (image == "ImageId") continue;  // the heading
      AB_CHECK_KIND(data, static_cast<bool>(words >> label), "imagenet: line {} of '{}' names no class of '{}'", number,
                    printable(file), printable(image));
      labels[fs::path(image).stem().string()] = label;
    }
    AB_CHECK_KIND(data, in.eof() && !labels.empty(), "imagenet: '{}' cannot be read, or names no image",
                  printable(file));
    return labels;
  }
  return labels;
}

/// Puts flat images into classes. `known`: those of train.
std::map<std::string, std::vector<ImageFile>> sort_into_classes(std::vector<ImageFile> flat, const ImageLabels& labels,
                                                                const std::vector<std::string>& known,
                                                                const std::string& root) {
  std::map<std::string, std::vector<ImageFile>> files;
  for (ImageFile& file : flat) {
    const auto label = labels.find(fs::path(file.name).stem().string());
    AB_CHECK_KIND(data, label != labels.end(), "imagenet: the list of labels beside '{}' has no line for '{}'",
                  printable(root), printable(file.name));
    AB_CHECK_KIND(
        data, is_known(known, label->second) || !is_number(label->second),
        "imagenet: the list of labels beside '{}' gives '{}' the class {}, which is no folder of train; numbers are in "
        "one order in the devkit and in others elsewhere, so name the folders",
        printable(root), printable(file.name), label->second);
    files[label->second].push_back(std::move(file));
  }
  return files;
}

FoundPart find_part(const fs::path& folder, const std::string& part, bool saves_list) {
  const fs::path root = folder / part, list = folder / (part + ".txt");
  std::error_code ignored;
  FoundPart found{{root.string()}, {}, {}};
  if (fs::is_directory(root, ignored)) {
    std::string damaged;
    FolderImages images = read_class_folders(root, saves_list, damaged);
    found.files = std::move(images.files), found.left_out = std::move(images.left_out);
    if (!damaged.empty())
      found.warnings.push_back(
          fmt::format("imagenet: the list '{}' of the files in '{}' is damaged, so its folders were read",
                      printable(damaged), printable(root)));
    return found;
  }
  const std::vector<std::string> archives = archives_of(folder, part);
  if (archives.empty() && fs::exists(list, ignored)) {
    found.place = {.root = list.string(), .listed = true};
    found.files = read_image_list(list);
    return found;
  }
  AB_CHECK_KIND(data, !archives.empty() || packed_description(folder).empty(),
                "imagenet: '{}' has no archive of {}: it was not packed to its end; run abtrain data pack again",
                printable(folder), part);
  AB_CHECK_KIND(data, !archives.empty(),
                "imagenet: there is no folder '{}'; give the folder that holds train and val, each with one folder of "
                "images for each class, or as archives train.tar and val.tar, or as lists train.txt and val.txt",
                printable(root));
  AB_CHECK_KIND(data, archives.size() <= std::numeric_limits<std::uint16_t>::max(),
                "imagenet: there are {} shards of {} in '{}'", archives.size(), part, printable(folder));
  found.place.root = archives.front();
  std::vector<TarMember> members;
  std::vector<std::string> problems;
  for (const std::string& path : archives) {
    const auto archive = std::make_shared<const TarArchive>(path);
    std::string problem;
    std::optional<std::vector<TarMember>> inside = read_archive_index(path, archive->bytes(), problem);
    if (!problem.empty()) problems.push_back(problem);
    if (!inside) inside = archive->members();
    for (TarMember& member : *inside) member.archive = static_cast<std::uint16_t>(found.place.archives.size());
    std::ranges::move(*inside, std::back_inserter(members));
    found.place.archives.push_back(archive);
  }
  if (!problems.empty())
    found.warnings.push_back(
        fmt::format("imagenet: of {} of {} archives of {} the index is not used: {}; abtrain data index writes it anew",
                    problems.size(), archives.size(), part, problems.front()));
  found.place.flat = are_of_shard(members);
  found.files = found.place.flat ? shard_images(found.place.archives, members, found.left_out)
                                 : image_files(members, found.left_out);
  return found;
}

/// Images of val that lie in no folder of their class, where a list beside it tells their classes.
void take_labels(FoundPart& val, const fs::path& folder, const std::vector<std::string>& known) {
  const auto is_of_known = [&](const auto& of_class) { return is_known(known, of_class.first); };
  if (val.place.listed || std::ranges::any_of(val.files, is_of_known)) return;
  const ImageLabels labels = read_image_labels(folder);
  if (labels.empty()) return;
  std::vector<ImageFile> flat;
  if (val.place.archives.empty()) {
    val.left_out = {};
    flat = image_files(fs::path(val.place.root), val.left_out);
    val.place.flat = true;
  }
  for (auto& [name, files] : val.files)
    if (!val.place.archives.empty()) std::ranges::move(files, std::back_inserter(flat));
  val.files = sort_into_classes(std::move(flat), labels, known, val.place.root);
}

std::shared_ptr<ImageFiles> list_images(FoundPart part, const std::vector<std::string>& class_names) {
  LeftOut left_out = std::move(part.left_out);
  std::vector<std::vector<ImageFile>> files;
  for (const std::string& name : class_names) files.push_back(std::move(part.files[name]));
  for (const ImageFile& file : part.files[""]) left_out.add(LeftOutBecause::beside, file.name);
  const std::string root = part.place.root;
  auto images = std::make_shared<ImageFiles>("ImageNet", std::move(part.place), class_names, files);
  images->warnings = std::move(part.warnings);
  const std::string text = left_out.text(), remedy = left_out.remedy();
  AB_CHECK_KIND(data, images->count > 0,
                "imagenet: there are no images (.JPEG, .jpg, .png) in the class folders of '{}'{}", printable(root),
                left_out.files() == 0 ? "" : fmt::format(", but {}; {}", text, remedy));
  if (const std::int64_t skipped = left_out.files(); skipped > 0)
    images->warnings.push_back(fmt::format("imagenet: {} in '{}' {} left out: {}; to use such files, {}",
                                           skipped == 1 ? "1 file" : fmt::format("{} files", skipped), printable(root),
                                           skipped == 1 ? "is" : "are", text, remedy));
  images->height = images->width = kSideSeen;
  images->cropping = Cropping::resized;
  images->mean = {0.485f, 0.456f, 0.406f};
  images->stddev = {0.229f, 0.224f, 0.225f};
  return images;
}

/// The classes of train or val, in order of their names' bytes.
std::vector<std::string> classes_of(const FoundPart& part) {
  std::vector<std::string> names;
  for (const auto& [name, files] : part.files)
    if (!name.empty()) names.push_back(name);
  AB_CHECK_KIND(
      data, !names.empty(), "imagenet: '{}' has no class folders{}; sort its images into one folder for each class",
      printable(part.place.root), part.left_out.files() == 0 ? "" : fmt::format(", but {}", part.left_out.text()));
  AB_CHECK_KIND(data, names.size() <= kMaxClasses, "imagenet: '{}' has {} classes, expected 1 to {}",
                printable(part.place.root), names.size(), kMaxClasses);
  return names;
}

void check_train_classes(const ImageFiles& train, const fs::path& folder) {
  const std::vector<int> empty = labels_without_images(train);
  if (empty.empty()) return;
  const std::string& name = train.class_names()[static_cast<std::size_t>(empty.front())];
  LeftOut left_out;
  image_files(folder / name, left_out);
  throw Error(ErrorKind::data,
              fmt::format("imagenet: the class folder '{}' in train holds no images (.JPEG, .jpg, .png){}",
                          printable(name),
                          left_out.files() == 0 ? "; unpack its images into it, or move it elsewhere"
                                                : fmt::format(", but {}; {}", left_out.text(), left_out.remedy())));
}

void check_val_classes(const std::vector<std::string>& tested, const std::vector<std::string>& known,
                       const std::string& val) {
  AB_CHECK_KIND(data, std::ranges::any_of(tested, [&](const std::string& name) { return is_known(known, name); }),
                "imagenet: no class in '{}' ('{}' is the first) is named as a class of train; sort its images into one "
                "folder for each class, as train has",
                printable(val), printable(tested.front()));
  for (const std::string& name : tested)
    AB_CHECK_KIND(data, is_known(known, name),
                  "imagenet: val has the class '{}', which train lacks; give both the same classes", printable(name));
}

}  // namespace

std::vector<std::string> archives_of(const fs::path& folder, const std::string& part) {
  std::vector<std::string> shards;
  std::error_code error;
  for (const std::string& name : {part + ".tar", "ILSVRC2012_img_" + part + ".tar"})
    if (fs::exists(folder / name, error)) return {(folder / name).string()};
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto is_of = [&](const std::string& word) {
      return name.starts_with(word + "-") || name.find("-" + word + "-") != std::string::npos;
    };
    const bool of_part = is_of(part) || (part == "val" && is_of("validation"));
    if (of_part && name.ends_with(".tar") && !is_hidden(name)) shards.push_back(entry->path().string());
  }
  std::ranges::sort(shards);
  return shards;
}

TrainAndTest load_imagenet(const std::string& folder, std::int64_t train_count, std::int64_t val_count,
                           bool saves_lists) {
  FoundPart train_part = find_part(folder, "train", saves_lists), val_part = find_part(folder, "val", saves_lists);
  const std::string train_root = train_part.place.root, val_root = val_part.place.root;
  const std::vector<std::string> class_names = classes_of(train_part);
  const auto train = list_images(std::move(train_part), class_names);
  check_train_classes(*train, train_root);
  take_labels(val_part, folder, class_names);
  check_val_classes(classes_of(val_part), class_names, val_root);
  const auto val = list_images(std::move(val_part), class_names);
  check_packed_whole(folder, train->count, val->count);
  if (const std::vector<int> missing = labels_without_images(*val); !missing.empty())
    val->warnings.push_back(fmt::format("imagenet: val has no images of {} of {} classes, '{}' first", missing.size(),
                                        class_names.size(),
                                        printable(class_names[static_cast<std::size_t>(missing.front())])));
  if (class_names.size() == 1)
    train->warnings.push_back(fmt::format(
        "imagenet: '{}' has the images of one class, '{}', and so nothing to tell apart; sort them into one folder for each "
        "class",
        printable(train_root), printable(class_names.front())));
  train->thin_out(train_count);
  val->thin_out(val_count);
  return {train, val};
}

}  // namespace ab
