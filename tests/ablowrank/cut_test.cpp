// SPDX-License-Identifier: MIT
//
// The cut of AB-training with both factors: what is observed, what a direction is worth to the loss, which ranks follow, and
// when. That runs with it plan, resume and keep their replicas equal is in strategy_laws_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ablowrank/cut.h"
#include "ablowrank/cut_schedule.h"
#include "ablowrank/factorise.h"
#include "ablowrank/loss_metric.h"
#include "ablowrank/loss_ranks.h"
#include "ablowrank/moments.h"
#include "engine/autograd/var.h"
#include "engine/comm/launcher.h"
#include "engine/device/device.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/elementwise.h"
#include "layers/conv2d.h"
#include "layers/linear.h"
#include "layers/models/models.h"
#include "tests/tensor_values.h"

namespace ab {
namespace {

constexpr std::int64_t kOut = 6, kIn = 5, kSamples = 7, kPlaces = 4;

/// A sum whose gradient is `weights`.
Var weighted(const Var& y, const Tensor& weights) {
  return record("weighted", Tensor::scalar(0, DType::float32).to(y.value().device()), {y},
                [weights](const Tensor&) { return Gradients{weights}; });
}

/// Outputs and gradients of one step, [kSamples, kPlaces, channels], of very different scales.
struct Step {
  Tensor y, g;
  explicit Step(std::uint64_t stream, std::int64_t channels = kOut)
      : y(normal_values({kSamples, kPlaces, channels}, stream)),
        g(normal_values({kSamples, kPlaces, channels}, stream + 100)) {
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      const auto c = static_cast<float>(i % channels);
      y.data<float>()[i] = y.data<float>()[i] * (1 + c) + c;
      g.data<float>()[i] *= 0.01f / (1 + c);
    }
  }
};

void show(OutputMoments& moments, const Step& step, Device device = {}) {
  const Var y = moments.observe(Var(step.y.to(device), true));
  backward(weighted(y, step.g.to(device)));
}

/// The same sums, in double, one after the other.
std::vector<double> sums_of(const std::vector<Step>& steps, std::int64_t channels = kOut) {
  const std::int64_t n = channels;
  std::vector<double> sums(static_cast<std::size_t>(OutputMoments::elements(n)));
  for (const Step& step : steps) {
    const std::vector<double> y = step.y.to_doubles(), g = step.g.to_doubles();
    const std::int64_t rows = kSamples * kPlaces;
    std::vector<double> mean(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < rows * n; ++i)
      mean[static_cast<std::size_t>(i % n)] += y[static_cast<std::size_t>(i)] / static_cast<double>(rows);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t a = 0; a < n; ++a) {
        const auto at = [&](const std::vector<double>& v, std::int64_t c) {
          return v[static_cast<std::size_t>(row * n + c)];
        };
        const auto of_mean = [&](std::int64_t c) { return mean[static_cast<std::size_t>(c)]; };
        sums[static_cast<std::size_t>(n * n + a)] += at(y, a);
        for (std::int64_t b = 0; b < n; ++b) {
          sums[static_cast<std::size_t>(a * n + b)] += (at(y, a) - of_mean(a)) * (at(y, b) - of_mean(b));
          sums[static_cast<std::size_t>(n * n + n + 2 + a * n + b)] += kSamples * kSamples * at(g, a) * at(g, b);
        }
      }
    sums[static_cast<std::size_t>(n * n + n)] += static_cast<double>(rows);
    sums[static_cast<std::size_t>(n * n + n + 1)] += kSamples;
    sums.back() += kSamples;
  }
  return sums;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
}

/// Matrices in double, plainly.
struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> values;
  Matrix(std::int64_t rows, std::int64_t columns)
      : rows(rows), columns(columns), values(static_cast<std::size_t>(rows * columns)) {}
  double& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  double at(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
};

std::vector<Device> devices() {
  std::vector<Device> all{Device{}};
  if (cuda_device_count() > 0) all.push_back({DeviceKind::cuda, 0});
  return all;
}

TEST(OutputMomentsTest, AreSumsOverStepsAboutTheMeanOfEach) {
  for (const Device device : devices()) {
    OutputMoments moments(kOut, device);
    const std::vector<Step> steps{Step(1), Step(2)};
    for (const Step& step : steps) show(moments, step, device);
    expect_near(moments.sums().to_doubles(), sums_of(steps), 1e-4);
  }
}

