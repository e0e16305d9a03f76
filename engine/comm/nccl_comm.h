#pragma once
// SPDX-License-Identifier: MIT
//
// Ranks as processes with a GPU each, over NCCL. Tensors are reduced in an order that NCCL chooses: all ranks hold
// equal bits, but not always those of the other transports. NaN survives `max` here too, at the price of gathering all
// operands.
// The host does not wait for collectives on the GPU. One that fails leaves undefined values behind, and the error comes
// from a later call.
// NCCL does not compare what ranks call: ranks that disagree wait for each other until the timeout, and where they
// only disagree on sizes, results are undefined.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/texts.h"

namespace ab {

/// Throws Error(communication) when this build has no NCCL, or the machine no such GPU: to be asked before ranks wait for
/// each other.
void check_nccl(int device_index);

/// Collective. The world of the processes that `bootstrap` has joined, each with the GPU `device_index` of its
/// machine; its thread is the one that calls this. Collectives run on a stream of their own beside that thread's, in
/// one order for all groups; they take tensors on that GPU, and copy those in host memory there and back without
/// waiting for the computation under way. Throws Error(communication) without NCCL or such a GPU, and when two
/// processes have the same one, unless options.share_gpu. A rank that ends or stays away for longer than
/// options.timeout ends the collectives of all ranks with such an error; one that calls abort(), with an error of the
/// kind that its exit code says.
std::unique_ptr<Comm> make_nccl_comm(std::unique_ptr<Bootstrap> bootstrap, int device_index,
                                     const CommOptions& options);

/// The environment, as names and values, that this rank must have before the first call of NCCL where several processes share
/// one GPU, to check results where there are fewer GPUs than ranks. NCCL refuses two ranks on one GPU of one host; each process
/// therefore claims to be a host of its own, and they talk through sockets. The GPU switches between the processes in slices of
/// time, so speed means nothing.
inline std::vector<std::pair<std::string, std::string>> nccl_sharing_environment(int rank) {
  return {
      {"NCCL_HOSTID", "abtrain-rank-" + std::to_string(rank)},
      // Nothing that only works between true neighbours, or needs a network card.
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_CUMEM_ENABLE", "0"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_NET", "Socket"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      // The kernels of all ranks must fit on the GPU beside each other.
      {"NCCL_MAX_NCHANNELS", "2"},
  };
}

}  // namespace ab
