#pragma once
// SPDX-License-Identifier: MIT
//
// Reverse-mode differentiation. A Var is a value that remembers how it was computed; backward() walks that
// record from the loss to the leaves. An operation records itself with
//   Var y = record("linear", linear_forward(x.value(), w.value()), {x, w},
//                  [=](const Tensor& dy) { return linear_backward(dy, …); });
// where the lambda returns one gradient per input, undefined for inputs that need none. It may return dy itself, or one
// tensor for several inputs, but changes nothing that it is given; the engine accumulates, and leaves get storage of their
// own.
// An operation that ends with an activation, y = act(z), tells record() the way back to z, and its lambda is given the
// gradient of z. Whoever uses y returns the gradient of y, and the engine multiplies by act'(z); or, where y's gradient
// is a product whose epilogue can do that (ops/linear.cpp), of_z(dz). A gradient that is best computed on top of
// what other uses of the input have brought is returned as onto(f): the engine calls f once, with that or with nothing, and
// takes the sum, for which f makes a tensor of its own.
// Recording is per thread: ranks that run as threads of one process do not see each other.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernels/activation.h"

namespace ab {

struct VarNode;

/// The result of a backward function for one input, its gradient; undefined when it needs none.
struct Gradient {
  Gradient(Tensor value = {}, bool is_of_z = false) : value(std::move(value)), is_of_z(is_of_z) {}

  Tensor value;
  bool is_of_z;  ///< of the z of an input act(z); the same for an input without an activation
  std::function<Tensor(const Tensor& addend)> onto =
      {};  ///< makes the value: gradient + addend, which may be undefined
};
inline Gradient of_z(Tensor dz) { return {std::move(dz), true}; }
inline Gradient onto(std::function<Tensor(const Tensor& addend)> f) {
  Gradient gradient;
  gradient.onto = std::move(f);
  return gradient;
}

using Gradients = std::vector<Gradient>;
using BackwardFn = std::function<Gradients(const Tensor& dy)>;

class Var {
 public:
  Var() = default;
  /// A leaf. Leaves that require a gradient are what is trained.
  explicit Var(Tensor value, bool requires_grad = false);

  bool defined() const { return node_ != nullptr; }
  const Tensor& value() const;
  /// The accumulated gradient of a leaf; undefined before backward() and after clear_grad().
  const Tensor& grad() const;
  bool requires_grad() const;
  /// The way back through the activation that this recorded result ends with; undefined when there is none.
  const ActivationGrad& activation_grad() const;
  const Shape& shape() const { return value().shape(); }

  /// Leaves only.
  void set_value(Tensor value);
  void set_grad(Tensor grad);
  void set_requires_grad(bool on);
  void clear_grad();
  /// Called inside backward() as soon as this leaf's gradient is complete: nothing later in the pass will
  /// add to it. One hook per leaf; an empty function removes it.
  void set_grad_ready_hook(std::function<void()> hook);
  /// Calls that hook, if there is one.
  void call_grad_ready_hook() const;

  /// Whether the gradient of this 16-bit value may arrive in float32, because it goes back to a float32 value unchanged.
  bool takes_float32_gradient() const;
  void take_float32_gradient();

  /// The same value without a history.
  Var detach() const { return Var(value()); }

  /// Whether both are the same leaf or result, not only equal in value.
  bool same_as(const Var& other) const { return node_ == other.node_; }

  friend Var record(std::string_view name, Tensor value, std::vector<Var> inputs, BackwardFn backward,
                    ActivationGrad activation);
  friend void backward(const Var& loss, const Tensor& dloss, const Tensor& unscale);

 private:
  std::shared_ptr<VarNode> node_;
};

/// The result of an operation; remembers `inputs` and `backward` when recording is on and an input needs a gradient.
/// Where value = act(z), `activation` leads back to z, and `backward` is given the gradient of that.
Var record(std::string_view name, Tensor value, std::vector<Var> inputs, BackwardFn backward,
           ActivationGrad activation = {});

/// Accumulates scale · d loss / d leaf into every leaf that requires it. `loss` has one element. The record is
/// consumed: memory of intermediate values is freed as the walk passes them. On the way gradients are larger by
/// `loss_scale`, so that small ones do not vanish in float16 (Micikevicius et al. 2018); leaves get them without it.
void backward(const Var& loss, double scale = 1.0, double loss_scale = 1.0);
/// The same with numbers that lie on the device of the loss, where a captured step reads those of the present step.
/// dloss: scale · loss_scale, of the loss's type and size; unscale: 1 / loss_scale, [1] float32, or undefined for 1.
void backward(const Var& loss, const Tensor& dloss, const Tensor& unscale = {});

/// Inside backward(): its dloss, by which all gradients of the pass are larger than those of the loss; undefined outside.
const Tensor& backward_scale();
/// Inside backward(): its unscale, of the loss scale of this rank alone; undefined where there is none, and outside.
const Tensor& backward_unscale();

/// Whether this thread records (default: yes).
bool recording();

/// Turns recording off for a scope: evaluation.
class NoGradScope {
 public:
  NoGradScope();
  ~NoGradScope();
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  bool before_;
};

/// While it lives, backward() on this thread calls no hooks: it records which leaves have complete gradients.
class PostponedHooks {
 public:
  PostponedHooks();
  ~PostponedHooks();
  PostponedHooks(const PostponedHooks&) = delete;
  PostponedHooks& operator=(const PostponedHooks&) = delete;

  /// In the order in which their hooks would have been called.
  const std::vector<Var>& ready_leaves() const { return ready_; }

 private:
  friend void backward(const Var& loss, const Tensor& dloss, const Tensor& unscale);
  std::vector<Var> ready_;
  PostponedHooks* before_;
};

/// The part of a parameter in data-parallel and AB-training (arXiv 2405.01067): how its gradient is exchanged.
enum class ParamRole {
  weight,       ///< a matrix or convolution that AB-training may factorise
  vector,       ///< bias or norm affine: never factorised
  always_sync,  ///< kept at full rank on purpose (first layer, classifier)
  factor_a,     ///< the tall factor A of W = A·B
  factor_b,     ///< the small factor B
};

/// A trained tensor with its name.
struct Param {
  std::string name;  ///< dotted path, torchvision's where it has one: "layer1.0.conv1.weight"
  Var value;
  ParamRole role = ParamRole::weight;

  bool is_factor() const { return role == ParamRole::factor_a || role == ParamRole::factor_b; }
  bool trainable() const { return value.requires_grad(); }
  std::int64_t numel() const { return value.value().numel(); }
};

}  // namespace ab
