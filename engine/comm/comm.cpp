// SPDX-License-Identifier: MIT
#include "engine/comm/comm.h"

#include <numeric>

#include "engine/comm/collective_call.h"

namespace ab {
namespace {

void check_tensor(Collective what, const Tensor& tensor) {
  AB_CHECK(tensor.defined(), "{}: the tensor is undefined", name_of(what));
}

void check_same_device(Collective what, const Tensor& in, const Tensor& out) {
  AB_CHECK(in.device() == out.device(), "{}: input and output are on different devices; move one with to()",
           name_of(what));
}

void check_reducible(Collective what, const Tensor& tensor, ReduceOp op) {
  check_tensor(what, tensor);
  AB_CHECK(tensor.dtype() != DType::uint8, "{}: reduces numbers, got uint8", name_of(what));
  AB_CHECK(tensor.dtype() != DType::int64 || op != ReduceOp::mean, "{}: the mean of int64 is not an int64; use sum",
           name_of(what));
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::mean: return "mean";
    case ReduceOp::max: return "max";
  }
  return "?";
}

/// Counts the time of a scope as waiting.
class Waiting {
 public:
  explicit Waiting(Ledger& ledger) : ledger_(ledger) {}
  ~Waiting() {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    ledger_.add_waiting(seconds.count());
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Ledger& ledger_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Comm::Comm(int rank, int size, std::string name, std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger)
    : rank_(rank),
      size_(size),
      name_(std::move(name)),
      world_ranks_(std::move(world_ranks)),
      ledger_(std::move(ledger)),
      layout_(ledger_->layout_of(world_ranks_)) {
  AB_ASSERT(world_ranks_.size() == static_cast<std::size_t>(size_) && 0 <= rank_ && rank_ < size_);
}

std::unique_ptr<Comm> Comm::split(const ColourOf& colour_of, const std::string& name) {
  const int colour = colour_of(rank_);
  std::vector<int> members;
  for (int r = 0; r < size_; ++r) {
    AB_CHECK(colour_of(r) >= 0, "split: a colour is at least 0, got {} of rank {}", colour_of(r), r);
    if (colour_of(r) == colour) members.push_back(r);
  }
  note_split(colour_of);
  do_barrier();  // none is missing, where a transport's own split could wait without limit
  return do_split(colour, name, members);
}

void Comm::barrier() {
  count(Collective::barrier, 0);
  const Waiting waiting(*ledger_);
  do_barrier();
}

/// Counts the time of its wait(). `reached`: what the transport writes; copied to `out` if that is a tensor beyond its
/// reach.
Request Comm::waiting(Request started, const Tensor& reached, const Tensor& out) {
  return Request([ledger = ledger_, started = std::make_shared<Request>(std::move(started)), reached, out] {
    const Waiting waiting(*ledger);
    started->wait();
    if (reached.raw() != out.raw()) out.copy_from(reached);
  });
}

Request Comm::broadcast_async(const Tensor& tensor, int root) {
  check_tensor(Collective::broadcast, tensor);
  AB_CHECK(0 <= root && root < size_, "broadcast: root {} is not a rank of group '{}' of {}", root, name_, size_);
  count(Collective::broadcast, tensor.bytes());
  const Tensor reached = reaches(tensor) ? tensor : tensor.to(Device{});
  return waiting(do_broadcast(reached, root), reached, tensor);
}

Request Comm::all_reduce_async(const Tensor& tensor, ReduceOp op) {
  check_reducible(Collective::all_reduce, tensor, op);
  count(Collective::all_reduce, tensor.bytes());
  const Tensor reached = reaches(tensor) ? tensor : tensor.to(Device{});
  return waiting(do_all_reduce(reached, op), reached, tensor);
}

void Comm::count_all_reduce_alone(std::int64_t bytes) {
  AB_ASSERT(size_ == 1);
  count(Collective::all_reduce, static_cast<std::size_t>(bytes));
}

Request Comm::reduce_scatter_async(const Tensor& in, const Tensor& out, ReduceOp op) {
  check_reducible(Collective::reduce_scatter, in, op);
  check_tensor(Collective::reduce_scatter, out);
  check_same_device(Collective::reduce_scatter, in, out);
  AB_CHECK(in.dtype() == out.dtype() && in.numel() == size_ * out.numel(),
           "reduce_scatter over {} ranks: {} elements of {} do not give {} of {} to each", size_, in.numel(),
           name_of(in.dtype()), out.numel(), name_of(out.dtype()));
  count(Collective::reduce_scatter, in.bytes());
  const Tensor part = reaches(in) ? out : Tensor(out.shape(), out.dtype());
  return waiting(do_reduce_scatter(reaches(in) ? in : in.to(Device{}), part, op), part, out);
}

Request Comm::all_gather_async(const Tensor& in, const Tensor& out) {
  return all_gather_v_async(in, out, std::vector<std::int64_t>(static_cast<std::size_t>(size_), in.numel()));
}

Request Comm::all_gather_v_async(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& counts) {
  check_tensor(Collective::all_gather, in);
  check_tensor(Collective::all_gather, out);
  check_same_device(Collective::all_gather, in, out);
  AB_CHECK(counts.size() == static_cast<std::size_t>(size_), "all_gather: {} counts for {} ranks", counts.size(),
           size_);
  for (const std::int64_t n : counts) AB_CHECK(n >= 0, "all_gather: a rank cannot contribute {} elements", n);
  AB_CHECK(in.numel() == counts[static_cast<std::size_t>(rank_)],
           "all_gather: rank {} of group '{}' brings {} elements, its count says {}", rank_, name_, in.numel(),
           counts[static_cast<std::size_t>(rank_)]);
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  AB_CHECK(in.dtype() == out.dtype() && out.numel() == total,
           "all_gather: {} elements of {} do not fit an output of {} of {}", total, name_of(in.dtype()), out.numel(),
           name_of(out.dtype()));
  count(Collective::all_gather, out.bytes());
  const Tensor parts = reaches(in) ? out : Tensor(out.shape(), out.dtype());
  return waiting(do_all_gather_v(reaches(in) ? in : in.to(Device{}), parts, counts), parts, out);
}

Request Comm::all_to_all_async(const Tensor& in, const Tensor& out) {
  check_tensor(Collective::all_to_all, in);
  check_tensor(Collective::all_to_all, out);
  check_same_device(Collective::all_to_all, in, out);
  AB_CHECK(in.dtype() == out.dtype() && in.numel() == out.numel() && in.numel() % size_ == 0,
           "all_to_all over {} ranks: {} elements of {} do not go into {} of {} in equal parts", size_, in.numel(),
           name_of(in.dtype()), out.numel(), name_of(out.dtype()));
  count(Collective::all_to_all, in.bytes());
  const Tensor parts = reaches(in) ? out : Tensor(out.shape(), out.dtype());
  return waiting(do_all_to_all(reaches(in) ? in : in.to(Device{}), parts), parts, out);
}

bool Comm::reaches(const Tensor& tensor) const {
  return tensor.device().kind == DeviceKind::cpu || takes_device_tensors();
}

void Comm::count(Collective what, std::size_t payload_bytes) {
  ledger_->count(what, name_, layout_, static_cast<std::int64_t>(payload_bytes));
}

std::string CollectiveCall::str() const {
  const bool reduces = what == Collective::all_reduce || what == Collective::reduce_scatter;
  std::string text = name_of(what);
  if (reduces) text += fmt::format("({})", name_of(op));
  if (what == Collective::broadcast) text += fmt::format("(root {})", root);
  if (what != Collective::barrier) text += fmt::format(" of {} {}", elements, name_of(dtype));
  return text;
}

CollectiveCall CollectiveCall::of_kind(int kind) {
  return {.what = static_cast<Collective>(kind / (kDTypeCount * 3)),
          .dtype = static_cast<DType>(kind / 3 % kDTypeCount),
          .op = static_cast<ReduceOp>(kind % 3)};
}

std::vector<ElementRange> segment_ranges(const Route& route, const CollectiveCall& call) {
  const auto size = static_cast<std::int64_t>(size_of(call.dtype));
  const std::int64_t window = segment_bytes(route) / size;
  std::vector<ElementRange> ranges;
  for (std::int64_t begin = 0; begin < call.elements || ranges.empty(); begin += window)
    ranges.push_back({begin, std::min(begin + window, call.elements)});
  return ranges;
}

ElementRange part_of_rank(std::int64_t elements, int rank, int ranks) {
  const std::int64_t share = elements / ranks, rest = elements % ranks;
  const auto begin = [&](std::int64_t r) { return r * share + std::min(r, rest); };
  return {begin(rank), begin(rank + 1)};
}

std::string list_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// A world of one rank.

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
  Request do_all_to_all(const Tensor& in, const Tensor& out) override {
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
