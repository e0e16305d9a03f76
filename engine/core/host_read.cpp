// SPDX-License-Identifier: MIT
#include "engine/core/host_read.h"

namespace ab {

HostRead::HostRead(const Tensor& tensor) : values_(tensor.shape(), tensor.dtype()) {
  AB_ASSERT(tensor.bytes() <= kHostCopyBytes);
  copy_ = memory(tensor.device()).start_copy_to_host(tensor.raw(), tensor.bytes());
}

const Tensor& HostRead::get() {
  if (copy_) memory(Device{}).copy_from_host(values_.raw(), copy_->wait(), values_.bytes());
  copy_.reset();
  return values_;
}

}  // namespace ab
