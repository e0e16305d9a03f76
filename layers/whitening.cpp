// SPDX-License-Identifier: MIT
#include "layers/whitening.h"

#include <array>
#include <cmath>

#include "engine/backend/factorisations.h"
#include "engine/ops/conv.h"
#include "engine/ops/elementwise.h"

namespace ab {
namespace {

constexpr std::int64_t kSide = 2, kChannels = 3, kPatch = kSide * kSide * kChannels;
constexpr double kEpsilon = 5e-4;

/// E[p pᵀ] over all patches, a patch in the order of a filter.   [12, 12] float64
Tensor patch_moments(const Tensor& images) {
  const std::int64_t height = images.dim(1), width = images.dim(2), row_size = width * kChannels;
  const std::int64_t rows = images.dim(0) * (height - 1);
  const Tensor result = Tensor::zeros({kPatch, kPatch}, DType::float64);
  double* const moments = result.data<double>();
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* upper = images.data<float>() + (row / (height - 1) * height + row % (height - 1)) * row_size;
    std::array<double, kPatch * kPatch> of_row{};
    for (std::int64_t x = 0; x + 1 < width; ++x) {
      std::array<double, kPatch> patch;
      for (std::int64_t i = 0; i < kPatch / 2; ++i) {
        patch[static_cast<std::size_t>(i)] = upper[x * kChannels + i];
        patch[static_cast<std::size_t>(kPatch / 2 + i)] = upper[row_size + x * kChannels + i];
      }
      for (std::size_t i = 0; i < kPatch; ++i)
        for (std::size_t j = 0; j < kPatch; ++j) of_row[i * kPatch + j] += patch[i] * patch[j];
    }
    for (std::size_t i = 0; i < of_row.size(); ++i) moments[i] += of_row[i];
  }
  for (std::int64_t i = 0; i < kPatch * kPatch; ++i) moments[i] /= static_cast<double>(rows * (width - 1));
  return result;
}

}  // namespace

Whitening::Whitening(const std::string& name, const Build& build)
    : name_(name),
      filters_(initial_value(name + ".weight", {kFilters, kSide, kSide, kChannels}, uniform_fan_in(kPatch), build)) {}

void Whitening::fit(const Tensor& images) {
  AB_CHECK(images.rank() == 4 && images.dim(0) > 0 && images.dim(1) >= kSide && images.dim(2) >= kSide &&
               images.dim(3) == kChannels && images.dtype() == DType::float32,
           "whitening: needs float32 images [N, H, W, 3] of at least 2×2, got {}", images.shape().str());
  const SymmetricEigen eigen = symmetric_eigen(patch_moments(images));
  const Tensor filters(filters_.shape(), DType::float32);
  for (std::int64_t v = 0; v < kPatch; ++v)
    for (std::int64_t i = 0; i < kPatch; ++i) {
      const double lambda = std::max(0.0, eigen.values[static_cast<std::size_t>(v)]);
      const double value = eigen.vectors.data<double>()[v * kPatch + i] / std::sqrt(lambda + kEpsilon);
      filters.data<float>()[v * kPatch + i] = static_cast<float>(value);
      filters.data<float>()[(kPatch + v) * kPatch + i] = static_cast<float>(-value);
    }
  filters_.copy_from(filters.to(filters_.device()));
}

Var Whitening::forward(const Var& x) { return conv2d(x, cast(Var(filters_), x.value().dtype()), {}, {}); }

void Whitening::list(Inventory& inventory) {
  inventory.buffers.push_back({name_ + ".weight", filters_, /*frozen=*/true});
  inventory.whitenings.push_back(this);
}

}  // namespace ab
