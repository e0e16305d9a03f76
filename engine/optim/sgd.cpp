// SPDX-License-Identifier: MIT
#include "engine/optim/optimizer.h"

namespace ab {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<Param*> params, const SgdOptions& options)
      : Optimizer(std::move(params), options.weight_decay), options_(options) {}
  int moments_per_parameter() const override { return 1; }

 protected:
  void update(const UpdateTable& table, double learning_rate, const GradNorm* norm) override {
    update_all(table.slices(), SgdRule{static_cast<float>(learning_rate), static_cast<float>(options_.momentum),
                                       options_.nesterov, norm});
  }

 private:
  SgdOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<Param*> params, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(params), options);
}

}  // namespace ab
