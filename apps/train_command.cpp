// SPDX-License-Identifier: MIT
#include "apps/train_command.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>

#include "apps/build_run.h"
#include "apps/model_file.h"
#include "apps/progress.h"
#include "apps/report_error.h"
#include "apps/run_device.h"
#include "apps/run_folder.h"
#include "apps/run_transport.h"
#include "apps/stop_request.h"
#include "apps/terminal.h"
#include "apps/train_loop.h"
#include "engine/core/say.h"
#include "engine/core/threads.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checkpoint_folder.h"
#include "engine/io/run_lock.h"

namespace ab {
namespace {

constexpr const char* kLogBytes = "metrics.bytes";  // in a checkpoint: how long metrics.jsonl was

/// The ranks whose hash is not that of rank 0.
std::vector<int> ranks_unlike_first(std::size_t hash, Comm& world) {
  const Tensor all({world.size()}, DType::int64);
  world.all_gather(Tensor::from(std::vector<std::int64_t>{static_cast<std::int64_t>(hash)}, {1}), all);
  std::vector<int> different;
  for (int rank = 0; rank < world.size(); ++rank)
    if (all.data<std::int64_t>()[rank] != all.data<std::int64_t>()[0]) different.push_back(rank);
  return different;
}

/// Ranks started with different flags would train different models, and ranks that see another state of the run
/// folder would begin at another step: refuse.
void check_same_config(const TrainConfig& config, Start start, Comm& world) {
  TrainConfig shared = config;  // less what may differ from node to node
  shared.data_dir.clear(), shared.out.clear(), shared.threads = 0;
  shared.device = shared.device.substr(0, shared.device.find(':'));  // each may name a GPU of its own
  const std::size_t hash = std::hash<std::string>{}(to_toml(shared)) + static_cast<std::size_t>(start) +
                           31 * static_cast<std::size_t>(config.resume_step);
  const std::vector<int> different = ranks_unlike_first(hash, world);
  AB_CHECK(different.empty(),
           "rank(s) {} started with other settings than rank 0, or see another run folder: all ranks need the same "
           "flags and one file system",
           fmt::join(different, ", "));
}

/// Nodes with different files, or different lists of them, would not train on one order of images: refuse.
void check_same_data(const TrainAndTest& data, Comm& world) {
  const std::vector<int> different = ranks_unlike_first(data.fingerprint(), world);
  AB_CHECK_KIND(data, different.empty(),
                "rank(s) {} found other images than rank 0: give all nodes the same data set",
                fmt::join(different, ", "));
}

/// A rank that cannot write its part of a checkpoint shall say so now, and not when the run is told to stop.
void check_sees_folder(const TrainConfig& config, int rank) {
  std::error_code ignored;
  AB_CHECK(config.save_every == 0 || std::filesystem::exists(in_folder(config.out, kConfigFile), ignored),
           "rank {} does not see the run folder {}: checkpoints need a file system that all ranks share", rank,
           config.out);
}

void print_result(const TrainConfig& config, const Summary& s) {
  say(stdout, "{} on {}, {}, {} rank{}: top-1 {:.2f} % (best {:.2f} %) after {} steps in {}, {:.0f} images/s\n",
      s.model, s.dataset, s.method, s.world_size, s.world_size == 1 ? "" : "s", 100 * s.final_val_top1,
      100 * s.best_val_top1, s.steps, human_seconds(s.train_seconds), s.images_per_second);
  if (config.ema_decay > 0) say(stdout, "top-1 {:.2f} % with the averaged weights\n", 100 * s.average_val_top1);
  say(stdout, "sent {} per rank in the mean; {} of {} parameters remain ({:.2f}:1); everything is in {}\n",
      human_bytes(s.wire_bytes_per_rank_total), human_count(static_cast<double>(s.parameters_final)),
      human_count(static_cast<double>(s.parameters_full)), s.compression_ratio, config.out);
}

/// The model with the values of --weights, or null without.
std::unique_ptr<Layer> load_start(const TrainConfig& config, const TrainAndTest& data) {
  if (config.weights.empty()) return nullptr;
  const ModelSpec spec = make_model_spec(config, data.train->classes, data.train->height);
  std::unique_ptr<Layer> model = make_model(spec, choose_device(config.device));
  const std::string file = model_path(config.weights);
  const std::vector<std::string> fresh = load_weights(*model, read_safetensors(file), file, OtherClasses::keep_own);
  if (!fresh.empty())
    say(stderr, "warning: {} is for another number of classes than {}; {} start from drawn values\n", file,
        config.dataset, fmt::join(fresh, " and "));
  return model;
}

/// The newest checkpoint, or that of --resume-step; then those after it are out of the way.
std::optional<Checkpoint> load_start_checkpoint(const TrainConfig& config, Comm& world) {
  const std::string folder = in_folder(config.out, kCheckpointFolder);
  if (config.resume_step == 0) return load_newest_checkpoint(folder, world);
  Checkpoint checkpoint = load_checkpoint_of(config.resume_step, folder, world);
  if (world.rank() == 0)
    for (const std::string& path : set_later_checkpoints_aside(folder, config.resume_step))
      say(stdout, "a later checkpoint is now {}\n", path);
  return checkpoint;
}

/// The finished run. A checkpoint that stays behind costs its place on the disk and no more.
void write_result(const TrainConfig& config, const TrainAndTest& data, const TrainResult& result) {
  const ModelInfo info{make_model_spec(config, data.train->classes, data.train->height), config.dataset};
  write_safetensors(in_folder(config.out, kModelFile), model_to_file(*result.model, info));
  if (result.average) write_safetensors(in_folder(config.out, kAverageFile), model_to_file(*result.average, info));
  write_file_atomically(in_folder(config.out, kSummaryFile), to_json(result.summary));
  try {
    remove_last_checkpoint(config, result.summary.steps);
  } catch (const Error& problem) {
    say(stderr, "warning: {}; the last checkpoint stays\n", problem.what());
  }
  print_result(config, result.summary);
}

/// One rank of the run; rank 0 keeps the run folder. Returns the exit code, the same on all ranks.
int train_rank(const TrainConfig& config, Comm& world, const TrainAndTest& data) {
  const Start start = start_of(config);
  check_same_config(config, start, world);
  check_same_data(data, world);
  const bool keeps_folder = world.rank() == 0;
  if (start == Start::finished) {
    if (keeps_folder) say(stdout, "the run in {} is complete; there is nothing to resume\n", config.out);
    return 0;
  }
  // Read before the folder is touched: a file that does not fit leaves no trace, and --out may replace its run.
  std::unique_ptr<Layer> model = keeps_folder && start == Start::anew ? load_start(config, data) : nullptr;
  std::optional<RunLock> lock;
  world.barrier();  // all have looked at the folder as it was
  if (keeps_folder) {
    create_run_folder(config);
    lock.emplace(config.out);
    if (start == Start::anew) begin_run_folder(config);
  }
  world.barrier();
  check_sees_folder(config, world.rank());
  std::optional<Checkpoint> checkpoint;
  if (start == Start::from_checkpoint) checkpoint = load_start_checkpoint(config, world);
  if (start == Start::from_checkpoint && !checkpoint && keeps_folder) model = load_start(config, data);

  std::optional<MetricsLog> log;
  std::optional<Progress> progress;
  TrainListener listener;
  if (keeps_folder) {
    log.emplace(in_folder(config.out, kMetricsFile), checkpoint ? checkpoint->state.integer(kLogBytes) : 0);
    progress.emplace();
    listener.on_step = [&](const StepMetrics& m, std::int64_t total) { log->write(m), progress->step(m, total); };
    listener.on_epoch = [&](const EpochMetrics& m) { log->write(m), progress->epoch(m); };
    listener.on_split = [&](const SplitMetrics& m) { log->write(m); };
    listener.on_save = [&](StateDict& state) { state.put(kLogBytes, log->synced_bytes()); };
    if (checkpoint) say(stdout, "resuming at step {} from {}\n", checkpoint->step, checkpoint->path);
  }
  const TrainResult result = train(config, world, data, listener, std::move(checkpoint), std::move(model));
  if (keeps_folder && result.stopped)
    say(stdout, "stopped as told, with a checkpoint; go on with: abtrain train --resume {}\n", config.out);
  if (keeps_folder && !result.stopped) write_result(config, data, result);
  return result.stopped ? kStoppedExitCode : 0;
}

int train_on_threads(const TrainConfig& config, const CommOptions& options) {
  check_run(config, find_method(config.method), config.ranks);
  choose_device(config.device);  // one that is not there is refused before anything is loaded or written
  const TrainAndTest data = load_data(config);
  int exit_code = 0;
  run_thread_ranks(config.ranks, options, [&](Comm& world) {
    set_compute_threads(config.threads, world.size());
    const int code = train_rank(config, world, data);
    if (world.rank() == 0) exit_code = code;
  });
  return exit_code;
}

int train_as_process(const TrainConfig& config, Transport transport, const CommOptions& options) {
  const std::unique_ptr<Comm> world = join_processes(config, transport, options);
  set_compute_threads(config.threads, world->ledger().ranks_on_node_of(world->rank()));
  if (config.share_gpu && world->rank() == 0)
    say(stderr, "warning: ranks take turns on one GPU (--share-gpu): speed means nothing\n");
  try {
    check_run(config, find_method(config.method), world->size());
    choose_device(config.device);
    return train_rank(config, *world, load_data(config));
  } catch (const std::exception& error) {
    // Over MPI the abort ends every process of the job, this one too: say why before.
    const int exit_code = report_error(error, fmt::format("rank {}: ", world->rank()));
    world->abort(error.what(), exit_code);
    return exit_code;
  }
}

}  // namespace

int run_train(const TrainConfig& asked) {
  const TrainConfig config = settle_config(asked);
  const Transport transport = choose_transport(config, find_launcher());
  choose_graph_use(config, transport != Transport::threads);  // refused before anything is loaded or written
  if (start_of(config) == Start::anew) check_run_folder(config);
  listen_for_stop_signals();
  const CommOptions options{config.ranks_per_node, std::chrono::seconds(config.timeout_s), config.share_gpu,
                            config.deterministic};
  return transport == Transport::threads ? train_on_threads(config, options)
                                         : train_as_process(config, transport, options);
}

}  // namespace ab
