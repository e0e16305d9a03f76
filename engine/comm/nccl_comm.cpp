// SPDX-License-Identifier: MIT
#include "engine/comm/nccl_comm.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "engine/comm/comm.h"
#include "engine/comm/nccl_world.h"
#include "engine/core/machine.h"
#include "engine/device/cuda/memory.h"
#include "engine/device/cuda/thread_stream.h"
#include "engine/device/device.h"

namespace ab {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return ncclFloat32;
    case DType::bfloat16: return ncclBfloat16;
    case DType::float16: return ncclFloat16;
    case DType::float64: return ncclFloat64;
    case DType::int64: return ncclInt64;
    case DType::uint8: return ncclUint8;
  }
  AB_ASSERT(!"a DType that NCCL does not know");
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return ncclSum;
    case ReduceOp::mean: return ncclAvg;
    case ReduceOp::max: return ncclMax;
  }
  AB_ASSERT(!"a ReduceOp that NCCL does not know");
}

/// NCCL's max would hide a NaN behind any number.
bool may_hide_nan(const Tensor& tensor, ReduceOp op) { return op == ReduceOp::max && tensor.dtype() != DType::int64; }

/// A tensor where NCCL can reach it: itself, or for one in host memory a copy on the GPU that lives in the order of the
/// copy stream.
class Reachable {
 public:
  Reachable(NcclWorld& world, const Tensor& tensor) : world_(world), tensor_(tensor) {
    if (on_host()) copy_ = memory().allocate_on(world_.copy_stream(), tensor_.bytes());
    AB_CHECK(on_host() || tensor_.device().index == world_.device_index(),
             "this rank communicates on GPU {}, the tensor is on GPU {}", world_.device_index(),
             tensor_.device().index);
  }
  ~Reachable() {
    if (copy_) memory().release_on(world_.copy_stream(), copy_, tensor_.bytes());
  }
  Reachable(const Reachable&) = delete;
  Reachable& operator=(const Reachable&) = delete;

  void* pointer() const { return copy_ ? copy_ : tensor_.raw(); }
  bool on_host() const { return tensor_.device().kind == DeviceKind::cpu; }
  void fetch() { world_.staging().to_device(copy_, tensor_.raw(), tensor_.bytes(), world_.copy_stream()); }
  void store() { world_.staging().to_host(tensor_.raw(), copy_, tensor_.bytes(), world_.copy_stream()); }

 private:
  cuda::CudaMemory& memory() const { return cuda::device_memory(world_.device_index()); }

  NcclWorld& world_;
  Tensor tensor_;
  void* copy_ = nullptr;
};

class NcclComm final : public Comm {
 public:
  NcclComm(std::shared_ptr<NcclWorld> world, ncclComm_t communicator, int rank, std::string name,
           std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger)
      : Comm(rank, std::move(name), std::move(world_ranks), std::move(ledger)),
        world_(std::move(world)),
        communicator_(communicator) {}
  // Leaving by an exception while peers may wait for this rank is a failure of the world, whatever its cause.
  ~NcclComm() override { world_->destroy(communicator_, std::uncaught_exceptions() > 0); }

  bool takes_device_tensors() const override { return true; }
  bool runs_beside_computation() const override { return true; }
  bool waits_on_host() const override { return false; }
  void abort(const std::string& reason, int exit_code) noexcept override {
    world_->bootstrap().abort(reason, exit_code);  // first, or peers would hear of broken connections before
    world_->give_up(reason);
  }

 protected:
  std::unique_ptr<Comm> do_split(int colour, const std::string& name, int rank, std::vector<int> world_ranks) override {
    const ncclComm_t group =
        world_->create(communicator_, fmt::format("the making of group '{}'", name), [&](ncclComm_t* made) {
          return ncclCommSplit(communicator_, colour, this->rank(), made, nullptr);  // configured as its parent
        });
    return std::make_unique<NcclComm>(world_, group, rank, name, std::move(world_ranks), shared_ledger());
  }

