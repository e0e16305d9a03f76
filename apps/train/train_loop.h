#pragma once
// SPDX-License-Identifier: MIT
//
// The one training loop: every method, every transport, one rank.

#include <memory>
#include <optional>

#include "apps/methods/method.h"
#include "apps/train/learner.h"
#include "apps/train/train_record.h"
#include "data/dataset.h"
#include "engine/io/checkpoint.h"

namespace ab {

/// How a rehearsal (apps/plan/rehearsal.h) goes through the loop: parts of a run that are as one before are left out.
class Repetition {
 public:
  virtual ~Repetition() = default;

  /// An update or a validation, by all that decides what it exchanges beside the form of the model.
  struct Part {
    std::string phase;
    std::int64_t kind = 0;           ///< SyncStrategy::step_kind()
    std::int64_t micro_batches = 0;  ///< 0: a validation
    std::int64_t image_side = 0;     ///< of an update
    auto operator<=>(const Part&) const = default;
  };
  /// Whether the part is left out, and counts as the last one of its sort; never unless it `may`. Otherwise it begins.
  virtual bool leaves_out(const Part& part, bool may, Learner& learner) = 0;
  /// The part that began has come to its end.
  virtual void ends(Learner& learner) = 0;
};

struct TrainResult {
  /// Told to stop (stop_request.h): a checkpoint is saved, and nothing else here is filled.
  bool stopped = false;
  Summary summary;                 ///< complete on all ranks
  std::unique_ptr<Layer> model;    ///< the same on all ranks
  std::unique_ptr<Layer> average;  ///< the moving average of its weights; null without ema_decay
};

/// Trains as `config` says, from its start or from `checkpoint`: then, on the same kind of processor with the same
/// number of threads, every bit is as if it had never stopped. Checkpoints go to config.out; their own traffic is
/// not counted. One is saved after the last step, so that nothing that the last validation meets loses the model; the
/// caller removes it when the result is on disk (remove_last_checkpoint() in run_folder.h). It is not saved where
/// config.out is empty. `model`: of config's shape and on its device, where training starts; drawn when null; that of
/// rank 0 counts. Collective over `world`. Throws Error(numerics) when a loss or the state is no longer finite, and
/// Error(data) when the checkpoint was saved with other images. `method`: one that is not in the list of the program;
/// null: as config says.
TrainResult train(const TrainConfig& config, Comm& world, const TrainAndTest& data, const TrainListener& listener,
                  std::optional<Checkpoint> checkpoint = {}, std::unique_ptr<Layer> model = nullptr,
                  const Method* method = nullptr);

}  // namespace ab
