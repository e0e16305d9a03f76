// SPDX-License-Identifier: MIT
//
// Ranks as processes under MPI. Collectives are MpiOperations; this file starts them and waits for them by polling (MPI
// has no wait with a time limit). Between the two MpiLibrary keeps them going.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "engine/comm/comm.h"
#include "engine/comm/launcher.h"
#include "engine/comm/mpi_operation.h"
#include "engine/comm/patience.h"

namespace ab {
namespace {

/// MPI as one process uses it: called by one thread at a time, and often enough. Messages move only while MPI is called, so a
/// thread of its own calls it while a collective is in flight and the ranks' threads compute. MPI lives once per process, from
/// first use to normal exit. After a failure the peers may never reach MPI_Finalize, so it is left out; the launcher then
/// ends them.
class MpiLibrary {
 public:
  static MpiLibrary& instance() {
    static MpiLibrary library;
    return library;
  }
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  void mark_failed() noexcept { failed_ = true; }
  /// The same with its cause, which every rank's thread that waits shall leave with. Needs the lock, as the next two do.
  void mark_failed(std::exception_ptr cause) noexcept {
    failed_ = true;
    if (!cause_) cause_ = std::move(cause);
  }
  bool has_cause() const noexcept { return cause_ != nullptr; }
  void throw_cause() const {
    if (cause_) std::rethrow_exception(cause_);
  }
  /// Another world begins.
  void forget_cause() noexcept { cause_ = nullptr; }
  bool failed() const noexcept { return failed_; }

  /// Held around every call of MPI.
  using Lock = std::unique_lock<std::mutex>;
  Lock lock() { return Lock(mutex_); }

  /// Calls `advance` again and again, under the lock, until it returns true: nothing is in flight any more. `who` names
  /// it, for stop_advancing(). Both need the lock. `advance` must not throw.
  void keep_advancing(const void* who, std::function<bool()> advance) {
    in_flight_.try_emplace(who, std::move(advance));
    if (!advancing_.joinable()) {
      // Signals are for the threads of ranks.
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      advancing_ = std::jthread([this](const std::stop_token& stop) { advance_all(stop); });
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    started_.notify_one();
  }

  void stop_advancing(const void* who) { in_flight_.erase(who); }

 private:
  MpiLibrary() {
    int initialised = 0, level = 0;
    check_mpi(MPI_Initialized(&initialised), "MPI_Initialized");
    ours_ = !initialised;
    if (ours_) check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    else check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    AB_CHECK_KIND(communication, level >= MPI_THREAD_SERIALIZED,
                  "this MPI library does not support threads (MPI_THREAD_SERIALIZED); use a build of it that does");
  }

  ~MpiLibrary() {
    advancing_ = {};
    if (ours_ && !failed_) MPI_Finalize();
  }

  void advance_all(const std::stop_token& stop) {
    constexpr std::chrono::microseconds kPause{100};  // a shorter one would take the core from the ranks that compute
    Lock lock(mutex_);
    while (started_.wait(lock, stop, [this] { return !in_flight_.empty(); }) && !stop.stop_requested()) {
      std::erase_if(in_flight_, [](const auto& entry) { return entry.second(); });
      lock.unlock();
      std::this_thread::sleep_for(kPause);
      lock.lock();
    }
  }

  bool ours_ = false;
  std::atomic<bool> failed_ = false;
  std::exception_ptr cause_;
  std::mutex mutex_;
  std::condition_variable_any started_;
  std::map<const void*, std::function<bool()>> in_flight_;
  std::jthread advancing_;
};

class MpiComm final : public Comm {
 public:
  /// Frees `comm` in the end, unless it is MPI_COMM_WORLD.
  MpiComm(MPI_Comm comm, int rank, std::string name, std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger,
          std::chrono::seconds timeout, std::shared_ptr<VirtualNetwork> network)
      : Comm(rank, std::move(name), std::move(world_ranks), std::move(ledger)),
        comm_(comm),
        timeout_(timeout),
        network_(std::move(network)) {}

  ~MpiComm() override {
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    MpiLibrary::instance().stop_advancing(this);
    // Leaving by an exception while peers may wait for this rank is a failure of the world, whatever its cause.
    if (std::uncaught_exceptions() > 0) MpiLibrary::instance().mark_failed();
    // MPI still writes into the buffers of an operation that was given up: they must outlive the process's use
    // of MPI. Freeing the communicator would then wait for peers, so both are left to the end of the process.
    if (!in_flight_.empty()) new std::deque<Operation>(std::move(in_flight_));
    else if (comm_ != MPI_COMM_WORLD && !MpiLibrary::instance().failed()) MPI_Comm_free(&comm_);
  }

  bool runs_beside_computation() const override { return true; }
  const VirtualCard* card() const override { return network_ ? &network_->card_of(world_rank(rank())) : nullptr; }
  void abort(const std::string& /*reason*/, int exit_code) noexcept override {
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    MpiLibrary::instance().mark_failed();
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }

 protected:
  std::unique_ptr<Comm> do_split(int colour, const std::string& name, int rank, std::vector<int> world_ranks) override {
    // All ranks have just met (Comm::split).
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    MPI_Comm group = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_, colour, this->rank(), &group), "MPI_Comm_split");
    return std::make_unique<MpiComm>(group, rank, name, std::move(world_ranks), shared_ledger(), timeout_, network_);
  }

