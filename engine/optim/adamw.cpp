// SPDX-License-Identifier: MIT
#include "engine/optim/optimizer.h"

namespace ab {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<Param*> params, const AdamWOptions& options)
      : Optimizer(std::move(params), options.weight_decay), options_(options) {}
  int moments_per_parameter() const override { return 2; }

 protected:
  void update(const UpdateTable& table, double learning_rate, const GradNorm* norm) override {
    update_all(table.slices(), AdamWRule{static_cast<float>(learning_rate), static_cast<float>(options_.epsilon),
                                         options_.beta1, options_.beta2, table.age(), norm});
  }

 private:
  AdamWOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(std::vector<Param*> params, const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(params), options);
}

}  // namespace ab
