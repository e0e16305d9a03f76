#pragma once
// SPDX-License-Identifier: MIT
//
// The mean of vectors of which every rank sends k elements that it has selected itself. Positions differ from rank to
// rank, so values travel with their indices in one all-gather, 8·k bytes a rank, and everybody adds them up in rank order.
// The elements that a rank has not sent are its residual:
//   M_i → I_i, the positions it selects      result = scale · Σ_i M_i[I_i]      E_i = M_i with zeros at I_i

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/comm/comm.h"
#include "engine/kernels/select.h"
#include "engine/kernels/sparse.h"

namespace ab {

/// How many of n elements a density stands for; at least one.
inline std::int64_t elements_of_density(double density, std::int64_t n) {
  const auto asked = static_cast<std::int64_t>(std::floor(density * static_cast<double>(n)));
  return std::max<std::int64_t>(1, std::min(asked, n));
}

class SparseAverage {
 public:
  /// Fills the indices of `count` elements of x.
  using Select =
      std::function<void(const Selector& selector, const Tensor& x, std::int64_t count, std::uint32_t* indices)>;

  /// For vectors that begin with `n` elements to choose from (others are never selected; n may be 0) on this rank. All
  /// ranks send k.
  SparseAverage(std::int64_t n, std::int64_t k, Comm& comm, Device device)
      : n_(n),
        k_(k),
        comm_(comm),
        selector_(n > 0 ? std::make_unique<Selector>(n, device) : nullptr),
        own_(device),
        payload_(Tensor::zeros({kSparseEntryBytes * k}, DType::uint8, device)),
        gathered_({comm.size() * kSparseEntryBytes * k}, DType::uint8, device) {}

  /// work: M on entry, the result on return. The residual stays as it is where a rank's M is not finite; then the result
  /// is not finite on any rank, and counts for `check`.
  void run(const Tensor& work, const Tensor& residual, double scale, const Select& select, const FiniteCheck& check) {
    const SparseView own = sparse_part(payload_, k_);
    const std::int64_t count = std::min(n_, k_);
    own_.reset();
    own_.add(work);
    if (count > 0) select(*selector_, n_ == work.numel() ? work : work.slice(0, n_), count, own.indices);
    take_values(work, own, count, own_);
    comm_.all_gather(payload_, gathered_);
    check_values(gathered_, k_, comm_.size(), check);
    check.choose(residual, work, residual);
    clear_taken(residual, own, count, check);
    work.set_zero();
    for (int rank = 0; rank < comm_.size(); ++rank) add_values(sparse_part(gathered_, k_, rank), scale, work);
  }

 private:
  std::int64_t n_, k_;
  Comm& comm_;
  std::unique_ptr<Selector> selector_;
  FiniteCheck own_;
  Tensor payload_, gathered_;
};

}  // namespace ab
