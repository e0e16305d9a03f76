// SPDX-License-Identifier: MIT
#include "engine/sync/replica_strategy.h"

#include <algorithm>

#include "engine/core/hash.h"
#include "engine/sync/flat.h"

namespace ab {

std::vector<Tensor> Replica::values() const {
  std::vector<Tensor> all;
  for (const Param* param : params) all.push_back(param->value.value());
  return all;
}

std::vector<Tensor> Replica::tensors() const {
  std::vector<Tensor> all = values();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

ReplicaStrategy::ReplicaStrategy(Replica replica, Comm& world, SyncBn scope, const ColourOf& group_of)
    : world_(world), replica_(std::move(replica)), batch_norms_(scope, replica_.batch_norms, world, group_of) {
  batch_norms_.enter(scope == SyncBn::group);
  std::vector<Tensor> all = replica_.tensors();
  all.insert(all.end(), replica_.frozen.begin(), replica_.frozen.end());
  if (!replica_.equal) broadcast_flat(world_, all, 0);
}

void ReplicaStrategy::average_buffers() { all_reduce_flat(world_, replica_.buffers, ReduceOp::mean); }

void ReplicaStrategy::set_aside() {
  for (const Tensor& tensor : replica_.tensors()) aside_.push_back(tensor.clone());
}

void ReplicaStrategy::end_evaluation(TrainState&) {
  const std::vector<Tensor> tensors = replica_.tensors();
  for (std::size_t i = 0; i < aside_.size(); ++i) tensors[i].copy_from(aside_[i]);
  aside_.clear();
}

namespace {

/// The ranks whose hashes are not those of rank 0, and the first of the hashes that differs.
struct Difference {
  std::vector<int> ranks;
  std::size_t first = 0;
};

Difference difference_from_first(Comm& comm, const std::vector<std::int64_t>& hashes) {
  const auto count = static_cast<std::int64_t>(hashes.size());
  const Tensor all({comm.size(), count}, DType::int64);
  comm.all_gather(Tensor::from(hashes, {count}), all);
  const auto hash = [&](int rank, std::int64_t i) { return all.data<std::int64_t>()[rank * count + i]; };
  Difference difference{{}, hashes.size()};
  for (int rank = 1; rank < comm.size(); ++rank)
    for (std::int64_t i = 0; i < count; ++i) {
      if (hash(rank, i) == hash(0, i)) continue;
      difference.ranks.push_back(rank);
      difference.first = std::min(difference.first, static_cast<std::size_t>(i));
      break;
    }
  return difference;
}

}  // namespace

void check_replicas(Comm& comm, const std::vector<Tensor>& tensors, const std::string& when,
                    const std::vector<std::string>& names) {
  if (comm.size() == 1) return;
  std::vector<std::int64_t> hashes;
  for (const Tensor& tensor : tensors) {
    if (tensor.device().kind == DeviceKind::shapes) continue;
    const Tensor host = tensor.to(Device{});
    hashes.push_back(static_cast<std::int64_t>(hash64(host.raw(), host.bytes(), 0)));
  }
  const std::uint64_t of_all = hash64(hashes.data(), hashes.size() * sizeof(hashes[0]), 0);
  if (difference_from_first(comm, {static_cast<std::int64_t>(of_all)}).ranks.empty()) return;
  const auto [ranks, first] = difference_from_first(comm, hashes);
  const std::string where = first < names.size() ? fmt::format(", first in {}", names[first]) : "";
  throw Error(
      ErrorKind::numerics,
      fmt::format("{} the model of rank {} differs from that of rank 0{}, although all should hold equal bits: "
                  "check that all ranks run the same binary on the same kind of processor with the same --threads",
                  when, fmt::join(ranks, ", "), where));
}

}  // namespace ab
