// SPDX-License-Identifier: MIT
#include "data/loader.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "data/augment.h"
#include "data/sampler.h"
#include "engine/core/check.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr const char* kThreadName = "abtrain-loader";  // at most 15 characters, as the system shows it
constexpr int kMaxThreads = 32;                        // each holds a batch, 77 MB for 128 images of ImageNet
constexpr std::chrono::seconds kFarewell{3};           // for an image under way when a loader ends

Sampler checked_sampler(const Dataset& set, const LoaderOptions& o) {
  set.check();
  AB_CHECK(o.batch_size > 0, "loader: the batch size must be at least 1, got {}", o.batch_size);
  AB_CHECK(o.world_size > 0 && o.rank >= 0 && o.rank < o.world_size, "loader: rank {} is not below the world size {}",
           o.rank, o.world_size);
  AB_CHECK(o.image_size >= 0, "loader: the image size must be 1 or more, or 0 for the data set's own, got {}",
           o.image_size);
  const int side = o.image_size > 0 ? o.image_size : std::min(set.height, set.width);
  const int shift = std::max({o.augmentation.shift, std::abs(o.view.dy), std::abs(o.view.dx)});
  AB_CHECK(shift < side, "images of {0}×{0} pixels cannot be shifted by {1}", side, shift);
  AB_CHECK(o.prefetch >= 0, "loader: prefetch must be 0 or more batches, got {}", o.prefetch);
  AB_CHECK(o.threads > 0, "loader: there must be at least 1 thread, got {}", o.threads);
  AB_CHECK(o.augmentation.rand_augment_magnitude >= 0 && o.augmentation.rand_augment_magnitude <= kMaxMagnitude,
           "loader: the magnitude of RandAugment must be 0 to {}, got {}", kMaxMagnitude,
           o.augmentation.rand_augment_magnitude);
  AB_CHECK(o.stall_timeout_seconds > 0, "loader: the stall timeout must be above 0 s, got {}", o.stall_timeout_seconds);
  const Sampler sampler{set.count, o.batch_size, o.rank, o.world_size, o.seed, o.training};
  sampler.check();
  return sampler;
}

}  // namespace

struct Loader::Impl : std::enable_shared_from_this<Loader::Impl> {
  Impl(const Dataset& data_set, const LoaderOptions& loader_options)
      : set(data_set),
        set_owner(data_set.weak_from_this().lock()),
        options(loader_options),
        sampler(checked_sampler(data_set, loader_options)),
        thread_count(std::min(options.threads, kMaxThreads)),
        height(options.image_size > 0 ? options.image_size : set.height),
        width(options.image_size > 0 ? options.image_size : set.width) {}

  /// The buffers with which one thread prepares images.
  struct Workbench {
    ImageTransform transform;
    Image decoded;
  };
  Workbench make_workbench() const { return {ImageTransform(set, height, width), {}}; }

  void start(std::int64_t epoch, std::int64_t first);
  bool stop(std::chrono::duration<double> patience);
  std::optional<Batch> next();
  void look_ahead(std::int64_t count, const std::function<bool()>& gives_up);
  bool has_ready() const;
  void run(Workbench& workbench);
  std::optional<std::int64_t> claim();
  Batch prepare(std::int64_t step, Workbench& workbench) const;
  std::pair<std::int64_t, ImageView> read_image(std::int64_t sample, Workbench& workbench) const;
  void prepare_image(const ImageView& image, std::int64_t sample, std::int64_t i, Workbench& workbench,
                     Batch& batch) const;
  void mix(std::int64_t step, Batch& batch) const;

  const Dataset& set;
  const std::shared_ptr<const Dataset> set_owner;  // null: nobody says how long the set lives
  const LoaderOptions options;
  const Sampler sampler;
  const int thread_count, height, width;

  // About the pass: written while no thread runs.
  std::int64_t epoch = -1;
  std::vector<std::int64_t> samples;
  std::optional<Workbench> own_workbench;  // of next() where there are no threads
  std::vector<std::thread> threads;
  std::atomic<bool> cancel = false;
  mutable std::atomic<std::int64_t> images_prepared = 0;  // a sign of life
  mutable std::atomic<std::int64_t> images_skipped = 0;

  // Shared between the threads and the caller.
  mutable std::mutex mutex;
  std::condition_variable changed;
  int threads_running = 0;
  bool stalled = false;
  std::int64_t steps_claimed = 0, steps_taken = 0;
  std::map<std::int64_t, Batch> ready;
  // About the earliest step that failed. Steps are claimed in order, so those before it are ready or under way.
  std::exception_ptr failure;
  std::int64_t failed_step = 0;
};

