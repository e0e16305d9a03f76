// SPDX-License-Identifier: MIT
#include "engine/sync/replica_check.h"

#include "engine/core/hash.h"

namespace ab {

void check_replicas(Comm& comm, const std::vector<Tensor>& tensors, const std::string& when) {
  if (comm.size() == 1) return;
  std::uint64_t hash = 0;
  for (const Tensor& tensor : tensors) {
    const Tensor host = tensor.to(Device{});
    hash = hash64(host.raw(), host.bytes(), hash);
  }
  const Tensor all({comm.size()}, DType::int64);
  comm.all_gather(Tensor::from(std::vector<std::int64_t>{static_cast<std::int64_t>(hash)}, {1}), all);
  std::vector<int> different;
  for (int rank = 1; rank < comm.size(); ++rank)
    if (all.data<std::int64_t>()[rank] != all.data<std::int64_t>()[0]) different.push_back(rank);
  AB_CHECK_KIND(numerics, different.empty(),
                "{} the model of rank {} differs from that of rank 0, although all should hold equal bits: check that "
                "all ranks run the same binary on the same kind of processor with the same --threads",
                when, fmt::join(different, ", "));
}

}  // namespace ab
