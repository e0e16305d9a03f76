#pragma once
// SPDX-License-Identifier: MIT
//
// A layer owns parameters and applies operations to them. Every layer knows its full dotted name, so that
// parameters, metrics and files agree without a registry.

#include <string>
#include <vector>

#include "engine/autograd/var.h"

namespace ab {

class Weight;
class Whitening;
struct BatchNormStats;

/// A tensor that belongs to the model and is not trained (running statistics, filters of a Whitening).
struct Buffer {
  std::string name;
  Tensor value;
  bool frozen = false;  ///< no step changes it
};

/// The parts of a model, in forward order.
struct Inventory {
  std::vector<Param*> params;  ///< as they are now: a factorised weight lists its factors
  std::vector<Buffer> buffers;
  std::vector<Weight*> weights;  ///< all matrices and convolutions, factorised or not
  std::vector<BatchNormStats*> batch_norms;
  std::vector<Whitening*> whitenings;  ///< layers that training images make
};

/// The buffers that steps change, apart on every rank; or those that none does.
inline std::vector<Tensor> buffers_of(const Inventory& inventory, bool frozen) {
  std::vector<Tensor> found;
  for (const Buffer& buffer : inventory.buffers)
    if (buffer.frozen == frozen) found.push_back(buffer.value);
  return found;
}
inline std::vector<Tensor> moving_buffers(const Inventory& inventory) { return buffers_of(inventory, false); }
inline std::vector<Tensor> frozen_buffers(const Inventory& inventory) { return buffers_of(inventory, true); }

class Layer {
 public:
  virtual ~Layer() = default;
  /// Computes in the type of x, float32 or a shorter one (engine/core/precision.h); parameters are float32.
  virtual Var forward(const Var& x) = 0;
  /// Adds the layer's parts to the inventory.
  virtual void list(Inventory& inventory) = 0;
  /// Training (batch statistics, dropout) or evaluation.
  virtual void set_training(bool on) { training_ = on; }
  /// Where the random numbers of forward passes come from (dropout, drop path): [1] int64 on the model's device, which
  /// must hold a different seed for every step, micro-batch and rank. A layer draws from the stream of its own name.
  virtual void set_noise(const Tensor& /*seed*/) {}

 protected:
  bool training() const { return training_; }

 private:
  bool training_ = true;
};

/// A layer made of layers, to which it passes on what it is asked for.
class Composite : public Layer {
 public:
  void list(Inventory& inventory) override {
    for (Layer* part : parts()) part->list(inventory);
  }
  void set_training(bool on) override {
    Layer::set_training(on);
    for (Layer* part : parts()) part->set_training(on);
  }
  void set_noise(const Tensor& seed) override {
    for (Layer* part : parts()) part->set_noise(seed);
  }

 protected:
  /// All parts, in forward order.
  virtual std::vector<Layer*> parts() = 0;
};

inline Inventory inventory_of(Layer& layer) {
  Inventory inventory;
  layer.list(inventory);
  return inventory;
}

}  // namespace ab