void Loader::Impl::start(std::int64_t new_epoch, std::int64_t first) {
  AB_CHECK_KIND(data, stop(std::chrono::duration<double>(options.stall_timeout_seconds)),
                "{}: the threads '{}' still read images of the pass before", set.name, kThreadName);
  epoch = new_epoch;
  samples = sampler.samples(epoch);
  steps_claimed = steps_taken = first;
  ready.clear();
  failure = nullptr;
  cancel = stalled = false;
  const std::int64_t batches = sampler.batches_per_epoch() - first;
  const std::int64_t count = options.prefetch == 0 ? 0 : std::min<std::int64_t>(thread_count, batches);
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      threads.emplace_back(
          [self = shared_from_this(), workbench = make_workbench()]() mutable { self->run(workbench); });
    } catch (const std::system_error&) {  // the system refuses one more: those that there are do the work, or next()
      break;
    }
    pthread_setname_np(threads.back().native_handle(), kThreadName);
    const std::lock_guard lock(mutex);
    ++threads_running;
  }
  if (threads.empty() && !own_workbench) own_workbench = make_workbench();
}

/// Ends the threads. False when one still reads an image: it has been left behind, and ends when the read does.
bool Loader::Impl::stop(std::chrono::duration<double> patience) {
  std::unique_lock lock(mutex);
  cancel = true;
  changed.notify_all();
  const auto ended = [&] { return threads_running == 0; };
  if (set_owner && !stalled) changed.wait_for(lock, patience, ended);
  const bool leaves = set_owner && !ended();
  lock.unlock();
  for (std::thread& thread : threads) leaves ? thread.detach() : thread.join();
  threads.clear();
  return !leaves;
}

std::optional<Batch> Loader::Impl::next() {
  AB_CHECK(epoch >= 0, "loader: call start_epoch() before next()");
  if (steps_taken == sampler.batches_per_epoch()) return std::nullopt;
  look_ahead(1, {});
  std::unique_lock lock(mutex);
  Batch batch = std::move(ready.extract(steps_taken).mapped());
  ++steps_taken;
  lock.unlock();
  changed.notify_all();
  return batch;
}

/// Waits for batches of the threads, as long as they get on with their images, or prepares them where there are none. The
/// wait is cut into slices, so that a process that was itself suspended for a while (a debugger, SIGSTOP) loses one slice and
/// not the whole patience.
void Loader::Impl::look_ahead(std::int64_t count, const std::function<bool()>& gives_up) {
  const std::int64_t room = std::max<std::int64_t>(1, options.prefetch);
  const std::int64_t end = std::min(steps_taken + std::min(count, room), sampler.batches_per_epoch());
  if (threads.empty()) {
    for (std::int64_t step = steps_taken; step < end; ++step)
      if (!ready.contains(step)) ready.emplace(step, prepare(step, *own_workbench));
    return;
  }
  const int slices = std::max(60, static_cast<int>(options.stall_timeout_seconds));
  const auto slice = std::chrono::duration<double>(options.stall_timeout_seconds / slices);
  std::unique_lock lock(mutex);
  const auto failed = [&] { return failure && failed_step < end; };
  const auto arrived = [&] {
    return failed() || std::distance(ready.begin(), ready.lower_bound(end)) >= end - steps_taken;
  };
  std::int64_t images_before = images_prepared;
  for (int waited = 0; waited < slices && !arrived(); ++waited) {
    if (gives_up && gives_up()) return;
    changed.wait_for(lock, slice, arrived);
    if (const std::int64_t images = images_prepared; images != images_before) images_before = images, waited = 0;
  }
  if (failed()) std::rethrow_exception(failure);
  stalled = !arrived();
  if (!stalled) return;
  std::int64_t missing = steps_taken;
  while (ready.contains(missing)) ++missing;
  throw Error(
      ErrorKind::data,
      fmt::format(
          "{}: the threads '{}' have delivered nothing for {} s (waiting for batch {} of {} in epoch {}); the disk "
          "may not be answering, or the machine may be swapping or short of processor time",
          set.name, kThreadName, options.stall_timeout_seconds, missing, sampler.batches_per_epoch(), epoch));
}

/// Waits until there is room for one more batch, and returns its step; nothing when there is no more to do.
std::optional<std::int64_t> Loader::Impl::claim() {
  std::unique_lock lock(mutex);
  const auto finished = [&] { return cancel || failure || steps_claimed == sampler.batches_per_epoch(); };
  changed.wait(lock, [&] { return finished() || steps_claimed - steps_taken < options.prefetch + thread_count; });
  if (finished()) return std::nullopt;
  return steps_claimed++;
}

