// SPDX-License-Identifier: MIT
#include "ablowrank/factorise.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/elementwise.h"

namespace ab {

std::int64_t RankRounding::apply(std::int64_t r, std::int64_t n) const {
  r = std::max<std::int64_t>(r, 1);
  return std::min((r + multiple - 1) / multiple * multiple, n);
}

std::int64_t RankRounding::of_share(double share, std::int64_t n) const {
  return apply(std::llround(share * static_cast<double>(n)), n);
}

std::int64_t RankPolicy::choose(std::span<const double> sigma) const {
  const auto n = static_cast<std::int64_t>(sigma.size());
  const RankRounding rounding{multiple};
  if (ratio > 0) return rounding.of_share(ratio, n);
  return rounding.apply(std::count_if(sigma.begin(), sigma.end(), [&](double s) { return s > cutoff * sigma[0]; }), n);
}

namespace {

/// The tall orientation of a matrix, which is what is decomposed.
bool is_wide(const Tensor& w2) { return w2.dim(0) < w2.dim(1); }
Svd svd_of(const Tensor& w2) { return backend(w2.device()).svd(is_wide(w2) ? transpose(w2) : w2); }

LowRank leading(const Svd& svd, std::int64_t r, bool transposed) {
  // Leading columns of U are leading rows of its transpose, which is what the transposed orientation stores.
  const Tensor u_rows = transpose(svd.u).slice(0, r);
  const Tensor v_rows = svd.vt.slice(0, r);
  const Tensor sigma = svd.s.slice(0, r).clone();
  return transposed ? LowRank{transpose(v_rows), sigma, u_rows.clone()}
                    : LowRank{transpose(u_rows), sigma, v_rows.clone()};
}

}  // namespace

LowRank decompose(const Tensor& w2, const RankPolicy* policy) {
  const Svd svd = svd_of(w2);
  return leading(svd, policy ? policy->choose(svd.s.to_doubles(1)) : svd.s.numel(), is_wide(w2));
}

LowRank decompose(const Tensor& w2, std::int64_t r) { return leading(svd_of(w2), r, is_wide(w2)); }

FactorPair apply_gauge(const LowRank& low_rank, Gauge gauge, bool trained_outer) {
  if (gauge == Gauge::orthonormal) {
    FactorPair pair{low_rank.outer, low_rank.inner};
    Tensor& trained = trained_outer ? pair.outer : pair.inner;
    trained = trained.clone();
    if (trained_outer) scale_columns(trained, low_rank.sigma);
    else scale_rows(trained, low_rank.sigma);
    return pair;
  }
  FactorPair pair{low_rank.outer.clone(), low_rank.inner.clone()};
  std::vector<float> root;
  for (double s : low_rank.sigma.to_doubles(1)) root.push_back(static_cast<float>(std::sqrt(s)));
  const Tensor scale = Tensor::from(root, low_rank.sigma.shape(), low_rank.sigma.device());
  scale_columns(pair.outer, scale);
  scale_rows(pair.inner, scale);
  return pair;
}

Tensor rest_of(const Tensor& w2, const LowRank& low_rank) {
  const FactorPair pair = apply_gauge(low_rank, Gauge::orthonormal, true);
  const Tensor rest = w2.clone();
  axpy(-1.0, product(pair.outer, pair.inner), rest);
  return rest;
}

Tensor product(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  Tensor c({a.dim(transpose_a ? 1 : 0), b.dim(transpose_b ? 0 : 1)}, a.dtype(), a.device());
  backend(a.device()).gemm({.transpose_a = transpose_a, .transpose_b = transpose_b}, a, b, c);
  return c;
}

Tensor in_float64(const Tensor& t) {
  return cast(t.device().kind == DeviceKind::shapes ? t : t.to(Device{}), DType::float64);
}

Tensor lift_from_tangent(const Tensor& u, const Tensor& v, const Tensor& x, const Tensor& y) {
  // shared = Uᵀ X + Y Vᵀ (r × r); then W = (X − ½ U·shared) V + U Y.
  const Tensor shared = add(product(u, x, true, false), product(y, v, false, true));
  const Tensor x_corrected = x.clone();
  axpy(-0.5, product(u, shared), x_corrected);
  return add(product(x_corrected, v), product(u, y));
}

}  // namespace ab
