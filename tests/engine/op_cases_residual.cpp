// SPDX-License-Identifier: MIT
//
// Cases of residual branches: what ends one adds the input of the branch to its result, what begins one adds its gradient
// to that which came around the branch.
#include "engine/ops/conv.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "engine/ops/norm.h"
#include "tests/engine/op_cases.h"
#include "tests/reference/conv_reference.h"
#include "tests/reference/norm_reference.h"

namespace ab::cases {
namespace {

Values sum(const Values& a, const Values& b) {
  Values y = a;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += b[i];
  return y;
}

/// y = x Wᵀ + b + addend
OpCase linear_addend_case(const std::string& name, std::int64_t n, std::int64_t i, std::int64_t o, bool bias) {
  OpCase c{.op = "linear", .name = "linear/" + name, .inputs = {{n, i}, {o, i}, {n, o}}};
  if (bias) c.inputs.push_back(Shape{o});
  c.apply = [=](const std::vector<Var>& in) {
    return linear(in[0], in[1], bias ? in[3] : Var{}, Activation::none, in[2]);
  };
  c.reference = [=](const std::vector<Values>& in) {
    return sum(reference::linear(in[0], in[1], bias ? in[3] : Values{}, n, i, o), in[2]);
  };
  c.work = static_cast<double>(n * i * o);
  return c;
}

/// y = x + layer_norm(x) Wᵀ, x = in[0] + in[1]
OpCase norm_branch_case(const std::string& name, const Shape& x) {
  const std::int64_t channels = x[x.rank() - 1], rows = x.numel() / channels;
  OpCase c{.op = "linear",
           .name = "linear/" + name,
           .inputs = {x, x, {channels}, {channels}, {channels, channels}},
           .roundings = 2};
  c.apply = [](const std::vector<Var>& in) {
    const Var sum = add(in[0], in[1]);
    return linear(layer_norm(sum, in[2], in[3]), in[4], {}, Activation::none, sum);
  };
  c.reference = [=](const std::vector<Values>& in) {
    const Values both = sum(in[0], in[1]);
    return sum(reference::linear(reference::layer_norm(both, in[2], in[3], 1e-5f), in[4], {}, rows, channels, channels),
               both);
  };
  c.work = static_cast<double>(x.numel() * channels);
  return c;
}

/// y = x + (x ⋆ w), x = in[0] + in[1]
OpCase conv_branch_case(const std::string& name, const Shape& x, std::int64_t kernel) {
  const Shape w{x[3], kernel, kernel, x[3]};
  const Conv2dOptions options{.padding = kernel / 2};
  OpCase c{.op = "add", .name = "add/" + name, .inputs = {x, x, w}, .roundings = 2};
  c.apply = [=](const std::vector<Var>& in) {
    const Var both = add(in[0], in[1]);
    return add(both, conv2d(both, in[2], {}, options));
  };
  c.reference = [=](const std::vector<Values>& in) {
    const Values both = sum(in[0], in[1]);
    return sum(both, reference::conv2d(conv2d_spec(x, w, options), both, in[2], {}));
  };
  c.work = static_cast<double>(x.numel() * w.numel() / x[3]);
  return c;
}

}  // namespace

std::vector<OpCase> residual_op_cases() {
  return {
      linear_addend_case("addend", 5, 7, 3, true),           linear_addend_case("addend_no_bias", 5, 7, 3, false),
      linear_addend_case("addend_wide", 33, 65, 70, true),   norm_branch_case("norm_branch", {2, 5, 12}),
      conv_branch_case("pointwise_branch", {2, 3, 4, 6}, 1), conv_branch_case("conv_branch", {2, 5, 4, 6}, 3),
  };
}

std::vector<OpCase> large_residual_op_cases() {
  return {
      linear_addend_case("vit_b_224_addend", 8 * 197, 768, 768, true),
      norm_branch_case("vit_b_224_branch", {8, 197, 768}),
      conv_branch_case("resnet50_branch", {8, 28, 28, 128}, 1),
  };
}

}  // namespace ab::cases
