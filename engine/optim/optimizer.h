#pragma once
// SPDX-License-Identifier: MIT
//
// Optimizers keep state per parameter and let AB-training reset, resize or carry it over when a weight
// changes between its dense form and its factors. Arithmetic and state are float32. All parameters are updated in
// one launch.

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/comm/comm.h"
#include "engine/core/tensor.h"
#include "engine/io/state_dict.h"
#include "engine/kernels/optim.h"

namespace ab {

/// The table that a fused update runs over: where the values, gradients and moments of all parameters are, on the
/// device that updates them. It is made anew only when one of them moves: when AB-training splits or rejoins, and where a
/// rank alone has no graph, whenever the allocator gives its gradients other places than before.
class UpdateTable {
 public:
  /// The parameters of the next update, whole, with their `updates` counted, this one included.
  void hold(std::vector<ParamSlice> params, Device device);
  SliceTable slices() const;
  /// Updates since the table was made: what was counted is slice.updates + age().
  std::int64_t age() const { return age_; }

  /// Takes the joint norm of all gradients; the result stays on the device, valid until the next hold().
  const GradNorm* measure(double max_norm);
  /// The norm that was measured since hold(); see grad_norm_of().
  HostRead read_grad_norm() const { return norm_.defined() ? HostRead(norm_) : HostRead(); }

 private:
  void cut();

  std::vector<ParamSlice> params_;
  Device device_;
  std::int64_t age_ = 0;
  Tensor slices_, partial_, norm_;  // norm_: a GradNorm, undefined until measured
};

/// The joint norm that was read, 0 when none was. Waits for it.
double grad_norm_of(HostRead read);

/// The state of one parameter; tensors have the parameter's shape, or are undefined before its first update.
struct ParamState {
  Tensor first_moment;   ///< SGD's momentum buffer, Adam's m
  Tensor second_moment;  ///< Adam's v
  std::int64_t updates = 0;
};

class Optimizer {
 public:
  /// `weight_decay`: of matrices, see set_decay_vectors().
  Optimizer(std::vector<Param*> params, double weight_decay)
      : params_(std::move(params)), weight_decay_(static_cast<float>(weight_decay)) {}
  virtual ~Optimizer() = default;

  /// One update of every trainable parameter that has a gradient. set_max_grad_norm() > 0 scales all gradients
  /// so that their joint L2 norm does not exceed it. An update is left out when that norm is not finite: on a CPU
  /// step() throws Error(numerics) then; on a GPU, which it does not wait for, the next step() or check_grad_norm().
  void step(double learning_rate);
  void clear_grads();

  /// The joint norm of the last step's gradients before scaling, without waiting for it: see grad_norm_of().
  HostRead read_grad_norm() const { return table_.read_grad_norm(); }
  /// Throws Error(numerics) when the last step() has not looked at its norm yet and it is not finite, unless such
  /// updates are to be skipped. Waits for the device.
  void check_grad_norm();

  /// Tensors of a parameter's size that are kept for it once it has been updated.
  virtual int moments_per_parameter() const = 0;

  const std::vector<Param*>& params() const { return params_; }
  /// Replaces the list. State of parameters that are no longer in it stays until reset().
  void set_params(std::vector<Param*> params) { params_ = std::move(params); }

  /// The state of one parameter, created empty on first use. Assigning to its tensors carries state over.
  ParamState& state(const Param& param) { return states_[&param]; }
  /// Forgets moments and the update count.
  void reset(const Param& param) { states_.erase(&param); }
  /// Cuts the leading rows and columns of every moment to the parameter's present shape, or pads with zeros.
  void resize(const Param& param);

  /// The state of all parameters that have one, in the list or not.
  void save(StateDict& dict) const;
  /// Takes back the state of `params`, which are all that may have one, onto `device`.
  void load(const StateDict& dict, const std::vector<Param*>& params, Device device);

  void set_max_grad_norm(double norm) { max_grad_norm_ = norm; }
  /// Always measures the norm, and leaves an update out without an error when it is not finite: a scaled loss
  /// (loss_scale.h). Such an update counts, so that ranks that skip and ranks that do not stay comparable.
  void set_skip_overflow(bool on) { skip_overflow_ = on; }
  /// Whether biases and norm parameters (all of one dimension) decay too; yes by default, as in PyTorch.
  void set_decay_vectors(bool on) { decay_vectors_ = on; }
  /// Their learning rate, as a multiple of step()'s; weight decay stays as it is.
  void set_vector_rate(double rate) { vector_rate_ = static_cast<float>(rate); }

 protected:
  /// Changes every parameter of the table; `norm` is null without clipping.
  virtual void update(const UpdateTable& table, double learning_rate, const GradNorm* norm) = 0;

 private:
  /// A parameter about to be updated, with its state made ready and the update counted.
  ParamSlice prepare(const Param& param);

  std::vector<Param*> params_;
  std::unordered_map<const Param*, ParamState> states_;
  UpdateTable table_;
  HostRead unchecked_norm_;
  float weight_decay_, vector_rate_ = 1;
  double max_grad_norm_ = 0;
  bool skip_overflow_ = false, decay_vectors_ = true;
};

struct SgdOptions {
  double momentum = 0.9;
  double weight_decay = 5e-4;
  bool nesterov = false;
};
/// v ← momentum · v + g + wd · w;   w ← w − lr · v   (Nesterov: w ← w − lr · (g + wd · w + momentum · v))
std::unique_ptr<Optimizer> make_sgd(std::vector<Param*> params, const SgdOptions& options);

struct LarsOptions {
  double momentum = 0.9;
  double weight_decay = 5e-4;
  double trust = 0.001;  ///< share of a tensor's norm that an update at rate 1 changes it by
  double epsilon = 1e-9;
  /// Each of these ranks works out the rates of a share of the tensors, alike in elements, and all gather them: 4 bytes a
  /// tensor and update (PTO; Shi et al. 2021, arXiv 2010.10458). Right only where all of them hold equal parameters and
  /// gradients, and take part in every update. Null: each works out all.
  Comm* sharing = nullptr;
};
/// LARS (You, Gitman, Ginsburg 2017, arXiv 1708.03888; engine/kernels/lars.h). Vectors are updated as by SGD.
std::unique_ptr<Optimizer> make_lars(std::vector<Param*> params, const LarsOptions& options);

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;
};
/// AdamW (Loshchilov & Hutter 2019): w ← w − lr · (m̂ / (sqrt(v̂) + eps) + wd · w)
std::unique_ptr<Optimizer> make_adamw(std::vector<Param*> params, const AdamWOptions& options);

}  // namespace ab