TEST(OutputMomentsTest, LeaveOutWhatIsNotFinite) {
  OutputMoments moments(kOut, {});
  Step bad_output(3), bad_gradient(4);
  bad_output.y.data<float>()[5] = kNaN;
  bad_gradient.g.data<float>()[5] = std::numeric_limits<float>::infinity();
  show(moments, bad_output);
  EXPECT_EQ(moments.positions().item(), 0);
  EXPECT_EQ(moments.gradient_weight().item(), kSamples) << "its gradients are as good as any";
  show(moments, bad_gradient);
  EXPECT_EQ(moments.positions().item(), kSamples * kPlaces);
  EXPECT_EQ(moments.gradient_weight().item(), kSamples);
  for (const double v : moments.sums().to_doubles()) EXPECT_TRUE(std::isfinite(v));
}

TEST(OutputMomentsTest, AWeightIsSeenBeforeItsActivationAndComputesTheSame) {
  Linear layer("layer", kIn, kOut, Build{});
  Inventory inventory;
  layer.list(inventory);
  Weight& weight = *inventory.weights[0];
  const Var x(normal_values({kSamples, kPlaces, kIn}, 9), true);
  const Tensor plain = layer.forward(x, Activation::relu).value(), before = layer.forward(x).value();
  OutputMoments moments(kOut, {});
  weight.set_observer(&moments);
  const Var y = layer.forward(x, Activation::relu);
  EXPECT_EQ(y.value().to_doubles(), plain.to_doubles());
  double mean = 0, seen = 0;
  for (const double v : before.to_doubles()) mean += v;
  for (const double v : moments.output_sum().to_doubles()) seen += v;
  EXPECT_NEAR(seen, mean, 1e-4);
  const NoGradScope evaluation;
  layer.forward(x);
  EXPECT_EQ(moments.positions().item(), kSamples * kPlaces) << "an evaluation is not observed";
}

/// A convolution of `kernel`×`kernel` that is observed for spatial factors, against what each row of its kernel makes of every
/// fourth row of images, one image behind the other, and the gradient of that.
void expect_seen_by_kernel_rows(std::int64_t kernel, const Conv2dOptions& options, Device device) {
  constexpr std::int64_t kBatch = 9, kHeight = 7, kWidth = 9, kApart = 4, kRows = 16;
  Conv2d conv("conv", kIn, kOut, kernel, options, true, Build{.device = device});
  Weight& weight = *inventory_of(conv).weights[0];
  Param& bias = *inventory_of(conv).params[1];
  fill(bias.value.value(), 0.5);
  const Tensor input = normal_values({kBatch, kHeight, kWidth, kIn}, 9);
  const Conv2dSpec spec = conv2d_spec(input.shape(), weight.shape(), options);
  const std::int64_t out_h = spec.out_height(), out_w = spec.out_width(), channels = kernel * kOut;
  const Tensor dy = normal_values({kBatch, out_h, out_w, kOut}, 10);
  struct Seen {
    std::vector<double> y, dx, dw, db;
    bool operator==(const Seen&) const = default;
  };
  const auto step = [&] {
    const Var x(input.to(device), true);
    weight.dense().value.clear_grad(), bias.value.clear_grad();
    const Var y = conv.forward(x);
    backward(weighted(y, dy.to(device)));
    return Seen{y.value().to_doubles(), x.grad().to_doubles(), weight.dense().value.grad().to_doubles(),
                bias.value.grad().to_doubles()};
  };
  const Seen plain = step();
  weight.set_conv_factors(ConvFactors::spatial);
  ASSERT_EQ(weight.rows(), channels);
  OutputMoments moments(weight.rows(), device);
  weight.set_observer(&moments);
  EXPECT_TRUE(step() == plain) << "observing changed the step";

  const std::int64_t places = kRows * out_w;
  Matrix z(places, channels), dz(places, channels);
  const Tensor weights = weight.dense().value.value().to(Device{});
  const float *w = weights.data<float>(), *in = input.data<float>();
  for (std::int64_t row = 0, place = 0; row < kBatch * kHeight; row += kApart)
    for (std::int64_t q = 0; q < out_w; ++q, ++place)
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t n = row / kHeight, h = row % kHeight, o = c / kernel, a = c % kernel;
        for (std::int64_t b = 0; b < kernel; ++b) {
          const std::int64_t v = q * options.stride.w + b * options.dilation - options.padding.w;
          if (v < 0 || v >= kWidth) continue;
          for (std::int64_t i = 0; i < kIn; ++i)
            z.at(place, c) += static_cast<double>(w[(c * kernel + b) * kIn + i]) * in[(row * kWidth + v) * kIn + i];
        }
        for (std::int64_t p = 0; p < out_h; ++p)
          if (p * options.stride.h + a * options.dilation - options.padding.h == h)
            dz.at(place, c) = dy.data<float>()[((n * out_h + p) * out_w + q) * kOut + o];
      }
  EXPECT_EQ(moments.positions().item(), places);
  const double samples = static_cast<double>(kRows) / kHeight;
  EXPECT_NEAR(moments.samples().item(), samples, 1e-6);
  EXPECT_NEAR(moments.gradient_weight().item(), samples, 1e-6);
  std::vector<double> sum(static_cast<std::size_t>(channels)), scatter, gradients;
  for (std::int64_t k = 0; k < places * channels; ++k)
    sum[static_cast<std::size_t>(k % channels)] += z.values[static_cast<std::size_t>(k)];
  for (std::int64_t k = 0; k < channels; ++k)
    for (std::int64_t l = 0; l < channels; ++l) {
      scatter.push_back(-sum[static_cast<std::size_t>(k)] * sum[static_cast<std::size_t>(l)] /
                        static_cast<double>(places));
      gradients.push_back(0);
      for (std::int64_t place = 0; place < places; ++place) {
        scatter.back() += z.at(place, k) * z.at(place, l);
        gradients.back() += kBatch * kBatch * dz.at(place, k) * dz.at(place, l);
      }
    }
  expect_near(moments.output_sum().to_doubles(), sum, 1e-4);
  expect_near(moments.outputs().to_doubles(), scatter, 1e-3);
  expect_near(moments.gradients().to_doubles(), gradients, 1e-3);
}

