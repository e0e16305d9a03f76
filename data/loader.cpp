// SPDX-License-Identifier: MIT
#include "data/loader.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "data/augment.h"
#include "data/sampler.h"
#include "engine/core/check.h"

namespace ab {
namespace {

constexpr const char* kThreadName = "abtrain-loader";  // at most 15 characters, as the system shows it

void check_set(const ImageSet& set) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(set.count, 0));
  AB_CHECK_KIND(data, set.count > 0, "{}: the data set holds no images", set.name);
  AB_CHECK_KIND(data, set.channels == 3, "{}: the loader prepares RGB images, got {} channels", set.name,
                set.channels);
  AB_CHECK_KIND(
      data,
      set.pixels.size() == count * static_cast<std::size_t>(set.image_bytes()) && set.labels.size() == count,
      "{}: {} images of {} bytes need {} bytes and as many labels, got {} bytes and {} labels", set.name,
      count, set.image_bytes(), count * static_cast<std::size_t>(set.image_bytes()), set.pixels.size(),
      set.labels.size());
}

Sampler checked_sampler(const ImageSet& set, const LoaderOptions& o) {
  check_set(set);
  AB_CHECK(o.batch_size > 0, "loader: the batch size must be at least 1, got {}", o.batch_size);
  AB_CHECK(o.world_size > 0 && o.rank >= 0 && o.rank < o.world_size,
           "loader: rank {} is not below the world size {}", o.rank, o.world_size);
  AB_CHECK(o.prefetch >= 0, "loader: prefetch must be 0 or more batches, got {}", o.prefetch);
  AB_CHECK(o.stall_timeout_seconds > 0, "loader: the stall timeout must be above 0 s, got {}",
           o.stall_timeout_seconds);
  const Sampler sampler{set.count, o.batch_size, o.rank, o.world_size, o.seed, o.training};
  AB_CHECK(
      !o.training || sampler.batches_per_epoch() > 0,
      "loader: {} training images are fewer than one batch of {} on each of {} ranks; choose a smaller batch "
      "or fewer ranks",
      set.count, o.batch_size, o.world_size);
  return sampler;
}

}  // namespace

struct Loader::Impl {
  Impl(const ImageSet& image_set, const LoaderOptions& loader_options)
      : set(image_set),
        options(loader_options),
        sampler(checked_sampler(image_set, loader_options)),
        preparer(set.height, set.width, options.mean, options.stddev) {}
  ~Impl() { stop(); }

  void start(std::int64_t epoch);
  void stop();
  std::optional<Batch> next();
  std::optional<Batch> take();
  void run() noexcept;
  void deliver_all();
  bool cancelled();
  Batch prepare(std::int64_t step);

  const ImageSet& set;
  const LoaderOptions options;
  const Sampler sampler;

  // Of the pass: written while no thread runs. The thread, or next() without one, reads them and owns
  // preparer.
  std::int64_t epoch = -1;
  std::vector<std::int64_t> samples;
  ImagePreparer preparer;
  std::int64_t steps_taken = 0;  // touched by the caller of next() only
  std::thread thread;

  // Shared between the thread and the caller.
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Batch> ready;
  std::exception_ptr failure;
  bool cancel = false;
};

void Loader::Impl::start(std::int64_t new_epoch) {
  stop();
  epoch = new_epoch;
  samples = sampler.samples(epoch);
  steps_taken = 0;
  ready.clear();
  failure = nullptr;
  cancel = false;
  if (options.prefetch > 0) {
    thread = std::thread([this] { run(); });
    pthread_setname_np(thread.native_handle(), kThreadName);
  }
}

void Loader::Impl::stop() {
  if (!thread.joinable()) return;
  {
    std::lock_guard lock(mutex);
    cancel = true;
  }
  changed.notify_all();
  thread.join();
}

std::optional<Batch> Loader::Impl::next() {
  AB_CHECK(epoch >= 0, "loader: call start_epoch() before next()");
  if (steps_taken == sampler.batches_per_epoch()) return std::nullopt;
  std::optional<Batch> batch = options.prefetch > 0 ? take() : prepare(steps_taken);
  ++steps_taken;
  return batch;
}

/// Waits for the thread's next batch. The wait is cut into slices, so that a process that was itself
/// suspended for a while (a debugger, SIGSTOP) loses one slice and not the whole patience.
std::optional<Batch> Loader::Impl::take() {
  constexpr int kSlices = 60;
  const auto slice = std::chrono::duration<double>(options.stall_timeout_seconds / kSlices);
  std::unique_lock lock(mutex);
  const auto arrived = [&] { return !ready.empty() || failure; };
  for (int waited = 0; waited < kSlices && !arrived(); ++waited) changed.wait_for(lock, slice, arrived);
  if (ready.empty() && failure) std::rethrow_exception(failure);
  AB_CHECK_KIND(
      data, !ready.empty(),
      "{}: the thread '{}' has delivered nothing for {} s (waiting for batch {} of {} in epoch {}); the "
      "machine may be swapping or out of processor time",
      set.name, kThreadName, options.stall_timeout_seconds, steps_taken, sampler.batches_per_epoch(), epoch);
  Batch batch = std::move(ready.front());
  ready.pop_front();
  lock.unlock();
  changed.notify_all();
  return batch;
}

/// The body of the thread.
void Loader::Impl::run() noexcept {
  try {
    deliver_all();
  } catch (...) {
    std::lock_guard lock(mutex);
    failure = std::current_exception();
  }
  changed.notify_all();
}

void Loader::Impl::deliver_all() {
  for (std::int64_t step = 0; step < sampler.batches_per_epoch(); ++step) {
    Batch batch = prepare(step);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return cancel || ready.size() < static_cast<std::size_t>(options.prefetch); });
    if (cancel) return;
    ready.push_back(std::move(batch));
    lock.unlock();
    changed.notify_all();
  }
}

bool Loader::Impl::cancelled() {
  std::lock_guard lock(mutex);
  return cancel;
}

Batch Loader::Impl::prepare(std::int64_t step) {
  const auto begin = static_cast<std::size_t>(step * options.batch_size);
  const std::size_t count = std::min(static_cast<std::size_t>(options.batch_size), samples.size() - begin);
  const auto n = static_cast<std::int64_t>(count);
  Batch batch{Tensor({n, set.height, set.width, set.channels}), Tensor({n}, DType::int64)};
  float* pixels = batch.images.data<float>();
  std::int64_t* labels = batch.labels.data<std::int64_t>();
  for (std::size_t i = 0; i < count; ++i, pixels += set.image_bytes()) {
    const std::int64_t sample = samples[begin + i];
    const int label = set.labels[static_cast<std::size_t>(sample)];
    AB_CHECK_KIND(data, label < set.classes, "{}: image {} has the label {}, expected 0 to {}", set.name,
                  sample, label, set.classes - 1);
    labels[i] = label;
    const bool augment = options.training && options.augment;
    preparer.prepare(set.image(sample),
                     augment ? draw_augmentation(options.seed, epoch, sample) : Augmentation{}, pixels);
    // A huge batch must not delay the end of the program.
    if (i % 1024 == 1023 && cancelled()) break;
  }
  return batch;
}

Loader::Loader(const ImageSet& set, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(set, options)) {}
Loader::~Loader() = default;
std::int64_t Loader::batches_per_epoch() const { return impl_->sampler.batches_per_epoch(); }
std::optional<Batch> Loader::next() { return impl_->next(); }

void Loader::start_epoch(std::int64_t epoch) {
  AB_CHECK(epoch >= 0, "loader: epochs count from 0, got {}", epoch);
  impl_->start(epoch);
}

}  // namespace ab
