// SPDX-License-Identifier: MIT
#include "engine/kernels/orthonormal_rows.h"

#include <algorithm>
#include <cstring>

namespace ab {

OrthonormalRows::OrthonormalRows(std::vector<FactorRows> factors, Device device)
    : count_(static_cast<std::int64_t>(factors.size())) {
  std::int64_t elements = 0;
  for (const FactorRows& f : factors) {
    AB_ASSERT(f.count <= f.length);
    elements += (f.count + 1) * (f.count + 1);
    most_rows_ = std::max(most_rows_, f.count);
    most_columns_ = std::max(most_columns_, f.length);
  }
  grams_ = Tensor(Shape{elements}, DType::float64, device);
  double* gram = grams_.data<double>();
  for (FactorRows& f : factors) {
    f.gram = gram;
    gram += (f.count + 1) * (f.count + 1);
  }
  std::vector<std::uint8_t> bytes(factors.size() * sizeof(FactorRows));
  if (!factors.empty()) std::memcpy(bytes.data(), factors.data(), bytes.size());
  table_ = Tensor::from(bytes, Shape{static_cast<std::int64_t>(bytes.size())}, device);
}

void OrthonormalRows::make(std::uint64_t seed, std::int64_t step) const {
  if (count_ == 0) return;
  const Device device = table_.device();
  const std::int64_t blocks = (most_columns_ + kernels::TurnRows::kColumns - 1) / kernels::TurnRows::kColumns;
  for (int turn = 0; turn < kTurns; ++turn) {
    for_each_row(device, count_ * most_rows_, most_columns_, kernels::GramOfRows{factors(), most_rows_, turn});
    for_each_row(device, count_, kParallelGrain, kernels::InvertCholesky{factors(), seed, factor_draw(step), turn});
    for_each_row(device, count_ * blocks, kernels::TurnRows::kColumns, kernels::TurnRows{factors(), blocks, turn});
  }
}

}  // namespace ab
