// SPDX-License-Identifier: MIT
#include "data/loader.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "data/draws.h"
#include "engine/core/check.h"

namespace ab {
namespace {

constexpr const char* kThreadName = "abtrain-loader";  // at most 15 characters, as the system shows it
constexpr std::chrono::seconds kFarewell{3};           // for an image under way when a loader ends
constexpr std::int64_t kLeftOut = -1;                  // the label of an image that an evaluation goes on without
constexpr std::uint64_t kOtherStream = std::uint64_t{0x6f746872} << 32;  // "othr", then the epoch

Sampler checked_sampler(const Dataset& set, const LoaderOptions& o) {
  set.check();
  AB_CHECK(o.batch_size > 0 && o.threads > 0, "loader: batches and threads are at least 1, got {} and {}", o.batch_size,
           o.threads);
  AB_CHECK(o.repeats > 0 && o.repeats <= kMostRepeats, "loader: images are repeated 1 to {} times, got {}",
           kMostRepeats, o.repeats);
  AB_CHECK(o.rank >= 0 && o.rank < o.world_size, "loader: rank {} is not below the world size {}", o.rank,
           o.world_size);
  int side = o.image_size > 0 ? o.image_size : std::min(set.height, set.width);
  for (const EpochSize& size : o.epoch_sizes) side = std::min(side, size.side);
  const int shift = std::max({o.augmentation.shift, std::abs(o.view.dy), std::abs(o.view.dx)});
  AB_CHECK(shift < side, "images of {0}×{0} pixels cannot be shifted by {1}", side, shift);
  const Sampler sampler{set.count,
                        o.batch_size,
                        o.rank,
                        o.world_size,
                        o.seed,
                        o.training,
                        o.training ? o.repeats : 1,
                        o.shuffle,
                        o.training ? o.nodes : 1};
  sampler.check();
  return sampler;
}

/// Leaves those images in the batch that could be read.
void leave_out_bad(Batch& batch) {
  const std::int64_t n = batch.count();
  const std::size_t image_bytes = n == 0 ? 0 : batch.images.bytes() / static_cast<std::size_t>(n);
  auto* images = static_cast<std::byte*>(batch.images.raw());
  auto* labels = batch.labels.data<std::int64_t>();
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (labels[i] == kLeftOut) continue;
    labels[kept] = labels[i];
    std::memmove(images + static_cast<std::size_t>(kept++) * image_bytes,
                 images + static_cast<std::size_t>(i) * image_bytes, image_bytes);
  }
  batch.images = batch.images.slice(0, kept);
  batch.labels = batch.labels.slice(0, kept);
  if (!batch.draws.empty()) batch.draws.resize(static_cast<std::size_t>(kept));  // evaluation draws nothing
}

}  // namespace

Shape LoaderOptions::image_shape(const Dataset& set, std::int64_t epoch) const {
  const auto of_epoch = std::ranges::find_if(epoch_sizes, [&](const EpochSize& size) { return epoch < size.end; });
  const int side = training && of_epoch != epoch_sizes.end() ? of_epoch->side : image_size;
  return side > 0 ? Shape{side, side, 3} : Shape{set.height, set.width, 3};
}

struct Loader::Impl : std::enable_shared_from_this<Loader::Impl> {
  Impl(const Dataset& data_set, const LoaderOptions& loader_options)
      : set(data_set),
        set_owner(data_set.weak_from_this().lock()),
        options(loader_options),
        sampler(checked_sampler(data_set, loader_options)) {
    set_size(std::numeric_limits<std::int64_t>::max());
    const int shorter = options.framing.shorter;
    AB_CHECK(set.cropping != Cropping::resized || shorter == 0 || shorter >= std::min(height, width),
             "--resize {} is less than the {} pixels that the model sees", shorter, std::min(height, width));
  }

  /// The buffers with which one thread prepares images.
  struct Workbench {
    ImageTransform transform;
    Image decoded;
  };
  Workbench make_workbench() const { return {ImageTransform(set, height, width, options.framing), {}}; }

  /// A batch that threads share, image by image.
  struct Job {
    std::int64_t step;
    Batch batch;
    std::int64_t count = 0, given_out = 0;  // images
    int workers = 0;
    std::exception_ptr failure{};
    std::int64_t failed_image = 0;  // the least of them, as those before it are given out earlier
  };
  using Jobs = std::map<std::int64_t, Job>;  // by step
  /// Images [begin, end) of a job.
  struct Share {
    Job& job;
    std::int64_t begin, end;
  };
  const Dataset& set;
  const std::shared_ptr<const Dataset> set_owner;  // null: nobody says how long the set lives
  const LoaderOptions options;
  const Sampler sampler;

  // About the pass: written while no thread runs.
  int height = 0, width = 0;
  std::int64_t epoch = -1;
  std::vector<std::int64_t> samples;
  std::optional<Workbench> own_workbench;  // of next() where there are no threads
  std::vector<std::thread> threads;
  std::atomic<bool> cancel = false;
  mutable std::atomic<std::int64_t> images_prepared = 0;  // a sign of life

