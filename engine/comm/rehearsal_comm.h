#pragma once
// SPDX-License-Identifier: MIT
//
// One rank of a world whose other ranks are not there. Collectives check their tensors and are counted; nothing travels.
// The other ranks are taken to bring what this one brings, where that is in host memory; a sum stays one rank's share.

#include <algorithm>

#include "engine/comm/comm.h"
#include "engine/device/shapes/shapes.h"

namespace ab {

/// What a rank has done in its world: in the order in which it happened, starts and waits of collectives between the
/// operations (engine/device/shapes/shapes.h) done before each.
struct CommEvent {
  std::int64_t flops = 0;    ///< of this thread until then
  std::int64_t request = 0;  ///< its number; the wait has that of the start
  bool starts = true;
  Collective what = Collective::barrier;
  std::string group{};
  std::string phase{};
  Route route{};
  std::int64_t bytes = 0;  ///< payload
};

/// A split of the world.
struct Partition {
  std::string name{};
  std::vector<int> group_of{};  ///< each rank
  auto operator<=>(const Partition&) const = default;
};

class RehearsalComm : public Comm {
 public:
  struct Record {
    std::vector<CommEvent> events{};
    std::int64_t requests = 0;
    std::vector<Partition> partitions{};  ///< of all splits of the world so far
  };

  /// A world as its `rank` sees it, with nodes of consecutive ranks.
  RehearsalComm(int rank, int size, const CommOptions& options)
      : RehearsalComm(rank, "world", first_ranks(size),
                      std::make_shared<Ledger>(consecutive_nodes(size, options.ranks_per_node), options.wiring),
                      std::make_shared<Record>()) {}

  bool takes_device_tensors() const override { return true; }
  void abort(const std::string& /*reason*/, int /*exit_code*/) noexcept override {}

  Record& record() { return *record_; }

 protected:
  std::unique_ptr<Comm> do_split(int /*colour*/, const std::string& name, int rank,
                                 std::vector<int> world_ranks) override {
    return std::unique_ptr<Comm>(new RehearsalComm(rank, name, std::move(world_ranks), shared_ledger(), record_));
  }
  void note_split(const ColourOf& colour_of, const std::string& name) override {
    if (this->name() != "world") return;
    Partition& partition = record_->partitions.emplace_back(Partition{.name = name});
    for (int r = 0; r < size(); ++r) partition.group_of.push_back(colour_of(r));
  }

  Request start(const CollectiveCall& call, const Tensor& in, const Tensor& out,
                const std::vector<std::int64_t>& counts) override {
    if (call.what == Collective::barrier) return {};
    if (in.device().kind == DeviceKind::cpu) bring(call, in, out, counts);
    CommEvent event{.flops = shapes_flops(),
                    .request = record_->requests++,
                    .what = call.what,
                    .group = name(),
                    .phase = shared_ledger()->phase(),
                    .route = route(call),
                    .bytes = call.bytes()};
    record_->events.push_back(event);
    return Request([record = record_, event]() mutable {
      event.starts = false;
      event.flops = shapes_flops();
      record->events.push_back(event);
    });
  }

 private:
  RehearsalComm(int rank, std::string name, std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger,
                std::shared_ptr<Record> record)
      : Comm(rank, std::move(name), std::move(world_ranks), std::move(ledger)), record_(std::move(record)) {}

  /// What ranks receive, if the others bring what this one brings.
  void bring(const CollectiveCall& call, const Tensor& in, const Tensor& out,
             const std::vector<std::int64_t>& counts) const {
    if (call.what == Collective::reduce_scatter)
      out.copy_from(in.view({-1}).slice(rank() * out.numel(), (rank() + 1) * out.numel()));
    if (call.what == Collective::all_to_all) out.copy_from(in);
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      const std::int64_t brought = std::min(count, in.numel());
      out.view({-1}).slice(begin, begin + brought).copy_from(in.view({-1}).slice(0, brought));
      begin += count;
    }
  }

  std::shared_ptr<Record> record_;
};

}  // namespace ab
