// SPDX-License-Identifier: MIT
//
// Ranks as threads of one process. The n-th collective of a group meets in a slot: every rank leaves its
// tensor there, and when all have arrived each does its share of the work directly on the others' memory, in host
// memory or on the GPU that they share. On a GPU every rank has a stream of its own: a rank waits for its stream
// before it arrives, and again before it says that it has finished, so nobody sees work that is under way.
// Waits block, so there may be more ranks than cores.
// Over a virtual network a rank leaves a collective when it would have had the last of its messages (virtual_network.h):
// they set out when its ranks start the collective, whether they wait for it or compute meanwhile.
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/comm/comm.h"
#include "engine/comm/patience.h"
#include "engine/comm/virtual_network.h"
#include "engine/core/say.h"
#include "engine/core/threads.h"
#include "engine/device/device.h"

namespace ab {
namespace {

/// Why a world cannot go on. `error` is what the failing rank threw; none when it called abort().
struct Failure {
  int rank;
  std::string reason;
  std::exception_ptr error;
};

/// The state that all ranks share. One mutex and one signal serve all groups: a failure must wake every waiting rank,
/// whatever group it waits in.
struct ThreadWorld {
  ThreadWorld(const std::vector<int>& node_of_rank, const CommOptions& options)
      : timeout(options.timeout), ended(node_of_rank.size(), false) {
    if (options.wiring.network.shaped()) traffic.emplace(node_of_rank);
  }

  /// The first failure is the cause; what follows are consequences. Needs the mutex.
  void fail(Failure cause) {
    if (!failure) failure = std::move(cause);
    else if (failure->rank == cause.rank && !failure->error) failure->error = cause.error;
    changed.notify_all();
  }
  void throw_if_failed() const {
    AB_CHECK_KIND(communication, !failure, "rank {} failed: {}", failure->rank, failure->reason);
  }

  std::mutex mutex;
  std::condition_variable changed;
  const std::chrono::seconds timeout;
  std::vector<bool> ended;  // whose body has returned
  std::optional<Failure> failure;
  std::optional<VirtualTraffic> traffic;  // over a virtual network; its calls need the mutex
  int waiting_for_messages = 0;           // ranks, there
};

enum class Progress : std::uint8_t { absent, arrived, finished };

/// Where the ranks of a group meet for one collective. Tensors stay alive here until all ranks have left it:
/// a rank that fails and unwinds cannot pull memory from under the others.
struct Slot {
  Slot(const CollectiveCall& first_call, int rank, std::size_t ranks)
      : call(first_call), first_rank(rank), tensors(ranks), progress(ranks, Progress::absent) {}

  bool all_reached(Progress goal) const {
    return std::all_of(progress.begin(), progress.end(), [goal](Progress p) { return p >= goal; });
  }

  CollectiveCall call;
  int first_rank;
  std::vector<Tensor> tensors;
  std::vector<Progress> progress;
  std::size_t departures = 0;
  std::optional<std::int64_t> in_traffic;  // its number there, over a virtual network
};

struct ThreadGroup {
  std::map<std::int64_t, Slot> slots;  // by sequence number: several collectives may be in flight
  struct Child {
    std::shared_ptr<ThreadGroup> group = std::make_shared<ThreadGroup>();
    std::size_t joined = 0;
  };
  std::map<std::pair<std::int64_t, int>, Child> children;  // by number of the split and colour
};

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<ThreadWorld> world, std::shared_ptr<ThreadGroup> group, int rank, std::string name,
             std::vector<int> world_ranks, std::shared_ptr<Ledger> ledger)
      : Comm(rank, std::move(name), std::move(world_ranks), std::move(ledger)),
        world_(std::move(world)),
        group_(std::move(group)),
        me_(static_cast<std::size_t>(rank)) {}

  bool takes_device_tensors() const override { return true; }
  const VirtualCard* card() const override {
    return world_->traffic ? &world_->traffic->card_of(world_rank(rank())) : nullptr;
  }
  void abort(const std::string& reason, int /*exit_code*/) noexcept override {
    const Lock lock(world_->mutex);
    world_->fail({own(), reason, nullptr});
  }

