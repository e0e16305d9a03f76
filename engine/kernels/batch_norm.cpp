// SPDX-License-Identifier: MIT
#include "engine/kernels/batch_norm.h"

#include "engine/kernels/batch_norm_functors.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

using kernels::PixelTable;
using kernels::ReluGate;

PixelTable pixel_table(const Tensor& x) {
  const std::int64_t channels = x.dim(-1), pixels = x.numel() / channels;
  if (x.device().is_like_cpu()) return kernels::cpu_pixel_table(pixels, channels);
  return kernels::gpu_pixel_table(pixels, channels, kPackBytes / static_cast<std::int64_t>(size_of(x.dtype())));
}

/// Elements that one team reads to merge a block of channels.
template <class C> std::int64_t merge_cost(const PixelTable& table) { return 2 * table.chunks() * kPackWidth<C>; }

template <class T> T* data_or_null(const Tensor& t) { return t.defined() ? t.data<T>() : nullptr; }

/// Turns a run-time choice into a compile-time one: f.template operator()<gate>().
template <class F> void dispatch_gate(ReluGate gate, F&& f) {
  switch (gate) {
    case ReluGate::open: return f.template operator()<ReluGate::open>();
    case ReluGate::result: return f.template operator()<ReluGate::result>();
    case ReluGate::bits: return f.template operator()<ReluGate::bits>();
    case ReluGate::input: return f.template operator()<ReluGate::input>();
  }
}

/// Bytes for the bits of y, where a GPU's lanes write whole Packs of it; undefined elsewhere.
template <class T> Tensor bits_of(const PixelTable& table, const Tensor& x, const Tensor& residual, const Tensor& y) {
  if (x.device().is_like_cpu()) return {};
  if (!packable<kPackWidth<T>>(table.columns(), x.data<T>(), data_or_null<T>(residual), y.data<T>())) return {};
  return Tensor(Shape{x.numel() / kPackWidth<T>}, DType::uint8, x.device());
}

ReluGate gate_of(const ReluResult& relu) {
  if (relu.bits.defined()) return ReluGate::bits;
  if (relu.beta.defined()) return ReluGate::input;
  return relu.y.defined() ? ReluGate::result : ReluGate::open;
}

/// Reads x: the mean and M2 of every channel, which `set` (SetMoments or SetSums) takes.
template <class T, class Set> void merge_chunks(const PixelTable& table, const Tensor& x, const Set& set) {
  using C = compute_t<T>;
  const Shape per_chunk{table.chunks(), table.columns()};
  const Tensor chunk_mean(per_chunk, dtype_of<C>, x.device()), chunk_m2(per_chunk, dtype_of<C>, x.device());
  for_each_row(x.device(), table.chunks(), table.chunk_rows * table.columns(),
               kernels::ChunkMoments<T>{table, x.data<T>(), chunk_mean.data<C>(), chunk_m2.data<C>()});
  for_each_row(x.device(), blocks_of<C>(x.device(), table.channels), merge_cost<C>(table),
               kernels::MergeMoments<C, Set>{table, chunk_mean.data<C>(), chunk_m2.data<C>(), set});
}

/// Σ x, Σ x² and N over all ranks, [2 C + 1] float64; this rank's are `sums` where they are known.
template <class T>
Tensor sums_of_ranks(const PixelTable& table, const Tensor& x, const Tensor& sums, const SumOverRanks& sum_over_ranks) {
  const auto pixels = static_cast<double>(table.pixels);
  const std::int64_t channels = table.channels;
  const Tensor of_ranks(Shape{2 * channels + 1}, DType::float64, x.device());
  if (sums.defined()) of_ranks.slice(0, 2 * channels).copy_from(cast(sums.view({2 * channels}), DType::float64));
  else
    merge_chunks<T>(
        table, x, kernels::SetSums<compute_t<T>>{pixels, of_ranks.data<double>(), of_ranks.data<double>() + channels});
  fill(of_ranks.slice(2 * channels, 2 * channels + 1), pixels);
  sum_over_ranks(of_ranks);
  return of_ranks;
}

/// The sums of a backward pass over all ranks: [2, C] of their type, dbeta first.
Tensor grad_sums_of_ranks(const BatchNormGrads& grads, const SumOverRanks& sum_over_ranks) {
  const Tensor sums(Shape{2, grads.dbeta.numel()}, DType::float64, grads.dbeta.device());
  sums.slice(0, 1).copy_from(cast(grads.dbeta, DType::float64));
  sums.slice(1, 2).copy_from(cast(grads.dgamma, DType::float64));
  sum_over_ranks(sums);
  return cast(sums, grads.dbeta.dtype());
}

}  // namespace

BatchMoments batch_moments(const Tensor& x, const Tensor& sums, double epsilon, const Tensor& running_mean,
                           const Tensor& running_var, double momentum, const SumOverRanks& sum_over_ranks) {
  const PixelTable table = pixel_table(x);
  return dispatch_float(x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    const Shape per_channel{table.channels};
    BatchMoments moments{Tensor(per_channel, dtype_of<C>, x.device()), Tensor(per_channel, dtype_of<C>, x.device()),
                         table.pixels};
    const auto set_moments = [&] {
      return kernels::SetMoments<C>{static_cast<C>(moments.pixels), moments.mean.data<C>(), moments.rstd.data<C>(),
                                    running_mean.data<C>(),         running_var.data<C>(),  static_cast<C>(epsilon),
                                    static_cast<C>(momentum)};
    };
    const auto set_from = [&]<class Sum>(const Sum* sum) {
      const auto pixels = static_cast<double>(moments.pixels);
      for_each_index(x.device(), table.channels,
                     kernels::MomentsOfSums<C, Sum>{pixels, sum, sum + table.channels, set_moments()});
    };
    if (sum_over_ranks) {
      const Tensor of_ranks = sums_of_ranks<T>(table, x, sums, sum_over_ranks);
      moments.pixels = static_cast<std::int64_t>(
          of_ranks.slice(2 * table.channels, of_ranks.numel()).item(static_cast<double>(table.pixels)));
      set_from(of_ranks.data<double>());
    } else if (sums.defined()) {
      set_from(sums.data<float>());
    } else {
      merge_chunks<T>(table, x, set_moments());
    }
    return moments;
  });
}