TEST(OutputMomentsTest, AConvolutionForSpatialFactorsIsSeenByRowsOfItsKernel) {
  for (const Device device : devices()) {
    expect_seen_by_kernel_rows(3, {.padding = 1}, device);
    expect_seen_by_kernel_rows(3, {.stride = 2, .padding = 1}, device);
    expect_seen_by_kernel_rows(5, {.padding = 1}, device);
    expect_seen_by_kernel_rows(3, {.stride = 2, .padding = 2, .dilation = 2}, device);
  }
}

/// Of images whose pixels are the number of their row: where a convolution is observed that passes each on.
OutputMoments moments_of_row_numbers(std::int64_t images, std::int64_t height) {
  constexpr std::int64_t kWidth = 3;
  Conv2d conv("conv", 1, 1, 3, {.padding = 1}, false, Build{});
  Weight& weight = *inventory_of(conv).weights[0];
  weight.set_conv_factors(ConvFactors::spatial);
  for (int i = 0; i < 9; ++i) weight.dense().value.value().data<float>()[i] = i % 3 == 1 ? 1 : 0;
  const Tensor x({images, height, kWidth, 1});
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i / kWidth % height);
  OutputMoments moments(3, {});
  weight.set_observer(&moments);
  conv.forward(Var(x, true));
  EXPECT_NEAR(positions_per_sample(moments), static_cast<double>(height * kWidth), 1e-4) << height;
  return moments;
}

TEST(OutputMomentsTest, AllRowsOfImagesGetTheirTurn) {
  for (const std::int64_t height : {1, 2, 4, 7, 10, 15, 60})
    for (const std::int64_t images : {1, 3, 6, 4 * 5 * 7}) {
      SCOPED_TRACE(fmt::format("{} images of {} rows", images, height));
      const OutputMoments moments = moments_of_row_numbers(images, height);
      const double positions = moments.positions().item(), all = static_cast<double>(images * height * 3);
      if (height < 4 || images < 8) EXPECT_EQ(positions, all);
      else EXPECT_TRUE(positions >= all / 7 && positions <= all / 4) << positions << " of " << all;
      for (const double sum : moments.output_sum().to_doubles())
        EXPECT_NEAR(sum / positions, static_cast<double>(height - 1) / 2, 1e-5);
    }
}

// --- What a direction is worth.

Matrix times(const Matrix& a, const Matrix& b, bool transpose_b = false) {
  Matrix c(a.rows, transpose_b ? b.rows : b.columns);
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = 0; j < c.columns; ++j)
      for (std::int64_t k = 0; k < a.columns; ++k) c.at(i, j) += a.at(i, k) * (transpose_b ? b.at(j, k) : b.at(k, j));
  return c;
}

Matrix matrix_of(const Tensor& t, double scale = 1) {
  Matrix m(t.dim(0), t.numel() / t.dim(0));
  m.values = t.to_doubles();
  for (double& v : m.values) v *= scale;
  return m;
}

/// ½ tr(G (I − P) C (I − P)ᵀ) with G as it is damped.
double expected_increase(const OutputMoments& moments, const Matrix& p) {
  Matrix g = matrix_of(moments.gradients(), 1 / moments.gradient_weight().item());
  const Matrix c = matrix_of(moments.outputs(), 1 / moments.positions().item());
  for (std::int64_t i = 0; i < g.rows; ++i) g.at(i, i) *= 1.01;
  Matrix q(p.rows, p.columns);
  for (std::int64_t i = 0; i < p.rows; ++i)
    for (std::int64_t j = 0; j < p.columns; ++j) q.at(i, j) = (i == j) - p.at(i, j);
  const Matrix lost = times(g, times(times(q, c), q, true));
  double trace = 0;
  for (std::int64_t i = 0; i < p.rows; ++i) trace += lost.at(i, i);
  return trace / 2;
}

