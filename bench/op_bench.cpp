// SPDX-License-Identifier: MIT
//
// Times the operations of tests/engine/op_cases.h at shapes of real training, in float32: forward alone, and forward
// with backward. items/s counts multiply-adds for matrix products and convolutions, elements otherwise.
//   op_bench --benchmark_filter='batch_norm.*'
#include <benchmark/benchmark.h>

#include "engine/backend/backend.h"
#include "engine/device/device.h"
#include "tests/engine/op_cases.h"

namespace ab {
namespace {

using cases::OpCase;

Device bench_device() {
  const Device gpu{DeviceKind::cuda, 0};
  try {
    backend(gpu);
    return gpu;
  } catch (const Error&) {
    return {};
  }
}

std::vector<Var> make_inputs(const OpCase& c, Device device) {
  std::vector<Var> inputs;
  for (std::size_t k = 0; k < c.inputs.size(); ++k)
    inputs.emplace_back(cases::input_values(c.inputs[k], DType::float32, k).to(device), true);
  return inputs;
}

void time_forward(benchmark::State& state, const OpCase& c, Device device) {
  const std::vector<Var> inputs = make_inputs(c, device);
  const NoGradScope no_grad;
  for (auto _ : state) {
    benchmark::DoNotOptimize(c.apply(inputs).value().raw());
    synchronize(device);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(c.work * static_cast<double>(state.iterations())));
}

void time_step(benchmark::State& state, const OpCase& c, Device device) {
  std::vector<Var> inputs = make_inputs(c, device);
  const Tensor dy = cases::input_values(c.apply(inputs).shape(), DType::float32, 99).to(device);
  for (auto _ : state) {
    for (Var& input : inputs) input.clear_grad();
    const Var y = c.apply(inputs);
    backward(record("probe", Tensor::zeros(Shape{1}, DType::float32, device), {y},
                    [&dy](const Tensor&) { return Gradients{dy}; }));
    synchronize(device);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(c.work * static_cast<double>(state.iterations())));
}

}  // namespace
}  // namespace ab

int main(int argc, char** argv) {
  const ab::Device device = ab::bench_device();
  for (const ab::cases::OpCase& c : ab::cases::large_op_cases()) {
    benchmark::RegisterBenchmark(("forward/" + c.name).c_str(), ab::time_forward, c, device)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
    benchmark::RegisterBenchmark(("step/" + c.name).c_str(), ab::time_step, c, device)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
