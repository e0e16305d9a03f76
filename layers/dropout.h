#pragma once
// SPDX-License-Identifier: MIT
//
// Noise of training: layers that are the identity in evaluation. Their draws are a function of the seed of
// set_noise() and of their name, so that a resumed run draws the same.

#include "engine/core/random.h"
#include "engine/ops/elementwise.h"
#include "layers/layer.h"

namespace ab {

/// A layer that drops with probability p in training.
class Noise : public Layer {
 public:
  Noise(const std::string& name, double p) : p_(static_cast<float>(p)), stream_(stream_of(name)) {}
  /// Whether forward() would change x.
  bool active() const { return training() && p_ > 0; }
  void list(Inventory&) override {}
  void set_noise(const Tensor& seed) override { seed_ = seed; }

 protected:
  float p_;
  std::uint64_t stream_;
  Tensor seed_;
};

/// Drops features: y = x · mask / (1 − p)   (Srivastava et al. 2014)
class Dropout final : public Noise {
 public:
  using Noise::Noise;
  Var forward(const Var& x) override { return active() ? dropout(x, p_, seed_, stream_) : x; }
};

/// Drops the residual branch of whole samples: stochastic depth (Huang et al. 2016).   x: [N, ...]
class DropPath final : public Noise {
 public:
  using Noise::Noise;
  Var forward(const Var& x) override { return active() ? drop_path(x, p_, seed_, stream_) : x; }
};

}  // namespace ab
