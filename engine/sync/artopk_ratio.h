#pragma once
// SPDX-License-Identifier: MIT
//
// AR-Topk's adaptive ratio (arXiv 2312.02493, eq. 6): the c in [c_low, c_high] that weighs time against information,
//   minimise  ( t_sync(c), 1/gain(c) ),     gain(c) = ‖largest c·G of M‖² / ‖M‖²
// The authors fit curves through five ratios and search them by NSGA-II. With one variable, all ratios of a grid can be
// tried: those that no other beats in both are the front, both aims are scaled to [0, 1] over it, and the chosen one has
// the smallest  max(0.6 · time, 0.4 · 1/gain), with their weights. They measure a gain by ten steps with each
// ratio from a copy of the model; here all gains come from one M, since selections of fewer elements are parts of those of
// more. That leaves out what a ratio does to the residual in the long run.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/tensor.h"

namespace ab {

/// Elements to send of n, from the most to the fewest, each number once: ratios at equal distances on a logarithmic
/// scale, at least four a decade, `most` and `least` among them.
std::vector<std::int64_t> adaptive_elements(double least, double most, std::int64_t n);

/// gain() for every number of elements, which fall. x: float32 [n]. Not finite where x is not, or is all zeros.
std::vector<double> gains_of(const Tensor& x, const std::vector<std::int64_t>& elements);

struct RatioTrial {
  double seconds = 0;  ///< modelled time of a step's communication
  double gain = 0;     ///< in (0, 1]
};
/// Which of them to use; of equal ones the first. Nothing when a gain is not above zero.
std::optional<std::size_t> best_trial(std::span<const RatioTrial> trials);

}  // namespace ab
