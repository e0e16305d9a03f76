#pragma once
// SPDX-License-Identifier: MIT
//
// The gradients that PowerSGD, ACP-SGD and Dion compress. A gradient of two or more dimensions is seen as a matrix G [n, m],
// n its first dimension, and approximated by Pᵀ·Q with P [r, n] and Q [r, m]: r·(n+m) numbers instead of n·m. Factors
// lie as rows here, the transposes of those in the papers. All P are parts of one tensor and all Q of another, so that
// each travels in one collective.

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/backend/low_rank.h"
#include "engine/core/check.h"
#include "engine/io/state_dict.h"
#include "engine/kernels/finite_check.h"
#include "engine/kernels/orthonormal_rows.h"
#include "engine/kernels/random.h"

namespace ab {

struct LowRankSizes {
  std::int64_t n = 0, m = 0, r = 0;
  bool compressed() const { return r > 0; }
};

/// How gradients are approximated.
struct GradientRank {
  double rank = 4;      ///< r; below 1: the share of the smaller of n and m that r is
  double min_rate = 2;  ///< gradients that shrink by less are exchanged in full

  bool operator==(const GradientRank&) const = default;
  void check(const char* method) const {
    AB_CHECK(rank > 0 && (rank < 1 || rank == std::floor(rank)), "{} needs a whole rank or a share below 1, got {}",
             method, rank);
  }
};
/// The sizes for a gradient of that shape, r <= min(n, m); r = 0 where factors would not save: vectors, and matrices with
/// min_rate · r · (n+m) >= n·m.
inline LowRankSizes low_rank_sizes(const Shape& shape, const GradientRank& of) {
  if (shape.rank() < 2) return {};
  LowRankSizes size{.n = shape[0], .m = shape.numel() / shape[0]};
  const std::int64_t smaller = std::min(size.n, size.m);
  const std::int64_t share = std::max<std::int64_t>(1, std::llround(of.rank * static_cast<double>(smaller)));
  const std::int64_t r = of.rank < 1 ? share : std::min(std::llround(of.rank), static_cast<long long>(smaller));
  if (of.min_rate * static_cast<double>(r * (size.n + size.m)) < static_cast<double>(size.n * size.m)) size.r = r;
  return size;
}

struct LowRankMatrix {
  Param* param;
  LowRankSizes size;
  Tensor work{};      ///< [n, m] M = G + E, then Ĝ
  Tensor residual{};  ///< [n, m] E, this rank's own
  Tensor p{}, q{};    ///< [r, n], [r, m]: those that all ranks share, once they have been exchanged
  /// This rank's own factor, while that of all is on its way; either one, in the same memory.
  Tensor own_p{}, own_q{};

  const Tensor& gradient() const { return param->value.grad(); }
};

class LowRankGradients {
 public:
  /// Takes those of `params` for which sizes() gives an r. First factors are normal, drawn from Philox(seed, parameter) in the stream
  /// `name`, which begins names in a checkpoint too: equal on all ranks.
  LowRankGradients(const std::vector<Param*>& params, const std::function<LowRankSizes(const Shape&)>& sizes,
                   std::uint64_t seed, std::string name)
      : name_(std::move(name)), seed_(seed) {
    std::vector<Shape> p_shapes, q_shapes;
    Device device;
    for (Param* param : params) {
      const LowRankSizes size = sizes(param->value.shape());
      if (!size.compressed()) {
        rest_.push_back(param);
        continue;
      }
      device = param->value.value().device();
      matrices_.push_back({.param = param, .size = size});
      p_shapes.push_back({size.r, size.n});
      q_shapes.push_back({size.r, size.m});
    }
    const Places p_places(p_shapes), q_places(q_shapes);
    all_p_ = Tensor({p_places.total()}, DType::float32, device);
    all_q_ = Tensor({q_places.total()}, DType::float32, device);
    all_own_ = Tensor({std::max(p_places.total(), q_places.total())}, DType::float32, device);
    std::vector<FactorRows> p_rows, q_rows;
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      LowRankMatrix& w = matrices_[i];
      const auto [n, m, r] = w.size;
      w.p = p_places.factor(all_p_, i), w.own_p = p_places.factor(all_own_, i);
      w.q = q_places.factor(all_q_, i), w.own_q = q_places.factor(all_own_, i);
      w.work = Tensor({n, m}, DType::float32, device);
      w.residual = Tensor::zeros({n, m}, DType::float32, device);
      const std::uint64_t p_stream = stream_of(name_ + ".p." + w.param->name);
      const std::uint64_t q_stream = stream_of(name_ + ".q." + w.param->name);
      fill_normal(w.p, 0, 1, {seed_, p_stream});
      fill_normal(w.q, 0, 1, {seed_, q_stream});
      p_rows.push_back({w.p.data<float>(), n, r, p_stream});
      q_rows.push_back({w.q.data<float>(), m, r, q_stream});
    }
    p_rows_ = OrthonormalRows(std::move(p_rows), device);
    q_rows_ = OrthonormalRows(std::move(q_rows), device);
    kept_p_ = Tensor(all_p_.shape(), DType::float32, device);
    kept_q_ = Tensor(all_q_.shape(), DType::float32, device);
  }

