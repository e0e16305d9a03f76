#pragma once
// SPDX-License-Identifier: MIT
//
// Collectives between ranks. A rank is a process (mpi, nccl) or a thread (thread); `self` is a world of one.
// All collectives are called by every rank of the group in the same order. Reductions take any type but uint8, transfers
// any. Tensors may be in host memory or on a device, the same kind on all ranks. On a device a
// collective takes its place in the calling thread's stream: it sees what was issued before, and what is issued after
// it has returned (or wait() has) sees its result. A transport that cannot reach device memory is handed copies in
// host memory; takes_device_tensors() says which kind it is.
// Every reduction adds its operands in rank order (all-reduces in that of their algorithm, route.h), so the results of one
// collective are bitwise equal on all ranks, and the same with every transport. 16-bit floats are added in float32 and
// the sum is rounded once. NCCL alone chooses an order of its own and rounds 16-bit sums at every hop: bits are equal on
// all ranks, not those of other transports (nccl_comm.h).
// A peer that fails or does not arrive within the timeout raises Error(communication) that names it; so do
// ranks that call different collectives, or one collective with different sizes or types. After such an
// error the world is lost: the contents of tensors in flight are undefined and every further call throws or
// waits in vain.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/ledger.h"
#include "engine/core/tensor.h"
#include "engine/kernels/rank_order_reduce.h"

namespace ab {

/// A collective in flight. Its tensors must not be touched before wait() returns (an input may be read). Requests of one
/// communicator are waited for in the order they were started, and before it is destroyed.
class Request {
 public:
  Request() = default;
  explicit Request(std::function<void()> finish) : finish_(std::move(finish)) {}
  Request(Request&&) = default;
  Request& operator=(Request&&) = default;
  void wait() {
    if (auto finish = std::exchange(finish_, nullptr)) finish();
  }

 private:
  std::function<void()> finish_;
};

/// A call of a collective, as a rank asks its group for it. All ranks must ask for the same; transports compare these
/// descriptions and errors print them.
struct CollectiveCall {
  Collective what = Collective::barrier;
  DType dtype = DType::uint8;
  std::int64_t elements = 0;  ///< of the full buffer: all parts of a gather
  ReduceOp op = ReduceOp::sum;
  int root = 0;

  bool operator==(const CollectiveCall&) const = default;
  std::string str() const;  ///< "all_reduce(mean) of 100 float32"
  std::int64_t bytes() const { return elements * static_cast<std::int64_t>(size_of(dtype)); }

  /// Collective, type and operation in one number below kKinds, for transports that tell calls apart by a number.
  static constexpr int kKinds = 6 * kDTypeCount * 3;
  int kind() const {
    return (static_cast<int>(what) * kDTypeCount + static_cast<int>(dtype)) * 3 + static_cast<int>(op);
  }
  static CollectiveCall of_kind(int kind);
};

struct VirtualCard;

/// The group of a rank, by a number of at least 0.
using ColourOf = std::function<int(int rank)>;

class Comm {
 public:
  virtual ~Comm() = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::string& name() const { return name_; }

  /// Ranks of the same colour (>= 0) form a new group, ordered by their rank here. `colour_of` a rank here is the same on
  /// all of them, so that none has to ask. `name` labels the group in the ledger and in errors. The new communicator shares
  /// this one's ledger.
  std::unique_ptr<Comm> split(const ColourOf& colour_of, const std::string& name);
  /// All ranks once more, for collectives that take their turns apart from this one's.
  std::unique_ptr<Comm> duplicate(const std::string& name) {
    return split([](int) { return 0; }, name);
  }

  void barrier();
  void broadcast(const Tensor& tensor, int root) { broadcast_async(tensor, root).wait(); }
  /// In place. `mean` divides the sum by size() and takes floating-point tensors only; NaN survives `max`.
  void all_reduce(const Tensor& tensor, ReduceOp op) { all_reduce_async(tensor, op).wait(); }
  /// `in` holds size() equal parts; `out` receives the reduction of part rank(), so
  /// in.numel() = size() · out.numel().
  void reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op) { reduce_scatter_async(in, out, op).wait(); }
  /// out.numel() = size() · in.numel(), parts in rank order.
  void all_gather(const Tensor& in, const Tensor& out) { all_gather_async(in, out).wait(); }
  /// Rank i contributes counts[i] elements (equal lists on all ranks); out.numel() = sum of counts.
  void all_gather_v(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& counts) {
    all_gather_v_async(in, out, counts).wait();
  }

  /// Part j of `in` goes to rank j; `out` receives the parts of all ranks for this one, in rank order. Both hold size() equal
  /// parts and share no memory.
  void all_to_all(const Tensor& in, const Tensor& out) { all_to_all_async(in, out).wait(); }

  /// The same, started without waiting for peers, so that computation may go on meanwhile.
  Request broadcast_async(const Tensor& tensor, int root);
  Request all_reduce_async(const Tensor& tensor, ReduceOp op);
  /// In a group of one: counts an all-reduce of so many bytes, for which no tensor need be made.
  void count_all_reduce_alone(std::int64_t bytes);
  Request reduce_scatter_async(const Tensor& in, const Tensor& out, ReduceOp op);
  Request all_gather_async(const Tensor& in, const Tensor& out);
  Request all_gather_v_async(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& counts);
  Request all_to_all_async(const Tensor& in, const Tensor& out);
  /// Any of them, which is known to be right: the checks of the others are left out. A broadcast and an all-reduce work in
  /// place, with `in` as `out`; a barrier has no tensors. `counts`: of a gather.
  Request run(const CollectiveCall& call, const Tensor& in, const Tensor& out,
              const std::vector<std::int64_t>& counts = {});

