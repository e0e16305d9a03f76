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
    const LarsTable tensors{static_cast<const LarsTensor*>(tensors_.raw()),
                            static_cast<const std::int64_t*>(tensor_of_slice_.raw()), squares_.data<double>(),
                            rates_.data<float>()};
    find_rates(slices, tensors, own_, rule);
    if (options_.sharing) {
      own_rates_.copy_from(rates_.slice(own_.first, own_.end));
      options_.sharing->all_gather_v(own_rates_, rates_, counts_);
    }
    update_all(slices, tensors, rule);
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
    share_out(tensors);
    tensors_ = on_device(tensors, slices.device);
    tensor_of_slice_ = on_device(tensor_of_slice, slices.device);
    squares_ = Tensor({2 * slices.count}, DType::float64, slices.device);
    rates_ = Tensor({static_cast<std::int64_t>(tensors.size())}, DType::float32, slices.device);
    own_rates_ = Tensor({own_.end - own_.first}, DType::float32, slices.device);
  }

  /// A tensor belongs to the rank in whose equal part of all slices its middle lies.
  void share_out(const std::vector<LarsTensor>& tensors) {
    const int ranks = options_.sharing ? options_.sharing->size() : 1,
              own = options_.sharing ? options_.sharing->rank() : 0;
    const std::int64_t slices = tensors.empty() ? 0 : tensors.back().end;
    counts_.assign(static_cast<std::size_t>(ranks), 0);
    own_ = {};
    std::int64_t tensor = 0, slice = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const LarsRange before{tensor, tensor, slice, slice};
      for (; tensor < std::ssize(tensors); ++tensor) {
        const LarsTensor& next = tensors[static_cast<std::size_t>(tensor)];
        if ((next.first + next.end) * ranks >= 2 * slices * (rank + 1) && rank + 1 < ranks) break;
        slice = next.end;
      }
      counts_[static_cast<std::size_t>(rank)] = tensor - before.first;
      if (rank == own) own_ = {before.first, tensor, before.first_slice, slice};
    }
  }

  LarsOptions options_;
  std::vector<Known> known_;
  LarsRange own_{};                   ///< what this rank works out
  std::vector<std::int64_t> counts_;  ///< tensors of each rank
  Tensor tensors_, tensor_of_slice_, squares_, rates_, own_rates_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(std::vector<Param*> params, const LarsOptions& options) {
  return std::make_unique<Lars>(std::move(params), options);
}

}  // namespace ab
