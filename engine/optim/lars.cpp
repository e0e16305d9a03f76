// SPDX-License-Identifier: MIT
#include <cstring>

#include "engine/kernels/lars.h"
#include "engine/optim/optimizer.h"

namespace ab {
namespace {

template <class T> Tensor on_device(const std::vector<T>& values, Device device) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return Tensor::from(bytes, Shape{static_cast<std::int64_t>(bytes.size())}, device);
}

class Lars final : public Optimizer {
 public:
  Lars(std::vector<Param*> params, const LarsOptions& options)
      : Optimizer(std::move(params), options.weight_decay), options_(options) {}
  int moments_per_parameter() const override { return 1; }

 protected:
  void update(const UpdateTable& table, double learning_rate, const GradNorm* norm) override {
    const SliceTable slices = table.slices();
    find_tensors(slices);
    const LarsRule rule{static_cast<float>(learning_rate), static_cast<float>(options_.momentum), options_.trust,
                        options_.epsilon, norm};
    update_all(slices,
               {static_cast<const LarsTensor*>(tensors_.raw()), static_cast<std::int64_t>(known_.size()),
                static_cast<const std::int64_t*>(tensor_of_slice_.raw()), squares_.data<double>(),
                rates_.data<float>()},
               rule);
  }

 private:
  /// The tensors that are updated this time, in the order of the table (Optimizer::step), and their elements.
  struct Known {
    std::int64_t elements;
    bool adapts;
    bool operator==(const Known&) const = default;
  };

  void find_tensors(const SliceTable& slices) {
    std::vector<Known> found;
    for (const Param* p : params())
      if (p->trainable() && p->value.grad().defined()) found.push_back({p->numel(), p->value.shape().rank() > 1});
    if (found == known_ && rates_.defined() && rates_.device() == slices.device) return;
    known_ = std::move(found);
    std::vector<LarsTensor> tensors;
    std::vector<std::int64_t> tensor_of_slice;
    for (const auto& [elements, adapts] : known_) {
      const auto first = static_cast<std::int64_t>(tensor_of_slice.size());
      const std::int64_t end = first + (elements + kSliceElements - 1) / kSliceElements;
      tensor_of_slice.resize(static_cast<std::size_t>(end), static_cast<std::int64_t>(tensors.size()));
      tensors.push_back({first, end, adapts});
    }
    AB_ASSERT(static_cast<std::int64_t>(tensor_of_slice.size()) == slices.count);
    tensors_ = on_device(tensors, slices.device);
    tensor_of_slice_ = on_device(tensor_of_slice, slices.device);
    squares_ = Tensor({2 * slices.count}, DType::float64, slices.device);
    rates_ = Tensor({static_cast<std::int64_t>(tensors.size())}, DType::float32, slices.device);
  }

  LarsOptions options_;
  std::vector<Known> known_;
  Tensor tensors_, tensor_of_slice_, squares_, rates_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(std::vector<Param*> params, const LarsOptions& options) {
  return std::make_unique<Lars>(std::move(params), options);
}

}  // namespace ab
