// SPDX-License-Identifier: MIT
#include "engine/comm/comm.h"

#include <numeric>

namespace ab {
namespace {

void check_tensors(Collective what, const Tensor& in, const Tensor& out) {
  AB_CHECK(in.defined() && out.defined(), "{}: the tensor is undefined", name_of(what));
  AB_CHECK(in.device() == out.device(), "{}: input and output are on different devices; move one with to()",
           name_of(what));
}

void check_reducible(Collective what, const Tensor& tensor, ReduceOp op) {
  AB_CHECK(tensor.dtype() != DType::uint8, "{}: reduces numbers, got uint8", name_of(what));
  AB_CHECK(tensor.dtype() != DType::int64 || op != ReduceOp::mean, "{}: the mean of int64 is not an int64; use sum",
           name_of(what));
}

const char* name_of(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "max"};
  return kNames[static_cast<int>(op)];
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

/// A world of one rank.
class SelfComm final : public Comm {
 public:
  SelfComm(std::string name, std::shared_ptr<Ledger> ledger) : Comm(0, std::move(name), {0}, std::move(ledger)) {}

  bool takes_device_tensors() const override { return true; }
  void abort(const std::string& /*reason*/, int /*exit_code*/) noexcept override {}

 protected:
  std::unique_ptr<Comm> do_split(int /*colour*/, const std::string& name, int /*rank*/, std::vector<int>) override {
    return std::make_unique<SelfComm>(name, shared_ledger());
  }
  Request start(const CollectiveCall& /*call*/, const Tensor& in, const Tensor& out,
                const std::vector<std::int64_t>& /*counts*/) override {
    if (in.raw() != out.raw()) out.copy_from(in);
    return {};
  }
};

}  // namespace

Comm::Comm(int rank, std::string name, std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger)
    : rank_(rank),
      name_(std::move(name)),
      world_ranks_(std::move(world_ranks)),
      ledger_(std::move(ledger)),
      layout_(ledger_->layout_of(world_ranks_)) {
  AB_ASSERT(0 <= rank_ && rank_ < size());
}

std::unique_ptr<Comm> Comm::split(const ColourOf& colour_of, const std::string& name) {
  const int colour = colour_of(rank_);
  int new_rank = 0;
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    AB_CHECK(colour_of(r) >= 0, "split: a colour is at least 0, got {} of rank {}", colour_of(r), r);
    if (colour_of(r) != colour) continue;
    if (r < rank_) ++new_rank;
    members.push_back(world_rank(r));
  }
  note_split(colour_of, name);
  start({}, {}, {}, {}).wait();  // none is missing, where a transport's own split could wait without limit
  return do_split(colour, name, new_rank, std::move(members));
}

Request Comm::run(const CollectiveCall& call, const Tensor& in, const Tensor& out,
                  const std::vector<std::int64_t>& counts) {
  ledger_->count(call.what, name_, layout_, call.bytes());
  const bool reaches = in.device().kind == DeviceKind::cpu || takes_device_tensors();
  const bool in_place = in.raw() == out.raw() && in.numel() == out.numel();
  const Tensor from = reaches ? in : in.to(Device{});
  const Tensor into = reaches ? out : in_place ? from : Tensor(out.shape(), out.dtype());
  const auto started = std::make_shared<Request>(start(call, from, into, counts));
  return Request([ledger = ledger_, started, into, out] {
    const Waiting waiting(*ledger);
    started->wait();
    if (into.raw() != out.raw()) out.copy_from(into);
  });
}

Route Comm::route(const CollectiveCall& call) const { return ledger_->route(call.what, layout_, call.bytes()); }

void Comm::barrier() { run({}, {}, {}).wait(); }

Request Comm::broadcast_async(const Tensor& tensor, int root) {
  check_tensors(Collective::broadcast, tensor, tensor);
  AB_CHECK(0 <= root && root < size(), "broadcast: root {} is not a rank of group '{}' of {}", root, name_, size());
  return run({.what = Collective::broadcast, .dtype = tensor.dtype(), .elements = tensor.numel(), .root = root}, tensor,
             tensor);
}

Request Comm::all_reduce_async(const Tensor& tensor, ReduceOp op) {
  check_tensors(Collective::all_reduce, tensor, tensor);
  check_reducible(Collective::all_reduce, tensor, op);
  return run({.what = Collective::all_reduce, .dtype = tensor.dtype(), .elements = tensor.numel(), .op = op}, tensor,
             tensor);
}

void Comm::count_all_reduce_alone(std::int64_t bytes) {
  AB_ASSERT(size() == 1);
  ledger_->count(Collective::all_reduce, name_, layout_, bytes);
}

Request Comm::reduce_scatter_async(const Tensor& in, const Tensor& out, ReduceOp op) {
  check_tensors(Collective::reduce_scatter, in, out);
  check_reducible(Collective::reduce_scatter, in, op);
  AB_CHECK(in.dtype() == out.dtype() && in.numel() == size() * out.numel(),
           "reduce_scatter over {} ranks: {} elements of {} do not give {} of {} to each", size(), in.numel(),
           name_of(in.dtype()), out.numel(), name_of(out.dtype()));
  return run({.what = Collective::reduce_scatter, .dtype = in.dtype(), .elements = in.numel(), .op = op}, in, out);
}

Request Comm::all_gather_async(const Tensor& in, const Tensor& out) {
  return all_gather_v_async(in, out, std::vector<std::int64_t>(world_ranks_.size(), in.numel()));
}

Request Comm::all_gather_v_async(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& counts) {
  check_tensors(Collective::all_gather, in, out);
  AB_CHECK(counts.size() == world_ranks_.size(), "all_gather: {} counts for {} ranks", counts.size(), size());
  for (const std::int64_t n : counts) AB_CHECK(n >= 0, "all_gather: a rank cannot contribute {} elements", n);
  const std::int64_t own = counts[static_cast<std::size_t>(rank_)];
  AB_CHECK(in.numel() == own, "all_gather: rank {} of group '{}' brings {} elements, its count says {}", rank_, name_,
           in.numel(), own);
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  AB_CHECK(in.dtype() == out.dtype() && out.numel() == total,
           "all_gather: {} elements of {} do not fit an output of {} of {}", total, name_of(in.dtype()), out.numel(),
           name_of(out.dtype()));
  return run({.what = Collective::all_gather, .dtype = in.dtype(), .elements = total}, in, out, counts);
}

Request Comm::all_to_all_async(const Tensor& in, const Tensor& out) {
  check_tensors(Collective::all_to_all, in, out);
  AB_CHECK(in.dtype() == out.dtype() && in.numel() == out.numel() && in.numel() % size() == 0,
           "all_to_all over {} ranks: {} elements of {} do not go into {} of {} in equal parts", size(), in.numel(),
           name_of(in.dtype()), out.numel(), name_of(out.dtype()));
  return run({.what = Collective::all_to_all, .dtype = in.dtype(), .elements = in.numel()}, in, out);
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

std::unique_ptr<Comm> make_self_comm(const CommOptions& options) {
  return std::make_unique<SelfComm>(
      "world", std::make_shared<Ledger>(consecutive_nodes(1, options.ranks_per_node), options.wiring));
}

}  // namespace ab
