#pragma once
// SPDX-License-Identifier: MIT
//
// The images that a run began with, as far as a hash tells them: a run that goes on must see the same.

#include "apps/settings/train_config.h"
#include "apps/train/summary.h"
#include "data/dataset.h"
#include "engine/comm/comm.h"
#include "engine/io/state_dict.h"

namespace ab {

class RunImages {
 public:
  explicit RunImages(const TrainAndTest& data);

  void save(StateDict& state) const;
  /// Throws Error(data) when `state` was saved with other images: other labels or names, or more than a quarter of what
  /// is known of their contents (Dataset::contents). A few may differ, as damaged files that were fetched again: then
  /// the answer is a sentence for a warning, and else it is empty.
  std::string compare(const StateDict& state) const;

 private:
  std::int64_t fingerprint_;
  std::vector<std::int64_t> contents_;
};

/// The images, where they come from files, by way of a cache that all ranks of a machine share, as large as its first rank's
/// config.cache_gb; the same images where that is 0. `processes`: the world of ranks that are processes, which call it together;
/// null: there is one process.
TrainAndTest in_cache(const TrainAndTest& data, const TrainConfig& config, Comm* processes);

/// Prints how many images of how many classes a run trains on and is validated on; warnings of the data set, and
/// of classes that --train-samples leaves out, go to stderr. For rank 0.
void tell_images(const TrainConfig& config, const TrainAndTest& data);
/// How often images came from where, on this machine, and with how many bytes, by their names in
/// summary.json; empty without a cache.
std::map<std::string, std::int64_t> images_so_far(const TrainAndTest& data);
/// Numbers of images for summary.json.
void count_images(const TrainAndTest& data, Summary& summary);

}  // namespace ab
