#pragma once
// SPDX-License-Identifier: MIT
//
// A layer owns parameters and applies operations to them. Every layer knows its full dotted name, so that
// parameters, metrics and files agree without a registry.

#include <string>
#include <vector>

#include "engine/autograd/param.h"

namespace ab {

class Weight;

/// A tensor that belongs to the model and is not trained (running statistics).
struct Buffer {
  std::string name;
  Tensor value;
};

/// What a model consists of, in forward order.
struct Inventory {
  std::vector<Param*> params;    ///< as they are now: a factorised weight lists its factors
  std::vector<Buffer> buffers;
  std::vector<Weight*> weights;  ///< all matrices and convolutions, factorised or not
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual Var forward(const Var& x) = 0;
  /// Adds the layer's parts to the inventory.
  virtual void list(Inventory& inventory) = 0;
  /// Training (batch statistics, dropout) or evaluation.
  virtual void set_training(bool on) { training_ = on; }

 protected:
  bool training() const { return training_; }

 private:
  bool training_ = true;
};

inline Inventory inventory_of(Layer& layer) {
  Inventory inventory;
  layer.list(inventory);
  return inventory;
}

}  // namespace ab