Tensor cut_to(const LossMetric& metric, const Tensor& w, std::int64_t r) {
  const FactorPair parts = apply_gauge(metric.cut(w, r), Gauge::split_sigma, true);
  EXPECT_EQ(parts.inner.dim(0), r);
  return product(parts.outer, parts.inner);
}

Tensor identity(std::int64_t n) {
  const Tensor eye = Tensor::zeros({n, n}, DType::float32);
  for (std::int64_t i = 0; i < n; ++i) eye.data<float>()[i * n + i] = 1;
  return eye;
}

TEST(LossMetricTest, SaysHowMuchTheLossRisesAndNoOtherProjectionRaisesItLess) {
  OutputMoments moments(kOut, {});
  show(moments, Step(1));
  show(moments, Step(2));
  const LossMetric metric(moments);
  for (std::int64_t r = 0; r <= kOut; ++r) {
    const Matrix p = r == 0 ? Matrix(kOut, kOut) : matrix_of(cut_to(metric, identity(kOut), r));
    double left_out = 0;
    for (std::int64_t i = r; i < kOut; ++i) left_out += metric.increases()[static_cast<std::size_t>(i)];
    const double increase = expected_increase(moments, p);
    EXPECT_NEAR(increase, left_out, 1e-6 * metric.increases()[0]) << r;
    if (r == 0 || r == kOut) continue;
    // T P T⁻¹ for T = I + s N has rank r too; T⁻¹ to first order is near enough for a comparison.
    for (std::uint64_t trial = 0; trial < 20; ++trial) {
      const Matrix n = matrix_of(normal_values({kOut, kOut}, 50 + trial));
      Matrix t(kOut, kOut);
      for (std::int64_t i = 0; i < kOut; ++i)
        for (std::int64_t j = 0; j < kOut; ++j) t.at(i, j) = (i == j) + 0.05 * n.at(i, j);
      // The image is moved, the kernel stays: T P has rank r.
      EXPECT_GT(expected_increase(moments, times(t, p)), increase) << r;
    }
  }
}

TEST(LossMetricTest, DoesNotDependOnTheScaleOfRows) {
  const Tensor w = normal_values({kOut, kIn}, 20);
  OutputMoments moments(kOut, {}), rescaled(kOut, {});
  Step step(1), scaled(1);
  const Tensor scaled_w = w.clone();
  for (std::int64_t i = 0; i < step.y.numel(); ++i) {
    const float d = std::pow(10.0f, static_cast<float>(i % kOut) - 3);
    scaled.y.data<float>()[i] *= d;
    scaled.g.data<float>()[i] /= d;
  }
  for (std::int64_t i = 0; i < w.numel(); ++i)
    scaled_w.data<float>()[i] *= std::pow(10.0f, static_cast<float>(i / kIn) - 3);
  show(moments, step);
  show(rescaled, scaled);
  const LossMetric metric(moments), other(rescaled);
  for (std::size_t i = 0; i < kOut; ++i)
    EXPECT_NEAR(other.increases()[i], metric.increases()[i], 1e-4 * metric.increases()[0]) << i;
  const Tensor cut = cut_to(metric, w, 3), cut_of_scaled = cut_to(other, scaled_w, 3);
  for (std::int64_t i = 0; i < w.numel(); ++i) {
    const float d = std::pow(10.0f, static_cast<float>(i / kIn) - 3);
    EXPECT_NEAR(cut_of_scaled.data<float>()[i] / d, cut.data<float>()[i], 2e-3) << i;
  }
}

TEST(LossMetricTest, ABiasTakesTheMeanOver) {
  // y = W x + b at random x: after the cut the mean of P W x + b' is the same.
  const Tensor w = normal_values({kOut, kIn}, 30), b = normal_values({kOut}, 31);
  const Tensor x = normal_values({kSamples, kPlaces, kIn}, 32);
  for (float& v : x.span<float>()) v += 2;
  Step step(33);
  const auto output = [&](const Tensor& weight, const Tensor& bias, std::int64_t row, std::int64_t c) {
    double y = bias.data<float>()[c];
    for (std::int64_t k = 0; k < kIn; ++k) y += weight.data<float>()[c * kIn + k] * x.data<float>()[row * kIn + k];
    return y;
  };
  for (std::int64_t i = 0; i < step.y.numel(); ++i)
    step.y.data<float>()[i] = static_cast<float>(output(w, b, i / kOut, i % kOut));
  OutputMoments moments(kOut, {});
  show(moments, step);
  const LossMetric metric(moments);
  const Tensor cut = cut_to(metric, w, 2), new_bias = add(b, metric.bias_change(b, 2));
  for (std::int64_t c = 0; c < kOut; ++c) {
    double before = 0, after = 0, uncorrected = 0;
    for (std::int64_t row = 0; row < kSamples * kPlaces; ++row) {
      before += output(w, b, row, c), after += output(cut, new_bias, row, c), uncorrected += output(cut, b, row, c);
    }
    EXPECT_NEAR(after, before, 1e-3) << c;
    EXPECT_GT(std::abs(uncorrected - before), 0.1) << c;
  }
}

