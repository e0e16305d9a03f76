// SPDX-License-Identifier: MIT
#include "engine/optim/update_table.h"

#include <cstring>

namespace ab {

void UpdateTable::hold(std::vector<ParamSlice> params, Device device) {
  norm_ = {};
  ++age_;
  for (ParamSlice& p : params) p.updates -= age_;
  if (params == params_ && device == device_) return;
  for (ParamSlice& p : params) p.updates += age_;
  age_ = 0;
  params_ = std::move(params);
  device_ = device;
  cut();
}

void UpdateTable::cut() {
  std::vector<ParamSlice> slices;
  for (const ParamSlice& param : params_)
    for (std::int64_t begin = 0; begin < param.count; begin += kSliceElements) {
      ParamSlice& slice = slices.emplace_back(param);
      for (float** part : {&slice.value, &slice.first_moment, &slice.second_moment})
        if (*part) *part += begin;
      slice.grad += begin;
      slice.count = std::min(kSliceElements, param.count - begin);
    }
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(slices.data()),
                                            slices.size() * sizeof(ParamSlice));
  slices_ = Tensor::from(bytes, Shape{static_cast<std::int64_t>(bytes.size())}, device_);
  partial_ = Tensor(Shape{static_cast<std::int64_t>(slices.size())}, DType::float64, device_);
}

SliceTable UpdateTable::slices() const {
  return {device_, reinterpret_cast<const ParamSlice*>(slices_.raw()), partial_.numel()};
}

const GradNorm* UpdateTable::measure(double max_norm) {
  norm_ = Tensor(Shape{static_cast<std::int64_t>(sizeof(GradNorm))}, DType::uint8, device_);
  auto* const result = static_cast<GradNorm*>(norm_.raw());
  measure_grad_norm(slices(), max_norm, partial_.data<double>(), result);
  return result;
}

double grad_norm_of(HostRead& read) {
  if (!read.defined()) return 0;
  GradNorm result;
  std::memcpy(&result, read.get().raw(), sizeof result);
  return result.norm;
}

}  // namespace ab