  Request start(const CollectiveCall& call, const Tensor& in, const Tensor& out,
                const std::vector<std::int64_t>& counts) override {
    const auto copy_own_part = [&](const Tensor& from, std::int64_t begin, std::int64_t elements) {
      const Tensor to = out.view({-1}).slice(begin, begin + elements);
      if (to.raw() != from.raw()) to.copy_from(from);
    };
    const std::int64_t part = in.numel() / size();
    if (call.what == Collective::all_gather)
      copy_own_part(in, std::accumulate(counts.begin(), counts.begin() + rank(), std::int64_t{0}), in.numel());
    if (call.what == Collective::all_to_all)
      copy_own_part(in.view({-1}).slice(rank() * part, (rank() + 1) * part), rank() * part, part);
    while (const Operation last = last_of_this_tag()) wait(last);
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    MpiLibrary::instance().throw_cause();
    const MpiOperation::Group group{comm_, rank(), layout(), world_ranks(), network_.get(), ledger().links()};
    const auto operation = in_flight_.emplace_back(std::make_shared<MpiOperation>(
        group, next_sequence_++, call, route(call),
        MpiOperation::Buffers{call.what == Collective::all_gather ? out : in, out, counts}));
    advance_all();
    MpiLibrary::instance().throw_cause();
    MpiLibrary::instance().keep_advancing(this, [this] { return advance_all(); });
    return Request([this, operation] { wait(operation); });
  }

 private:
  using Operation = std::shared_ptr<MpiOperation>;

  /// The collective in flight, if any, whose messages could be taken for those of the next one.
  Operation last_of_this_tag() {
    const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
    const bool any =
        !in_flight_.empty() && in_flight_.front()->sequence() + MpiOperation::kMaxInFlight <= next_sequence_;
    return any ? in_flight_.front() : nullptr;
  }

  void wait(const Operation& operation) {
    using namespace std::chrono_literals;
    Patience patience(timeout_);
    auto next_inspection = Patience::Clock::now() + Patience::kLook;
    const auto pending = [&] {
      const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
      advance_all();
      MpiLibrary::instance().throw_cause();
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
      const auto now = Patience::Clock::now();
      if (now < next_inspection) continue;
      next_inspection = now + Patience::kLook;
      const MpiLibrary::Lock lock = MpiLibrary::instance().lock();
      inspect(*operation, patience);
    }
  }

  /// Moves everything in flight and forgets what is complete; true when nothing is left that can move. Needs MPI's lock.
  bool advance_all() noexcept {
    try {
      auto next = in_flight_.begin();
      while (!MpiLibrary::instance().has_cause() && next != in_flight_.end())
        next = (*next)->advance() ? in_flight_.erase(next) : next + 1;
    } catch (...) {
      MpiLibrary::instance().mark_failed(std::current_exception());
    }
    return MpiLibrary::instance().has_cause() || in_flight_.empty();
  }

  /// Looks for the reason why `operation` takes so long, and gives up after the timeout.
  void inspect(MpiOperation& operation, Patience& patience) {
    const int me = world_rank(rank());
    bool is_over = patience.is_over();
    if (network_)  // it may take its time
      is_over = is_over && std::chrono::nanoseconds(network_now() - network_->busy_until()) > timeout_;
    if (const auto other = operation.find_disagreement())
      fail(fmt::format("ranks disagree on a collective of group '{}': rank {} calls {}, {} calls {}", name(), me,
                       operation.call().str(), list_ranks(to_world({other->rank})), name_of(other->call.what)));
    if (is_over)
      fail(fmt::format("{} in group '{}' waited {} s on rank {}; missing: {}", operation.call().str(), name(),
                       timeout_.count(), me, list_ranks(to_world(operation.silent_ranks()))));
  }

  [[noreturn]] void fail(const std::string& reason) {
    MpiLibrary::instance().mark_failed();
    throw Error(ErrorKind::communication, reason);
  }
  std::vector<int> to_world(const std::vector<int>& members) const {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(world_rank(member));
    return ranks;
  }

  MPI_Comm comm_;
  std::chrono::seconds timeout_;
  std::shared_ptr<VirtualNetwork> network_;
  std::int64_t next_sequence_ = 0;
  std::deque<Operation> in_flight_;
};

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

/// Its cards lie in memory that all processes share. It outlives the processes' use of MPI: what other ranks do with the
/// memory ends with theirs.
std::shared_ptr<VirtualNetwork> make_network(int rank, int ranks, const std::vector<int>& nodes) {
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
  return std::make_shared<VirtualNetwork>(nodes, static_cast<VirtualCard*>(memory));
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
  const std::vector<int> everyone = first_ranks(ranks);

  // A rank that never comes is named here, with a timeout, before MPI's own calls wait for it without limit.
  const auto no_ledger = std::make_shared<Ledger>(consecutive_nodes(ranks, 0));
  MpiComm(MPI_COMM_WORLD, rank, "world at start-up", everyone, no_ledger, options.timeout, nullptr).barrier();

  const MpiLibrary::Lock lock = MpiLibrary::instance().lock();

  auto nodes = options.ranks_per_node > 0 ? consecutive_nodes(ranks, options.ranks_per_node) : find_nodes(rank, ranks);
  MPI_Comm world = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  std::shared_ptr<VirtualNetwork> network;
  if (options.wiring.network.shaped()) network = make_network(rank, ranks, nodes);
  return std::make_unique<MpiComm>(world, rank, "world", everyone,
                                   std::make_shared<Ledger>(std::move(nodes), options.wiring), options.timeout,
                                   std::move(network));
}

}  // namespace ab
