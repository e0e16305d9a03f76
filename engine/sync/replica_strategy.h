#pragma once
// SPDX-License-Identifier: MIT
//
// The base of methods whose ranks hold replicas of one full-rank model: all start with the model of rank 0. Where
// replicas stay equal in every step, only the running statistics drift apart, as each rank sees other
// samples, unless batch norms are synchronised; they are averaged when a common model is asked for. A method adds what
// it does to gradients; one that remembers something between steps (a residual, a momentum of its own) adds
// save() and load(): parameters and buffers are in the checkpoint anyway, those of every rank.

#include <algorithm>
#include <string>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/comm/comm.h"
#include "engine/sync/batch_norm_sync.h"
#include "engine/sync/gradient_buckets.h"
#include "engine/sync/sync_strategy.h"

namespace ab {

/// A model as ranks replicate it. All of it outlives the strategy.
struct Replica {
  std::vector<Param*> params;
  std::vector<Tensor> buffers{};               ///< share storage with the model's own
  std::vector<Tensor> frozen{};                ///< buffers that no step changes, likewise
  std::vector<BatchNormStats*> batch_norms{};  ///< those that ranks synchronise
  bool equal = false;                          ///< on all ranks from the start

  /// Values of parameters.
  std::vector<Tensor> values() const;
  /// Those, then buffers.
  std::vector<Tensor> tensors() const;
};

/// Ranks that share a node, for methods that exchange more inside a node than between nodes: consecutive ranks fill one
/// node after another, and the last node may have fewer.
struct NodeLayout {
  static constexpr const char* kLabel = "node";  ///< of the communicator of a node in the ledger

  int ranks = 1;      ///< of the world
  int node_size = 1;  ///< ranks of a node

  int nodes() const { return (ranks + node_size - 1) / node_size; }
  int node_of(int rank) const { return rank / node_size; }
  int first_of(int node) const { return node * node_size; }
  int size_of(int node) const { return std::min(node_size, ranks - first_of(node)); }
};

/// The communicator of this rank's node. Collective over `world`, which must outlive it.
inline std::unique_ptr<Comm> split_nodes(Comm& world, const NodeLayout& layout) {
  AB_CHECK(layout.node_size >= 1 && layout.node_size <= world.size(), "nodes of {} ranks cannot be made of {}",
           layout.node_size, world.size());
  return world.split([layout](int rank) { return layout.node_of(rank); }, NodeLayout::kLabel);
}

class ReplicaStrategy : public SyncStrategy {
 public:
  void set_gradient_exchange(bool on) override {
    exchange_ = on;
    if (buckets_) buckets_->set_exchange(on);
  }
  bool exchanges_in_backward() const override { return buckets_ && buckets_->leave_in_backward(); }
  void finish_grads(TrainState& /*state*/) override {
    if (buckets_) buckets_->finish();
  }
  void begin_evaluation(TrainState& /*state*/) override { average_buffers(); }
  void end_evaluation(TrainState& state) final;
  void finish(TrainState& /*state*/) override { average_buffers(); }

 protected:
  /// Gives all ranks the parameters and buffers of rank 0, unless they are equal. `world` must outlive this. Batch norms are synchronised over
  /// all ranks, or with SyncBn::group over those of the same group.
  explicit ReplicaStrategy(Replica replica, Comm& world, SyncBn scope = SyncBn::world, const ColourOf& group_of = {});

  Comm& world() const { return world_; }
  const Replica& replica() const { return replica_; }
  void average_buffers();
  /// Keeps this rank's own replica until end_evaluation(), while another model is looked at.
  void set_aside();

  std::unique_ptr<Comm> node_;                ///< the ranks of this node, for a method that knows nodes
  std::unique_ptr<GradientBuckets> buckets_;  ///< the gradients that ranks average in every step; null: none
  bool exchange_ = true;                      ///< as set_gradient_exchange() was told

 private:
  Comm& world_;
  Replica replica_;
  std::vector<Tensor> aside_;
  BatchNormSync batch_norms_;
};

// Replicas of data-parallel training drift apart unnoticed when a rank computes other bits than its peers
// (another processor, a flipped bit, a bug). A hash of every rank's values shows it for 8 bytes a rank.

/// Throws Error(numerics) naming the ranks whose `tensors` differ from those of rank 0 in any bit, and the first tensor that
/// does, by `names` (of the first tensors; the others have none). Collective.
void check_replicas(Comm& comm, const std::vector<Tensor>& tensors, const std::string& when,
                    const std::vector<std::string>& names = {});

}  // namespace ab
