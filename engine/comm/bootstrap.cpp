// SPDX-License-Identifier: MIT
#include "engine/comm/bootstrap.h"

#include "engine/comm/gather_texts.h"

namespace ab {
namespace {

class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(const CommOptions& options) : world_(make_mpi_comm(options)) {}

  int rank() const override { return world_->rank(); }
  int ranks() const override { return world_->size(); }
  std::vector<std::string> gather_texts(const std::string& mine) override { return ab::gather_texts(*world_, mine); }
  std::optional<Error> failure() override { return std::nullopt; }
  bool reports_failures() const override { return false; }
  void abort(const std::string& reason, int exit_code) noexcept override { world_->abort(reason, exit_code); }

 private:
  std::unique_ptr<Comm> world_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_mpi_bootstrap(const CommOptions& options) {
  return std::make_unique<MpiBootstrap>(options);
}

}  // namespace ab
