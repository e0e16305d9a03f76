// SPDX-License-Identifier: MIT
//
// Ranks as processes under MPI. Collectives are MpiOperations; this file starts them and waits for them by polling (MPI
// has no wait with a time limit). Between the two MpiLibrary keeps them going.
#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <thread>

#include "engine/comm/comm.h"
#include "engine/comm/launcher.h"
#include "engine/comm/mpi_library.h"
#include "engine/comm/mpi_operation.h"

namespace ab {
namespace {

/// A virtual network whose cards lie in memory that all processes share. It outlives the processes' use of MPI: what
/// other ranks do with the memory ends with theirs.
struct MpiVirtualNetwork {
  VirtualNetwork network;

  static std::shared_ptr<MpiVirtualNetwork> make(int rank, int ranks, const std::vector<int>& nodes);
};

class MpiComm final : public Comm {
 public:
  /// Frees `comm` in the end, unless it is MPI_COMM_WORLD.
  MpiComm(MPI_Comm comm, int rank, std::string name, std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger,
          std::chrono::seconds timeout, std::shared_ptr<MpiVirtualNetwork> network)
      : Comm(rank, static_cast<int>(world_ranks.size()), std::move(name), world_ranks, std::move(ledger)),
        comm_(comm),
        timeout_(timeout),
        network_(std::move(network)) {}
  ~MpiComm() override;

  bool runs_beside_computation() const override { return true; }
  const VirtualCard* card() const override {
    return network_ ? &network_->network.card_of(world_ranks()[static_cast<std::size_t>(rank())]) : nullptr;
  }
  void abort(const std::string& /*reason*/, int exit_code) noexcept override {
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    MpiLibrary::instance().mark_failed();
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  /// Like barrier(), but not counted.
  void meet() { do_barrier(); }

 protected:
  std::unique_ptr<Comm> do_split(int colour, const std::string& name, const std::vector<int>& members) override;
  void do_barrier() override;
  Request do_broadcast(const Tensor& tensor, int root) override;
  Request do_all_reduce(const Tensor& tensor, ReduceOp op) override;
  Request do_reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op) override;
  Request do_all_gather_v(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& counts) override;
  Request do_all_to_all(const Tensor& in, const Tensor& out) override;

 private:
  using Operation = std::shared_ptr<MpiOperation>;

  Operation last_of_this_tag();
  Operation start(const CollectiveCall& call, MpiOperation::Buffers buffers);
  void wait(const Operation& operation);
  Request later(Operation operation) {
    return Request([this, operation = std::move(operation)] { wait(operation); });
  }
  bool advance_all() noexcept;
  static bool failed() { return MpiLibrary::instance().cause() != nullptr; }
  void inspect(MpiOperation& operation, std::chrono::steady_clock::duration waited);
  [[noreturn]] void fail(const std::string& reason);
  std::vector<int> to_world(const std::vector<int>& members) const;