TEST(LossMetricTest, ABiasOfSumsTakesOverWhatAllOfTheirPartsLose) {
  OutputMoments moments(kOut, {});
  show(moments, Step(33));
  const LossMetric metric(moments);
  const std::vector<double> parts = metric.bias_change(Tensor::zeros({kOut}, DType::float32), 2).to_doubles();
  const std::vector<double> sums = metric.bias_change(normal_values({kOut / 2}, 34), 2).to_doubles();
  ASSERT_EQ(sums.size(), parts.size() / 2);
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], parts[2 * i] + parts[2 * i + 1], 1e-5);
}

TEST(LossMetricTest, IsTheSameWhateverMultipliedTheLossInWhichStep) {
  OutputMoments moments(kOut, {}), scaled(kOut, {}), of_other_rank(kOut, {});
  show(moments, Step(1));
  show(moments, Step(1));
  // A share of micro-batches in one, a loss scale in the other, as two ranks might have them.
  const auto show_scaled = [](OutputMoments& seen, double scale) {
    const Step step(1);
    const Var y = seen.observe(Var(step.y, true));
    const Tensor g = step.g;
    backward(record("weighted", Tensor::scalar(0, DType::float32), {y},
                    [g](const Tensor& dloss) {
                      const Tensor dy = g.clone();
                      scale_in_place(dy, dloss.item());
                      return Gradients{dy};
                    }),
             scale);
  };
  show_scaled(scaled, 0.25);
  show_scaled(of_other_rank, 1024);
  add_in_place(scaled.sums(), of_other_rank.sums());
  const LossMetric metric(moments), of_scaled(scaled);
  for (std::size_t i = 0; i < kOut; ++i)
    EXPECT_NEAR(of_scaled.increases()[i], metric.increases()[i], 1e-5 * metric.increases()[0]);
  EXPECT_EQ(positions_per_sample(scaled), kPlaces);
}

// --- Ranks.

/// What ranks cost, as the header says it.
double cost(const std::vector<CutWeight>& weights, const std::vector<std::int64_t>& ranks) {
  double elements = 0, operations = 0, dense_elements = 0, dense_operations = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const CutWeight& w = weights[i];
    const auto dense = static_cast<double>(w.rows * w.columns);
    const double own = ranks[i] == w.n() ? dense : static_cast<double>(ranks[i] * (w.rows + w.columns));
    elements += own, operations += own * w.positions;
    dense_elements += dense, dense_operations += dense * w.positions;
  }
  return 0.5 * elements / dense_elements + 0.5 * operations / dense_operations;
}

double lost(const std::vector<CutWeight>& weights, const std::vector<std::int64_t>& ranks) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::span<const double> increases = weights[i].increases;
    sum += std::accumulate(increases.begin() + ranks[i], increases.end(), 0.0) /
           std::accumulate(increases.begin(), increases.end(), 0.0);
  }
  return sum;
}

/// One whose directions lose their worth fast, one whose do slowly and that is applied often, one whose are all alike.
struct ThreeWeights {
  ThreeWeights() {
    for (int i = 0; i < 40; ++i) steep.push_back(std::pow(0.8, i)), often.push_back(5 * std::pow(0.9, i));
    for (int i = 0; i < 24; ++i) alike.push_back(0.3);
    weights = {{40, 90, 1, steep}, {40, 120, 16, often}, {24, 60, 4, alike}};
  }
  /// Of all ranks from `least` on.
  template <typename Visit> void for_all_ranks(std::int64_t least, const Visit& visit) const {
    for (std::int64_t i = least; i <= 40; ++i)
      for (std::int64_t j = least; j <= 40; ++j)
        for (std::int64_t k = least; k <= 24; ++k) visit(std::vector<std::int64_t>{i, j, k});
  }
  std::vector<double> steep, often, alike;
  std::vector<CutWeight> weights;
};

