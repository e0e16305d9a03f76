// SPDX-License-Identifier: MIT
#include "engine/ops/norm.h"

#include "engine/kernels/elementwise.h"
#include "engine/kernels/layer_norm.h"
#include "engine/ops/checks.h"

namespace ab {
namespace {

/// Statistics and affine parameters take part in this type: bfloat16 activations are normalised in float32.
DType computing_type(const Tensor& x) { return x.dtype() == DType::float64 ? DType::float64 : DType::float32; }

void check_affine(std::string_view operation, const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  AB_CHECK(x.rank() >= 2 && x.numel() > 0, "{}: x {} must have at least two dimensions and not be empty", operation,
           x.shape().str());
  AB_CHECK(gamma.numel() == x.dim(-1) && beta.numel() == x.dim(-1),
           "{}: gamma {} and beta {} must have one value per channel of x {}", operation, gamma.shape().str(),
           beta.shape().str(), x.shape().str());
  AB_CHECK(gamma.device() == x.device() && beta.device() == x.device(),
           "{}: gamma and beta must be on the device of x; move them with to()", operation);
}

void check_batch_norm(const Tensor& x, const BatchNormStats& stats, bool training, const Tensor& residual,
                      const Tensor& sums) {
  const std::int64_t channels = x.dim(-1);
  for (const Tensor* t : {&stats.running_mean, &stats.running_var})
    AB_CHECK(t->defined() && t->numel() == channels && t->dtype() == computing_type(x) && t->device() == x.device(),
             "batch_norm: the running statistics must be {} [{}] on the device of x", name_of(computing_type(x)),
             channels);
  AB_CHECK(!training || stats.sum_over_ranks || x.numel() > channels,
           "batch_norm: x {} has one value per channel, which has no variance; use a larger batch", x.shape().str());
  AB_CHECK(!sums.defined() ||
               (sums.shape() == Shape{2, channels} && sums.dtype() == DType::float32 && sums.device() == x.device()),
           "batch_norm: the sums must be float32 [2, {}] on the device of x", channels);
  if (!residual.defined()) return;
  AB_CHECK(residual.shape() == x.shape(), "batch_norm: the residual {} must have the shape of x {}",
           residual.shape().str(), x.shape().str());
  check_alike("batch_norm", x, "the residual", residual);
}

/// Inside backward(): ranks have loss scales of their own, so what they add up there is without them.
SumOverRanks without_loss_scale(const SumOverRanks& sum_over_ranks) {
  const Tensor& unscale = backward_unscale();
  if (!sum_over_ranks || !unscale.defined()) return sum_over_ranks;
  return [=](const Tensor& sums) {
    scale_in_place(sums, unscale);
    sum_over_ranks(sums);
    scale_in_place(sums, unscale, /*inverse=*/true);
  };
}

}  // namespace

Var batch_norm(const Var& x, const Var& gamma, const Var& beta, BatchNormStats& stats, bool training,
               Activation activation, const Var& residual, const Tensor& sums) {
  check_affine("batch_norm", x.value(), gamma.value(), beta.value());
  check_batch_norm(x.value(), stats, training, residual.value(), sums);
  AB_CHECK(activation == Activation::none || activation == Activation::relu,
           "batch_norm: only a ReLU is fused; apply any other activation to its result");
  const bool relu = activation == Activation::relu;
  const Tensor input = x.value(), weight = cast(gamma.value(), computing_type(input));
  const SumOverRanks sum_over_ranks = training ? stats.sum_over_ranks : SumOverRanks{};
  const BatchMoments moments = training ? batch_moments(input, sums, stats.epsilon, stats.running_mean,
                                                        stats.running_var, stats.momentum, sum_over_ranks)
                                        : running_moments(stats.running_mean, stats.running_var, stats.epsilon);
  const BatchNormResult result = batch_norm_forward(input, moments, weight, cast(beta.value(), computing_type(input)),
                                                    residual.value(), relu, recording());

  const BatchNormNeeds needs{x.requires_grad(), residual.requires_grad()};
  const DType gamma_type = gamma.value().dtype(), beta_type = beta.value().dtype();
  return record("batch_norm", result.y, {x, gamma, beta, residual}, [=, relu = result.relu](const Tensor& dy) {
    const BatchNormGrads grads =
        batch_norm_backward(dy, input, relu, moments, weight, needs, without_loss_scale(sum_over_ranks));
    return Gradients{grads.dx, cast(grads.dgamma, gamma_type), cast(grads.dbeta, beta_type), grads.dresidual};
  });
}

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float epsilon) {
  check_affine("layer_norm", x.value(), gamma.value(), beta.value());
  const Tensor input = x.value(), weight = cast(gamma.value(), computing_type(input));
  const LayerNormResult result = layer_norm_forward(input, weight, cast(beta.value(), computing_type(input)), epsilon);

  const bool needs_dx = x.requires_grad(), needs_affine = gamma.requires_grad() || beta.requires_grad();
  const DType gamma_type = gamma.value().dtype(), beta_type = beta.value().dtype();
  return record(
      "layer_norm", result.y, {x, gamma, beta}, [=, mean = result.mean, rstd = result.rstd](const Tensor& dy) {
        Gradients grads(3);
        if (needs_dx)
          grads[0] =
              onto([=](const Tensor& addend) { return layer_norm_backward(dy, input, mean, rstd, weight, addend); });
        if (!needs_affine) return grads;
        const AffineGrads affine = layer_norm_affine_backward(dy, input, mean, rstd);
        grads[1] = cast(affine.dgamma, gamma_type), grads[2] = cast(affine.dbeta, beta_type);
        return grads;
      });
}

}  // namespace ab