  /// Starts when `in` is ready; after wait() the calling thread's stream, or the host, sees `out`.
  Request start(const CollectiveCall& call, const Tensor& in, const Tensor& out,
                const std::vector<std::int64_t>& counts) override {
    if (call.what == Collective::barrier && !in.defined()) {  // NCCL has none: a sum that the host waits for
      const Tensor token = Tensor::zeros(Shape{1}, DType::int64);
      return start(call, token, token, counts);
    }
    if (call.elements == 0 && call.what != Collective::barrier) return {};
    if (call.what == Collective::all_reduce && may_hide_nan(in, call.op)) return max_with_nan(in);
    if (call.what == Collective::reduce_scatter && may_hide_nan(in, call.op)) return max_of_part(in, out);
    const auto from = std::make_shared<Reachable>(*world_, in);
    const auto to =
        in.raw() == out.raw() && in.bytes() == out.bytes() ? from : std::make_shared<Reachable>(*world_, out);
    if (from->on_host() && in.numel() > 0) from->fetch();
    auto& compute = cuda::ThreadStream::current(world_->device_index());
    SharedEvent ready = record_event(from->on_host() ? world_->copy_stream() : compute.handle());
    const std::string what = fmt::format("{} in group '{}'", call.str(), name());
    const SharedEvent done = world_->issue(communicator_, what, std::move(ready),
                                           [&] { return issue(call, from->pointer(), to->pointer(), counts); });
    // `from` and `to` are kept until the streams that may reuse their memory wait for the collective.
    return Request([world = world_, from, to, done, waiting = compute.handle()] {
      AB_CUDA(cudaStreamWaitEvent(to->on_host() ? world->copy_stream() : waiting, done.get()));
      if (to->on_host()) to->store();
      world->check();
    });
  }

 private:
  using Counts = std::vector<std::int64_t>;

  ncclResult_t issue(const CollectiveCall& call, const void* from, void* to, const Counts& counts) const {
    const cudaStream_t stream = world_->stream();
    const auto all = static_cast<std::size_t>(call.elements), part = all / static_cast<std::size_t>(size());
    switch (call.what) {
      case Collective::barrier: return ncclAllReduce(from, to, 1, ncclInt64, ncclSum, communicator_, stream);
      case Collective::broadcast:
        return ncclBroadcast(from, to, all, nccl_type(call.dtype), call.root, communicator_, stream);
      case Collective::all_reduce:
        return ncclAllReduce(from, to, all, nccl_type(call.dtype), nccl_op(call.op), communicator_, stream);
      case Collective::reduce_scatter:
        return ncclReduceScatter(from, to, part, nccl_type(call.dtype), nccl_op(call.op), communicator_, stream);
      case Collective::all_gather: return gather(call.dtype, from, to, counts);
      case Collective::all_to_all: return swap(call.dtype, from, to, part);
    }
    AB_ASSERT(!"a collective that NCCL does not know");
  }

  ncclResult_t gather(DType dtype, const void* from, void* to, const Counts& counts) const {
    const ncclDataType_t type = nccl_type(dtype);
    const bool equal = std::equal(counts.begin() + 1, counts.end(), counts.begin());
    if (equal)
      return ncclAllGather(from, to, static_cast<std::size_t>(counts[0]), type, communicator_, world_->stream());
    // One broadcast from each rank, all at once.
    AB_NCCL(ncclGroupStart());
    auto* part = static_cast<std::byte*>(to);
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const auto count = static_cast<std::size_t>(counts[r]);
      if (count > 0)
        AB_NCCL(ncclBroadcast(from, part, count, type, static_cast<int>(r), communicator_, world_->stream()));
      part += count * size_of(dtype);
    }
    return ncclGroupEnd();
  }

  ncclResult_t swap(DType dtype, const void* from, void* to, std::size_t count) const {
    const ncclDataType_t type = nccl_type(dtype);
    AB_NCCL(ncclGroupStart());
    for (int peer = 0; peer < size(); ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * count * size_of(dtype);
      AB_NCCL(ncclSend(static_cast<const std::byte*>(from) + at, count, type, peer, communicator_, world_->stream()));
      AB_NCCL(ncclRecv(static_cast<std::byte*>(to) + at, count, type, peer, communicator_, world_->stream()));
    }
    return ncclGroupEnd();
  }

  /// The largest of all operands, or NaN if any is: gathered, and reduced here.
  Request max_with_nan(const Tensor& tensor) {
    const Tensor all(Shape{size() * tensor.numel()}, tensor.dtype(), tensor.device());
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), tensor.numel());
    const auto gathering = std::make_shared<Request>(
        start({.what = Collective::all_gather, .dtype = tensor.dtype(), .elements = all.numel()}, tensor, all, counts));
    return Request([gathering, tensor, all, ranks = size()] {
      gathering->wait();
      std::vector<const void*> sources;
      for (int r = 0; r < ranks; ++r)
        sources.push_back(static_cast<const std::byte*>(all.raw()) + static_cast<std::size_t>(r) * tensor.bytes());
      void* const destination = tensor.raw();
      reduce_in_rank_order(tensor.device(), tensor.dtype(), ReduceOp::max, sources, {&destination, 1}, tensor.numel());
    });
  }

  /// The same of a reduce-scatter.
  Request max_of_part(const Tensor& in, const Tensor& out) {
    const Tensor all = in.clone().view(Shape{in.numel()});
    const auto reducing = std::make_shared<Request>(max_with_nan(all));
    return Request([reducing, all, out, begin = rank() * out.numel()] {
      reducing->wait();
      out.copy_from(all.slice(begin, begin + out.numel()));
    });
  }

  std::shared_ptr<NcclWorld> world_;
  ncclComm_t communicator_;
};