  const std::vector<LowRankMatrix>& matrices() const { return matrices_; }
  /// The others.
  const std::vector<Param*>& rest() const { return rest_; }

  const Tensor& all_p() const { return all_p_; }
  const Tensor& all_q() const { return all_q_; }
  /// Every matrix's own Q.
  Tensor all_own_q() const { return all_own_.slice(0, all_q_.numel()); }
  /// Every matrix's own Q becomes its Q.
  void note_own_q() const { all_own_q().copy_from(all_q_); }
  /// `step` chooses what rows that vanish are drawn from.
  void orthonormalise_p(std::int64_t step) const { p_rows_.make(seed_, step + 1); }
  void orthonormalise_q(std::int64_t step) const { q_rows_.make(seed_, step + 1); }
  /// Every parameter's gradient becomes its Ĝ.
  void hand_over() const {
    for (const LowRankMatrix& w : matrices_) w.param->value.set_grad(w.work.view(w.param->value.shape()));
  }
  /// Notes all factors, and takes them back where `check` has found a result of the step that is not finite.
  void keep_factors() const {
    kept_p_.copy_from(all_p_);
    kept_q_.copy_from(all_q_);
  }
  void restore_factors(const FiniteCheck& check) const {
    check.choose(all_p_, all_p_, kept_p_);
    check.choose(all_q_, all_q_, kept_q_);
  }

  void save(StateDict& state) const {
    for (const LowRankMatrix& w : matrices_) {
      const std::string prefix = name_ + "." + w.param->name;
      state.put(prefix + ".residual", w.residual);
      state.put(prefix + ".p", w.p);
      state.put(prefix + ".q", w.q);
    }
  }

  void load(const StateDict& saved) {
    for (const LowRankMatrix& w : matrices_) {
      const std::string prefix = name_ + "." + w.param->name;
      w.residual.copy_from(saved.tensor(prefix + ".residual"));
      w.p.copy_from(saved.tensor(prefix + ".p"));
      w.q.copy_from(saved.tensor(prefix + ".q"));
    }
  }

 private:
  /// Where factors lie in one tensor: first those that fill packs of four, so that all of these begin at one, as a GPU's
  /// products want it.
  class Places {
   public:
    explicit Places(const std::vector<Shape>& factors) : shapes_(factors), begins_(factors.size()) {
      for (const bool packed : {true, false})
        for (std::size_t i = 0; i < factors.size(); ++i)
          if ((factors[i].numel() % 4 == 0) == packed) begins_[i] = std::exchange(total_, total_ + factors[i].numel());
    }
    std::int64_t total() const { return total_; }
    Tensor factor(const Tensor& all, std::size_t i) const {
      return all.slice(begins_[i], begins_[i] + shapes_[i].numel()).view(shapes_[i]);
    }

   private:
    std::vector<Shape> shapes_;
    std::vector<std::int64_t> begins_;
    std::int64_t total_ = 0;
  };

  std::string name_;
  std::uint64_t seed_;
  std::vector<LowRankMatrix> matrices_;
  std::vector<Param*> rest_;
  Tensor all_p_, all_q_, all_own_;
  OrthonormalRows p_rows_, q_rows_;
  Tensor kept_p_, kept_q_;
};

}  // namespace ab
