// SPDX-License-Identifier: MIT
//
// Gradients that travel as two factors: PowerSGD (arXiv 1905.13727; engine/sync/powersgd.h) and ACP-SGD (arXiv 2306.08881;
// engine/sync/acpsgd.h).
#include <cmath>

#include "apps/methods/method.h"
#include "engine/sync/acpsgd.h"
#include "engine/sync/powersgd.h"

namespace ab {
namespace {

template <class Options>
Section<Options> declare_rank(std::vector<Setting>& settings, const char* name, const char* title) {
  auto s = method_section<Options>(settings, name, title);
  s.number("rank", &Options::rank, 0, 65536,
           "r: columns of both factors of a gradient; below 1: this share of its smaller side")
      .above_low = true;
  return s;
}

void declare_powersgd(std::vector<Setting>& settings) {
  const auto s = declare_rank<PowerSgdOptions>(settings, PowerSgdStrategy::kName, "PowerSGD (method powersgd)");
  s.number("min_rate", &PowerSgdOptions::min_rate, 0, 1e9,
           "gradients whose factors are not so many times smaller are exchanged in full");
}

void declare_acpsgd(std::vector<Setting>& settings) {
  const auto s = declare_rank<AcpSgdOptions>(settings, AcpSgdStrategy::kName, "ACP-SGD (method acpsgd)");
  s.number("min_rate", &AcpSgdOptions::min_rate, 0, 1e9,
           "gradients whose factors are not so many times smaller than themselves, mean over both turns, are exchanged "
           "in full");
  s.number("bucket_mb", &AcpSgdOptions::bucket_mb, 0.001, 65536,
           "MiB of gradients whose factors travel in one bucket; more suits slow networks, less overlaps more");
}

template <class Strategy, class Options> void check_rank(const TrainConfig& config, Layer&, int) {
  const double rank = config.of<Options>().rank;
  AB_CHECK(rank < 1 || rank == std::floor(rank), "--{}.rank {} is neither a whole number nor a share below 1",
           Strategy::kName, rank);
}

/// From the first step on, whatever is a matrix.
void paper(TrainConfig& config) {
  config.of<PowerSgdOptions>() = {{.rank = 2, .min_rate = 0}};
  config.dense_steps = 0;
}

void torch_hook(TrainConfig& config) {
  config.of<PowerSgdOptions>() = {{.rank = 1}};
  config.dense_steps = 1000;
}

/// From the first step on, whatever can be factorised.
void release(TrainConfig& config) {
  AcpSgdOptions& options = config.of<AcpSgdOptions>() = {};
  options.min_rate = 0;
  config.dense_steps = 0;
}

}  // namespace

Method powersgd_method() {
  return {.name = PowerSgdStrategy::kName,
          .declare = declare_powersgd,
          .presets = {{"paper", "the authors' experiments at rank 2", paper},
                      {"torch-hook", "the defaults of PyTorch's hook", torch_hook}},
          .check = check_rank<PowerSgdStrategy, PowerSgdOptions>,
          .average = average_compressed<PowerSgdStrategy, PowerSgdOptions>,
          .dense_start = true};
}

Method acpsgd_method() {
  return {.name = AcpSgdStrategy::kName,
          .declare = declare_acpsgd,
          .presets = {{"release", "the authors' release for ResNet-50", release}},
          .check = check_rank<AcpSgdStrategy, AcpSgdOptions>,
          .average = average_compressed<AcpSgdStrategy, AcpSgdOptions>,
          .dense_start = true};
}

}  // namespace ab
