// SPDX-License-Identifier: MIT
#include "engine/comm/rehearsal_comm.h"

#include <algorithm>

#include "engine/comm/collective_call.h"
#include "engine/device/shapes/shapes.h"

namespace ab {
namespace {

/// What ranks receive, if the others bring what this one brings.
void bring(const CollectiveCall& call, int rank, const Tensor& in, const Tensor& out,
           const std::vector<std::int64_t>& counts) {
  if (call.what == Collective::reduce_scatter)
    out.copy_from(in.view({-1}).slice(rank * out.numel(), (rank + 1) * out.numel()));
  if (call.what == Collective::all_to_all) out.copy_from(in);
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    const std::int64_t brought = std::min(count, in.numel());
    out.view({-1}).slice(begin, begin + brought).copy_from(in.view({-1}).slice(0, brought));
    begin += count;
  }
}

}  // namespace

RehearsalComm::RehearsalComm(int rank, int size, const CommOptions& options)
    : RehearsalComm(rank, "world", first_ranks(size),
                    std::make_shared<Ledger>(consecutive_nodes(size, options.ranks_per_node), options.wiring),
                    std::make_shared<Record>()) {}

void RehearsalComm::note_split(const ColourOf& colour_of, const std::string& name) {
  if (this->name() != "world") return;
  Partition& partition = record_->partitions.emplace_back(Partition{.name = name});
  for (int r = 0; r < size(); ++r) partition.group_of.push_back(colour_of(r));
}

std::unique_ptr<Comm> RehearsalComm::do_split(int /*colour*/, const std::string& name, int rank,
                                              std::vector<int> world_ranks) {
  return std::unique_ptr<Comm>(new RehearsalComm(rank, name, std::move(world_ranks), shared_ledger(), record_));
}

Request RehearsalComm::start(const CollectiveCall& call, const Tensor& in, const Tensor& out,
                             const std::vector<std::int64_t>& counts) {
  if (call.what == Collective::barrier) return {};
  if (in.device().kind == DeviceKind::cpu) bring(call, rank(), in, out, counts);
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

}  // namespace ab