TEST(LossRanks, ABudgetIsSpentWhereTheLossDependsOnIt) {
  const ThreeWeights three;
  for (const double budget : {0.9, 0.6, 0.45, 0.3}) {
    SCOPED_TRACE(budget);
    const std::vector<std::int64_t> ranks = ranks_by_budget(three.weights, budget, {});
    EXPECT_LE(cost(three.weights, ranks), budget);
    double best = std::numeric_limits<double>::infinity();
    three.for_all_ranks(1, [&](const std::vector<std::int64_t>& other) {
      if (cost(three.weights, other) <= cost(three.weights, ranks)) best = std::min(best, lost(three.weights, other));
    });
    EXPECT_NEAR(lost(three.weights, ranks), best, 1e-9) << "at what it spends, nothing is better";
  }
  EXPECT_EQ(ranks_by_budget(three.weights, 1, {}), (std::vector<std::int64_t>{40, 40, 24}));
  EXPECT_EQ(ranks_by_budget(three.weights, 1e-6, {}), (std::vector<std::int64_t>{1, 1, 1}));
}

TEST(LossRanks, AShareOfWhatAllAreWorthIsHeldWhereThatIsCheapest) {
  const ThreeWeights three;
  for (const double share : {0.99, 0.95, 0.9, 0.8}) {
    SCOPED_TRACE(share);
    const std::vector<std::int64_t> ranks = ranks_by_share(three.weights, share, {});
    EXPECT_LE(lost(three.weights, ranks), (1 - share) * 3);
    double least = std::numeric_limits<double>::infinity();
    three.for_all_ranks(8, [&](const std::vector<std::int64_t>& other) {
      if (lost(three.weights, other) <= lost(three.weights, ranks)) least = std::min(least, cost(three.weights, other));
    });
    EXPECT_NEAR(cost(three.weights, ranks), least, 1e-9) << "of what it loses, nothing is cheaper";
  }
  EXPECT_EQ(ranks_by_share(three.weights, 1, {}), (std::vector<std::int64_t>{40, 40, 24}));
  EXPECT_EQ(ranks_by_share(three.weights, 1e-6, {}), (std::vector<std::int64_t>{8, 8, 8})) << "never less";
  EXPECT_EQ(ranks_by_share(three.weights, 1e-6, {.multiple = 5}), (std::vector<std::int64_t>{10, 10, 10}));
}

TEST(LossRanks, InWhatUnitAWeightsLossesAreDoesNotMatter) {
  ThreeWeights others;
  for (double& increase : others.steep) increase *= 1e-60;
  for (double& increase : others.often) increase *= 1e30;
  EXPECT_EQ(ranks_by_share(others.weights, 0.9, {}), ranks_by_share(ThreeWeights().weights, 0.9, {}));
  EXPECT_EQ(ranks_by_budget(others.weights, 0.45, {}), ranks_by_budget(ThreeWeights().weights, 0.45, {}));
}

TEST(LossRanks, WhereNothingIsWorthAnythingTheLeastIsKept) {
  const std::vector<double> nothing(40, 0.0);
  const std::vector<CutWeight> weights{{40, 90, 1, nothing}};
  EXPECT_EQ(ranks_by_share(weights, 0.99, {}), std::vector<std::int64_t>{8});
  EXPECT_EQ(ranks_by_budget(weights, 0.5, {}), std::vector<std::int64_t>{1});
}

TEST(LossRanks, AWeightThatIsTallHasAsManyDirectionsAsInputs) {
  std::vector<double> increases(90, 0.0);
  for (std::size_t i = 0; i < 40; ++i) increases[i] = 40 - static_cast<double>(i);
  const std::vector<CutWeight> weights{{90, 40, 1, increases}};
  EXPECT_EQ(ranks_by_share(weights, 1, {}), std::vector<std::int64_t>{40}) << "27 are as large as it";
  EXPECT_EQ(ranks_by_budget(weights, 0.5, {}), std::vector<std::int64_t>{13}) << "1,690 of 3,600";
}

TEST(LossRanks, FactorsOfAnEarlierCutGrowNoMore) {
  // What rounding leaves behind the tenth direction is none of the weight's.
  std::vector<double> ten(64, 1e-3);
  std::fill_n(ten.begin(), 10, 1.0);
  const std::vector<double> flat(64, 1.0);
  const std::vector<CutWeight> weights{{64, 64, 1, ten, 10}, {64, 640, 1, flat}};
  EXPECT_EQ(ranks_by_share(weights, 1, {}), (std::vector<std::int64_t>{10, 64}));
  EXPECT_EQ(ranks_by_share(weights, 1, {.multiple = 8}), (std::vector<std::int64_t>{10, 64}));
  EXPECT_EQ(ranks_by_budget(weights, 0.045, {}), (std::vector<std::int64_t>{10, 1})) << "the first are cheap";
}

TEST(LossRanks, OfALargeWeightAShareKeepsASixteenthAndABudgetNothingItWasNotGiven) {
  std::vector<double> one(320, 0.0);
  one[0] = 1;
  const std::vector<CutWeight> large{{320, 4000, 1, one}};
  EXPECT_EQ(ranks_by_share(large, 0.9, {}), std::vector<std::int64_t>{20});
  EXPECT_EQ(ranks_by_budget(large, 0.04, {}), std::vector<std::int64_t>{1});
}