 protected:
  std::unique_ptr<Comm> do_split(int colour, const std::string& name, int rank, std::vector<int> world_ranks) override {
    const Lock lock(world_->mutex);
    const std::pair key(splits_++, colour);
    auto& child = group_->children[key];
    const bool is_last = ++child.joined == world_ranks.size();
    auto comm = std::make_unique<ThreadComm>(world_, child.group, rank, name, std::move(world_ranks), shared_ledger());
    if (is_last) group_->children.erase(key);
    return comm;
  }

  Request start(const CollectiveCall& call, const Tensor& in, const Tensor& out,
                const std::vector<std::int64_t>& counts) override {
    const std::int64_t sequence = post(call, in);
    Work work;
    if (call.what == Collective::all_reduce)
      work = [this, way = route(call)](const Slot& slot) {
        reduce_shared_part(way, layout(), slot.call, rank(), slot.tensors);
      };
    else if (call.what != Collective::barrier)
      work = [this, out, counts](const Slot& slot) { take(slot, out, counts); };
    return Request([this, sequence, work] { complete(sequence, work); });
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Work = std::function<void(const Slot&)>;

  /// Tells what this rank calls at its next slot; waits for no other rank.
  std::int64_t post(const CollectiveCall& call, const Tensor& tensor) {
    if (world_->traffic) synchronize(tensor.device());  // nothing sets out before it is there
    const Lock lock(world_->mutex);
    world_->throw_if_failed();
    const std::int64_t sequence = next_sequence_++;
    const auto ranks = static_cast<std::size_t>(size());
    Slot& slot = group_->slots.try_emplace(sequence, call, own(), ranks).first->second;
    if (slot.call != call)
      fail(fmt::format("ranks disagree on collective {} of group '{}': rank {} calls {}, rank {} calls {}", sequence,
                       name(), slot.first_rank, slot.call.str(), own(), call.str()));
    slot.tensors[me_] = tensor;
    if (world_->traffic) set_out(slot);
    return sequence;
  }

  /// Waits for all ranks to arrive, does this rank's work, and waits until nobody works on its memory any more.
  void complete(std::int64_t sequence, const Work& work) {
    Lock lock(world_->mutex);
    Slot& slot = group_->slots.at(sequence);
    const Device device = slot.tensors[me_].device();
    const auto unlocked = [&](auto&& part) {
      lock.unlock();
      part();
      lock.lock();
    };
    unlocked([&] { synchronize(device); });
    reach(slot, Progress::arrived);
    wait_until_all(lock, slot, Progress::arrived);
    if (work) {
      check_one_device(slot);
      unlocked([&] {
        work(slot);
        synchronize(device);
      });
      reach(slot, Progress::finished);
      wait_until_all(lock, slot, Progress::finished);
      slot.tensors[me_] = {};  // here, and not with the slot on another thread: a stream gives back its own memory
    }
    if (slot.in_traffic) wait_for_messages(lock, slot);
    if (++slot.departures < slot.progress.size()) return;
    if (slot.in_traffic) world_->traffic->forget(*slot.in_traffic);
    group_->slots.erase(sequence);
  }

  /// What this rank receives of the others' tensors.
  void take(const Slot& slot, const Tensor& out, const std::vector<std::int64_t>& counts) const {
    const CollectiveCall& call = slot.call;
    if (call.what == Collective::broadcast && rank() != call.root)
      out.copy_from(slot.tensors[static_cast<std::size_t>(call.root)]);
    if (call.what == Collective::reduce_scatter) {
      std::vector<const void*> sources;
      for (const Tensor& t : slot.tensors) sources.push_back(static_cast<const char*>(t.raw()) + me_ * out.bytes());
      void* const destination = out.raw();
      reduce_in_rank_order(out.device(), out.dtype(), call.op, sources, {&destination, 1}, out.numel());
    }
    if (call.what != Collective::all_gather && call.what != Collective::all_to_all) return;
    const Tensor flat = out.view(Shape{out.numel()});
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < slot.tensors.size(); ++r) {
      const Tensor& in = slot.tensors[r];
      const std::int64_t part = counts.empty() ? out.numel() / size() : counts[r];
      const Tensor to = flat.slice(begin, begin + part);
      if (call.what == Collective::all_to_all)
        to.copy_from(in.view(Shape{in.numel()}).slice(rank() * part, (rank() + 1) * part));
      else if (to.raw() != in.raw()) to.copy_from(in);
      begin += part;
    }
  }

