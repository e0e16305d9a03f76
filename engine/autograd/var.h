#pragma once
// SPDX-License-Identifier: MIT
//
// Reverse-mode differentiation. A Var is a value that remembers how it was computed; backward() walks that
// record from the loss to the leaves. An operation records itself with
//   Var y = record("linear", linear_forward(x.value(), w.value()), {x, w},
//                  [=](const Tensor& dy) { return linear_backward(dy, …); });
// where the lambda returns one gradient per input, undefined for inputs that need none. Backward functions
// return fresh tensors; the engine accumulates.
// Recording is per thread: ranks that run as threads of one process do not see each other.

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/core/tensor.h"

namespace ab {

struct VarNode;
using Gradients = std::vector<Tensor>;
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
  const Shape& shape() const { return value().shape(); }

  /// Leaves only.
  void set_value(Tensor value);
  void set_grad(Tensor grad);
  void set_requires_grad(bool on);
  void clear_grad();
  /// Called inside backward() as soon as this leaf's gradient is complete: nothing later in the pass will
  /// add to it. One hook per leaf; an empty function removes it.
  void set_grad_ready_hook(std::function<void()> hook);

  /// The same value without a history.
  Var detach() const { return Var(value()); }

  friend Var record(std::string_view name, Tensor value, std::vector<Var> inputs, BackwardFn backward);
  friend void backward(const Var& loss, double scale, double loss_scale);

 private:
  std::shared_ptr<VarNode> node_;
};

/// The result of an operation; remembers `inputs` and `backward` when recording is on and an input needs a gradient.
Var record(std::string_view name, Tensor value, std::vector<Var> inputs, BackwardFn backward);

/// Accumulates scale · d loss / d leaf into every leaf that requires it. `loss` has one element. The record is
/// consumed: memory of intermediate values is freed as the walk passes them. On the way gradients are larger by
/// `loss_scale`, so that small ones do not vanish in float16 (Micikevicius et al. 2018); leaves get them without it.
void backward(const Var& loss, double scale = 1.0, double loss_scale = 1.0);

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

}  // namespace ab
