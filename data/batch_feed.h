#pragma once
// SPDX-License-Identifier: MIT
//
// Batches where a model computes, of its type of activations. On a CPU they are the loader's. A GPU gets bytes, the
// next ones while it computes, and finishes the images itself (finish_images.h); the values are the same.
//
//   while (const auto batch = feed.next()) {
//     …                  // issue work on the batch
//     feed.prefetch();   // the next batches set out while the device is busy
//     …                  // wait for results
//   }
//
// On the device of shapes batches have shapes alone, and as many lie ready as a loader has at hand.
//
// Each rank has a feed of its own. For a GPU it pins twice the bytes of a batch in host memory, 3 · H · W + 44 an
// image, and holds as much on the GPU: 3 MB for 512 images of CIFAR, 77 MB for 256 of ImageNet.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "engine/device/upload.h"

namespace ab {

class BatchFeed {
 public:
  /// Keeps a reference to `set`; throws as Loader does. To be used by one thread.
  BatchFeed(const Dataset& set, const LoaderOptions& options, Device device, DType activations);
  BatchFeed(Dataset&& set, const LoaderOptions& options, Device device, DType activations) = delete;

  std::int64_t batches_per_epoch() const { return sampler_.batches_per_epoch(); }
  /// Height of the images of the epoch.
  std::int64_t image_side() const { return image_[0]; }
  /// The same as the loader's.
  void start_epoch(std::int64_t epoch, std::int64_t first = 0);
  /// As Loader::look_ahead(), batches that are under way to a GPU among them.
  void look_ahead(std::int64_t count, const std::function<bool()>& gives_up = {}) {
    if (loader_) loader_->look_ahead(count - (uploaded_ - taken_), gives_up);
  }
  /// The next batch of the pass, or nothing at its end; fails when the loader does, once the batches before are used.
  std::optional<Batch> next();
  /// Sends what the loader has ready on its way to the GPU, at most two batches; never waits for the loader.
  void prefetch();

 private:
  /// One batch on its way from the loader to the model.
  struct Slot {
    std::unique_ptr<UploadSlot> memory;
    std::int64_t bytes = 0;  // that the memory has
    Shape shape;             // of the images
    bool has_mixed_labels = false;
    double mix = 1;
    Mix pixel_mix;
  };
  static constexpr std::int64_t kSlots = 2;

  void upload(const Batch& batch);
  Batch take();
  void keep_at_hand();
  /// On the device of shapes, where no image is read: the batch after those that have been taken.
  std::optional<Batch> next_shapes();
  Slot& slot(std::int64_t batch) { return slots_[static_cast<std::size_t>(batch % kSlots)]; }

  Device device_;
  DType activations_;
  Normalisation normalisation_;
  Sampler sampler_;
  const Dataset& set_;
  LoaderOptions options_;
  Shape image_;                   // of one, [H, W, 3]
  std::optional<Loader> loader_;  // none on the device of shapes
  std::vector<Tensor> at_hand_;   // there: what a loader keeps ready
  std::array<Slot, kSlots> slots_;
  std::int64_t uploaded_ = 0, taken_ = 0;  // batches, ever; at most kSlots are in between
};

}  // namespace ab
