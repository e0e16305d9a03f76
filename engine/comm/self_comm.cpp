// SPDX-License-Identifier: MIT
//
// A world of one rank.
#include "engine/comm/comm.h"

namespace ab {
namespace {

void copy_unless_same(const Tensor& in, const Tensor& out) {
  if (in.raw() != out.raw()) out.copy_from(in);
}

class SelfComm final : public Comm {
 public:
  SelfComm(std::string name, std::shared_ptr<Ledger> ledger) : Comm(0, 1, std::move(name), {0}, std::move(ledger)) {}

  bool takes_device_tensors() const override { return true; }
  void abort(const std::string& /*reason*/, int /*exit_code*/) noexcept override {}

 protected:
  std::unique_ptr<Comm> do_split(int /*colour*/, const std::string& name, const std::vector<int>&) override {
    return std::make_unique<SelfComm>(name, shared_ledger());
  }
  void do_barrier() override {}
  Request do_broadcast(const Tensor& /*tensor*/, int /*root*/) override { return {}; }
  Request do_all_reduce(const Tensor& /*tensor*/, ReduceOp /*op*/) override { return {}; }
  Request do_reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp /*op*/) override {
    copy_unless_same(in, out);
    return {};
  }
  Request do_all_gather_v(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& /*counts*/) override {
    copy_unless_same(in, out);
    return {};
  }
};

}  // namespace

std::unique_ptr<Comm> make_self_comm(const CommOptions& options) {
  return std::make_unique<SelfComm>(
      "world", std::make_shared<Ledger>(consecutive_nodes(1, options.ranks_per_node), options.wiring));
}

}  // namespace ab
