#pragma once
// SPDX-License-Identifier: MIT
//
// The shards of a WebDataset: tar archives in which KEY.jpg lies beside KEY.cls, the class as text. Elsewhere they are read as
// streams; here like any archive, image by image.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/class_folder.h"

namespace ab {

/// Whether the files of archives are those of shards.
bool are_of_shard(const std::vector<TarMember>& members);

/// The images of all shards by class, in the order of their keys. Classes that are numbers get names of five digits, so that they
/// stay in their order. `members`: of all shards. Throws Error(data) for an image without a class.
std::map<std::string, std::vector<ImageFile>> shard_images(const std::vector<std::shared_ptr<const TarArchive>>& shards,
                                                           const std::vector<TarMember>& members, LeftOut& left_out);

}  // namespace ab
