// SPDX-License-Identifier: MIT
#include "layers/weight.h"

#include "engine/backend/cpu/gemm.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"

namespace ab {

Weight::Weight(const std::string& name, Tensor value, ParamRole role, bool spatial)
    : shape_(value.shape()),
      has_spatial_factors_(spatial),
      dense_{name, Var(std::move(value), true), role},
      a_{name + ".a", Var(Tensor()), ParamRole::factor_a},
      b_{name + ".b", Var(Tensor()), ParamRole::factor_b} {}

void Weight::set_conv_factors(ConvFactors factors) {
  AB_ASSERT(!factored());
  kernel_rows_ = factors == ConvFactors::spatial && has_spatial_factors_ ? shape_[1] : 1;
}

void Weight::factorise(Tensor outer_value, Tensor inner_value, Mode mode, const Tensor& rest) {
  AB_CHECK(mode != Mode::full && outer_value.rank() == 2 && outer_value.dim(0) == rows() &&
               inner_value.numel() == outer_value.dim(1) * columns(),
           "{}: factors {} and {} do not make up a weight {}", name(), outer_value.shape().str(),
           inner_value.shape().str(), shape_.str());
  Shape inner_shape = shape_;
  inner_shape[0] = outer_value.dim(1);
  if (kernel_rows_ > 1) inner_shape[1] = 1;
  outer().value.set_value(std::move(outer_value));
  inner().value.set_value(inner_value.view(inner_shape));
  a_.value.set_requires_grad(mode != Mode::train_b);
  b_.value.set_requires_grad(mode != Mode::train_a);
  dense_.value.set_value({});
  dense_.value.clear_grad();
  rest_ = rest.defined() ? rest.view(shape_) : Tensor();
  mode_ = mode;
}

void Weight::restore(Tensor dense) {
  dense_.value.set_value(dense.view(shape_));
  for (Param* factor : {&a_, &b_}) {
    factor->value.set_value({});
    factor->value.clear_grad();
    factor->value.set_requires_grad(false);
  }
  rest_ = {};
  mode_ = Mode::full;
}

Var Weight::formed(DType dtype) const {
  if (!factored()) return cast(dense_.value, dtype);
  const Var product = matmul(cast(outer().value, dtype), reshape(cast(inner().value, dtype), {r(), columns()}));
  const Var w = reshape(product, shape_);
  return rest_.defined() ? add(w, cast(Var(rest_), dtype)) : w;
}

void Weight::list(std::vector<Param*>& params) {
  if (!factored()) return params.push_back(&dense_);
  params.push_back(&a_);
  params.push_back(&b_);
}

bool factors_are_cheaper(const Weight& weight, const FactorPositions& positions, double dense_advantage) {
  const double o = static_cast<double>(weight.rows()), k = static_cast<double>(weight.columns());
  const double r = static_cast<double>(weight.r());
  const double inner = static_cast<double>(positions.inner), outer = static_cast<double>(positions.outer);
  const int trains_inner = weight.inner().trainable(), trains_outer = weight.outer().trainable();
  const double thin = inner * (2 + trains_inner) * r * k + outer * (2 + trains_outer) * r * o;
  const double whole = static_cast<double>(weight.shape().numel());
  const double formed = outer * 3 * whole / dense_advantage + (1 + trains_inner + trains_outer) * r * whole;
  return thin <= formed;
}

bool run_factors(const Weight& weight, std::int64_t rows) {
  if (!weight.factored() || weight.rest().defined()) return false;
  if (weight.execution() != Execution::automatic) return weight.execution() == Execution::factors;
  return factors_are_cheaper(weight, {rows, rows}, 1.0);
}

bool run_factors(const Weight& weight, const Conv2dSpec& spec, DType dtype) {
  if (!weight.factored() || weight.rest().defined()) return false;
  if (weight.execution() != Execution::automatic) return weight.execution() == Execution::factors;
  // The CPU backend's rule. The thin filters keep Winograd too once they are as wide as a vector register.
  const bool on_cpu = weight.inner().value.value().device().is_like_cpu();
  const bool is_native = dtype == DType::bfloat16 && cpu::native_bfloat16();  // and about as fast as Winograd
  const bool dense_winograd =
      on_cpu && !is_native && spec.kernel_h == 3 && spec.kernel_w == 3 && spec.stride == 1 && spec.in_channels >= 16;
  const bool thin_winograd = dense_winograd && weight.conv_factors() == ConvFactors::channel && weight.r() >= 64;
  const bool spatial = weight.conv_factors() == ConvFactors::spatial;
  const FactorPositions positions{spec.batch * (spatial ? spec.height : spec.out_height()) * spec.out_width(),
                                  spec.batch * spec.out_height() * spec.out_width()};
  return factors_are_cheaper(weight, positions, dense_winograd && !thin_winograd ? 2.0 : 1.0);
}

}  // namespace ab
