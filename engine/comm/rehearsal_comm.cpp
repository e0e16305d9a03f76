// SPDX-License-Identifier: MIT
#include "engine/comm/rehearsal_comm.h"

#include <algorithm>
#include <numeric>

#include "engine/device/shapes/shapes.h"

namespace ab {
namespace {

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

RehearsalComm::RehearsalComm(int rank, int size, const CommOptions& options)
    : RehearsalComm(rank, "world", first_ranks(size),
                    std::make_shared<Ledger>(consecutive_nodes(size, options.ranks_per_node), options.wiring),
                    std::make_shared<Record>()) {}

RehearsalComm::RehearsalComm(int rank, std::string name, std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger,
                             std::shared_ptr<Record> record)
    : Comm(rank, static_cast<int>(world_ranks.size()), std::move(name), world_ranks, std::move(ledger)),
      record_(std::move(record)) {}

void RehearsalComm::note_split(const ColourOf& colour_of) {
  if (name() != "world") return;
  Partition& partition = record_->partitions.emplace_back();
  for (int r = 0; r < size(); ++r) partition.group_of.push_back(colour_of(r));
}

std::unique_ptr<Comm> RehearsalComm::do_split(int /*colour*/, const std::string& name,
                                              const std::vector<int>& members) {
  if (this->name() == "world") record_->partitions.back().name = name;
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(world_ranks()[static_cast<std::size_t>(member)]);
  const auto own = std::lower_bound(members.begin(), members.end(), rank()) - members.begin();
  return std::unique_ptr<Comm>(
      new RehearsalComm(static_cast<int>(own), name, std::move(ranks), shared_ledger(), record_));
}

Request RehearsalComm::start(Collective what, std::size_t bytes) {
  CommEvent event{.flops = shapes_flops(),
                  .request = record_->requests++,
                  .what = what,
                  .group = name(),
                  .phase = shared_ledger()->phase(),
                  .route = route(what, bytes),
                  .bytes = static_cast<std::int64_t>(bytes)};
  record_->events.push_back(event);
  return Request([record = record_, event]() mutable {
    event.starts = false;
    event.flops = shapes_flops();
    record->events.push_back(event);
  });
}

Request RehearsalComm::do_broadcast(const Tensor& tensor, int /*root*/) {
  return start(Collective::broadcast, tensor.bytes());
}
Request RehearsalComm::do_all_reduce(const Tensor& tensor, ReduceOp /*op*/) {
  return start(Collective::all_reduce, tensor.bytes());
}
Request RehearsalComm::do_reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp /*op*/) {
  if (in.device().kind == DeviceKind::cpu)
    out.copy_from(in.view({-1}).slice(rank() * out.numel(), (rank() + 1) * out.numel()));
  return start(Collective::reduce_scatter, in.bytes());
}
Request RehearsalComm::do_all_gather_v(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& counts) {
  if (in.device().kind == DeviceKind::cpu) {
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      const std::int64_t brought = std::min(count, in.numel());
      out.view({-1}).slice(begin, begin + brought).copy_from(in.view({-1}).slice(0, brought));
      begin += count;
    }
  }
  return start(Collective::all_gather, out.bytes());
}
Request RehearsalComm::do_all_to_all(const Tensor& in, const Tensor& out) {
  if (in.device().kind == DeviceKind::cpu) out.copy_from(in);
  return start(Collective::all_to_all, in.bytes());
}

}  // namespace ab
