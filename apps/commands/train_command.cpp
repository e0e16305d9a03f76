// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <thread>

#include "apps/plan/memory_check.h"
#include "apps/plan/method_choice.h"
#include "apps/report/progress.h"
#include "apps/report/terminal.h"
#include "apps/settings/hardware.h"
#include "apps/train/build_run.h"
#include "apps/train/run_folder.h"
#include "apps/train/run_images.h"
#include "apps/train/run_transport.h"
#include "apps/train/stop_request.h"
#include "apps/train/train_in_folder.h"
#include "data/datasets.h"
#include "engine/backend/cpu/blas.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/comm/network.h"
#include "engine/core/machine.h"
#include "engine/core/memory.h"
#include "engine/core/say.h"
#include "engine/core/threads.h"
#include "engine/sync/compressed_gradients.h"

namespace ab {
namespace {

/// "images on rank 0's machine: 16 from memory, 16 from their files; kept: 16 in memory (9.6 kB)"
void tell_cache(const Summary& s) {
  std::vector<std::string> came, kept;
  const auto add = [](std::vector<std::string>& words, std::int64_t images, const char* where, std::int64_t bytes) {
    if (images > 0)
      words.push_back(
          fmt::format("{} {}{}", images, where,
                      bytes > 0 ? fmt::format(" ({})", human_bytes(static_cast<double>(bytes))) : std::string()));
  };
  add(came, s.images.from_memory, "from memory", 0);
  add(came, s.images.from_nodes, "from other nodes", s.images.bytes_from_nodes);
  add(came, s.images.from_disk, "from the disk", 0);
  add(came, s.images.from_files, "from their files", 0);
  add(kept, s.images.images, "in memory", s.images.bytes);
  add(kept, s.images.files, "on the disk", s.images.file_bytes);
  if (kept.empty()) kept.push_back("none");
  if (!came.empty())
    say(stdout, "images on rank 0's machine: {}; kept: {}\n", fmt::join(came, ", "), fmt::join(kept, ", "));
}

void print_result(const TrainConfig& config, const Summary& s) {
  say(stdout, "{} on {}, {}, {}: top-1 {:.2f} % (best {:.2f} %) after {} in {}, {:.0f} images/s, {} ms a step\n",
      s.model, s.dataset, s.method, counted(s.world_size, "rank"), 100 * s.final_val_top1, 100 * s.best_val_top1,
      counted(s.steps, "step"), human_seconds(s.train_seconds), s.images_per_second,
      fmt::format("{:.3g}", 1000.0 * static_cast<double>(config.batch_size * config.accumulate * s.world_size) /
                                s.images_per_second));
  if (std::isfinite(s.peak_share))
    say(stdout, "forward and backward computed {}, by all time of training\n",
        of_peak(s.flops_per_second, s.peak_share));
  if (std::isfinite(s.joules))
    say(stdout, "{} took {:.3g} kJ, all that ran there included\n",
        s.joules_from == "nvml" ? "the GPU of rank 0" : "the processors of rank 0's machine", 1e-3 * s.joules);
  if (config.ema_decay > 0) say(stdout, "top-1 {:.2f} % with the averaged weights\n", 100 * s.average_val_top1);
  if (s.bad_images > 0)
    say(stdout, "went on without {}, which summary.json names\n", counted(s.bad_images, "bad image"));
  if (config.val_views)
    say(stdout, "top-1 {:.2f} % over six views of each image{}\n", 100 * s.views_val_top1,
        config.ema_decay > 0 ? ", with the averaged weights" : "");
  say(stdout, "sent {} per rank in the mean; {} of {} parameters remain ({:.2f} : 1 as stored); everything is in {}\n",
      human_bytes(s.wire_bytes_per_rank_total), human_count(static_cast<double>(s.parameters_final)),
      human_count(static_cast<double>(s.parameters_full)), s.compression_ratio, config.out);
  tell_cache(s);
  constexpr double kWorthSaying = 0.1;
  if (find_dataset(s.dataset).decodes && s.image_waiting_seconds > kWorthSaying * s.train_seconds)
    say(stderr,
        "warning: ranks waited for images {:.0f} % of the time; more --loader-threads help where there are cores{}\n",
        100 * s.image_waiting_seconds / s.train_seconds,
        config.cache_gb > 0                     ? ""
        : config.framing.decode == Decode::fast ? ", a packed set (abtrain data pack) everywhere"
                                                : ", a packed set (abtrain data pack) and --cache-gb everywhere");
  const bool has_split = std::any_of(s.steps_by_phase.begin(), s.steps_by_phase.end(),
                                     [](const auto& phase) { return phase.first.starts_with("low-rank"); });
  if (find_method(config.method).has_ranks && !has_split)
    say(stderr, "warning: no weight was split in this run: nothing in it was low-rank\n");
  else if (s.steps_by_phase.size() == 1 && s.steps_by_phase.contains(CompressedGradients::kWarmup))
    say(stderr, "warning: the warm-up of --method {} did not end in this run: nothing in it was compressed\n",
        s.method);
}

/// The last update of an epoch takes what is left of it; here every one is the last.
void warn_of_short_epochs(const TrainConfig& config, const TrainAndTest& data, const Comm& world) {
  const std::int64_t batches = data.train->count / (config.batch_size * world.size());
  if (batches > 0 && config.accumulate > batches)
    say(stderr, "warning: an update adds up the {} of an epoch, fewer than --accumulate {}\n",
        batches == 1 ? "one batch" : fmt::format("{} batches", batches), config.accumulate);
}

/// Where all ranks share a node, and only links between nodes are shaped, nothing is.
void warn_of_idle_network(const TrainConfig& config, Comm& world) {
  const NetworkShape network = parse_network(config.network);
  const bool between_nodes_alone = std::ranges::all_of(
      network.parts, [](const NetworkShape::From& part) { return part.links.intra_node == kUnshaped; });
  if (network.shaped() && between_nodes_alone && world.size() > 1 &&
      world.ledger().ranks_on_node_of(world.rank()) == world.size())
    say(stderr,
        "warning: --network is between nodes, and here is one; say how many ranks a node has with "
        "--ranks-per-node\n");
}

/// A job that was killed goes on from nothing where nothing was saved.
void warn_of_lost_steps(const TrainConfig& config) {
  std::error_code ignored;
  if (config.resume == "auto" && std::filesystem::exists(in_folder(config.out, kConfigFile), ignored) &&
      start_of(config) == Start::anew)
    say(stderr,
        "warning: the run in {} ended before its first checkpoint and begins anew; --save-every saves on the way\n",
        config.out);
}

/// Weights are decomposed by OpenBLAS, on the host.
void warn_of_old_kernels(const TrainConfig& config) {
  const cpu::OpenBlasKernels kernels = cpu::openblas_kernels();
  if (find_method(config.method).has_ranks && !kernels.better.empty())
    say(stderr,
        "warning: OpenBLAS does not know this processor and decomposes weights with kernels for {}; with "
        "OPENBLAS_CORETYPE={} in the environment it may take less than half of the time\n",
        kernels.running, kernels.better);
}

/// So that no rank's threads are those that are one too many for another's, which is told. Not counted in the ledger.
void wait_for_all(Comm& world) {
  const Uncounted uncounted(world.ledger());
  world.barrier();
}

void say_processor(const TrainConfig& config, const Peak& peak) {
  const std::size_t mine = available_cores().mask.size(), all = std::thread::hardware_concurrency();
  say(stdout, "{} a rank{}\n", counted(compute_threads(), "thread"),
      mine < all ? fmt::format(", on {} of {} cores", mine, all) : "");
  if (peak.flops_per_second > 0)
    say(stdout, "a rank computes {}FLOP/s in {} at most, {}\n", human_count(peak.flops_per_second), config.precision,
        peak.source == "measured" ? "measured by products of matrices for 0.03 s"
                                  : "by the data sheet of " + peak.source);
  if (config.precision != "bf16" || config.device != "cpu") return;
  if (const char* unit = cpu::native_bfloat16()) say(stdout, "bf16 is multiplied by {}\n", unit);
  else
    say(stdout, "bf16 is multiplied as float32: this processor has no faster unit for it, or this build no oneDNN\n");
}

/// Ranks that multiply bf16 wait for those that compute it as float32, with other bits. Asked of all ranks, whose settings were
/// not compared yet. Not counted in the ledger.
void warn_of_unlike_processors(const TrainConfig& config, Comm& world) {
  const Uncounted uncounted(world.ledger());
  const Tensor natives = Tensor::scalar(cpu::native_bfloat16() ? 1 : 0);
  world.all_reduce(natives, ReduceOp::sum);
  const double number = natives.item();
  if (world.rank() == 0 && config.precision == "bf16" && config.device == "cpu" && number > 0 && number < world.size())
    say(stderr, "warning: {} of {} ranks multiply bf16, and wait for the others, which compute it as float32\n", number,
        world.size());
}

/// A need for memory that the estimate has not foreseen ends the run with a sentence, before the system does without.
std::int64_t bytes_for(const TrainConfig& config) {
  return config.ignore_memory ? std::numeric_limits<std::int64_t>::max() : bytes_until_the_end_of_each();
}

/// One rank of a run that check_run() allows; rank 0 speaks. Returns the exit code, the same on all ranks.
int train_rank(const TrainConfig& config, Comm& world, const TrainAndTest& data, int runs) {
  const bool speaks = world.rank() == 0;
  std::optional<Progress> progress;
  wait_for_all(world);
  start_compute_threads();
  wait_for_all(world);
  const Peak peak = peak_of(choose_device(config.device), precision_named(config.precision));
  wait_for_all(world);
  if (speaks) say_processor(config, peak);
  warn_of_unlike_processors(config, world);
  if (speaks) {
    progress.emplace(runs);
    warn_of_idle_network(config, world);
    warn_of_lone_ranks(config, world.size());
    warn_of_lost_steps(config);
    warn_of_old_kernels(config);
    warn_of_short_epochs(config, data, world);
  }
  TrainListener listener;
  listener.peak_flops = peak.flops_per_second;
  listener.on_resume = [&](const Checkpoint& checkpoint) {
    progress->resume(checkpoint.step);
    say(stdout, "resuming at step {} from {}\n", checkpoint.step, checkpoint.path);
  };
  listener.on_step = [&](const StepMetrics& m, std::int64_t total) { progress->step(m, total); };
  listener.on_epoch = [&](const EpochMetrics& m) { progress->epoch(m); };
  const std::optional<TrainResult> result = train_in_folder(config, world, data, listener, /*is_checked=*/true);
  progress.reset();
  if (speaks && !result) say(stdout, "the run in {} is complete; there is nothing to resume\n", config.out);
  if (speaks && result && result->stopped)
    say(stdout, "stopped as told, with a checkpoint; go on with: abtrain train --resume {}\n", config.out);
  if (speaks && result && !result->stopped) print_result(config, result->summary);
  return result && result->stopped ? kStoppedExitCode : 0;
}

/// With a number for --bucket-mb auto. `ranks_on_node`: where --ranks-per-node does not tell; 0: all.
TrainConfig in_chosen_buckets(const TrainConfig& config, const Dataset& images, int world_size, int ranks_on_node,
                              bool speaks) {
  constexpr double kHalf = 0.5;
  TrainConfig settled = settle_config(config);
  if (settled.bucket_mb != kAutoBucket) return settled;
  if (settled.ranks_per_node == 0) settled.ranks_per_node = ranks_on_node;
  try {
    settled = settle_bucket(settled, {.world_size = world_size, .classes = images.classes, .unknown_ratio = kHalf});
  } catch (const Error& problem) {
    throw Error(problem.kind(),
                fmt::format("--bucket-mb auto takes its number from a plan of the run: {}", problem.what()));
  }
  settled.ranks_per_node = config.ranks_per_node;
  if (speaks) say(stdout, "--bucket-mb auto takes {}\n", flags_text(bucket_flags(settled)));
  return settled;
}

int train_on_threads(TrainConfig config, const CommOptions& options, int runs) {
  check_ranks(config, config.ranks, false);
  check_run(config, find_method(config.method), config.ranks);
  const Device device = choose_device(config.device);  // one that is not there is refused before anything is loaded
  set_compute_threads(config.threads, config.ranks);
  start_compute_threads();
  const TrainAndTest data = in_cache(load_data(config), config, nullptr);
  if (start_of(config) != Start::finished) {
    tell_images(config, data);
    config = in_chosen_buckets(config, *data.train, config.ranks, 0, true);
    check_memory(config, *data.train, config.ranks, {config.ranks, memory(device).available()}, device);
  }
  const BoundedHostMemory bounded(bytes_for(config));
  int exit_code = 0;
  run_thread_ranks(config.ranks, options, [&](Comm& world) {
    set_compute_threads(config.threads, world.size());
    const int code = train_rank(config, world, data, runs);
    if (world.rank() == 0) exit_code = code;
  });
  return exit_code;
}

int train_as_process(TrainConfig config, Transport transport, const CommOptions& options) {
  const std::unique_ptr<Comm> world = join_processes(config, transport, options);
  if (config.share_gpu && world->rank() == 0)
    say(stderr, "warning: ranks take turns on one GPU (--share-gpu): speed means nothing\n");
  if (config.ranks > 1 && config.ranks != world->size() && world->rank() == 0)
    say(stderr, "warning: --ranks {} is of threads; the launcher started {}\n", config.ranks,
        counted(world->size(), "rank"));
  try {
    check_ranks(config, world->size(), true);
    check_run(config, find_method(config.method), world->size());
    const Device device = choose_device(config.device);
    set_compute_threads(config.threads, *world);
    start_compute_threads();
    share_host_memory(shared_memory({}, *world).ranks);
    const TrainAndTest data = in_cache(load_data(config, *world), config, world.get());
    if (start_of(config) != Start::finished) {
      if (world->rank() == 0) tell_images(config, data);
      config = in_chosen_buckets(config, *data.train, world->size(), world->ledger().ranks_on_node_of(0),
                                 world->rank() == 0);
      check_memory(config, *data.train, world->size(), shared_memory(device, *world), device);
    }
    const BoundedHostMemory bounded(bytes_for(config));
    return train_rank(config, *world, data, false);
  } catch (const std::exception& error) {
    // Over MPI the abort ends every process of the job, this one too: say why before.
    const std::string what = in_our_words(error).what();
    const bool names_a_rank = what.starts_with("rank ") || what.starts_with("rank(s) ");
    const int exit_code = report_error(error, names_a_rank ? "" : fmt::format("rank {}: ", world->rank()));
    world->abort(what, exit_code);
    return exit_code;
  }
}

}  // namespace

void warn_of_lone_ranks(const TrainConfig& config, int world_size) {
  const int node = config.ranks_per_node;
  const bool lone = node == 0 || node >= world_size || world_size % node != 0;
  if (find_method(config.method).by_nodes && world_size > 1 && lone)
    say(stderr,
        "warning: --method {} takes every rank for a node here, and has nothing to save inside it; --ranks-per-node says "
        "how many ranks a node has (several, and in all nodes as many)\n",
        config.method);
}

int run_train(const TrainConfig& config, int runs) {
  const Transport transport = choose_transport(config, find_launcher());
  choose_graph_use(config);  // refused before anything is loaded or written
  if (start_of(config) == Start::anew) check_run_folder(config);
  listen_for_stop_signals();
  const CommOptions options{.ranks_per_node = config.ranks_per_node,
                            .timeout = std::chrono::seconds(config.timeout_s),
                            .share_gpu = config.share_gpu,
                            .wiring = run_wiring(config),
                            .deterministic = config.deterministic};
  if (transport != Transport::threads) return train_as_process(config, transport, options);
  const int exit_code = train_on_threads(config, options, runs);
  end_if_interrupted();
  return exit_code;
}

Command train_command(CLI::App& app, const HelpScope& scope) {
  CLI::App* parser = app.add_subcommand("train", "train a model and write a run folder");
  const auto config_file = std::make_shared<std::string>();
  add_config_file(parser, *config_file);
  return {parser, [config_file, given = add_settings(parser, scope)] {
            return run_train(resolve_train_config(given(), *config_file));
          }};
}

}  // namespace ab