  /// This rank's messages set out. Needs the mutex.
  void set_out(Slot& slot) {
    if (!slot.in_traffic) {
      const Route way = route(slot.call);
      std::vector<std::int64_t> segments;
      for (const ElementRange& segment : segment_ranges(way, slot.call))
        segments.push_back(segment.size() * static_cast<std::int64_t>(size_of(slot.call.dtype)));
      slot.in_traffic = world_->traffic->add(
          {slot.call.what, way, layout(), world_ranks(), slot.call.root, std::move(segments), ledger().links()});
    }
    world_->traffic->start(*slot.in_traffic, rank(), network_now());
    if (world_->waiting_for_messages > 0) world_->changed.notify_all();  // what they expect may have changed
  }

  /// Until all messages that this rank waits for would have come.
  void wait_for_messages(Lock& lock, const Slot& slot) {
    ++world_->waiting_for_messages;
    while (!world_->failure) {
      const NetworkTime now = network_now(), over = world_->traffic->over(*slot.in_traffic, rank(), now);
      if (over <= now) break;
      world_->changed.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(over)));
    }
    --world_->waiting_for_messages;
    world_->throw_if_failed();
  }

  /// Ranks read each other's memory, so it must be of one kind. Needs the mutex.
  void check_one_device(const Slot& slot) {
    const Device mine = slot.tensors[me_].device();
    for (std::size_t member = 0; member < slot.tensors.size(); ++member)
      if (slot.tensors[member].device() != mine)
        fail(
            fmt::format("{} in group '{}': the tensors of ranks {} and {} are on different devices; ranks that are "
                        "threads share one device",
                        slot.call.str(), name(), own(), world_rank(static_cast<int>(member))));
  }

  void reach(Slot& slot, Progress progress) {
    slot.progress[me_] = progress;
    if (slot.all_reached(progress)) world_->changed.notify_all();
  }

  void wait_until_all(Lock& lock, const Slot& slot, Progress goal) {
    for (Patience patience(world_->timeout);;) {
      world_->throw_if_failed();
      if (slot.all_reached(goal)) return;
      std::vector<int> missing, ended;
      for (std::size_t member = 0; member < slot.progress.size(); ++member) {
        if (slot.progress[member] >= goal) continue;
        missing.push_back(world_rank(static_cast<int>(member)));
        if (world_->ended[static_cast<std::size_t>(missing.back())]) ended.push_back(missing.back());
      }
      if (!ended.empty())
        fail(fmt::format("{} in group '{}' can never complete: {} ended without taking part", slot.call.str(), name(),
                         list_ranks(ended)));
      if (patience.is_over()) {
        if (world_->waiting_for_messages == 0)
          fail(fmt::format("{} in group '{}' waited {} s on rank {}; missing: {}", slot.call.str(), name(),
                           world_->timeout.count(), own(), list_ranks(missing)));
        patience = Patience(world_->timeout);  // messages may take their time
      }
      world_->changed.wait_for(lock, Patience::kLook);
    }
  }

  /// Needs the mutex.
  [[noreturn]] void fail(const std::string& reason) {
    const Error error(ErrorKind::communication, reason);
    world_->fail({own(), reason, std::make_exception_ptr(error)});
    throw error;
  }
  int own() const { return world_rank(rank()); }

  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadGroup> group_;
  std::size_t me_;
  std::int64_t next_sequence_ = 0;
  std::int64_t splits_ = 0;
};

/// One part of the buffers of all ranks.
class Part {
 public:
  Part(const CollectiveCall& call, ElementRange range, const std::vector<Tensor>& tensors)
      : call_(call), count_(range.size()), device_(tensors[0].device()) {
    for (const Tensor& tensor : tensors)
      places_.push_back(static_cast<std::byte*>(tensor.raw()) +
                        static_cast<std::size_t>(range.begin) * size_of(call.dtype));
  }

