// SPDX-License-Identifier: MIT
#include "data/batch_feed.h"

#include <cstring>
#include <utility>

#include "data/finish_images.h"
#include "engine/core/memory.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

LoaderOptions options_for(Device device, LoaderOptions options) {
  options.staged = device.kind != DeviceKind::cpu;
  return options;
}

/// Where the parts of a batch begin in the memory of a slot: in the order of their alignment, so there are no gaps.
struct Offsets {
  std::int64_t labels = 0, mixed_labels, draws, pixels, end;

  explicit Offsets(const Shape& images)
      : mixed_labels(images[0] * static_cast<std::int64_t>(sizeof(std::int64_t))),
        draws(2 * mixed_labels),
        pixels(draws + images[0] * static_cast<std::int64_t>(sizeof(ImageDraws))),
        end(pixels + images.numel()) {}
};

/// A copy of the labels that begin there.
Tensor labels_at(const Tensor& block, std::int64_t offset, std::int64_t count) {
  const Tensor labels({count}, DType::int64, block.device());
  memory(block.device()).copy(labels.raw(), block.data<std::uint8_t>() + offset, labels.bytes());
  return labels;
}

}  // namespace

BatchFeed::BatchFeed(const Dataset& set, const LoaderOptions& options, Device device, DType activations)
    : device_(device),
      activations_(activations),
      normalisation_(normalisation_of(set)),
      sampler_{set.count, options.batch_size, options.rank, options.world_size, options.seed, options.training},
      set_(set),
      options_(options),
      image_(options.image_shape(set, 0)) {
  sampler_.check();
  if (device.kind != DeviceKind::shapes) {
    loader_.emplace(set, options_for(device, options));
    return;
  }
  keep_at_hand();
}

void BatchFeed::keep_at_hand() {
  at_hand_.clear();
  const std::int64_t ready = std::min<std::int64_t>(options_.prefetch + 1, batches_per_epoch());
  for (std::int64_t i = 0; i < ready; ++i)
    at_hand_.emplace_back(Shape{options_.batch_size, image_[0], image_[1], image_[2]}, DType::float32, device_);
}

void BatchFeed::start_epoch(std::int64_t epoch, std::int64_t first) {
  const Shape before = std::exchange(image_, options_.image_shape(set_, epoch));
  if (!loader_) {
    taken_ = 0;
    if (image_ != before) keep_at_hand();
    return;
  }
  loader_->start_epoch(epoch, first);
  for (; taken_ < uploaded_; ++taken_) {  // of a pass that was not finished
    slot(taken_).memory->acquire();
    slot(taken_).memory->release();
  }
}

std::optional<Batch> BatchFeed::next() {
  if (!loader_) return next_shapes();
  if (taken_ == uploaded_) {
    std::optional<Batch> batch = loader_->next();
    if (!batch) return std::nullopt;
    if (device_.kind == DeviceKind::cpu) {
      batch->images = cast(batch->images, activations_);
      return batch;
    }
    upload(*batch);
  }
  return take();
}

std::optional<Batch> BatchFeed::next_shapes() {
  if (taken_ == batches_per_epoch()) return std::nullopt;
  const std::int64_t first = (taken_ * sampler_.world_size + sampler_.rank) * sampler_.batch_size;
  const std::int64_t count = std::min(sampler_.batch_size, sampler_.count - first);
  taken_ += sampler_.training ? 0 : 1;  // in training all are alike
  Batch batch{Tensor({count, image_[0], image_[1], image_[2]}, activations_, device_),
              Tensor({count}, DType::int64, device_)};
  if (options_.training && options_.mix.enabled()) batch.mixed_labels = Tensor({count}, DType::int64, device_);
  return batch;
}

void BatchFeed::prefetch() {
  if (device_.kind != DeviceKind::cuda) return;
  while (uploaded_ - taken_ < kSlots && loader_->ready()) upload(*loader_->next());
}

void BatchFeed::upload(const Batch& batch) {
  const Offsets at(batch.images.shape());
  Slot& to = slot(uploaded_);
  if (at.end > to.bytes) {
    to.memory = cuda_upload_slot(device_.index, static_cast<std::size_t>(at.end));
    to.bytes = at.end;
  }
  to.shape = batch.images.shape();
  to.has_mixed_labels = batch.mixed_labels.defined();
  to.mix = batch.mix;
  to.pixel_mix = batch.pixel_mix;

  std::byte* host = to.memory->host();
  std::memcpy(host + at.labels, batch.labels.raw(), batch.labels.bytes());
  if (to.has_mixed_labels) std::memcpy(host + at.mixed_labels, batch.mixed_labels.raw(), batch.mixed_labels.bytes());
  std::memcpy(host + at.draws, batch.draws.data(), batch.draws.size() * sizeof(ImageDraws));
  std::memcpy(host + at.pixels, batch.images.raw(), batch.images.bytes());
  to.memory->start(static_cast<std::size_t>(at.end));
  ++uploaded_;
}

/// The earliest batch under way, finished.
Batch BatchFeed::take() {
  const Slot& from = slot(taken_++);
  const Offsets at(from.shape);
  const Tensor& block = from.memory->acquire();
  const auto* draws = reinterpret_cast<const ImageDraws*>(block.data<std::uint8_t>() + at.draws);
  Batch batch{finish_images(block.slice(at.pixels, at.end).view(from.shape), draws, normalisation_, from.pixel_mix,
                            activations_),
              labels_at(block, at.labels, from.shape[0])};
  if (from.has_mixed_labels) batch.mixed_labels = labels_at(block, at.mixed_labels, from.shape[0]);
  batch.mix = from.mix;
  from.memory->release();
  return batch;
}

}  // namespace ab