// --- The world.

/// The text by which every rank tells the others about itself: "machine gpu", then NCCL's unique id on rank 0.
struct Introduction {
  std::string machine, gpu, id;

  static Introduction of_this_rank(int rank, int device_index) {
    std::array<char, 32> gpu{};
    AB_CUDA(cudaDeviceGetPCIBusId(gpu.data(), static_cast<int>(gpu.size()), device_index));
    Introduction mine{name_of_machine(), gpu.data(), ""};
    if (rank != 0) return mine;
    ncclUniqueId id;
    AB_NCCL(ncclGetUniqueId(&id));
    mine.id.assign(id.internal, sizeof id.internal);
    return mine;
  }

  static Introduction from_text(const std::string& text) {
    const std::size_t first = text.find(' '), second = text.find(' ', first + 1);
    AB_CHECK_KIND(communication, second != std::string::npos,
                  "a rank introduced itself in words that this one does not know");
    return {text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
  }
  std::string text() const { return fmt::format("{} {} {}", machine, gpu, id); }
};

void check_gpus(const std::vector<Introduction>& ranks) {
  for (std::size_t b = 0; b < ranks.size(); ++b)
    for (std::size_t a = 0; a < b; ++a)
      AB_CHECK_KIND(communication, ranks[a].machine != ranks[b].machine || ranks[a].gpu != ranks[b].gpu,
                    "ranks {} and {} both use the GPU {} of {}: start at most one rank per GPU; --share-gpu lets them "
                    "share it, to check results but not speed",
                    a, b, ranks[a].gpu, ranks[a].machine.substr(0, ranks[a].machine.find('/')));
}

/// Node of each rank: that of the first rank on the same machine.
std::vector<int> nodes_of(const std::vector<Introduction>& ranks) {
  std::vector<int> nodes;
  for (const Introduction& rank : ranks) {
    const auto first =
        std::find_if(ranks.begin(), ranks.end(), [&](const Introduction& r) { return r.machine == rank.machine; });
    nodes.push_back(static_cast<int>(first - ranks.begin()));
  }
  return nodes;
}

}  // namespace

void check_nccl(int device_index) { check_cuda_device(device_index); }

std::unique_ptr<Comm> make_nccl_comm(std::unique_ptr<Bootstrap> bootstrap, int device_index,
                                     const CommOptions& options) {
  check_nccl(device_index);
  const int rank = bootstrap->rank(), ranks = bootstrap->ranks();
  if (options.share_gpu)
    for (const auto& [name, value] : nccl_sharing_environment(rank)) setenv(name.c_str(), value.c_str(), 1);
  // Around a ring the order of a sum follows from sizes and machines; switches that add up (NVLS, SHARP) promise none.
  if (options.deterministic) setenv("NCCL_ALGO", "Ring", 0);

  std::vector<Introduction> introductions;
  for (const std::string& text : bootstrap->gather_texts(Introduction::of_this_rank(rank, device_index).text()))
    introductions.push_back(Introduction::from_text(text));
  if (!options.share_gpu) check_gpus(introductions);
  ncclUniqueId id;
  AB_CHECK_KIND(communication, introductions[0].id.size() == sizeof id.internal, "rank 0 sent no address for NCCL");
  std::memcpy(id.internal, introductions[0].id.data(), sizeof id.internal);

  const auto world = std::make_shared<NcclWorld>(std::move(bootstrap), device_index, options.timeout);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclComm_t communicator = world->create(nullptr, "the making of the world", [&](ncclComm_t* made) {
    return ncclCommInitRankConfig(made, ranks, id, rank, &config);
  });
  auto nodes = options.ranks_per_node > 0 ? consecutive_nodes(ranks, options.ranks_per_node) : nodes_of(introductions);
  return std::make_unique<NcclComm>(
      world, communicator, rank, "world", first_ranks(ranks),
      std::make_shared<Ledger>(std::move(nodes), Wiring{.all_reduce = AllReduce::library}));
}

}  // namespace ab