  MPI_Comm comm_;
  std::chrono::seconds timeout_;
  std::shared_ptr<MpiVirtualNetwork> network_;
  std::int64_t next_sequence_ = 0;
  std::deque<Operation> in_flight_;
};

MpiComm::~MpiComm() {
  const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
  MpiLibrary::instance().stop_advancing(this);
  // Leaving by an exception while peers may wait for this rank is a failure of the world, whatever its cause.
  if (std::uncaught_exceptions() > 0) MpiLibrary::instance().mark_failed();
  // MPI still writes into the buffers of an operation that was given up: they must outlive the process's use
  // of MPI. Freeing the communicator would then wait for peers, so both are left to the end of the process.
  if (!in_flight_.empty()) new std::deque<Operation>(std::move(in_flight_));
  else if (comm_ != MPI_COMM_WORLD && !MpiLibrary::instance().failed()) MPI_Comm_free(&comm_);
}

/// The collective in flight, if any, whose messages could be taken for those of the next one.
MpiComm::Operation MpiComm::last_of_this_tag() {
  const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
  const bool any = !in_flight_.empty() && in_flight_.front()->sequence() + MpiOperation::kMaxInFlight <= next_sequence_;
  return any ? in_flight_.front() : nullptr;
}

MpiComm::Operation MpiComm::start(const CollectiveCall& call, MpiOperation::Buffers buffers) {
  while (const Operation last = last_of_this_tag()) wait(last);
  const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
  if (const std::exception_ptr cause = MpiLibrary::instance().cause()) std::rethrow_exception(cause);
  const MpiOperation::Group group{
      comm_, rank(), layout(), world_ranks(), network_ ? &network_->network : nullptr, ledger().links()};
  const auto operation = in_flight_.emplace_back(std::make_shared<MpiOperation>(
      group, next_sequence_++, call, route(call.what, static_cast<std::size_t>(call.elements) * size_of(call.dtype)),
      std::move(buffers)));
  advance_all();
  if (const std::exception_ptr cause = MpiLibrary::instance().cause()) std::rethrow_exception(cause);
  MpiLibrary::instance().keep_advancing(this, [this] { return advance_all(); });
  return operation;
}

/// Moves everything in flight and forgets what is complete; true when nothing is left that can move. Needs MPI's lock.
bool MpiComm::advance_all() noexcept {
  try {
    auto next = in_flight_.begin();
    while (!failed() && next != in_flight_.end()) next = (*next)->advance() ? in_flight_.erase(next) : next + 1;
  } catch (...) {
    MpiLibrary::instance().mark_failed(std::current_exception());
  }
  return failed() || in_flight_.empty();
}

void MpiComm::wait(const Operation& operation) {
  using Clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  const auto started = Clock::now();
  auto next_inspection = started + 250ms;
  const auto pending = [&] {
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    advance_all();
    if (const std::exception_ptr cause = MpiLibrary::instance().cause()) std::rethrow_exception(cause);
    return std::find(in_flight_.begin(), in_flight_.end(), operation) != in_flight_.end();
  };
  // A short burst for ranks that are nearly there; then sleep, as a peer may need this very core.
  constexpr int kEagerPolls = 200;
  for (int polls = 0; pending(); ++polls) {
    if (polls < kEagerPolls) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(polls < 10 * kEagerPolls ? 20us : 200us);
    const auto now = Clock::now();
    if (now < next_inspection) continue;
    next_inspection = now + 250ms;
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    inspect(*operation, now - started);
  }
}

/// Looks for the reason why `operation` takes so long, and gives up after the timeout.
void MpiComm::inspect(MpiOperation& operation, std::chrono::steady_clock::duration waited) {
  const int me = world_ranks()[static_cast<std::size_t>(rank())];
  if (network_) {  // it may take its time
    const std::chrono::nanoseconds idle(std::max<NetworkTime>(0, network_now() - network_->network.busy_until()));
    waited = std::min(waited, std::chrono::steady_clock::duration(idle));
  }
  if (const auto other = operation.find_disagreement())
    fail(fmt::format("ranks disagree on a collective of group '{}': rank {} calls {}, {} calls {}", name(), me,
                     operation.call().str(), list_ranks(to_world({other->rank})), name_of(other->call.what)));
  if (waited > timeout_)
    fail(fmt::format("{} in group '{}' waited {} s on rank {}; missing: {}", operation.call().str(), name(),
                     timeout_.count(), me, list_ranks(to_world(operation.silent_ranks()))));
}

void MpiComm::fail(const std::string& reason) {
  MpiLibrary::instance().mark_failed();
  throw Error(ErrorKind::communication, reason);
}

std::vector<int> MpiComm::to_world(const std::vector<int>& members) const {
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(world_ranks()[static_cast<std::size_t>(member)]);
  return ranks;
}

std::unique_ptr<Comm> MpiComm::do_split(int colour, const std::string& name, const std::vector<int>& members) {
  // All ranks have just met (Comm::split).
  const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
  MPI_Comm group = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, colour, rank(), &group), "MPI_Comm_split");
  const auto new_rank = std::lower_bound(members.begin(), members.end(), rank()) - members.begin();
  return std::make_unique<MpiComm>(group, static_cast<int>(new_rank), name, to_world(members), shared_ledger(),
                                   timeout_, network_);
}

void MpiComm::do_barrier() { wait(start({}, {})); }

Request MpiComm::do_broadcast(const Tensor& tensor, int root) {
  return later(start({.what = Collective::broadcast, .dtype = tensor.dtype(), .elements = tensor.numel(), .root = root},
                     {.full = tensor}));
}

Request MpiComm::do_all_reduce(const Tensor& tensor, ReduceOp op) {
  return later(start({.what = Collective::all_reduce, .dtype = tensor.dtype(), .elements = tensor.numel(), .op = op},
                     {.full = tensor}));
}

