#pragma once
// SPDX-License-Identifier: MIT

#include "layers/init.h"
#include "layers/layer.h"

namespace ab {

/// A frozen first layer whose outputs are uncorrelated and of equal variance over the 2×2 patches of training images (Jordan
/// 2024, arXiv 2404.00498): of the eigenvectors v and eigenvalues λ of E[p pᵀ] over patches p it has the filters ±v / sqrt(λ + 5e-4).
///   [N, H, W, 3] -> [N, H - 1, W - 1, 24]
class Whitening final : public Layer {
 public:
  static constexpr std::int64_t kFilters = 24;

  /// Filters are drawn, until fit() makes them or they are loaded.
  Whitening(const std::string& name, const Build& build);
  /// Makes the filters from normalised images.   [N, H, W, 3] float32, on the host
  void fit(const Tensor& images);
  const Tensor& filters() const { return filters_; }
  Var forward(const Var& x) override;
  void list(Inventory& inventory) override;

 private:
  std::string name_;
  Tensor filters_;  // [24, 2, 2, 3]
};

}  // namespace ab