  // Shared between the threads and the caller.
  mutable std::mutex mutex;
  std::condition_variable changed;
  int threads_running = 0;
  bool stalled = false;
  std::int64_t steps_claimed = 0, steps_taken = 0;
  Jobs under_way;
  std::map<std::int64_t, Batch> ready;
  // About the earliest step that failed. Steps are begun in order, so those before it are ready or under way.
  std::exception_ptr failure;
  std::int64_t failed_step = 0;

  void set_size(std::int64_t of_epoch) {
    const Shape shape = options.image_shape(set, of_epoch);
    height = static_cast<int>(shape[0]), width = static_cast<int>(shape[1]);
  }

  void start(std::int64_t new_epoch, std::int64_t first) {
    AB_CHECK_KIND(data, stop(std::chrono::duration<double>(options.stall_timeout_seconds)),
                  "{}: the threads '{}' still read images of the pass before", set.name, kThreadName);
    epoch = new_epoch;
    set_size(epoch);
    own_workbench.reset();
    samples = sampler.samples(epoch);
    steps_claimed = steps_taken = first;
    ready.clear();
    under_way.clear();
    failure = nullptr;
    cancel = stalled = false;
    const int count = options.prefetch == 0 || first == sampler.batches_per_epoch() ? 0 : options.threads;
    for (int i = 0; i < count; ++i) {
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
    if (threads.empty()) own_workbench = make_workbench();
  }

  /// Ends the threads. False when one still reads an image: it has been left behind, and ends when the read does.
  bool stop(std::chrono::duration<double> patience) {
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

  std::optional<Batch> next() {
    AB_CHECK(epoch >= 0, "loader: call start_epoch() before next()");
    while (steps_taken < sampler.batches_per_epoch()) {
      look_ahead(1, {});
      std::unique_lock lock(mutex);
      Batch batch = std::move(ready.extract(steps_taken).mapped());
      ++steps_taken;
      lock.unlock();
      changed.notify_all();
      if (batch.count() > 0) return batch;  // or all of its images are bad
    }
    return std::nullopt;
  }

  /// Waits for batches of the threads, as long as they get on with their images, or prepares them where there are none. The
  /// wait is cut into slices, so that a process that was itself suspended for a while (a debugger, SIGSTOP) loses one slice and
  /// not the whole patience.
  void look_ahead(std::int64_t count, const std::function<bool()>& gives_up) {
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
    // Not before the steps ahead of it are ready: an earlier image may fail yet.
    const auto failed = [&] {
      return failure && failed_step < end && (under_way.empty() || under_way.begin()->first > failed_step);
    };
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

  /// Some images of the earliest batch that has any left, or of one more once there is room for it; nothing when there is no more
  /// to do.
  std::optional<Share> claim() {
    std::unique_lock lock(mutex);
    const auto with_images = [&] {
      return std::ranges::find_if(under_way, [](const auto& job) { return job.second.given_out < job.second.count; });
    };
    const auto begins_no_more = [&] { return failure || steps_claimed == sampler.batches_per_epoch(); };
    const auto has_room = [&] { return steps_claimed - steps_taken <= options.prefetch; };
    auto found = under_way.end();
    changed.wait(lock, [&] {
      found = with_images();
      return cancel || found != under_way.end() || begins_no_more() || has_room();
    });
    if (cancel) return std::nullopt;
    if (found == under_way.end()) {
      if (begins_no_more()) return std::nullopt;
      const std::int64_t step = steps_claimed++;
      try {
        found = under_way.emplace(step, begin(step)).first;
      } catch (...) {
        if (!failure || step < failed_step) failed_step = step, failure = std::current_exception();
        changed.notify_all();
        return std::nullopt;
      }
      changed.notify_all();
    }
    Job& job = found->second;
    constexpr std::int64_t kShares = 4, kMostImages = 32;  // a thread that is held up holds up few images
    const std::int64_t images = std::clamp(job.count / (kShares * options.threads), std::int64_t{1}, kMostImages);
    const Share share{job, job.given_out, std::min(job.given_out + images, job.count)};
    job.given_out = share.end;
    ++job.workers;
    return share;
  }

  /// Whoever is the last to leave a batch hands it over, or what failed in it.
  void leave(const Share& share, std::exception_ptr failed, std::int64_t failed_image) {
    std::unique_lock lock(mutex);
    Job& job = share.job;
    if (failed && (!job.failure || failed_image < job.failed_image))
      job.failure = failed, job.failed_image = failed_image;
    if (job.failure) job.given_out = job.count;
    const bool last = --job.workers == 0 && job.given_out == job.count;
    if (!last || cancel) return;
    if (!job.failure) {
      lock.unlock();
      try {
        complete(job.step, job.batch);
      } catch (...) {  // out of memory
        job.failure = std::current_exception();
      }
      lock.lock();
    }
    if (!job.failure) ready.emplace(job.step, std::move(job.batch));
    else if (!failure || job.step < failed_step) failed_step = job.step, failure = job.failure;
    under_way.erase(job.step);
    lock.unlock();
    changed.notify_all();
  }

  /// The body of a thread.
  void run(Workbench& workbench) {
    while (const std::optional<Share> share = claim()) {
      std::exception_ptr failed;
      std::int64_t i = share->begin;
      try {
        for (; i < share->end && !cancel; ++i) prepare_image(i, workbench, share->job);
      } catch (...) {
        failed = std::current_exception();
      }
      leave(*share, failed, i);
    }
    const std::lock_guard lock(mutex);
    --threads_running;
    changed.notify_all();
  }

  Job begin(std::int64_t step) const {
    const std::int64_t first = step * options.batch_size;
    const std::int64_t n = std::min(options.batch_size, static_cast<std::int64_t>(samples.size()) - first);
    const DType type = options.staged ? DType::uint8 : DType::float32;
    Job job{.step = step, .batch = {Tensor({n, height, width, 3}, type), Tensor({n}, DType::int64)}, .count = n};
    if (options.staged) job.batch.draws.resize(static_cast<std::size_t>(n));
    return job;
  }

  /// A batch in one piece.
  Batch prepare(std::int64_t step, Workbench& workbench) const {
    Job job = begin(step);
    for (std::int64_t i = 0; i < job.count; ++i) prepare_image(i, workbench, job);
    complete(step, job.batch);
    return std::move(job.batch);
  }

  /// Image i of the batch.
  void prepare_image(std::int64_t i, Workbench& workbench, Job& job) const {
    const std::int64_t place = job.step * options.batch_size + i;
    const SampleKey key{options.seed, epoch, samples[static_cast<std::size_t>(place)], sampler.repetition(place)};
    const auto [sample, image] = read_image(key, workbench);
    const std::int64_t label = sample == kLeftOut ? kLeftOut : set.label(sample);
    AB_CHECK_KIND(data, label < set.classes, "{}: image {} has the label {}, expected 0 to {}", set.name, sample, label,
                  set.classes - 1);
    job.batch.labels.data<std::int64_t>()[i] = label;
    if (sample != kLeftOut) put_image(image, key, i, workbench, job.batch);
    ++images_prepared;
  }

  /// What is seen of an image, and its number: of that of the key, or when it is bad of another one in training, and in evaluation
  /// kLeftOut.
  std::pair<std::int64_t, ImageView> read_image(const SampleKey& key, Workbench& workbench) const {
    constexpr int kMostDraws = 100;  // more is no damaged image, but a disk that is gone
    // Repetitions have the same image in their place.
    Draws others({key.seed, key.epoch, key.sample}, kOtherStream);
    ChoosePart part;
    if (options.training) part = workbench.transform.part_seen(options.augmentation, key);
    std::int64_t sample = key.sample;
    for (int draws = 0;; ++draws, sample = sampler.seen_image(others.below(static_cast<int>(set.count)))) {
      try {
        return {sample, set.read(sample, workbench.decoded, part)};
      } catch (const Error& error) {
        if (!options.bad_images || error.kind() != ErrorKind::data || draws == kMostDraws || cancel) throw;
        ++images_prepared;
        options.bad_images->add(set.image_name(sample), error.what(),
                                options.training ? "another image takes its place" : "it is not counted");
        if (!options.training) return {kLeftOut, {}};
      }
    }
  }

  void put_image(const ImageView& image, const SampleKey& key, std::int64_t i, Workbench& workbench,
                 Batch& batch) const {
    const std::int64_t offset = i * 3 * height * width;
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

  /// The steps that take a batch with all of its images.
  void complete(std::int64_t step, Batch& batch) const {
    if (options.training && options.mix.enabled()) mix(step, batch);
    if (!options.training && options.bad_images) leave_out_bad(batch);
  }

  void mix(std::int64_t step, Batch& batch) const {
    const Mix mix = draw_mix(options.mix, options.seed, epoch, step * options.world_size + options.rank, height, width);
    if (options.staged) batch.pixel_mix = mix;
    else mix_images(mix, batch.images);
    batch.mixed_labels = reversed(batch.labels);
    batch.mix = mix.share;
  }

  bool has_ready() const {
    const std::lock_guard lock(mutex);
    const auto batch = ready.find(steps_taken);
    return batch != ready.end() && batch->second.count() > 0;
  }
};

Loader::Loader(const Dataset& set, const LoaderOptions& options) : impl_(std::make_shared<Impl>(set, options)) {}
Loader::~Loader() { impl_->stop(kFarewell); }
std::int64_t Loader::batches_per_epoch() const { return impl_->sampler.batches_per_epoch(); }
std::optional<Batch> Loader::next() { return impl_->next(); }
void Loader::look_ahead(std::int64_t count, const std::function<bool()>& gives_up) {
  impl_->look_ahead(count, gives_up);
}
bool Loader::ready() const { return impl_->has_ready(); }

void Loader::start_epoch(std::int64_t epoch, std::int64_t first) {
  AB_CHECK(first >= 0 && first <= batches_per_epoch(), "loader: a pass has {} batches and cannot start at {}",
           batches_per_epoch(), first);
  impl_->start(epoch, first);
}

}  // namespace ab
