#pragma once
// SPDX-License-Identifier: MIT
//
// A gradient method step by step with gradients that the test chooses: no model, no loss, and an optimizer only if asked.

#include <deque>
#include <functional>
#include <limits>

#include "engine/comm/launcher.h"
#include "engine/comm/network.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/sync/replica_strategy.h"
#include "engine/sync/sync_strategy.h"

namespace ab::test {

struct NamedShape {
  std::string name;
  Shape shape;
};

/// One rank.
class ExchangeSteps {
 public:
  using Make = std::function<std::unique_ptr<SyncStrategy>(Replica, Comm&)>;

  ExchangeSteps(Comm& world, const std::vector<NamedShape>& shapes, const Make& make, Device device = {})
      : world_(world) {
    for (const auto& [name, shape] : shapes) {
      params_.push_back({name, Var(Tensor::zeros(shape, DType::float32, device), true)});
      list_.push_back(&params_.back());
    }
    optimizer_ = make_sgd(list_, {.momentum = 0, .weight_decay = 0});
    optimizer_->set_skip_overflow(true);
    strategy_ = make({.params = list_}, world);
    state_ = std::make_unique<TrainState>(TrainState{0, *optimizer_});
    strategy_->start(*state_);
  }

  /// Backward: gradients arrive from the last to the first; undefined ones do not. Returns the collectives so far.
  std::int64_t arrive(const std::vector<Tensor>& gradients) {
    world_.ledger().set_phase(strategy_->phase());
    optimizer_->clear_grads();
    for (std::size_t i = list_.size(); i-- > 0;) {
      if (!gradients[i].defined()) continue;
      Var& value = list_[i]->value;
      value.set_grad(gradients[i].clone().to(value.value().device()).view(value.shape()));
      value.call_grad_ready_hook();
    }
    return world_.ledger().total().calls;
  }
  void finish() {
    strategy_->finish_grads(*state_);
    optimizer_->step(1);
    ++state_->step;
    strategy_->after_step(*state_);
  }
  /// One update.
  void step(const std::vector<Tensor>& gradients) {
    arrive(gradients);
    finish();
  }

  /// Normal gradients that differ by rank and step, with a part that all ranks share.
  std::vector<Tensor> draw(double own_share = 1) const {
    std::vector<Tensor> gradients;
    for (const Param* p : list_) {
      const auto step = static_cast<std::uint64_t>(state_->step);
      const Tensor g(p->value.shape()), own(p->value.shape());
      fill_normal(g, 0, 1, {step, stream_of(p->name)});
      fill_normal(own, 0, own_share, {step, stream_of(p->name) + 1 + static_cast<std::uint64_t>(world_.rank())});
      for (std::int64_t i = 0; i < g.numel(); ++i) g.data<float>()[i] += own.data<float>()[i];
      gradients.push_back(g);
    }
    return gradients;
  }

  std::vector<double> gradient(std::size_t i) const { return list_[i]->value.grad().to_doubles(); }
  /// Where it lies.
  const void* gradient_place(std::size_t i) const { return list_[i]->value.grad().raw(); }
  /// All parameters of this rank.
  std::vector<double> values() const {
    std::vector<double> all;
    for (const Param* p : list_)
      for (const double v : p->value.value().to_doubles()) all.push_back(v);
    return all;
  }
  /// Makes a parameter infinite.
  void spoil() { fill(list_.front()->value.value(), std::numeric_limits<double>::infinity()); }
  /// What it keeps for a checkpoint.
  StateDict saved() const {
    StateDict state;
    strategy_->save(state);
    return state;
  }
  std::vector<double> saved(const std::string& name) const { return saved().tensor(name).to_doubles(); }
  SyncStrategy& strategy() { return *strategy_; }
  TrainState& state() { return *state_; }
  Comm& world() { return world_; }

 private:
  Comm& world_;
  std::deque<Param> params_;
  std::vector<Param*> list_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<SyncStrategy> strategy_;
  std::unique_ptr<TrainState> state_;
};

/// The mean over ranks, on every rank.
inline std::vector<double> mean_over(Comm& world, std::vector<double> values) {
  const Tensor t = Tensor::from(values, Shape{static_cast<std::int64_t>(values.size())});
  world.all_reduce(t, ReduceOp::mean);
  return t.to_doubles();
}

inline std::vector<double> plus(std::vector<double> a, const std::vector<double>& b, double factor = 1) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

inline double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

inline void on_ranks(int ranks, const std::function<void(Comm&)>& body, int ranks_per_node = 0) {
  run_thread_ranks(ranks, {.ranks_per_node = ranks_per_node}, [&](Comm& world) {
    set_compute_threads(1);
    body(world);
  });
}

/// Each rank a node of its own, joined by a network in the words of --virtual-network.
inline void on_network(int ranks, const char* words, const std::function<void(Comm&)>& body) {
  run_thread_ranks(ranks, {.ranks_per_node = 1, .wiring = {AllReduce::direct, parse_network(words)}}, [&](Comm& world) {
    set_compute_threads(1);
    body(world);
  });
}

}  // namespace ab::test
