#pragma once
// SPDX-License-Identifier: MIT
//
// Loss and accuracy of a model over a whole data set, shared among ranks, every sample counted once.

#include <optional>

#include "apps/train/stop_request.h"
#include "data/loader.h"
#include "engine/comm/comm.h"
#include "engine/core/precision.h"
#include "engine/core/threads.h"
#include "layers/layer.h"

namespace ab {

struct Evaluation {
  double loss = 0;                    ///< mean cross-entropy without label smoothing
  double top1 = 0, top5 = 0;          ///< fractions of samples
  std::int64_t samples = 0, bad = 0;  ///< counted, and not since they could not be read (EvaluationOptions::bad_images)
};

/// An image could not be had; all ranks are told, and can go on together.
class EvaluationError : public Error {
 public:
  explicit EvaluationError(const std::string& message) : Error(ErrorKind::data, message) {}
};

struct EvaluationOptions {
  std::int64_t image_size = 0;  ///< height and width that the model sees; 0: as the data set has them
  Framing framing{};
  Precision precision = Precision::fp32;
  /// Logits are a mean over six views: the image and its mirror image with half of the weight, the rest on both moved by a pixel up
  /// and left, and down and right, with reflected borders (Jordan 2024, arXiv 2404.00498).
  bool views = false;
  StopAgreement* stop = nullptr;  ///< when the ranks agree on the way to stop, nothing comes back
  double stall_timeout_seconds = LoaderOptions{}.stall_timeout_seconds;
  int loader_threads = compute_threads();   ///< LoaderOptions::threads
  std::shared_ptr<BadImages> bad_images{};  ///< LoaderOptions::bad_images
};

/// Collective over `world`; all ranks hold the same model. Leaves the model in training mode. Throws EvaluationError on all
/// ranks or none.
std::optional<Evaluation> evaluate(Layer& model, const Dataset& set, Comm& world,
                                   const EvaluationOptions& options = {});

}  // namespace ab
