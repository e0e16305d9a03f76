// SPDX-License-Identifier: MIT
#include "tests/engine/op_cases.h"

#include <cmath>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/ops/conv.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "engine/ops/norm.h"
#include "engine/ops/pool.h"
#include "tests/reference/conv_reference.h"
#include "tests/reference/loss_reference.h"
#include "tests/reference/norm_reference.h"
#include "tests/reference/pool_reference.h"

namespace ab::cases {

Tensor input_values(const Shape& shape, DType dtype, std::size_t index) {
  Tensor t(shape, DType::float64);
  fill_normal(t, 0.0, 1.0, Philox{.seed = 11, .stream = index});
  return cast(t, dtype);
}

namespace {

std::vector<OpCase> joined(std::vector<OpCase> cases, const std::vector<OpCase>& more) {
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

double numel(const Shape& shape) { return static_cast<double>(shape.numel()); }

Values activated(Values y, Activation activation) {
  if (activation == Activation::relu)
    for (double& v : y) v = std::fmax(v, 0.0);
  if (activation == Activation::gelu)
    for (double& v : y) v *= 0.5 * std::erfc(-v / std::sqrt(2.0));
  return y;
}

OpCase conv_case(const std::string& name, const Shape& x, const Shape& w, Conv2dOptions options, bool bias,
                 Activation activation = Activation::none) {
  const Conv2dSpec spec = conv2d_spec(x, w, options);
  OpCase c{.op = "conv2d", .name = "conv2d/" + name, .inputs = {x, w}};
  if (activation == Activation::gelu) c.roundings = 2;  // z too, which backward needs
  if (bias) c.inputs.push_back(Shape{w[0]});
  c.apply = [=](const std::vector<Var>& in) { return conv2d(in[0], in[1], bias ? in[2] : Var{}, options, activation); };
  c.reference = [=](const std::vector<Values>& in) {
    return activated(reference::conv2d(spec, in[0], in[1], bias ? in[2] : Values{}), activation);
  };
  c.tolerance = 2e-5;  // Winograd's transforms cost a few digits
  c.work = static_cast<double>(spec.batch * spec.out_height() * spec.out_width()) * numel(w);
  return c;
}

OpCase linear_case(const std::string& name, std::int64_t n, std::int64_t i, std::int64_t o, bool bias,
                   Activation activation = Activation::none) {
  OpCase c{.op = "linear", .name = "linear/" + name, .inputs = {{n, i}, {o, i}}};
  if (activation == Activation::gelu) c.roundings = 2;
  if (bias) c.inputs.push_back(Shape{o});
  c.apply = [=](const std::vector<Var>& in) { return linear(in[0], in[1], bias ? in[2] : Var{}, activation); };
  c.reference = [=](const std::vector<Values>& in) {
    return activated(reference::linear(in[0], in[1], bias ? in[2] : Values{}, n, i, o), activation);
  };
  c.work = static_cast<double>(n * i * o);
  return c;
}

OpCase matmul_case(const std::string& name, std::int64_t m, std::int64_t k, std::int64_t n) {
  OpCase c{.op = "matmul", .name = "matmul/" + name, .inputs = {{m, k}, {k, n}}};
  c.apply = [](const std::vector<Var>& in) { return matmul(in[0], in[1]); };
  c.reference = [=](const std::vector<Values>& in) { return reference::matmul(in[0], in[1], m, k, n); };
  c.work = static_cast<double>(m * k * n);
  return c;
}

/// Running statistics that are not those of the batch; fresh for every call, as training changes them.
BatchNormStats running_stats(const Tensor& x) {
  const DType type = x.dtype() == DType::float64 ? DType::float64 : DType::float32;
  BatchNormStats stats{Tensor(Shape{x.dim(-1)}, type), Tensor(Shape{x.dim(-1)}, type)};
  fill_uniform(stats.running_mean, -0.5, 0.5, Philox{.seed = 5, .stream = 0});
  fill_uniform(stats.running_var, 0.5, 2.0, Philox{.seed = 5, .stream = 1});
  stats.running_mean = stats.running_mean.to(x.device());
  stats.running_var = stats.running_var.to(x.device());
  return stats;
}

OpCase batch_norm_case(const std::string& name, const Shape& x, bool training, Activation activation, bool residual) {
  const std::int64_t channels = x[x.rank() - 1];
  OpCase c{.op = "batch_norm", .name = "batch_norm/" + name, .inputs = {x, {channels}, {channels}}};
  if (residual) c.inputs.push_back(x);
  c.apply = [=](const std::vector<Var>& in) {
    BatchNormStats stats = running_stats(in[0].value());
    return batch_norm(in[0], in[1], in[2], stats, training, activation, residual ? in[3] : Var{});
  };
  c.reference = [=](const std::vector<Values>& in) {
    reference::Moments moments;
    if (training) {
      moments = reference::batch_moments(in[0], static_cast<std::size_t>(channels));
    } else {
      const BatchNormStats stats = running_stats(Tensor(Shape{1, channels}, DType::float64));
      moments = {stats.running_mean.to_doubles(), stats.running_var.to_doubles()};
    }
    return reference::batch_norm(in[0], moments, in[1], in[2], residual ? in[3] : Values{},
                                 activation == Activation::relu, BatchNormStats{}.epsilon);
  };
  c.work = numel(x);
  return c;
}

OpCase layer_norm_case(const std::string& name, const Shape& x) {
  const Shape channels{x[x.rank() - 1]};
  OpCase c{.op = "layer_norm", .name = "layer_norm/" + name, .inputs = {x, channels, channels}};
  c.apply = [](const std::vector<Var>& in) { return layer_norm(in[0], in[1], in[2]); };
  c.reference = [](const std::vector<Values>& in) { return reference::layer_norm(in[0], in[1], in[2], 1e-5f); };
  c.work = numel(x);
  return c;
}

OpCase max_pool_case(const std::string& name, const Shape& x, Pool2dOptions o) {
  OpCase c{.op = "max_pool2d", .name = "max_pool2d/" + name, .inputs = {x}, .work = numel(x)};
  c.apply = [=](const std::vector<Var>& in) { return max_pool2d(in[0], o); };
  c.reference = [=](const std::vector<Values>& in) {
    return reference::max_pool2d(x, in[0], o.kernel, o.stride, o.padding);
  };
  return c;
}

OpCase avg_pool_case(const std::string& name, const Shape& x, Pool2dOptions o) {
  OpCase c{.op = "avg_pool2d", .name = "avg_pool2d/" + name, .inputs = {x}, .work = numel(x)};
  c.apply = [=](const std::vector<Var>& in) { return avg_pool2d(in[0], o); };
  c.reference = [=](const std::vector<Values>& in) {
    return reference::avg_pool2d(x, in[0], o.kernel, o.stride, o.padding);
  };
  return c;
}

OpCase adaptive_pool_case(const std::string& name, const Shape& x, std::int64_t out_h, std::int64_t out_w) {
  OpCase c{.op = "adaptive_avg_pool2d", .name = "adaptive_avg_pool2d/" + name, .inputs = {x}, .work = numel(x)};
  c.apply = [=](const std::vector<Var>& in) { return adaptive_avg_pool2d(in[0], out_h, out_w); };
  c.reference = [=](const std::vector<Values>& in) { return reference::adaptive_avg_pool2d(x, in[0], out_h, out_w); };
  return c;
}

OpCase global_pool_case(const std::string& name, const Shape& x) {
  OpCase c{.op = "adaptive_avg_pool2d", .name = "global_avg_pool2d/" + name, .inputs = {x}, .work = numel(x)};
  c.apply = [](const std::vector<Var>& in) { return global_avg_pool2d(in[0]); };
  c.reference = [=](const std::vector<Values>& in) { return reference::adaptive_avg_pool2d(x, in[0], 1, 1); };
  return c;
}

OpCase loss_case(const std::string& name, std::int64_t rows, std::int64_t classes, float smoothing,
                 float share = 1.0f) {
  std::vector<std::int64_t> labels, mixed;
  for (std::int64_t i = 0; i < rows; ++i) {
    labels.push_back((i * 7 + 3) % classes);
    mixed.push_back(share < 1 ? (i * 5 + 3) % classes : labels.back());
  }
  OpCase c{.op = "softmax_cross_entropy", .name = "softmax_cross_entropy/" + name, .inputs = {{rows, classes}}};
  c.apply = [=](const std::vector<Var>& in) {
    const auto on_device = [&](const std::vector<std::int64_t>& l) {
      return Tensor::from(l, Shape{rows}, in[0].value().device());
    };
    const Device device = in[0].value().device();
    const MixedLabels second =
        share < 1 ? MixedLabels{on_device(mixed), Tensor::scalar(share, DType::float32, device)} : MixedLabels{};
    return softmax_cross_entropy(in[0], on_device(labels), smoothing, second);
  };
  c.reference = [=](const std::vector<Values>& in) {
    return Values{reference::softmax_cross_entropy(in[0], labels, smoothing, mixed, share)};
  };
  c.work = static_cast<double>(rows * classes);
  return c;
}

/// An operation whose result element i depends on element i of its inputs alone.
OpCase elementwise_case(const std::string& op, const std::string& name, const std::vector<Shape>& inputs,
                        std::function<Var(const std::vector<Var>&)> apply,
                        std::function<double(std::size_t i, const std::vector<Values>& in)> element) {
  OpCase c{.op = op, .name = op + "/" + name, .inputs = inputs, .apply = std::move(apply)};
  c.reference = [element = std::move(element)](const std::vector<Values>& in) {
    Values y(in[0].size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = element(i, in);
    return y;
  };
  c.work = numel(inputs[0]);
  return c;
}

OpCase relu_case(const std::string& name, const Shape& x) {
  return elementwise_case(
      "activate", "relu_" + name, {x}, [](const std::vector<Var>& in) { return relu(in[0]); },
      [](std::size_t i, const std::vector<Values>& in) { return std::fmax(in[0][i], 0.0); });
}

OpCase gelu_case(const std::string& name, const Shape& x) {
  return elementwise_case(
      "activate", "gelu_" + name, {x}, [](const std::vector<Var>& in) { return gelu(in[0]); },
      [](std::size_t i, const std::vector<Values>& in) {
        return in[0][i] * 0.5 * std::erfc(-in[0][i] / std::sqrt(2.0));
      });
}

OpCase dropout_case(const std::string& name, const Shape& x, float p) {
  const Philox random{.seed = 3, .stream = 9};
  return elementwise_case(
      "dropout", name, {x},
      [=](const std::vector<Var>& in) { return dropout(in[0], p, seed_on_device(random, in[0]), random.stream); },
      [=](std::size_t i, const std::vector<Values>& in) {
        return random.uniform(i) >= p ? in[0][i] / (1.0 - p) : 0.0;
      });
}

OpCase add_case(const std::string& name, const Shape& x) {
  return elementwise_case(
      "add", name, {x, x}, [](const std::vector<Var>& in) { return add(in[0], in[1]); },
      [](std::size_t i, const std::vector<Values>& in) { return in[0][i] + in[1][i]; });
}

OpCase scale_case(const std::string& name, const Shape& x, double factor) {
  return elementwise_case(
      "scale", name, {x}, [=](const std::vector<Var>& in) { return scale(in[0], factor); },
      [=](std::size_t i, const std::vector<Values>& in) { return factor * in[0][i]; });
}

/// To float64: only inputs of other types are cast at all.
OpCase cast_case(const std::string& name, const Shape& x) {
  return elementwise_case(
      "cast", name, {x}, [](const std::vector<Var>& in) { return cast(in[0], DType::float64); },
      [](std::size_t i, const std::vector<Values>& in) { return in[0][i]; });
}

OpCase reshape_case(const std::string& name, const Shape& x, std::function<Var(const Var&)> change) {
  return elementwise_case(
      "reshape", name, {x}, [=](const std::vector<Var>& in) { return change(in[0]); },
      [](std::size_t i, const std::vector<Values>& in) { return in[0][i]; });
}

}  // namespace

std::vector<OpCase> op_cases() {
  constexpr auto none = Activation::none, relu = Activation::relu, gelu = Activation::gelu;
  const std::vector<OpCase> cases{
      conv_case("3x3", {2, 6, 5, 3}, {4, 3, 3, 3}, {.padding = 1}, true),
      conv_case("no_bias", {2, 6, 5, 3}, {4, 3, 3, 3}, {.padding = 1}, false),
      conv_case("no_padding", {1, 5, 5, 2}, {3, 3, 3, 2}, {}, true),
      conv_case("stride2", {2, 7, 6, 3}, {5, 3, 3, 3}, {.stride = 2, .padding = 1}, false),
      conv_case("stride3_5x5", {1, 9, 11, 2}, {3, 5, 5, 2}, {.stride = 3, .padding = 2}, true),
      conv_case("dilation2", {2, 7, 7, 2}, {3, 3, 3, 2}, {.padding = 2, .dilation = 2}, true),
      conv_case("groups2", {2, 5, 4, 4}, {6, 3, 3, 2}, {.padding = 1, .groups = 2}, true),
      conv_case("depthwise", {2, 5, 5, 4}, {4, 3, 3, 1}, {.padding = 1, .groups = 4}, false),
      conv_case("pointwise", {2, 4, 3, 5}, {7, 1, 1, 5}, {}, true),
      conv_case("3x1_many_chunks", {1, 523, 1, 3}, {4, 3, 1, 3}, {}, true),
      conv_case("pointwise_stride2", {2, 5, 6, 3}, {4, 1, 1, 3}, {.stride = 2}, false),
      conv_case("image_2x2", {2, 2, 2, 3}, {4, 3, 3, 3}, {.padding = 1}, true),
      conv_case("image_1x1", {3, 1, 1, 3}, {4, 3, 3, 3}, {.padding = 1}, true),
      conv_case("batch1", {1, 4, 4, 16}, {16, 3, 3, 16}, {.padding = 1}, false),
      conv_case("wide", {2, 8, 8, 32}, {32, 3, 3, 32}, {.padding = 1}, true),
      conv_case("kernel_3x1", {2, 5, 5, 3}, {4, 3, 1, 3}, {}, true),
      conv_case("1x3_stride_1x2", {2, 5, 8, 3}, {4, 1, 3, 3}, {.stride = {1, 2}, .padding = {0, 1}}, true),
      conv_case("3x1_stride_2x1", {2, 7, 4, 3}, {4, 3, 1, 3}, {.stride = {2, 1}, .padding = {1, 0}}, true),
      conv_case("padding_2x0", {2, 4, 6, 16}, {16, 3, 3, 16}, {.padding = {2, 0}}, false),
      conv_case("whole_image", {3, 2, 4, 5}, {6, 2, 4, 5}, {.stride = 2}, true),
      conv_case("relu", {2, 6, 5, 3}, {4, 3, 3, 3}, {.padding = 1}, true, relu),
      conv_case("no_bias_relu", {2, 6, 5, 8}, {8, 3, 3, 8}, {.padding = 1}, false, relu),
      conv_case("pointwise_relu", {2, 4, 3, 5}, {7, 1, 1, 5}, {}, true, relu),
      conv_case("gelu", {2, 6, 5, 3}, {4, 3, 3, 3}, {.padding = 1}, true, gelu),
      conv_case("no_bias_gelu", {2, 6, 5, 8}, {8, 3, 3, 8}, {.padding = 1}, false, gelu),
      conv_case("pointwise_gelu", {2, 4, 3, 5}, {7, 1, 1, 5}, {}, true, gelu),

      linear_case("plain", 5, 7, 3, true),
      linear_case("no_bias", 5, 7, 3, false),
      linear_case("batch1", 1, 9, 4, true),
      linear_case("wide", 33, 65, 70, true),
      linear_case("relu", 5, 7, 3, true, relu),
      linear_case("no_bias_relu", 5, 7, 3, false, relu),
      linear_case("gelu", 5, 7, 3, true, gelu),
      linear_case("wide_gelu", 33, 65, 70, true, gelu),
      linear_case("no_bias_gelu", 5, 7, 3, false, gelu),
      matmul_case("tall", 9, 4, 5),
      matmul_case("rank1", 6, 1, 8),

      batch_norm_case("train", {3, 3, 2, 5}, true, none, false),
      batch_norm_case("train_relu", {3, 3, 2, 5}, true, relu, false),
      batch_norm_case("train_relu_residual", {3, 3, 2, 5}, true, relu, true),
      batch_norm_case("train_residual", {3, 3, 2, 5}, true, none, true),
      batch_norm_case("eval", {3, 3, 2, 5}, false, none, false),
      batch_norm_case("eval_relu", {3, 3, 2, 5}, false, relu, false),
      batch_norm_case("eval_relu_residual", {3, 3, 2, 5}, false, relu, true),
      batch_norm_case("two_pixels", {2, 1, 1, 3}, true, none, false),
      batch_norm_case("matrix", {6, 4}, true, none, false),
      batch_norm_case("folded_16", {4, 8, 8, 16}, true, relu, true),
      batch_norm_case("odd_channels_many_chunks", {5, 11, 9, 67}, true, relu, false),
      batch_norm_case("half_block", {3, 5, 5, 96}, true, relu, true),
      batch_norm_case("half_block_relu", {3, 3, 3, 96}, true, relu, false),
      batch_norm_case("folded_16_open", {4, 8, 8, 16}, true, none, false),
      batch_norm_case("folded_16_residual", {4, 8, 8, 16}, true, none, true),
      batch_norm_case("folded_5", {4, 4, 4, 5}, true, none, false),
      batch_norm_case("folded_5_residual", {4, 4, 4, 5}, true, none, true),
      batch_norm_case("folded_5_relu", {4, 4, 4, 5}, true, relu, false),
      batch_norm_case("folded_5_relu_residual", {4, 4, 4, 5}, true, relu, true),
      batch_norm_case("odd_channels", {1, 3, 3, 67}, true, none, false),
      batch_norm_case("odd_channels_residual", {1, 3, 3, 67}, true, none, true),
      batch_norm_case("odd_channels_relu_residual", {1, 3, 3, 67}, true, relu, true),

      layer_norm_case("matrix", {4, 6}),
      layer_norm_case("tokens", {2, 5, 37}),
      layer_norm_case("wide", {3, 1024}),
      layer_norm_case("wide_odd", {2, 517}),
      layer_norm_case("one_row", {1, 5}),

      max_pool_case("2x2", {2, 4, 6, 3}, {}),
      max_pool_case("odd", {2, 5, 7, 3}, {}),
      max_pool_case("overlapping_padded", {2, 7, 6, 3}, {.kernel = 3, .stride = 2, .padding = 1}),
      max_pool_case("stride1", {1, 5, 5, 2}, {.kernel = 3, .stride = 1, .padding = 1}),
      max_pool_case("gaps", {1, 7, 7, 2}, {.kernel = 2, .stride = 3}),
      max_pool_case("whole_image", {2, 2, 2, 150}, {}),
      avg_pool_case("2x2", {2, 4, 6, 3}, {}),
      avg_pool_case("overlapping_padded", {2, 7, 6, 3}, {.kernel = 3, .stride = 2, .padding = 1}),
      avg_pool_case("gaps", {1, 7, 7, 2}, {.kernel = 2, .stride = 3}),
      adaptive_pool_case("not_dividing", {2, 7, 5, 3}, 3, 2),
      adaptive_pool_case("larger_than_image", {2, 2, 3, 3}, 5, 7),
      adaptive_pool_case("one", {2, 6, 5, 3}, 1, 1),
      global_pool_case("plain", {3, 4, 5, 70}),
      global_pool_case("image_1x1", {3, 1, 1, 4}),

      loss_case("plain", 5, 7, 0.0f),
      loss_case("smoothing", 5, 7, 0.1f),
      loss_case("batch1", 1, 3, 0.0f),
      loss_case("mixed", 5, 7, 0.0f, 0.3f),
      loss_case("mixed_smoothing", 6, 10, 0.1f, 0.75f),
      loss_case("many_classes", 3, 1030, 0.2f),
      loss_case("large_batch", 300, 3, 0.1f, 0.3f),

      relu_case("plain", {3, 17}),
      gelu_case("plain", {3, 17}),
      dropout_case("p0", {4, 33}, 0.0f),
      dropout_case("p50", {4, 33}, 0.5f),
      add_case("plain", {2, 3, 3, 5}),
      scale_case("ninth", {4, 3, 5}, 1.0 / 9),
      scale_case("wide", {6, 101}, -2.5),
      cast_case("to_float64", {3, 7}),
      reshape_case("reshape", {2, 6},
                   [](const Var& x) {
                     return reshape(x, Shape{3, -1});
                   }),
      reshape_case("flatten", {2, 3, 2, 2}, [](const Var& x) { return flatten(x); }),
  };
  return joined(joined(cases, transformer_op_cases()), residual_op_cases());
}

std::vector<OpCase> large_op_cases() {
  constexpr auto none = Activation::none, relu = Activation::relu, gelu = Activation::gelu;
  const std::vector<OpCase> cases{
      conv_case("vgg_64_at_32", {128, 32, 32, 64}, {64, 3, 3, 64}, {.padding = 1}, false),
      conv_case("vgg_256_at_8", {128, 8, 8, 256}, {256, 3, 3, 256}, {.padding = 1}, false),
      conv_case("vgg_512_at_2", {128, 2, 2, 512}, {512, 3, 3, 512}, {.padding = 1}, false),
      conv_case("resnet20_16_at_32", {128, 32, 32, 16}, {16, 3, 3, 16}, {.padding = 1}, false),
      conv_case("vgg_64_at_32_relu", {128, 32, 32, 64}, {64, 3, 3, 64}, {.padding = 1}, true, relu),
      linear_case("vit_mlp", 128 * 65, 384, 1536, true),
      linear_case("vit_mlp_gelu", 128 * 65, 384, 1536, true, gelu),
      linear_case("vgg_classifier_relu", 128, 4096, 4096, true, relu),
      matmul_case("rebuild_4608x512_r64", 4608, 64, 512),
      batch_norm_case("train_relu_64_at_32", {128, 32, 32, 64}, true, relu, false),
      batch_norm_case("train_relu_512_at_4", {128, 4, 4, 512}, true, relu, false),
      batch_norm_case("train_relu_residual_16_at_32", {128, 32, 32, 16}, true, relu, true),
      batch_norm_case("eval_64_at_32", {128, 32, 32, 64}, false, none, false),
      layer_norm_case("vit", {128, 65, 384}),
      max_pool_case("vgg_64_at_32", {128, 32, 32, 64}, {}),
      max_pool_case("resnet_stem", {16, 112, 112, 64}, {.kernel = 3, .stride = 2, .padding = 1}),
      avg_pool_case("2x2_64_at_32", {128, 32, 32, 64}, {}),
      adaptive_pool_case("512_at_7_to_3", {64, 7, 7, 512}, 3, 3),
      global_pool_case("512_at_7", {128, 7, 7, 512}),
      loss_case("cifar10", 128, 10, 0.0f),
      loss_case("imagenet_smoothing", 256, 1000, 0.1f),
      relu_case("64_at_32", {128, 32, 32, 64}),
      gelu_case("vit_mlp", {128, 65, 1536}),
      dropout_case("vit_mlp", {128, 65, 384}, 0.1f),
      add_case("64_at_32", {128, 32, 32, 64}),
  };
  return joined(joined(cases, large_transformer_op_cases()), large_residual_op_cases());
}

}  // namespace ab::cases