BatchMoments running_moments(const Tensor& running_mean, const Tensor& running_var, double epsilon) {
  // The mean is copied: a later training step must not change what a recorded backward pass sees.
  const BatchMoments moments{running_mean.clone(),
                             Tensor(running_var.shape(), running_var.dtype(), running_var.device())};
  dispatch_float(running_var.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    for_each_index(running_var.device(), running_var.numel(),
                   kernels::RunningRstd<C>{running_var.data<C>(), moments.rstd.data<C>(), static_cast<C>(epsilon)});
  });
  return moments;
}

BatchNormResult batch_norm_forward(const Tensor& x, const BatchMoments& moments, const Tensor& gamma,
                                   const Tensor& beta, const Tensor& residual, bool relu, bool for_backward) {
  const PixelTable table = pixel_table(x);
  const Tensor y(x.shape(), x.dtype(), x.device());
  BatchNormResult result{y, {}};
  dispatch_float(x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    if (relu) result.relu = {y, for_backward ? bits_of<T>(table, x, residual, y) : Tensor(), {}};
    if (result.relu.bits.defined()) result.relu.y = {};
    dispatch_gate(gate_of(result.relu), [&]<ReluGate kGate>() {
      const auto normalise = [&]<bool kResidual>() {
        for_each_row(x.device(), table.chunks(), table.chunk_rows * table.columns(),
                     kernels::Normalise<T, kGate, kResidual>{
                         table, x.data<T>(), data_or_null<T>(residual), moments.mean.data<C>(), moments.rstd.data<C>(),
                         gamma.data<C>(), beta.data<C>(), y.data<T>(), data_or_null<std::uint8_t>(result.relu.bits)});
      };
      if constexpr (kGate != ReluGate::input)
        residual.defined() ? normalise.template operator()<true>() : normalise.template operator()<false>();
    });
  });
  if (relu && x.device().is_like_cpu() && !residual.defined()) result.relu = {{}, {}, beta};
  return result;
}

BatchNormGrads batch_norm_backward(const Tensor& dy, const Tensor& x, const ReluResult& relu,
                                   const BatchMoments& moments, const Tensor& gamma, BatchNormNeeds needs,
                                   const SumOverRanks& sum_over_ranks) {
  const PixelTable table = pixel_table(x);
  BatchNormGrads grads;
  const auto fresh = [&] { return Tensor(x.shape(), x.dtype(), x.device()); };
  const auto in_place = [&] { return dy.is_shared() ? fresh() : dy.view(x.shape()); };
  if (needs.dresidual) grads.dresidual = in_place();
  if (needs.dx || needs.dresidual) grads.dx = needs.dresidual ? fresh() : in_place();
  dispatch_float(x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    grads.dgamma = Tensor(gamma.shape(), dtype_of<C>, x.device());
    grads.dbeta = Tensor(gamma.shape(), dtype_of<C>, x.device());
    const Tensor sums(Shape{2, table.chunks(), table.columns()}, dtype_of<C>, x.device());
    C* sum_g = sums.data<C>();
    C* sum_gx = sum_g + sums.numel() / 2;
    const C per_pixel = moments.pixels > 0 ? C{1} / static_cast<C>(moments.pixels) : C{0};
    dispatch_gate(gate_of(relu), [&]<ReluGate kGate>() {
      const kernels::GateOf<T, kGate> gate{data_or_null<T>(relu.y), data_or_null<std::uint8_t>(relu.bits),
                                           moments.rstd.data<C>(), gamma.data<C>(), data_or_null<C>(relu.beta)};
      for_each_row(x.device(), table.chunks(), table.chunk_rows * table.columns(),
                   kernels::ChunkGradSums<T, kGate>{table, dy.data<T>(), x.data<T>(), gate, moments.mean.data<C>(),
                                                    sum_g, sum_gx});
      for_each_row(x.device(), blocks_of<C>(x.device(), table.channels), merge_cost<C>(table),
                   kernels::MergeGradSums<C>{table, sum_g, sum_gx, moments.rstd.data<C>(), grads.dbeta.data<C>(),
                                             grads.dgamma.data<C>()});
      if (!grads.dx.defined()) return;
      const Tensor of_ranks = sum_over_ranks ? grad_sums_of_ranks(grads, sum_over_ranks) : Tensor();
      const C* dbeta = sum_over_ranks ? of_ranks.data<C>() : grads.dbeta.data<C>();
      const C* dgamma = sum_over_ranks ? dbeta + table.channels : grads.dgamma.data<C>();
      for_each_row(x.device(), table.chunks(), table.chunk_rows * table.columns(),
                   kernels::NormaliseBackward<T, kGate>{table, dy.data<T>(), x.data<T>(), gate, moments.mean.data<C>(),
                                                        moments.rstd.data<C>(), gamma.data<C>(), dbeta, dgamma,
                                                        per_pixel, grads.dx.data<T>(),
                                                        data_or_null<T>(grads.dresidual)});
    });
  });
  return grads;
}

}  // namespace ab