/// The body of a thread.
void Loader::Impl::run(Workbench& workbench) {
  while (const std::optional<std::int64_t> step = claim()) {
    try {
      Batch batch = prepare(*step, workbench);
      std::lock_guard lock(mutex);
      ready.emplace(*step, std::move(batch));
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure || *step < failed_step) failed_step = *step, failure = std::current_exception();
    }
    changed.notify_all();
  }
  const std::lock_guard lock(mutex);
  --threads_running;
  changed.notify_all();
}

Batch Loader::Impl::prepare(std::int64_t step, Workbench& workbench) const {
  const auto begin = static_cast<std::size_t>(step * options.batch_size);
  const std::size_t count = std::min(static_cast<std::size_t>(options.batch_size), samples.size() - begin);
  const auto n = static_cast<std::int64_t>(count);
  Batch batch{Tensor({n, height, width, 3}, options.staged ? DType::uint8 : DType::float32), Tensor({n}, DType::int64)};
  if (options.staged) batch.draws.resize(count);
  std::int64_t* labels = batch.labels.data<std::int64_t>();
  for (std::size_t i = 0; i < count; ++i) {
    if (cancel) break;  // a slow batch must not delay the end of the program; no one will see it
    const auto [sample, image] = read_image(samples[begin + i], workbench);
    labels[i] = set.label(sample);
    AB_CHECK_KIND(data, labels[i] < set.classes, "{}: image {} has the label {}, expected 0 to {}", set.name, sample,
                  labels[i], set.classes - 1);
    prepare_image(image, sample, static_cast<std::int64_t>(i), workbench, batch);
    ++images_prepared;
  }
  if (options.training && options.mix.enabled()) mix(step, batch);
  return batch;
}

/// What is seen of the image of that number, or with skip_damaged of the first after it that can be read, and its number.
std::pair<std::int64_t, ImageView> Loader::Impl::read_image(std::int64_t sample, Workbench& workbench) const {
  constexpr int kMostInARow = 100;  // more is no damaged image, but a disk that is gone
  for (int tries = 0;; ++tries, sample = (sample + 1) % set.count) {
    try {
      ChoosePart part;
      if (options.training) part = workbench.transform.part_seen(options.augmentation, {options.seed, epoch, sample});
      return {sample, set.read(sample, workbench.decoded, part)};
    } catch (const Error& error) {
      const bool may_skip = options.training && options.skip_damaged && error.kind() == ErrorKind::data;
      if (!may_skip || tries == kMostInARow || cancel) throw;
      ++images_prepared;
      say(stderr, "warning: {}; the image after it takes its place ({} so far)\n", error.what(), ++images_skipped);
    }
  }
}

/// Image i of the batch.
void Loader::Impl::prepare_image(const ImageView& image, std::int64_t sample, std::int64_t i, Workbench& workbench,
                                 Batch& batch) const {
  const std::int64_t offset = i * 3 * height * width;
  const SampleKey key{options.seed, epoch, sample};
  ImageTransform& transform = workbench.transform;
  if (options.staged) {
    std::uint8_t* out = batch.images.data<std::uint8_t>() + offset;
    if (options.training)
      batch.draws[static_cast<std::size_t>(i)] = transform.stage(image, options.augmentation, key, out);
    else transform.stage(image, out, options.view);
  } else {
    float* out = batch.images.data<float>() + offset;
    if (options.training) transform.prepare(image, options.augmentation, key, out);
    else transform.prepare(image, out, options.view);
  }
}

void Loader::Impl::mix(std::int64_t step, Batch& batch) const {
  const Mix mix = draw_mix(options.mix, options.seed, epoch, step * options.world_size + options.rank, height, width);
  if (options.staged) batch.pixel_mix = mix;
  else mix_images(mix, batch.images);
  batch.mixed_labels = reversed(batch.labels);
  batch.mix = mix.share;
}

bool Loader::Impl::has_ready() const {
  const std::lock_guard lock(mutex);
  return ready.contains(steps_taken);
}

Loader::Loader(const Dataset& set, const LoaderOptions& options) : impl_(std::make_shared<Impl>(set, options)) {}
Loader::~Loader() { impl_->stop(kFarewell); }
std::int64_t Loader::batches_per_epoch() const { return impl_->sampler.batches_per_epoch(); }
std::optional<Batch> Loader::next() { return impl_->next(); }
void Loader::look_ahead(std::int64_t count, const std::function<bool()>& gives_up) {
  impl_->look_ahead(count, gives_up);
}
bool Loader::ready() const { return impl_->has_ready(); }

void Loader::start_epoch(std::int64_t epoch, std::int64_t first) {
  AB_CHECK(epoch >= 0, "loader: epochs count from 0, got {}", epoch);
  AB_CHECK(first >= 0 && first <= batches_per_epoch(), "loader: a pass has {} batches and cannot start at {}",
           batches_per_epoch(), first);
  impl_->start(epoch, first);
}

}  // namespace ab