  /// Whether this transport works on device memory itself.
  virtual bool takes_device_tensors() const { return false; }
  /// Whether a collective that has been started goes on while its ranks compute, as it does between processes. Threads
  /// take part in it themselves, in wait().
  virtual bool runs_beside_computation() const { return false; }

  Ledger& ledger() { return *ledger_; }
  const Ledger& ledger() const { return *ledger_; }

  /// The card of this rank's node in a virtual network; null where the network is as it is.
  virtual const VirtualCard* card() const { return nullptr; }
  /// Whether the host waits until a collective is over, so that the ledger's waiting times tell what communication costs.
  virtual bool waits_on_host() const { return true; }

  /// Tells all ranks of the world that this one cannot go on, so that none waits for it. Safe to call from
  /// an error path; does not throw. Threads: the others leave their collectives with `reason`, this rank
  /// carries on and shall return; so it is with NCCL over a rendezvous. MPI, and NCCL under it: ends all processes
  /// with `exit_code`, this one included, and prints nothing: the caller reports `reason` first. A world of one: no
  /// effect.
  virtual void abort(const std::string& reason, int exit_code) noexcept = 0;

 protected:
  /// `world_ranks`: of the members.
  Comm(int rank, std::string name, std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger);

  /// How this group lies on nodes, and how its collectives travel.
  const Layout& layout() const { return layout_; }
  Route route(const CollectiveCall& call) const;

  // A transport implements these. Arguments have been checked and the ledger has been written. Tensors are in host
  // memory; if takes_device_tensors(), they may also be on a device, all of one call on the same.
  virtual Request start(const CollectiveCall& call, const Tensor& in, const Tensor& out,
                        const std::vector<std::int64_t>& counts) = 0;
  /// The group of that colour: this rank's number in it, and its members by their rank in the world.
  virtual std::unique_ptr<Comm> do_split(int colour, const std::string& name, int rank,
                                         std::vector<int> world_ranks) = 0;
  /// Before it: all groups of the split, those of other ranks too.
  virtual void note_split(const ColourOf& /*colour_of*/, const std::string& /*name*/) {}

  /// The members of this group by their rank in the world.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int world_rank(int member) const { return world_ranks_[static_cast<std::size_t>(member)]; }
  const std::shared_ptr<Ledger>& shared_ledger() const { return ledger_; }

 private:
  int rank_;
  std::string name_;
  std::vector<int> world_ranks_;
  std::shared_ptr<Ledger> ledger_;
  Layout layout_;
};

struct CommOptions {
  int ranks_per_node = 0;             ///< > 0: nodes as the ledger sees them; 0: as they are (threads share one node)
  std::chrono::seconds timeout{300};  ///< how long a collective waits for a peer
  bool share_gpu = false;      ///< NCCL: several processes may use one GPU; to check results, not speed (nccl_comm.h)
  Wiring wiring{};             ///< CPU transports: by what and over what collectives travel
  bool deterministic = false;  ///< NCCL: sums are taken in an order that is the same in every run
};

/// A world of one rank: every collective is a copy.
std::unique_ptr<Comm> make_self_comm(const CommOptions& options = {});

/// Runs body(comm) on `ranks` threads, each with its own communicator of one world, and joins them. When a
/// rank throws, the others are woken and leave with Error(communication); the error of the rank that failed
/// first is rethrown. Unless OMP_NUM_THREADS is set, the ranks share the machine's cores for OpenMP.
void run_thread_ranks(int ranks, const CommOptions& options, const std::function<void(Comm&)>& body);

/// Initialises MPI on first use and returns the world; every call makes a new, independent communicator. MPI
/// is finalised when the process exits, unless communication has failed before.
/// Throws Error(communication) in builds without MPI, and when a launcher started several tasks that MPI does
/// not join into one world.
std::unique_ptr<Comm> make_mpi_comm(const CommOptions& options = {});

// For transports.

/// Elements [begin, end) of a buffer.
struct ElementRange {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};
/// The segments of a collective (route.h), in order; one at least.
std::vector<ElementRange> segment_ranges(const Route& route, const CollectiveCall& call);
/// The part of a buffer of `elements` that rank `rank` of `ranks` takes care of; sizes differ by at most one.
ElementRange part_of_rank(std::int64_t elements, int rank, int ranks);

/// "rank 2", "ranks 2, 3".
std::string list_ranks(const std::vector<int>& ranks);

/// An all-reduce between ranks that see each other's memory (thread_comm.cpp). No messages: each rank takes care of one part
/// and adds it up in the order, and with the roundings, of the algorithm that is asked for, so that bits equal those of ranks
/// that exchange messages. Writes the result of part `rank`, of each segment, into the tensors of all ranks. `tensors`: of every member, alike, on
/// one device; nobody else touches that part meanwhile.
void reduce_shared_part(const Route& route, const Layout& layout, const CollectiveCall& call, int rank,
                        const std::vector<Tensor>& tensors);

}  // namespace ab
