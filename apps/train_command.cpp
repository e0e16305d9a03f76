// SPDX-License-Identifier: MIT
#include "apps/train_command.h"

#include <cstdio>
#include <functional>
#include <optional>

#include "apps/build_run.h"
#include "apps/model_file.h"
#include "apps/progress.h"
#include "apps/run_folder.h"
#include "apps/terminal.h"
#include "apps/train_loop.h"
#include "engine/core/threads.h"
#include "engine/io/atomic_file.h"

namespace ab {
namespace {

/// Ranks started with different flags would train different models: refuse.
void check_same_config(const TrainConfig& config, Comm& world) {
  TrainConfig shared = config;  // less what may differ from node to node
  shared.data_dir.clear(), shared.out.clear(), shared.threads = 0;
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>{}(to_toml(shared)));
  const Tensor all({world.size()}, DType::int64);
  world.all_gather(Tensor::from(std::vector<std::int64_t>{hash}, {1}), all);
  std::vector<int> different;
  for (int rank = 0; rank < world.size(); ++rank)
    if (all.data<std::int64_t>()[rank] != all.data<std::int64_t>()[0]) different.push_back(rank);
  AB_CHECK(different.empty(), "rank(s) {} started with other settings than rank 0: all ranks need the same flags",
           fmt::join(different, ", "));
}

void print_result(const TrainConfig& config, const Summary& s) {
  fmt::print("{} on {}, {}, {} rank{}: top-1 {:.2f} % (best {:.2f} %) after {} steps in {}, {:.0f} images/s\n", s.model,
             s.dataset, s.method, s.world_size, s.world_size == 1 ? "" : "s", 100 * s.final_val_top1,
             100 * s.best_val_top1, s.steps, human_seconds(s.train_seconds), s.images_per_second);
  fmt::print("sent {} per rank in the mean; {} of {} parameters remain ({:.2f}:1); everything is in {}\n",
             human_bytes(s.wire_bytes_per_rank_total), human_count(static_cast<double>(s.parameters_final)),
             human_count(static_cast<double>(s.parameters_full)), s.compression_ratio, config.out);
}

/// One rank of the run. Rank 0 keeps the run folder.
void train_rank(const TrainConfig& config, Comm& world, const TrainAndTest& data) {
  check_same_config(config, world);
  const bool keeps_folder = world.rank() == 0;
  std::optional<MetricsLog> log;
  std::optional<Progress> progress;
  TrainListener listener;
  if (keeps_folder) {
    create_run_folder(config);
    log.emplace(in_folder(config.out, kMetricsFile));
    progress.emplace();
    listener.on_step = [&](const StepMetrics& m, std::int64_t total) { log->write(m), progress->step(m, total); };
    listener.on_epoch = [&](const EpochMetrics& m) { log->write(m), progress->epoch(m); };
    listener.on_split = [&](const SplitMetrics& m) { log->write(m); };
  }
  const TrainResult result = train(config, world, data, listener);
  if (!keeps_folder) return;
  write_safetensors(in_folder(config.out, kModelFile),
                    model_to_file(*result.model, {config.model, config.dataset, data.train.classes}));
  write_file_atomically(in_folder(config.out, kSummaryFile), to_json(result.summary));
  print_result(config, result.summary);
}

}  // namespace

int run_train(const TrainConfig& config) {
  check_run_folder(config);
  const CommOptions options{config.ranks_per_node, std::chrono::seconds(config.timeout_s)};
  const auto train_here = [&](Comm& world, const TrainAndTest& data) { train_rank(config, world, data); };

  if (!launched_by_mpi()) {
    check_method(config, config.ranks);
    const TrainAndTest data = load_data(config);
    run_thread_ranks(config.ranks, options, [&](Comm& world) {
      set_compute_threads(config.threads, world.size());
      train_here(world, data);
    });
    return 0;
  }
  const std::unique_ptr<Comm> world = make_mpi_comm(options);
  set_compute_threads(config.threads, world->ledger().ranks_on_node_of(world->rank()));
  try {
    check_method(config, world->size());
    train_here(*world, load_data(config));
  } catch (const std::exception& error) {
    // The abort ends every process of the job, this one too: say why before.
    const auto* ours = dynamic_cast<const Error*>(&error);
    fmt::print(stderr, "abtrain: rank {}: {}\n", world->rank(), error.what());
    world->abort(error.what(), ours ? static_cast<int>(ours->kind()) : EXIT_FAILURE);
    throw;
  }
  return 0;
}

}  // namespace ab
