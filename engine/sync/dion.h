#pragma once
// SPDX-License-Identifier: MIT
//
// Dion (Ahn, Xu, Abreu, Langford 2025, arXiv 2504.05295; microsoft/dion): orthonormal updates of weights as Muon has them,
// of rank r, from momentum that no rank ever sends. With rows as factors, on rank w, of a weight of n outputs that is a matrix
// whose longer side P is as long as:
//   M_w = M_w + G_w                           the rank's own momentum
//   P   = orthonormal rows of mean Q·M_w      all-reduce; Q is that of the step before
//   R   = mean P·M_w                          all-reduce
//   M_w = M_w − (1 − μ)·Pᵀ·R                  what was not sent stays: error feedback and decay of momentum in one
//   Q   = rows of R, of length one
//   Ĝ   = sqrt(outputs / inputs)·Pᵀ·Q         equal on all ranks
// P and R are linear in M, so the weights are those of one rank with the mean gradient, whatever M the ranks have. Rows of R
// that are rounding beside the longest stay out of Ĝ. All else (vectors, the first layer, the classifier) takes the direction of
// Adam from its mean gradient. Ĝ and these directions are updates: the optimizer is to be SGD without momentum, whose
// weight decay is decoupled then. Factors travel for every weight, also where they are as large as it is.

#include <algorithm>
#include <cmath>

#include "engine/backend/backend.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/low_rank.h"
#include "engine/sync/compressed_gradients.h"
#include "engine/sync/low_rank_gradients.h"

namespace ab {

struct DionOptions {
  double rank = 0.25;      ///< r as a share of the smaller side of a weight, above 0, up to 1
  double momentum = 0.95;  ///< μ

  bool operator==(const DionOptions&) const = default;
};

class DionStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "dion";

  DionStrategy(Replica replica, Comm& world, const DionOptions& options, const CompressionStart& start)
      : CompressedGradients(std::move(replica), world, start), options_(options) {
    AB_CHECK(options_.rank > 0 && options_.rank <= 1, "Dion needs a share of the smaller side above 0, up to 1, got {}",
             options_.rank);
  }

 private:
  /// Of Adam, for all but weights: as the authors have them.
  static constexpr AdamWOptions kAdam{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0};

  static std::int64_t outputs(const LowRankMatrix& w) { return w.param->value.shape()[0]; }
  static std::int64_t inputs(const LowRankMatrix& w) { return w.param->numel() / outputs(w); }
  /// Whether the longer side, that of P, is that of the inputs.
  static bool is_wide(const LowRankMatrix& w) { return outputs(w) < inputs(w); }
  static Tensor as_matrix(const Tensor& values, const LowRankMatrix& w) { return values.view({outputs(w), inputs(w)}); }
  /// Below this share of the longest row of R another is rounding, of sums in float32 or of what travels.
  double noise() const {
    const DType wire = settings().gradients.dtype;
    return wire == DType::bfloat16 ? 0x1p-9 : wire == DType::float16 ? 0x1p-12 : 1e-6;
  }

  std::vector<Param*> begin(std::int64_t /*step*/) override {
    std::vector<Param*> weights;
    for (Param* p : trained_params())
      (p->role == ParamRole::weight && p->value.shape().rank() > 1 ? weights : rest_).push_back(p);
    const auto sizes = [this](const Shape& shape) {
      const std::int64_t n = shape[0], m = shape.numel() / n;
      const auto share = static_cast<std::int64_t>(std::ceil(options_.rank * static_cast<double>(std::min(n, m))));
      return LowRankSizes{.n = std::max(n, m), .m = std::min(n, m), .r = share};
    };
    gradients_ = std::make_unique<LowRankGradients>(weights, sizes, settings().seed, kName);
    for (const LowRankMatrix& w : gradients_->matrices()) updates_.emplace_back(w.q.shape(), DType::float32, device());
    std::vector<Param*> directions;
    directions_.reserve(rest_.size());
    for (const Param* p : rest_) {
      const Var zeros(Tensor::zeros(p->value.shape(), DType::float32, device()), true);
      directions.push_back(&directions_.emplace_back(Param{fmt::format("{}.{}", kName, p->name), zeros, p->role}));
    }
    adam_ = make_adamw(directions, kAdam);
    adam_->set_skip_overflow(true);
    return rest_;
  }

  void exchange(std::int64_t step) override {
    const LowRankGradients& g = *gradients_;
    Backend& math = backend(device());
    g.keep_factors();
    for (const LowRankMatrix& w : g.matrices()) {
      add_residual(w.gradient(), w.residual, w.work);
      math.gemm({.transpose_b = !is_wide(w)}, w.q, as_matrix(w.work, w), w.p);
    }
    reduce(g.all_p(), ReduceOp::mean);
    g.orthonormalise_p(step);
    for (const LowRankMatrix& w : g.matrices())
      math.gemm({.transpose_b = is_wide(w)}, w.p, as_matrix(w.work, w), w.own_q);
    reduce(g.all_own_q(), ReduceOp::mean);
    finish_rest();
    for (std::size_t i = 0; i < updates_.size(); ++i) {
      const LowRankMatrix& w = g.matrices()[i];
      const double scale = std::sqrt(static_cast<double>(outputs(w)) / static_cast<double>(inputs(w)));
      split_into_directions({w.own_q, 1 - options_.momentum}, {updates_[i], scale}, noise(), w.q);
      const auto product = [&](const Tensor& q) { return is_wide(w) ? RowFactors{q, w.p} : RowFactors{w.p, q}; };
      split_off_projection(product(w.own_q), product(updates_[i]), failed(), as_matrix(w.work, w),
                           as_matrix(w.residual, w));
    }
    g.restore_factors(check());
    g.hand_over();
    direct_rest();
  }

  /// The gradients of all but weights become directions of Adam.
  void direct_rest() {
    if (rest_.empty()) return;
    const Tensor one_or_nan({1}, DType::float32, device());
    fill(one_or_nan, 1);
    axpy(1, cast(failed(), DType::float32), one_or_nan);
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      scale_in_place(rest_[i]->value.grad(), one_or_nan);
      directions_[i].value.value().set_zero();
      directions_[i].value.set_grad(rest_[i]->value.grad());
    }
    adam_->step(1);  // left out where the step failed
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      const Tensor direction = directions_[i].value.value();
      scale_in_place(direction, -1);
      check().choose(direction, direction, rest_[i]->value.grad());
      rest_[i]->value.set_grad(direction);
    }
  }

  void save_compression(StateDict& state) const override {
    gradients_->save(state);
    adam_->save(state);
  }
  void load_compression(const StateDict& saved) override {
    gradients_->load(saved);
    adam_->load(saved, adam_->params(), device());
  }

  DionOptions options_;
  std::unique_ptr<LowRankGradients> gradients_;
  std::vector<Tensor> updates_;  // of each matrix what Pᵀ is multiplied by for Ĝ: [r, short side]
  // A parameter of zeros for each of the rest: one update of Adam at rate 1 leaves the direction there, negative.
  std::vector<Param*> rest_;
  std::vector<Param> directions_;
  std::unique_ptr<Optimizer> adam_;
};

}  // namespace ab
