// SPDX-License-Identifier: MIT
#include "engine/comm/nccl_sharing.h"

namespace ab {

std::vector<std::pair<std::string, std::string>> nccl_sharing_environment(int rank) {
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