  int ranks() const { return static_cast<int>(places_.size()); }
  /// Partial sums lie where the buffer of one rank was.
  void add(const std::vector<int>& sources, int into) const {
    void* const destination = place(into);
    reduce(call_.op == ReduceOp::mean ? ReduceOp::sum : call_.op, sources, {&destination, 1});
  }
  void complete(const std::vector<int>& sources) const { reduce(call_.op, sources, places_); }

 private:
  void* place(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  void reduce(ReduceOp op, const std::vector<int>& ranks_of_sources, std::span<void* const> destinations) const {
    std::vector<const void*> sources;
    for (const int rank : ranks_of_sources) sources.push_back(place(rank));
    reduce_in_rank_order(device_, call_.dtype, op, sources, destinations, count_, ranks());
  }

  const CollectiveCall& call_;
  std::int64_t count_;
  Device device_;
  std::vector<void*> places_;
};

void reduce_along_ring(const Part& part, int owner) {
  const int p = part.ranks();
  const auto hop = [&](int i) { return (owner + i) % p; };
  for (int i = 1; i + 1 < p; ++i) part.add({hop(i), hop(i + 1)}, hop(i + 1));
  part.complete({hop(p - 1), owner});
}

void reduce_up_tree(const Part& part) {
  const int p = part.ranks();
  int distance = 1;
  for (; 2 * distance < p; distance *= 2)
    for (int r = 0; r + distance < p; r += 2 * distance) part.add({r, r + distance}, r);
  part.complete({0, distance});
}

void reduce_by_nodes(const Part& part, const Layout& layout) {
  std::vector<int> firsts;
  for (const std::vector<int>& node : layout.members) {
    part.add(node, node[0]);
    firsts.push_back(node[0]);
  }
  part.complete(firsts);
}

}  // namespace

void reduce_shared_part(const Route& route, const Layout& layout, const CollectiveCall& call, int rank,
                        const std::vector<Tensor>& tensors) {
  if (layout.ranks() == 1) return;
  for (const ElementRange& segment : segment_ranges(route, call)) {
    const ElementRange mine = part_of_rank(segment.size(), rank, layout.ranks());
    const Part part(call, {segment.begin + mine.begin, segment.begin + mine.end}, tensors);
    switch (route.algorithm) {
      case AllReduce::ring: reduce_along_ring(part, rank); break;
      case AllReduce::tree: reduce_up_tree(part); break;
      case AllReduce::two_level: reduce_by_nodes(part, layout); break;
      case AllReduce::direct:
      case AllReduce::automatic:
      case AllReduce::library: part.complete(first_ranks(part.ranks()));
    }
  }
}

void run_thread_ranks(int ranks, const CommOptions& options, const std::function<void(Comm&)>& body) {
  AB_CHECK(ranks >= 1, "a world needs at least one rank, got {}", ranks);
  const std::vector<int> nodes = consecutive_nodes(ranks, options.ranks_per_node);
  const auto world = std::make_shared<ThreadWorld>(nodes, options);
  const auto group = std::make_shared<ThreadGroup>();

  const auto fail = [&](int rank, const std::string& reason) {
    const std::lock_guard lock(world->mutex);
    world->fail({rank, reason, std::current_exception()});
  };
  const auto make_comm = [&](int rank) -> std::unique_ptr<Comm> {
    if (ranks == 1) return make_self_comm(options);  // which does not wait for the GPU
    auto ledger = std::make_shared<Ledger>(nodes, options.wiring);
    return std::make_unique<ThreadComm>(world, group, rank, "world", first_ranks(ranks), std::move(ledger));
  };
  const auto run_rank = [&](int rank) {
    try {
      set_compute_threads(0, ranks);  // without it every rank would start a team as large as the machine
      body(*make_comm(rank));
      const std::lock_guard lock(world->mutex);
      world->ended[static_cast<std::size_t>(rank)] = true;
      world->changed.notify_all();
    } catch (const std::exception& error) {
      fail(rank, in_our_words(error).what());
    } catch (...) {
      fail(rank, "it threw something that is not a std::exception");
    }
  };

  {
    std::vector<std::jthread> threads;
    try {
      for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
    } catch (const std::exception& error) {
      fail(static_cast<int>(threads.size()), in_our_words(error).what());
    }
  }
  if (world->failure && world->failure->error) std::rethrow_exception(world->failure->error);
  world->throw_if_failed();
}

}  // namespace ab
