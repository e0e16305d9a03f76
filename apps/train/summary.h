#pragma once
// SPDX-License-Identifier: MIT
//
// summary.json: the result of a run in one object. Accuracies are fractions from 0 to 1, bytes are what
// ranks put on the wire (engine/comm/ledger.h).

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "data/image_cache.h"
#include "engine/comm/ledger.h"
#include "engine/io/metrics_log.h"

namespace ab {

struct Summary {
  std::string method, model, dataset;
  int world_size = 1;
  std::int64_t steps = 0, epochs = 0;
  std::uint64_t seed = 0;
  double train_seconds = 0, images_per_second = 0;
  /// How long a rank waited in collectives, mean over ranks, by phase. Empty where it would not mean anything; then
  /// `waiting_not_measured` says why.
  std::map<std::string, double> waiting_seconds_by_phase;
  std::string waiting_not_measured;
  /// Seconds of a rank's work on gradients between backward and the update, without waiting (packing, selecting, low-rank products),
  /// mean over ranks; NaN where waiting was not measured, and on GPUs.
  double compression_seconds = std::numeric_limits<double>::quiet_NaN();
  /// Seconds of training in which a rank waited for its loader, mean over ranks; on a GPU of the host, while it may compute.
  double image_waiting_seconds = 0;
  /// Of rank 0, by all time of training since the run was started or resumed: operations of forward and backward passes
  /// (engine/ops/flops.h), and their share of the processor's peak; NaN where that is not known. Algorithms that save operations
  /// (Winograd's) may exceed 1.
  double flops_per_second = 0, peak_share = kNotKnown;
  double joules = kNotKnown;  ///< since then; EnergyMeter::source() is next
  std::string joules_from = "none";
  double final_val_loss = 0, final_val_top1 = 0, final_val_top5 = 0, best_val_top1 = 0;
  double average_val_top1 = kNotKnown;  ///< of the moving average of the weights
  double views_val_top1 = kNotKnown;    ///< EvaluationOptions::views, of that average or else of the model
  /// Images, and how many classes those are of.
  std::int64_t train_samples = 0, train_classes = 0, val_classes = 0;
  std::int64_t val_samples = 0;
  /// Of the machine of rank 0, with --cache-gb or --cache-disk, since the run was started or resumed.
  ImageCache::Use images;
  std::int64_t bad_images =
      0;  ///< images of both that no rank could read or decode since the run was started or resumed
  std::vector<std::string> bad_image_names;  ///< the first hundred
  std::int64_t parameters_full = 0;          ///< of the dense model
  std::int64_t parameters_final = 0;         ///< as the run left it, factors counted instead of their product
  double compression_ratio = 1;          ///< stored_numbers() (model_file.h) of the dense model / as the run left it
  double wire_bytes_per_rank_total = 0;  ///< mean over ranks
  double inter_node_bytes_per_rank_total = 0;  ///< of those, what crosses nodes
  double sent_bytes_per_rank_total = 0;        ///< as sent by the algorithms in use (ledger.h)
  double inter_node_sent_bytes_per_rank_total = 0;
  std::vector<double> wire_bytes_by_rank;
  std::map<std::string, double> wire_bytes_per_rank_by_phase;
  std::map<std::string, std::int64_t> steps_by_phase;
  std::vector<LayerRank> per_layer;
};

/// Bytes that one rank has sent: wire bytes in total, of those inter-node, the same as sent, then wire bytes of every phase in the order of
/// Ledger::by_phase().
std::vector<double> traffic_row(const Ledger& ledger);
/// Sets the traffic of a run from the rows of all ranks, one after the other, and the phases of their columns.
void set_traffic(const std::vector<double>& rows, const std::vector<std::string>& phases, Summary& summary);

/// Exposed communication: waiting in training and in all that its method does between steps, but not before the first,
/// in validations, or for the question whether to stop.
double exposed_seconds(const Summary& summary);

/// NaN and infinity become null.
std::string to_json(const Summary& summary);
/// Throws Error(data) naming `file` and the field when one is missing or of the wrong type.
Summary summary_from_json(const std::string& text, const std::string& file);

}  // namespace ab
