// SPDX-License-Identifier: MIT
//
// The training program of apps/README.md: checkpoints, resume, mixed precision, validation and all the rest of `abtrain train`.
#include <cstdio>

#include "apps/methods/late_cut.h"
#include "apps/methods/method.h"
#include "apps/train/train_in_folder.h"
#include "engine/core/threads.h"

int main() {
  ab::TrainConfig config;  // every setting of `abtrain train`, with the same defaults
  config.model = "resnet20";
  config.dataset = "cifar10";  // in $ABTRAIN_DATA_DIR
  ab::choose_method(config, "late-cut");
  ab::late_cut_settings(config).at = {0.5};  // half of the run at full rank
  config.batch_size = 2;
  config.epochs = 4;
  config.out = "runs/mine";
  config.resume = "auto";  // a second start goes on where the first one stopped

  const ab::TrainAndTest data = ab::load_data(config);  // or a Dataset of your own
  ab::run_thread_ranks(2, {}, [&](ab::Comm& world) {    // or make_mpi_comm(), in every process
    ab::set_compute_threads(config.threads, world.size());
    const auto result = ab::train_in_folder(config, world, data);
    if (result && world.rank() == 0)
      std::printf("top-1 %.1f %%, %.1f MB sent per rank\n", 100 * result->summary.final_val_top1,
                  result->summary.wire_bytes_per_rank_total / 1e6);
  });
}
