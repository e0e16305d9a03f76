// SPDX-License-Identifier: MIT
//
// Every convolution algorithm of the CPU backend on the shapes that models here are made of: what the rules
// in engine/backend/cpu/conv.cpp are read from. The chosen algorithm carries a star.
//   OMP_NUM_THREADS=2 conv_bench --benchmark_filter=vgg16
// On a machine with other work, the minimum over repetitions of the CPU column divided by the threads is the
// figure to trust (OMP_WAIT_POLICY=passive keeps waiting out of it):
//   OMP_WAIT_POLICY=passive conv_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "engine/backend/cpu/conv.h"
#include "engine/core/random.h"
#include "engine/kernels/elementwise.h"
#include "tests/conv_algorithms.h"

namespace {

using namespace ab;
using cpu::ConvAlgorithm;

struct Case {
  const char* model;
  Conv2dSpec spec;
};

/// A square convolution that keeps the size (or halves it with stride 2).
Case square(const char* model, std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out,
            std::int64_t kernel, std::int64_t stride = 1) {
  return {model, {batch, size, size, in, out, kernel, kernel, stride, kernel / 2, 1, 1}};
}

/// The two convolutions of spatial factors.
void add_spatial(const char* model, std::int64_t batch, std::int64_t size, std::int64_t channels, std::int64_t r,
                 std::vector<Case>& list) {
  list.push_back({model, {batch, size, size, channels, r, 1, 3, 1, {0, 1}, 1, 1}});
  list.push_back({model, {batch, size, size, r, channels, 3, 1, 1, {1, 0}, 1, 1}});
}

std::vector<Case> cases() {
  std::vector<Case> list = {
      square("vgg16", 128, 32, 3, 64, 3),         square("vgg16", 128, 32, 64, 64, 3),
      square("vgg16", 128, 16, 64, 128, 3),       square("vgg16", 128, 16, 128, 128, 3),
      square("vgg16", 128, 8, 128, 256, 3),       square("vgg16", 128, 8, 256, 256, 3),
      square("vgg16", 128, 4, 256, 512, 3),       square("vgg16", 128, 4, 512, 512, 3),
      square("vgg16", 128, 2, 512, 512, 3),       square("resnet50", 32, 224, 3, 64, 7, 2),
      square("resnet50", 32, 56, 64, 64, 3),      square("resnet50", 32, 56, 64, 64, 1),
      square("resnet50", 32, 56, 64, 256, 1),     square("resnet50", 32, 56, 256, 64, 1),
      square("resnet50", 32, 56, 128, 128, 3, 2), square("resnet50", 32, 56, 256, 512, 1, 2),
      square("resnet50", 32, 28, 128, 128, 3),    square("resnet50", 32, 28, 512, 128, 1),
      square("resnet50", 32, 14, 256, 256, 3),    square("resnet50", 32, 7, 512, 512, 3),
      square("resnet50", 32, 7, 512, 2048, 1),
  };
  for (const std::int64_t batch : {32, 128})
    for (const Case& c : {square("resnet20", batch, 32, 3, 16, 3), square("resnet20", batch, 32, 16, 16, 3),
                          square("resnet20", batch, 32, 16, 32, 3, 2), square("resnet20", batch, 16, 32, 32, 3),
                          square("resnet20", batch, 16, 32, 64, 3, 2), square("resnet20", batch, 8, 64, 64, 3),
                          square("resnet20", batch, 32, 16, 32, 1, 2), square("resnet20", batch, 16, 32, 64, 1, 2)})
      list.push_back(c);
  for (const std::int64_t r : {32, 64, 128, 256}) {
    list.push_back(square("factored_vgg16", 128, 4, 512, r, 3));
    list.push_back(square("factored_vgg16", 128, 4, r, 512, 1));
  }
  for (const Case& c : {square("factored_resnet20", 32, 32, 16, 8, 3), square("factored_resnet20", 32, 32, 8, 16, 1),
                        square("factored_resnet20", 32, 16, 32, 16, 3), square("factored_resnet20", 32, 16, 16, 32, 1),
                        square("factored_resnet20", 32, 8, 64, 16, 3), square("factored_resnet20", 32, 8, 16, 64, 1),
                        square("factored_resnet20", 32, 8, 64, 32, 3), square("factored_resnet20", 32, 8, 32, 64, 1)})
    list.push_back(c);
  for (const auto& [size, channels] : {std::pair{32, 32}, {16, 64}, {8, 128}, {4, 256}, {2, 256}})
    for (const std::int64_t r : {channels / 4, channels / 2 + 3})
      add_spatial("spatial_vgg16", 32, size, channels, r, list);
  for (const auto& [size, channels] : {std::pair{32, 16}, {16, 32}, {8, 64}})
    for (const std::int64_t r : {channels / 2, channels / 2 + 3})
      add_spatial("spatial_resnet20", 32, size, channels, r, list);
  return list;
}

Tensor uniform_values(const Shape& shape, DType type, std::uint64_t stream) {
  const Tensor t(shape);
  const Philox random{1, stream};
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = 2.0f * random.uniform(static_cast<std::uint64_t>(i)) - 1.0f;
  return cast(t, type);
}

void run(benchmark::State& state, const Conv2dSpec& s, DType type, ConvDirection direction, ConvAlgorithm algorithm) {
  const DType of_weights = direction == ConvDirection::backward_weight ? DType::float32 : type;
  const Tensor x = uniform_values({s.batch, s.height, s.width, s.in_channels}, type, 1);
  const Tensor w = uniform_values({s.out_channels, s.kernel_h, s.kernel_w, s.in_channels / s.groups}, of_weights, 2);
  const Tensor y = uniform_values({s.batch, s.out_height(), s.out_width(), s.out_channels}, type, 3);
  const cpu::ConvTensors tensors{x, w, {}, y};
  if (!cpu::run_conv(algorithm, s, direction, tensors)) return state.SkipWithError("does not apply");
  for (auto _ : state) cpu::run_conv(algorithm, s, direction, tensors);
  const double flops = 2.0 * static_cast<double>(y.numel()) * static_cast<double>(w.numel() / s.out_channels);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

std::vector<std::pair<ConvAlgorithm, DType>> candidates() {
  std::vector<std::pair<ConvAlgorithm, DType>> list;
  for (const DType type : {DType::float32, DType::bfloat16})
    for (const auto& [name, algorithm] : cpu::kConvAlgorithms) list.emplace_back(algorithm, type);
  return list;
}

/// Image matrices of anything but the smallest images would not fit into memory.
bool worth_measuring(ConvAlgorithm algorithm, const Conv2dSpec& s) {
  switch (algorithm) {
    case ConvAlgorithm::pointwise: return s.is_pointwise();
    case ConvAlgorithm::image_matrix: return s.height * s.width <= 16;
    case ConvAlgorithm::winograd: return s.kernel_h == 3 && s.kernel_w == 3 && s.stride == 1;
    default: return true;
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::pair<ConvDirection, const char*> kDirections[] = {{ConvDirection::forward, "forward"},
                                                                   {ConvDirection::backward_data, "backward_data"},
                                                                   {ConvDirection::backward_weight, "backward_weight"}};
  for (const auto& [model, s] : cases())
    for (const auto& [direction, direction_name] : kDirections)
      for (const auto& [algorithm, type] : candidates()) {
        if (!worth_measuring(algorithm, s)) continue;
        const bool chosen = cpu::select_conv(s, direction, type) == algorithm;
        const std::string name =
            fmt::format("{}/batch{}/{}->{}@{}/k{}/s{}/{}/{}/{}{}", model, s.batch, s.in_channels, s.out_channels,
                        s.height, PerAxis(s.kernel_h, s.kernel_w).str(), s.stride.str(), direction_name, name_of(type),
                        name_of(algorithm), chosen ? "*" : "");
        benchmark::RegisterBenchmark(
            name.c_str(),
            [s, direction, algorithm, type](benchmark::State& state) { run(state, s, type, direction, algorithm); })
            ->Unit(benchmark::kMillisecond)
            ->MeasureProcessCPUTime()
            ->UseRealTime()
            ->ComputeStatistics("min", [](const std::vector<double>& v) { return *std::ranges::min_element(v); });
      }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
