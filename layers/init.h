#pragma once
// SPDX-License-Identifier: MIT
//
// Initial values, drawn from (seed, parameter name): independent of the order in which layers are built, and
// the same on every rank.

#include <string>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/core/tensor.h"

namespace ab {

/// How layers are built: one seed and one device for a whole model.
struct Build {
  std::uint64_t seed = 0;
  Device device{};
  bool draw = true;  ///< false: what would be drawn holds whatever was in memory, for those who fill it themselves
};

/// The distribution that the elements of a new parameter are drawn from.
struct Distribution {
  enum class Kind { constant, normal, uniform };
  Kind kind = Kind::constant;
  double scale = 0;  ///< the constant, the standard deviation around 0, or the bound of [-bound, bound)
};

/// Normal with standard deviation sqrt(2 / fan_out), fan_out = O · kh · kw (He et al. 2015): convolutions
/// before a ReLU, as torchvision's ResNet and VGG.
Distribution kaiming_normal(std::int64_t fan_out);
/// Uniform in ±1/sqrt(fan_in): PyTorch's default for linear weights and biases.
Distribution uniform_fan_in(std::int64_t fan_in);
/// Uniform in ±sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010).
Distribution xavier_uniform(std::int64_t fan_in, std::int64_t fan_out);

/// The float32 value that the parameter `name` of a model starts from.
Tensor initial_value(const std::string& name, const Shape& shape, const Distribution& from, const Build& build);
/// A float32 tensor of one value.
Tensor filled(const Shape& shape, float value, Device device);

/// Changes of the initial values that were drawn.
enum class Init {
  drawn,  ///< none
  ortho,  ///< of every parameter W = U · diag(σ) · Vᵀ with two dimensions or more σ_i = 1 (arXiv 2405.01067, release of the authors)
  dirac,  ///< a 3×3 convolution passes its first min(in, out) channels on; all else, and the first layer, stay as drawn
};

/// Whether it changes the values of this one.
bool changes(const Param& param, Init init);
/// Dimensions of size one do not count for a matrix, and the first that is left makes the rows. Depends on the present values
/// alone: equal on all ranks.
void change_initial(const std::vector<Param*>& params, Init init);

}  // namespace ab
