// SPDX-License-Identifier: MIT
//
// Data-parallel training (engine/sync/dense.h), which has no settings of its own; and the same with gradients that travel in 8
// bits (engine/sync/int8_mean.h).
#include "engine/sync/dense.h"

#include "apps/methods/method.h"

namespace ab {
namespace {

struct Int8Options {
  int block = Int8Wire{}.block;
};

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world, const LrSchedule&) {
  return std::make_unique<DenseStrategy>(std::move(replica), world, gradient_wire(config));
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<Int8Options>(settings, "int8", "All-reduce in 8 bits (method int8)");
  s.number("block", &Int8Options::block, 1, 65536, "gradient elements that share a scale, a multiple of 8");
}

void check(const TrainConfig& config, Layer&, int) {
  AB_CHECK(config.of<Int8Options>().block % Int8Layout::kDraws == 0, "--int8.block is a multiple of {}, not {}",
           Int8Layout::kDraws, config.of<Int8Options>().block);
}

std::unique_ptr<SyncStrategy> average_in_8_bits(const TrainConfig& config, Replica replica, Comm& world,
                                                const LrSchedule&) {
  const GradientWire wire{.bucket_bytes = gradient_wire(config).bucket_bytes,
                          .int8 = Int8Wire{.block = config.of<Int8Options>().block, .seed = config.seed}};
  return std::make_unique<DenseStrategy>(std::move(replica), world, wire);
}

}  // namespace

Method dense_method() { return {.name = kBaseline, .average = average}; }

Method int8_method() {
  return {.name = "int8", .declare = declare, .check = check, .average = average_in_8_bits, .wire = "8 bits"};
}

}  // namespace ab
