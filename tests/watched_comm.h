#pragma once
// SPDX-License-Identifier: MIT
//
// A communicator that asks before every collective, and so do groups split off from it.

#include <algorithm>
#include <functional>

#include "engine/comm/comm.h"

namespace ab::test {

/// What a rank does when it is about to start a collective.
using AtCollective = std::function<void()>;

class WatchedComm final : public Comm {
 public:
  /// A world.
  WatchedComm(Comm& inner, AtCollective ask) : WatchedComm(inner, first_ranks(inner.size()), std::move(ask)) {}

  /// Its collectives are to be taken for those of processes.
  void set_runs_beside_computation() { beside_computation_ = true; }

  bool runs_beside_computation() const override { return beside_computation_ || inner_.runs_beside_computation(); }
  void abort(const std::string& reason, int exit_code) noexcept override { inner_.abort(reason, exit_code); }

 private:
  WatchedComm(Comm& inner, std::vector<int> ranks, AtCollective ask)
      : Comm(inner.rank(), inner.name(), std::move(ranks), ledger_of(inner)), inner_(inner), ask_(std::move(ask)) {}
  WatchedComm(std::unique_ptr<Comm> inner, std::vector<int> ranks, AtCollective ask)
      : WatchedComm(*inner, std::move(ranks), std::move(ask)) {
    owned_ = std::move(inner);
  }

  /// The inner one books what travels; this one's books are thrown away.
  static std::shared_ptr<Ledger> ledger_of(Comm& inner) { return std::make_shared<Ledger>(inner.ledger()); }

  std::unique_ptr<Comm> do_split(int /*colour*/, const std::string& name, int /*rank*/,
                                 std::vector<int> world_ranks) override {
    const auto colour_of = [&](int rank) {
      const bool is_here = std::ranges::find(world_ranks, world_rank(rank)) != world_ranks.end();
      return is_here ? 1 + world_ranks.front() : 0;
    };
    auto inner = inner_.split(colour_of, name);
    return std::unique_ptr<Comm>(new WatchedComm(std::move(inner), std::move(world_ranks), ask_));
  }
  Request start(const CollectiveCall& call, const Tensor& in, const Tensor& out,
                const std::vector<std::int64_t>& counts) override {
    if (call.what != Collective::barrier) ask_();
    return inner_.run(call, in, out, counts);
  }

  Comm& inner_;
  std::unique_ptr<Comm> owned_;
  AtCollective ask_;
  bool beside_computation_ = false;
};

}  // namespace ab::test