// --- When, and all of it together.

TEST(CutScheduleTest, CutsAtSharesOfTheRunButNeverRightBeforeAValidation) {
  const auto observed_of = [](const CutSchedule& schedule) {
    std::vector<std::int64_t> observed;
    for (std::int64_t step = 0; step < 100; ++step)
      if (schedule.observes_at(step)) observed.push_back(step);
    return observed;
  };
  const CutSchedule schedule({.at = {0.25, 0.5}, .gather_steps = 3}, 100, 50);
  EXPECT_EQ(schedule.cuts(), (std::vector<std::int64_t>{25, 51}));
  EXPECT_EQ(schedule.cuts_until(24), 0u);
  EXPECT_EQ(schedule.cuts_until(25), 1u);
  EXPECT_EQ(schedule.cuts_until(51), 2u);
  EXPECT_EQ(observed_of(schedule), (std::vector<std::int64_t>{22, 23, 24, 48, 49, 50}));
  const CutSchedule close({.at = {0.02, 0.04}, .gather_steps = 3}, 100, 50);
  EXPECT_EQ(observed_of(close), (std::vector<std::int64_t>{0, 1, 2, 3})) << "all that there are";
  EXPECT_EQ(CutSchedule({.at = {0.7}}, 4, 3).cuts(), (std::vector<std::int64_t>{2})) << "3 is validated, 4 the end";
  EXPECT_EQ(CutSchedule({.at = {0.999}}, 100, 1000).cuts(), (std::vector<std::int64_t>{99}));
  EXPECT_THROW(CutSchedule({.at = {0.7}}, 1, 1), Error);
  EXPECT_EQ(CutSchedule({.at = {0.7}}, 2, 1).cuts(), (std::vector<std::int64_t>{1})) << "all steps are validated";
  EXPECT_EQ(CutSchedule({.at = {0.3, 0.6}}, 3, 1).cuts(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(CutSchedule({.at = {0.001}}, 100, 50).cuts(), (std::vector<std::int64_t>{1}));
  EXPECT_THROW(CutSchedule({.at = {0.5, 0.501}}, 100, 50), Error);
  EXPECT_EQ(CutSchedule({.at = {0.999}}, 100, 50).cuts(), (std::vector<std::int64_t>{99}));
}

TEST(CutTest, AllRanksCutAlikeByWhatAllHaveSeen) {
  LateCutOptions options;
  options.keep = {0.9999};
  std::vector<std::vector<double>> factors(3);
  run_thread_ranks(3, {}, [&](Comm& world) {
    // Two weights 20 × 40 whose outputs lie in twelve directions, of which every rank sees four.
    Linear first("first", 40, 20, Build{}), second("second", 40, 20, Build{});
    Inventory inventory;
    first.list(inventory);
    second.list(inventory);
    CutObservers observers(inventory.weights);
    const Tensor directions = normal_values({12, 20}, 70);
    for (Weight* weight : inventory.weights) {
      const Tensor y = Tensor::zeros(Shape{kSamples, kPlaces, 20}, DType::float32);
      const Tensor along = normal_values({kSamples * kPlaces, 4}, 72);
      for (std::int64_t i = 0; i < y.numel(); ++i)
        for (std::int64_t k = 0; k < 4; ++k)
          y.data<float>()[i] +=
              along.data<float>()[i / 20 * 4 + k] * directions.data<float>()[(4 * world.rank() + k) * 20 + i % 20];
      backward(weighted(weight->observe(Var(y, true)), normal_values({kSamples, kPlaces, 20}, 71)));
    }
    const std::vector<Param*> biases{inventory.params[1], nullptr};
    const std::vector<CutResult> results = cut_all(inventory.weights, {0, 0}, biases, observers, options, 0, world);
    // Of factors that an earlier cut left, no more.
    const std::vector<CutResult> later = cut_all(inventory.weights, {0, 9}, biases, observers, options, 0, world);
    EXPECT_EQ(later[0].parts.r(), 12);
    EXPECT_EQ(later[1].parts.r(), 9);
    std::vector<double>& own = factors[static_cast<std::size_t>(world.rank())];
    for (const CutResult& result : results) {
      ASSERT_EQ(result.parts.r(), 12);
      EXPECT_NEAR(result.sensitivity.kept, 1, 1e-6);
      EXPECT_NEAR(result.sensitivity.by_loss.at(10), 1, 1e-6) << "12 of 20 directions hold all";
      EXPECT_LT(result.sensitivity.by_sigma.at(10), 0.95) << "but not of the weight itself";
      for (const Tensor& t : {result.parts.outer, result.parts.sigma, result.parts.inner, result.bias_change})
        for (const double v : t.to_doubles()) own.push_back(v);
    }
  });
  EXPECT_FALSE(factors[0].empty());
  EXPECT_EQ(factors[1], factors[0]);
  EXPECT_EQ(factors[2], factors[0]);
}

TEST(CutTest, NothingFiniteToGoByIsAnError) {
  LateCutOptions options;
  run_thread_ranks(2, {}, [&](Comm& world) {
    Linear layer("layer", 40, 20, Build{});
    Inventory inventory;
    layer.list(inventory);
    const CutObservers observers(inventory.weights);
    EXPECT_THROW(cut_all(inventory.weights, {0}, {nullptr}, observers, options, 0, world), Error);
  });
}

TEST(CutTest, MomentumFollowsAlsoToTheFactorsOfALaterCut) {
  for (const Shape& shape : {Shape{12, 7}, Shape{7, 12}}) {
    Weight weight("weight", normal_values(shape, 80), ParamRole::weight);
    const auto optimizer = make_sgd({&weight.dense()}, {});
    const Tensor momentum = normal_values(shape, 81);
    const auto cut_to = [&](std::int64_t r) {
      const RankPolicy policy{.ratio = static_cast<double>(r) / 7};
      const LowRank parts = decompose(weight.matrix(), &policy);
      FactorPair pair = apply_gauge(parts, Gauge::split_sigma, true);
      weight.factorise(std::move(pair.outer), std::move(pair.inner), Weight::Mode::train_both);
    };
    optimizer->state(weight.dense()) = {momentum, {}, 5};
    cut_to(6);
    project_moments(weight, *optimizer);
    const EarlierFactors earlier = take_factors(weight, *optimizer);
    weight.restore(product(weight.outer_matrix(), weight.inner_matrix()));
    cut_to(3);
    project_moments(earlier, weight, *optimizer);
    const ParamState of_outer = optimizer->state(weight.outer()), of_inner = optimizer->state(weight.inner());
    EXPECT_LT(relative_error(of_outer.first_moment, product(momentum, weight.inner_matrix(), false, true)), 1e-5);
    EXPECT_LT(relative_error(of_inner.first_moment, product(weight.outer_matrix(), momentum, true, false)), 1e-5);
    EXPECT_EQ(of_outer.updates, 5);
    EXPECT_EQ(of_inner.updates, 5);
  }
}

// UΣ and V of a later cut are √Σ times, and 1/√Σ times, the factors of an earlier one that shared Σ.
TEST(CutTest, SecondMomentsFollowByTheSquares) {
  Weight weight("weight", normal_values({12, 7}, 82), ParamRole::weight);
  const auto optimizer = make_adamw({&weight.dense()}, {});
  const auto cut = [&](Gauge gauge) {
    FactorPair pair = apply_gauge(decompose(weight.matrix(), nullptr), gauge, true);
    weight.factorise(std::move(pair.outer), std::move(pair.inner), Weight::Mode::train_both);
  };
  cut(Gauge::split_sigma);
  const Tensor v_outer = normal_values({12, 7}, 83), v_inner = normal_values({7, 7}, 84);
  optimizer->state(weight.outer()) = {v_outer, v_outer, 1};
  optimizer->state(weight.inner()) = {v_inner, v_inner, 1};
  const EarlierFactors earlier = take_factors(weight, *optimizer);
  weight.restore(product(weight.outer_matrix(), weight.inner_matrix()));
  cut(Gauge::orthonormal);
  project_moments(earlier, weight, *optimizer);

  const std::vector<double> u_sigma = weight.outer_matrix().to_doubles();
  const std::vector<double> of_outer = optimizer->state(weight.outer()).second_moment.to_doubles(),
                            of_inner = optimizer->state(weight.inner()).second_moment.to_doubles();
  for (std::size_t j = 0; j < 7; ++j) {
    double squares = 0;
    for (std::size_t o = 0; o < 12; ++o) squares += u_sigma[o * 7 + j] * u_sigma[o * 7 + j];
    const double sigma = std::sqrt(squares);
    for (std::size_t o = 0; o < 12; ++o)
      EXPECT_NEAR(of_outer[o * 7 + j], v_outer.to_doubles()[o * 7 + j] / sigma, 1e-4) << o << ", " << j;
    for (std::size_t k = 0; k < 7; ++k)
      EXPECT_NEAR(of_inner[j * 7 + k], v_inner.to_doubles()[j * 7 + k] * sigma, 1e-3) << j << ", " << k;
  }
}

TEST(CutTest, EveryWeightFindsItsBias) {
  const std::unique_ptr<Layer> model = make_model({.name = "vit_ti_16", .classes = 10, .image_size = 32});
  const std::vector<Weight*> weights = eligible_weights(*model);
  ASSERT_FALSE(weights.empty());
  for (const Param* bias : biases_of(weights, *model)) EXPECT_NE(bias, nullptr);
}

}  // namespace
}  // namespace ab
