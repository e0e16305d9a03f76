// SPDX-License-Identifier: MIT
#include "engine/autograd/var.h"

#include <unordered_map>
#include <unordered_set>

#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"

namespace ab {

/// A value, its gradient, and for results of operations the way back to the inputs.
struct VarNode {
  Tensor value;
  Tensor grad;
  Tensor grad_of_z;  ///< the part that has already come through the activation
  ActivationGrad activation;
  bool requires_grad = false, takes_float32_gradient = false;
  std::string_view operation = "leaf";
  std::vector<std::shared_ptr<VarNode>> inputs;
  BackwardFn backward;
  std::function<void()> grad_ready;
};

namespace {

thread_local bool recording_on = true;
thread_local PostponedHooks* postponed_hooks = nullptr;
thread_local const Tensor *scale_of_pass = nullptr, *unscale_of_pass = nullptr;

struct ScaleScope {
  ScaleScope(const Tensor& dloss, const Tensor& unscale) { scale_of_pass = &dloss, unscale_of_pass = &unscale; }
  ~ScaleScope() { scale_of_pass = unscale_of_pass = nullptr; }
};

const Tensor kUndefined;
const ActivationGrad kNoActivation;

/// Nodes between the loss and the leaves, each after everything that uses it (so: walk order).
std::vector<std::shared_ptr<VarNode>> topological_order(const std::shared_ptr<VarNode>& loss) {
  std::vector<std::shared_ptr<VarNode>> finished;
  std::unordered_set<VarNode*> seen{loss.get()};
  std::vector<std::pair<std::shared_ptr<VarNode>, std::size_t>> stack{{loss, 0}};
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    if (next < node->inputs.size()) {
      const auto& input = node->inputs[next++];
      if (input && input->requires_grad && seen.insert(input.get()).second) stack.emplace_back(input, 0);
    } else {
      finished.push_back(std::move(node));
      stack.pop_back();
    }
  }
  std::reverse(finished.begin(), finished.end());
  return finished;
}

/// Makes a gradient that of a leaf, which may be changed in place.
void own(Tensor& grad, const Tensor& unscale) {
  if (grad.is_shared()) grad = grad.clone();
  if (unscale.defined()) scale_in_place(grad, unscale);
}

void accumulate(VarNode& node, Gradient grad, const Tensor& unscale) {
  Tensor& sum = grad.is_of_z && node.activation.defined() ? node.grad_of_z : node.grad;
  const bool is_leaf = !node.backward;
  const bool is_added = grad.onto && sum.defined() && !is_leaf && sum.dtype() == node.value.dtype();
  if (grad.onto) grad.value = grad.onto(is_added ? sum : kUndefined);
  if (!grad.value.defined()) return;
  AB_CHECK(grad.value.numel() == node.value.numel(), "a gradient of shape {} does not fit a value of shape {}",
           grad.value.shape().str(), node.value.shape().str());
  if (is_leaf) own(grad.value, unscale);
  if (sum.defined() && sum.dtype() != grad.value.dtype()) {  // see takes_float32_gradient()
    sum = cast(sum, DType::float32);
    grad.value = cast(grad.value, DType::float32);
  }
  sum = sum.defined() && !is_added ? add(sum, grad.value) : std::move(grad.value);
}

/// The argument of a node's backward function: dz where the value is act(z), dy elsewhere.
Tensor incoming_gradient(const VarNode& node) {
  if (!node.activation.defined()) return node.grad;
  if (!node.grad.defined()) return node.grad_of_z;
  const Tensor dz = activation_backward(node.activation, node.grad);
  return node.grad_of_z.defined() ? add(node.grad_of_z, dz) : dz;
}

}  // namespace

Var::Var(Tensor value, bool requires_grad) : node_(std::make_shared<VarNode>()) {
  node_->value = std::move(value);
  node_->requires_grad = requires_grad;
}

const Tensor& Var::value() const { return node_ ? node_->value : kUndefined; }
const Tensor& Var::grad() const { return node_ ? node_->grad : kUndefined; }
bool Var::requires_grad() const { return node_ && node_->requires_grad; }
bool Var::takes_float32_gradient() const { return node_ && node_->takes_float32_gradient; }
void Var::take_float32_gradient() { node_->takes_float32_gradient = true; }
const ActivationGrad& Var::activation_grad() const { return node_ ? node_->activation : kNoActivation; }

