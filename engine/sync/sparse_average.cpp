// SPDX-License-Identifier: MIT
#include "engine/sync/sparse_average.h"

#include <algorithm>
#include <cmath>

namespace ab {

std::int64_t elements_of_density(double density, std::int64_t n) {
  const auto asked = static_cast<std::int64_t>(std::floor(density * static_cast<double>(n)));
  return std::max<std::int64_t>(1, std::min(asked, n));
}

SparseAverage::SparseAverage(std::int64_t n, std::int64_t k, Comm& comm, Device device)
    : n_(n),
      k_(k),
      comm_(comm),
      selector_(n > 0 ? std::make_unique<Selector>(n, device) : nullptr),
      own_(device),
      payload_(Tensor::zeros({kSparseEntryBytes * k}, DType::uint8, device)),
      gathered_({comm.size() * kSparseEntryBytes * k}, DType::uint8, device) {}

void SparseAverage::run(const Tensor& work, const Tensor& residual, double scale, const Select& select,
                        const FiniteCheck& check) {
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

}  // namespace ab
