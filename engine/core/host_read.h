#pragma once
// SPDX-License-Identifier: MIT
//
// Reading a few values of a device without waiting for it. A read takes its place behind the work that has been
// issued so far; whoever looks at it later, when more work has been issued, leaves the device nothing to wait for.
//
//   HostRead read(loss);   // issued
//   …                      // the next step is issued
//   read.item();           // what the loss was at that time; waits for the copy alone

#include "engine/core/memory.h"
#include "engine/core/tensor.h"

namespace ab {

class HostRead {
 public:
  HostRead() = default;
  /// Reads at most kHostCopyBytes. The tensor may change, or go, as soon as this has returned.
  explicit HostRead(const Tensor& tensor);

  bool defined() const { return values_.defined(); }
  /// The values, in host memory. On the thread that made this.
  const Tensor& get();
  /// The only one, as a double.
  double item() { return get().item(); }

 private:
  std::unique_ptr<HostCopy> copy_;  // until it has been waited for
  Tensor values_;
};

}  // namespace ab
