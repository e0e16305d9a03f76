#pragma once
// SPDX-License-Identifier: MIT
//
// A communicator that asks before every collective, and so do groups split off from it.

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/comm/comm.h"

namespace ab::test {

/// What a rank does when it is about to start a collective.
using AtCollective = std::function<void()>;

class WatchedComm final : public Comm {
 public:
  /// A world.
  WatchedComm(Comm& inner, AtCollective ask) : WatchedComm(inner, first(inner.size()), std::move(ask)) {}

  /// Its collectives are to be taken for those of processes.
  void set_runs_beside_computation() { beside_computation_ = true; }

  bool runs_beside_computation() const override { return beside_computation_ || inner_.runs_beside_computation(); }
  void abort(const std::string& reason, int exit_code) noexcept override { inner_.abort(reason, exit_code); }

 private:
  WatchedComm(Comm& inner, std::vector<int> ranks, AtCollective ask)
      : Comm(inner.rank(), inner.size(), inner.name(), std::move(ranks), ledger_of(inner)),
        inner_(inner),
        ask_(std::move(ask)) {}
  WatchedComm(std::unique_ptr<Comm> inner, std::vector<int> ranks, AtCollective ask)
      : WatchedComm(*inner, std::move(ranks), std::move(ask)) {
    owned_ = std::move(inner);
  }

  static std::vector<int> first(int ranks) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  /// The inner one books what travels; this one's books are thrown away.
  static std::shared_ptr<Ledger> ledger_of(Comm& inner) { return std::make_shared<Ledger>(inner.ledger()); }

  std::unique_ptr<Comm> do_split(int /*colour*/, const std::string& name, const std::vector<int>& members) override {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(world_ranks()[static_cast<std::size_t>(member)]);
    const auto colour_of = [&](int rank) {
      return std::ranges::find(members, rank) == members.end() ? size() : members.front();
    };
    return std::unique_ptr<Comm>(new WatchedComm(inner_.split(colour_of, name), std::move(ranks), ask_));
  }
  void do_barrier() override { inner_.barrier(); }
  Request do_broadcast(const Tensor& tensor, int root) override {
    ask_();
    return inner_.broadcast_async(tensor, root);
  }
  Request do_all_reduce(const Tensor& tensor, ReduceOp op) override {
    ask_();
    return inner_.all_reduce_async(tensor, op);
  }
  Request do_reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op) override {
    ask_();
    return inner_.reduce_scatter_async(in, out, op);
  }
  Request do_all_gather_v(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& counts) override {
    ask_();
    return inner_.all_gather_v_async(in, out, counts);
  }
  Request do_all_to_all(const Tensor& in, const Tensor& out) override {
    ask_();
    return inner_.all_to_all_async(in, out);
  }

  Comm& inner_;
  std::unique_ptr<Comm> owned_;
  AtCollective ask_;
  bool beside_computation_ = false;
};

}  // namespace ab::test