void Var::set_value(Tensor value) {
  AB_CHECK(node_ && !node_->backward, "set_value: only leaves can be given a value");
  node_->value = std::move(value);
}
void Var::set_grad(Tensor grad) { node_->grad = std::move(grad); }
void Var::set_requires_grad(bool on) {
  AB_CHECK(node_ && !node_->backward, "set_requires_grad: only leaves can be frozen");
  node_->requires_grad = on;
}
void Var::clear_grad() { node_->grad = {}; }
void Var::set_grad_ready_hook(std::function<void()> hook) { node_->grad_ready = std::move(hook); }
void Var::call_grad_ready_hook() const {
  if (node_->grad_ready) node_->grad_ready();
}

Var record(std::string_view name, Tensor value, std::vector<Var> inputs, BackwardFn backward,
           ActivationGrad activation) {
  Var result(std::move(value));
  const auto needs = [](const Var& v) { return v.requires_grad(); };
  if (recording_on && std::any_of(inputs.begin(), inputs.end(), needs)) {
    result.node_->requires_grad = true;
    result.node_->operation = name;
    result.node_->backward = std::move(backward);
    result.node_->activation = std::move(activation);
    for (Var& input : inputs) result.node_->inputs.push_back(std::move(input.node_));
  }
  return result;
}

void backward(const Var& loss, double scale, double loss_scale) {
  AB_CHECK(loss.defined(), "backward: there is no loss");
  const Tensor dloss(loss.shape(), loss.value().dtype(), loss.value().device());
  fill(dloss, scale * loss_scale);
  if (loss_scale == 1) return backward(loss, dloss);
  const Tensor unscale({1}, DType::float32, loss.value().device());
  fill(unscale, 1 / loss_scale);
  backward(loss, dloss, unscale);
}

void backward(const Var& loss, const Tensor& dloss, const Tensor& unscale) {
  AB_CHECK(loss.defined() && loss.value().numel() == 1, "backward: the loss must have one element, got shape {}",
           loss.defined() ? loss.shape().str() : "none");
  AB_CHECK(loss.requires_grad(), "backward: the loss depends on nothing that requires a gradient");
  auto order = topological_order(loss.node_);

  // A leaf is ready when the last operation that uses it has run.
  std::unordered_map<VarNode*, int> pending_uses;
  for (const auto& node : order)
    for (const auto& input : node->inputs)
      if (input && input->requires_grad && !input->backward) ++pending_uses[input.get()];

  loss.node_->grad = dloss.view(loss.shape());
  const ScaleScope scope(dloss, unscale);
  for (auto& node : order) {
    if (!node->backward) continue;
    Tensor incoming = incoming_gradient(*node);
    AB_CHECK(incoming.defined(), "backward: {} received no gradient", node->operation);
    if (node != loss.node_) node->grad = {};
    node->grad_of_z = {};
    node->activation = {};
    Gradients grads = node->backward(incoming);
    incoming = {};
    AB_ASSERT(grads.size() == node->inputs.size());
    node->backward = nullptr;
    const auto inputs = std::move(node->inputs);
    node->inputs.clear();
    node.reset();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto& input = inputs[i];
      if (!input || !input->requires_grad) continue;
      accumulate(*input, std::move(grads[i]), unscale);
      const auto use = pending_uses.find(input.get());
      if (use == pending_uses.end() || --use->second > 0) continue;
      Var leaf;
      leaf.node_ = input;
      if (postponed_hooks) postponed_hooks->ready_.push_back(std::move(leaf));
      else leaf.call_grad_ready_hook();
    }
  }
}

PostponedHooks::PostponedHooks() : before_(postponed_hooks) { postponed_hooks = this; }
PostponedHooks::~PostponedHooks() { postponed_hooks = before_; }

const Tensor& backward_scale() { return scale_of_pass ? *scale_of_pass : kUndefined; }
const Tensor& backward_unscale() { return unscale_of_pass ? *unscale_of_pass : kUndefined; }

bool recording() { return recording_on; }
NoGradScope::NoGradScope() : before_(recording_on) { recording_on = false; }
NoGradScope::~NoGradScope() { recording_on = before_; }

}  // namespace ab
