// SPDX-License-Identifier: MIT
#include "apps/train/run_images.h"

#include "engine/core/check.h"
#include "engine/core/hash.h"

namespace ab {
namespace {

constexpr const char *kFingerprint = "images", *kContents = "image_contents";

}  // namespace

RunImages::RunImages(const TrainAndTest& data) : fingerprint_(static_cast<std::int64_t>(data.fingerprint())) {
  for (const std::uint64_t hash : data.contents()) contents_.push_back(static_cast<std::int64_t>(hash));
}

void RunImages::save(StateDict& state) const {
  state.put(kFingerprint, fingerprint_);
  state.put(kContents, Tensor::from(contents_, {static_cast<std::int64_t>(contents_.size())}));
}

std::string RunImages::compare(const StateDict& state) const {
  std::size_t different = 0;
  bool same = state.integer(kFingerprint) == fingerprint_;
  if (same && state.has(kContents)) {  // which earlier versions lack
    const Tensor saved = state.tensor(kContents);
    same = saved.dtype() == DType::int64 && saved.numel() == static_cast<std::int64_t>(contents_.size());
    for (std::size_t i = 0; same && i < contents_.size(); ++i)
      different += saved.data<std::int64_t>()[i] != contents_[i] ? 1 : 0;
    same = same && 4 * different <= contents_.size();
  }
  AB_CHECK_KIND(data, same, "the checkpoint was saved with other images; give the data set that the run began with");
  return different == 0 ? ""
                        : fmt::format(
                              "{} of {} image files that were looked at have another size than when the "
                              "checkpoint was saved",
                              different, contents_.size());
}

std::uint64_t hash_of_images(const TrainAndTest& data) {
  const std::vector<std::uint64_t> contents = data.contents();
  return hash64(contents.data(), contents.size() * sizeof(std::uint64_t), data.fingerprint());
}

}  // namespace ab