Request MpiComm::do_reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op) {
  return later(start({.what = Collective::reduce_scatter, .dtype = in.dtype(), .elements = in.numel(), .op = op},
                     {.full = in, .out = out}));
}

Request MpiComm::do_all_gather_v(const Tensor& in, const Tensor& out, const std::vector<std::int64_t>& counts) {
  std::int64_t begin = 0;
  for (int r = 0; r < rank(); ++r) begin += counts[static_cast<std::size_t>(r)];
  const Tensor mine = out.view(Shape{out.numel()}).slice(begin, begin + in.numel());
  if (mine.raw() != in.raw()) mine.copy_from(in);
  return later(start({.what = Collective::all_gather, .dtype = in.dtype(), .elements = out.numel()},
                     {.full = out, .counts = counts}));
}

Request MpiComm::do_all_to_all(const Tensor& in, const Tensor& out) {
  const std::int64_t part = in.numel() / size(), begin = rank() * part;
  const auto own = [&](const Tensor& tensor) { return tensor.view(Shape{tensor.numel()}).slice(begin, begin + part); };
  own(out).copy_from(own(in));
  return later(
      start({.what = Collective::all_to_all, .dtype = in.dtype(), .elements = in.numel()}, {.full = in, .out = out}));
}

/// Node of each rank of the world: ranks that can share memory are on one node, named by its lowest rank.
std::vector<int> find_nodes(int rank, int ranks) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  int lowest = rank;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  std::vector<int> nodes(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, nodes.data(), 1, MPI_INT, MPI_COMM_WORLD), "MPI_Allgather");
  return nodes;
}

std::shared_ptr<MpiVirtualNetwork> MpiVirtualNetwork::make(int rank, int ranks, const std::vector<int>& nodes) {
  MPI_Comm machine = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine),
            "MPI_Comm_split_type");
  int on_machine = 0;
  check_mpi(MPI_Comm_size(machine, &on_machine), "MPI_Comm_size");
  AB_CHECK(on_machine == ranks, "--network is for ranks on one machine; of {} ranks, {} are here", ranks, on_machine);
  const std::size_t bytes = VirtualNetwork::card_count(nodes) * sizeof(VirtualCard);
  void* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  check_mpi(MPI_Win_allocate_shared(static_cast<MPI_Aint>(rank == 0 ? bytes : 0), 1, MPI_INFO_NULL, machine, &memory,
                                    &window),
            "MPI_Win_allocate_shared");
  MPI_Aint size = 0;
  int unit = 0;
  check_mpi(MPI_Win_shared_query(window, 0, &size, &unit, &memory), "MPI_Win_shared_query");
  if (rank == 0) std::memset(memory, 0, bytes);
  check_mpi(MPI_Barrier(machine), "MPI_Barrier");
  return std::make_shared<MpiVirtualNetwork>(
      MpiVirtualNetwork{VirtualNetwork(nodes, static_cast<VirtualCard*>(memory))});
}

}  // namespace

std::unique_ptr<Comm> make_mpi_comm(const CommOptions& options) {
  {
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    MpiLibrary::instance().forget_cause();
  }
  int rank = 0, ranks = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  AB_CHECK_KIND(communication, ranks > 1 || !launched_by_mpi(),
                "the launcher started several tasks, but MPI sees each as a world of its own: start them "
                "with the mpirun of the MPI library that abtrain was built with, or with srun --mpi=pmix");
  std::vector<int> everyone;
  for (int r = 0; r < ranks; ++r) everyone.push_back(r);

  // A rank that never comes is named here, with a timeout, before MPI's own calls wait for it without limit.
  const auto no_ledger = std::make_shared<Ledger>(consecutive_nodes(ranks, 0));
  MpiComm(MPI_COMM_WORLD, rank, "world at start-up", everyone, no_ledger, options.timeout, nullptr).meet();

  const MpiLibrary::Lock lock = MpiLibrary::instance().lock();

  auto nodes = options.ranks_per_node > 0 ? consecutive_nodes(ranks, options.ranks_per_node) : find_nodes(rank, ranks);
  MPI_Comm world = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  std::shared_ptr<MpiVirtualNetwork> network;
  if (options.wiring.network.shaped()) network = MpiVirtualNetwork::make(rank, ranks, nodes);
  return std::make_unique<MpiComm>(world, rank, "world", everyone,
                                   std::make_shared<Ledger>(std::move(nodes), options.wiring), options.timeout,
                                   std::move(network));
}

}  // namespace ab
