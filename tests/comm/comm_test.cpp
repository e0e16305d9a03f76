// SPDX-License-Identifier: MIT
//
// One suite for all transports. Alone it runs a world of one and worlds of threads; under mpirun it runs the
// world of processes over MPI, or over NCCL with AB_TEST_NCCL in the environment. NCCL needs no MPI: bench/run_ranks.sh
// will do. Values are small integers in
// floating point, so sums are exact and can be compared with ==; where rounding matters, all ranks must hold the same
// bits.
#include "engine/comm/comm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "engine/comm/launcher.h"
#include "engine/comm/nccl_comm.h"
#include "engine/comm/patience.h"
#include "engine/comm/rendezvous.h"
#include "engine/comm/virtual_network.h"
#include "engine/core/random.h"
#include "engine/device/device.h"
#include "engine/kernels/elementwise.h"
#include "tests/ptx_gpu.h"

namespace ab {
namespace {

using namespace std::chrono_literals;
using Body = std::function<void(Comm&)>;

struct Transport {
  std::string name;
  std::function<void(const CommOptions&, const Body&)> run;
};

Transport threads(int ranks) {
  return {fmt::format("thread{}", ranks),
          [ranks](const CommOptions& options, const Body& body) { run_thread_ranks(ranks, options, body); }};
}

bool over_nccl() { return std::getenv("AB_TEST_NCCL") != nullptr; }

/// The GPU of this process. Threads share the first.
Device test_gpu() { return {DeviceKind::cuda, over_nccl() ? local_rank() % std::max(1, cuda_device_count()) : 0}; }

/// Processes share GPUs when there are not enough of them.
void run_over_nccl(CommOptions options, const Body& body) {
  const char* const rendezvous = std::getenv("AB_RENDEZVOUS");  // of run_ranks.sh
  const Place place = find_place(rendezvous ? rendezvous : "");
  check_nccl(test_gpu().index);
  options.share_gpu = cuda_device_count() < place.ranks && !on_ptx_gpu();
  auto bootstrap = launched_by_mpi() ? make_mpi_bootstrap(options)
                                     : make_rendezvous({place.rank, place.ranks, place.address, options.timeout});
  body(*make_nccl_comm(std::move(bootstrap), test_gpu().index, options));
}

std::vector<Transport> transports() {
  if (over_nccl()) return {{"nccl", run_over_nccl}};
  if (launched_by_mpi())
    return {{"mpi", [](const CommOptions& options, const Body& body) { body(*make_mpi_comm(options)); }}};
  return {{"self", [](const CommOptions& options, const Body& body) { body(*make_self_comm(options)); }},
          threads(1),
          threads(2),
          threads(4),
          threads(5)};
}

class CommTest : public testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    if (over_nccl() && cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  }
  void run(const Body& body, CommOptions options = {.timeout = 30s}) { GetParam().run(options, body); }
};
INSTANTIATE_TEST_SUITE_P(Transports, CommTest, testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param.name; });

/// Elements that depend on the index and, unless it is negative, on the rank.
template <class T> Tensor numbered(std::int64_t elements, int rank) {
  Tensor t(Shape{elements}, dtype_of<T>);
  for (std::int64_t i = 0; i < elements; ++i) t.data<T>()[i] = static_cast<T>(static_cast<float>(i % 50 + 10 * rank));
  return t;
}

/// Numbers that T does not have are rounded once.
template <class T> void expect_all(const Tensor& t, const std::function<double(std::int64_t)>& expected) {
  const auto values = t.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i],
              static_cast<double>(static_cast<T>(static_cast<float>(expected(static_cast<std::int64_t>(i))))))
        << "element " << i;
}

double sum_of_ranks(int p) { return p * (p - 1) / 2.0; }

/// Random floats of very different size: their sum depends on the order of the additions.
Tensor rough_floats(std::int64_t elements, int rank) {
  const Philox random{7, static_cast<std::uint64_t>(rank)};
  Tensor t(Shape{elements});
  for (std::int64_t i = 0; i < elements; ++i)
    t.data<float>()[i] = random.normal(static_cast<std::uint64_t>(i)) * std::exp2f(static_cast<float>((i + rank) % 24));
  return t;
}

void expect_equal_bits_on_all_ranks(Comm& comm, const Tensor& mine) {
  const Tensor all(Shape{comm.size() * mine.numel()}, mine.dtype());
  comm.all_gather(mine.view(Shape{mine.numel()}), all);
  for (int r = 0; r < comm.size(); ++r) {
    const Tensor other = all.slice(r * mine.numel(), (r + 1) * mine.numel());
    EXPECT_EQ(std::memcmp(mine.raw(), other.raw(), mine.bytes()), 0) << "ranks " << comm.rank() << " and " << r;
  }
}

TEST_P(CommTest, RanksAreNumberedAndTheWorldIsNamed) {
  run([](Comm& comm) {
    EXPECT_EQ(comm.name(), "world");
    const Tensor ranks(Shape{comm.size()}, DType::int64);
    comm.all_gather(Tensor::from(std::vector<std::int64_t>{comm.rank()}, Shape{1}), ranks);
    expect_all<std::int64_t>(ranks, [](std::int64_t i) { return static_cast<double>(i); });
  });
}

TEST_P(CommTest, CollectivesRunBesideComputationBetweenProcesses) {
  run([](Comm& comm) {
    EXPECT_EQ(comm.runs_beside_computation(), launched_by_mpi() || over_nccl());
    EXPECT_EQ(comm.duplicate("group")->runs_beside_computation(), comm.runs_beside_computation());
  });
}

TEST_P(CommTest, BarrierHoldsEveryRankUntilTheLastArrives) {
  if (launched_by_mpi() || over_nccl()) GTEST_SKIP() << "processes do not share the counter";
  std::atomic<int> arrived = 0;
  run([&](Comm& comm) {
    if (comm.rank() == 0) std::this_thread::sleep_for(50ms);
    ++arrived;
    comm.barrier();
    EXPECT_EQ(arrived, comm.size());
  });
}

template <class T> void check_broadcast(Comm& comm) {
  for (int root = 0; root < comm.size(); ++root)
    for (const std::int64_t n : {0, 1, 3, 1000}) {
      const Tensor t = numbered<T>(n, comm.rank()), expected = numbered<T>(n, root);
      comm.broadcast(t, root);
      EXPECT_EQ(t.to_doubles(), expected.to_doubles()) << name_of(dtype_of<T>) << " from rank " << root;
    }
}
TEST_P(CommTest, BroadcastOfEveryTypeFromEveryRank) {
  run([](Comm& comm) {
    check_broadcast<float>(comm);
    check_broadcast<double>(comm);
    check_broadcast<bfloat16>(comm);
    check_broadcast<float16>(comm);
    check_broadcast<std::int64_t>(comm);
    check_broadcast<std::uint8_t>(comm);
  });
}

template <class T> void check_all_reduce(Comm& comm) {
  const int p = comm.size();
  for (const std::int64_t n : {0, 1, 2, 7, 5000}) {
    Tensor t = numbered<T>(n, comm.rank());
    comm.all_reduce(t, ReduceOp::sum);
    expect_all<T>(t, [p](std::int64_t i) { return p * static_cast<double>(i % 50) + 10 * sum_of_ranks(p); });
    t = numbered<T>(n, comm.rank());
    comm.all_reduce(t, ReduceOp::max);
    expect_all<T>(t, [p](std::int64_t i) { return static_cast<double>(i % 50 + 10 * (p - 1)); });
    if (dtype_of<T> == DType::int64) continue;
    t = numbered<T>(n, comm.rank());
    comm.all_reduce(t, ReduceOp::mean);
    expect_all<T>(t, [p](std::int64_t i) { return static_cast<double>(i % 50) + 5 * (p - 1); });
  }
}
TEST_P(CommTest, AllReduceOfEveryTypeAndOperation) {
  run([](Comm& comm) {
    check_all_reduce<float>(comm);
    check_all_reduce<double>(comm);
    check_all_reduce<bfloat16>(comm);
    check_all_reduce<float16>(comm);
    check_all_reduce<std::int64_t>(comm);
  });
}

/// Operands that T has exactly; their float64 sum, rounded once, is what every rank shall hold, save for the float32 in
/// which it was added. Over NCCL every hop rounds.
template <class T> void check_16_bit_sums(Comm& comm, double rounding) {
  constexpr std::int64_t n = 4001;
  const Tensor mine = cast(rough_floats(n, comm.rank()), dtype_of<T>);
  std::vector<double> sums(n, 0), magnitudes(n, 0);
  for (int r = 0; r < comm.size(); ++r) {
    const std::vector<double> values = cast(rough_floats(n, r), dtype_of<T>).to_doubles();
    for (std::size_t i = 0; i < n; ++i) sums[i] += values[i], magnitudes[i] += std::abs(values[i]);
  }
  comm.all_reduce(mine, ReduceOp::mean);
  const std::vector<double> means = mine.to_doubles();
  const int roundings = over_nccl() ? comm.size() : 1;
  for (std::size_t i = 0; i < n; ++i) {
    const double mean = sums[i] / comm.size(), of_float32 = 1e-6 * magnitudes[i];
    const double allowed = roundings * rounding * (over_nccl() ? magnitudes[i] : std::abs(mean));
    ASSERT_LE(std::abs(means[i] - mean), allowed + of_float32) << name_of(dtype_of<T>) << " " << i;
  }
  expect_equal_bits_on_all_ranks(comm, mine);
}
TEST_P(CommTest, SumsOf16BitsAreRoundedOnce) {
  run([](Comm& comm) {
    check_16_bit_sums<bfloat16>(comm, 0x1p-8);  // half of the last of 8 bits
    Tensor tiny(Shape{1}, DType::float16);      // summed in float16, three of these would be lost beside 2048
    tiny.data<float16>()[0] = comm.rank() == 0 ? 2048.0f : 0.75f;
    comm.all_reduce(tiny, ReduceOp::sum);
    if (over_nccl()) return;
    EXPECT_EQ(tiny.item(), static_cast<float>(static_cast<float16>(2048 + 0.75f * (comm.size() - 1))));
  });
}

TEST_P(CommTest, SumsAreTakenInRankOrderSoAllRanksHoldTheSameBits) {
  run([](Comm& comm) {
    constexpr std::int64_t n = 10007;
    const Tensor t = rough_floats(n, comm.rank());
    std::vector<float> expected(n, 0);
    for (int r = 0; r < comm.size(); ++r) {
      const Tensor other = rough_floats(n, r);
      for (std::int64_t i = 0; i < n; ++i) expected[static_cast<std::size_t>(i)] += other.data<float>()[i];
    }
    comm.all_reduce(t, ReduceOp::sum);
    const bool own_order = over_nccl() && comm.size() > 2;
    EXPECT_TRUE(own_order || std::memcmp(t.raw(), expected.data(), t.bytes()) == 0);
    expect_equal_bits_on_all_ranks(comm, t);
  });
}

TEST_P(CommTest, EveryAlgorithmHasTheSameBitsOnAllTransports) {
  if (over_nccl()) GTEST_SKIP() << "NCCL chooses for itself";
  for (const AllReduce algorithm : {AllReduce::direct, AllReduce::ring, AllReduce::tree, AllReduce::two_level})
    run(
        [algorithm](Comm& comm) {
          for (const DType dtype : {DType::float32, DType::bfloat16}) {
            const CollectiveCall call{
                .what = Collective::all_reduce, .dtype = dtype, .elements = 997, .op = ReduceOp::mean};
            const Tensor mine = cast(rough_floats(call.elements, comm.rank()), dtype);
            comm.all_reduce(mine, call.op);
            const Layout layout(consecutive_nodes(comm.size(), 2));
            std::vector<Tensor> expected;
            for (int r = 0; r < comm.size(); ++r) expected.push_back(cast(rough_floats(call.elements, r), dtype));
            for (int r = 0; r < comm.size(); ++r)
              reduce_shared_part(route_of(call.what, algorithm, layout), layout, call, r, expected);
            EXPECT_EQ(mine.to_doubles(), expected[0].to_doubles()) << name_of(algorithm);
          }
        },
        {.ranks_per_node = 2, .timeout = 30s, .wiring = {.all_reduce = algorithm}});
}

// Eight bytes go around the ring in 2(P-1) latencies; a direct all-reduce of another group takes two of them meanwhile.
TEST_P(CommTest, OverAVirtualNetworkWhatIsInFlightHoldsNothingElseUp) {
  if (over_nccl()) GTEST_SKIP() << "NCCL's messages cannot be held back";
  run(
      [](Comm& comm) {
        if (comm.size() < 4) return;
        const auto group = comm.duplicate("question");
        comm.barrier();
        const auto start = std::chrono::steady_clock::now();
        const Tensor flag = numbered<float>(2, comm.rank()), gradients = numbered<float>(100, comm.rank());
        comm.ledger().use_all_reduce(AllReduce::ring);
        Request question = group->all_reduce_async(flag, ReduceOp::max);
        comm.ledger().use_all_reduce(AllReduce::direct);
        comm.all_reduce(gradients, ReduceOp::sum);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        question.wait();
        const std::chrono::duration<double> asked = std::chrono::steady_clock::now() - start;
        EXPECT_LT(took.count(), 0.1 * 2 * (comm.size() - 1) - 0.05);
        EXPECT_GT(asked.count(), 0.1 * 2 * (comm.size() - 1) - 0.01);
      },
      {.ranks_per_node = 1, .timeout = 30s, .wiring = {.network = parse_network("latency=100ms")}});
}

TEST_P(CommTest, AVirtualNetworkHoldsCollectivesBackAndCountsTheirBytes) {
  if (over_nccl()) GTEST_SKIP() << "NCCL's messages cannot be held back";
  for (const AllReduce algorithm : {AllReduce::direct, AllReduce::ring, AllReduce::tree, AllReduce::two_level})
    run(
        [algorithm](Comm& comm) {
          const auto group = comm.split([](int rank) { return rank % 2; }, "parity");
          comm.barrier();
          const std::int64_t before = comm.card() ? comm.card()->bytes_sent.load() : 0;
          comm.barrier();
          comm.ledger().set_phase("shaped");
          const auto start = std::chrono::steady_clock::now();
          comm.ledger().begin_step(7);
          std::vector<Request> requests;
          const Tensor first = numbered<float>(12000, comm.rank()), second = numbered<float>(60, comm.rank());
          requests.push_back(comm.all_reduce_async(first, ReduceOp::sum));
          requests.push_back(group->all_reduce_async(second, ReduceOp::sum));
          for (Request& request : requests) request.wait();
          const Tensor took =
              Tensor::scalar(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
          expect_all<float>(first, [p = comm.size()](std::int64_t i) {
            return p * static_cast<double>(i % 50) + 10 * sum_of_ranks(p);
          });
          const Tensor parts(Shape{comm.size()}), all = numbered<float>(comm.size(), comm.rank());
          comm.all_gather(Tensor::scalar(comm.rank()).view(Shape{1}), parts);
          comm.broadcast(all, comm.size() - 1);
          const LedgerEntry sent = comm.ledger().total_of_phase("shaped");
          comm.ledger().set_phase("check");
          comm.barrier();
          const std::int64_t after = comm.card() ? comm.card()->bytes_sent.load() : 0;
          comm.barrier();
          if (comm.size() <= 2) return;          // one node
          comm.all_reduce(took, ReduceOp::max);  // a rank that comes late waits for less
          EXPECT_GE(took.item(), 2 * 0.005) << name_of(algorithm);
          // All that the cards of the nodes have sent, each counted by the first of its ranks.
          const bool first_of_node = comm.rank() % 2 == 0;
          const Tensor sums = Tensor::from(
              std::vector<double>{first_of_node ? static_cast<double>(after - before) : 0, sent.inter_node_sent_bytes},
              {2});
          comm.all_reduce(sums, ReduceOp::sum);
          EXPECT_NEAR(sums.data<double>()[0], sums.data<double>()[1], 1e-6) << name_of(algorithm);
        },
        {.ranks_per_node = 2,
         .timeout = 30s,
         .wiring = {.all_reduce = algorithm, .network = parse_network("bandwidth=1Gbps; from 7: latency=5ms")}});
}

TEST_P(CommTest, NanOnOneRankReachesAll) {
  run([](Comm& comm) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max})
      for (int broken = 0; broken < comm.size(); ++broken) {
        const Tensor t = Tensor::scalar(comm.rank() == broken ? std::nan("") : comm.rank());
        comm.all_reduce(t, op);
        EXPECT_TRUE(std::isnan(t.item()));
      }
  });
}

TEST_P(CommTest, ReduceScatterGivesEachRankItsPart) {
  run([](Comm& comm) {
    const int p = comm.size();
    for (const std::int64_t part : {0, 1, 513}) {
      const Tensor in = numbered<float>(p * part, comm.rank()), out(Shape{part});
      comm.reduce_scatter(in, out, ReduceOp::mean);
      const std::int64_t first = comm.rank() * part;
      expect_all<float>(out, [=](std::int64_t i) { return static_cast<double>((first + i) % 50) + 5 * (p - 1); });
    }
  });
}

TEST_P(CommTest, AllGatherTakesPartsOfDifferentSizeEvenNone) {
  run([](Comm& comm) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < comm.size(); ++r) counts.push_back(r % 3 == 1 ? 0 : 4 * r + 2);
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const Tensor out(Shape{total}, DType::bfloat16);
    comm.all_gather_v(numbered<bfloat16>(counts[static_cast<std::size_t>(comm.rank())], comm.rank()), out, counts);
    std::int64_t begin = 0;
    for (int r = 0; r < comm.size(); ++r) {
      const std::int64_t n = counts[static_cast<std::size_t>(r)];
      EXPECT_EQ(out.slice(begin, begin + n).to_doubles(), numbered<bfloat16>(n, r).to_doubles());
      begin += n;
    }
  });
}

TEST_P(CommTest, AllToAllTransposesParts) {
  run([](Comm& comm) {
    const int p = comm.size();
    for (const std::int64_t part : {std::int64_t{0}, std::int64_t{1}, std::int64_t{77}, (std::int64_t{5} << 20) + 3}) {
      const Tensor in(Shape{p * part}, DType::uint8), out(Shape{p * part}, DType::uint8);
      const auto byte = [](int from, int to, std::int64_t i) {
        return static_cast<std::uint8_t>(i % 251 + 16 * from + to);
      };
      for (int to = 0; to < p; ++to)
        for (std::int64_t i = 0; i < part; ++i) in.data<std::uint8_t>()[to * part + i] = byte(comm.rank(), to, i);
      comm.all_to_all(in, out);
      std::int64_t wrong = 0;
      for (int from = 0; from < p; ++from)
        for (std::int64_t i = 0; i < part; ++i)
          wrong += out.data<std::uint8_t>()[from * part + i] != byte(from, comm.rank(), i);
      EXPECT_EQ(wrong, 0) << part;
    }
  });
}

TEST_P(CommTest, LargeBuffersTravelInPieces) {
  run([](Comm& comm) {
    const std::int64_t n = (std::int64_t{5} << 20) + 3;  // 20 MiB: more than MPI operations have in flight
    const int p = comm.size();
    const Tensor t(Shape{n});
    for (std::int64_t i = 0; i < n; ++i) t.data<float>()[i] = static_cast<float>(i % 1000 + comm.rank());
    comm.all_reduce(t, ReduceOp::sum);
    const float offset = static_cast<float>(sum_of_ranks(p));
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < n; ++i)
      wrong += t.data<float>()[i] != static_cast<float>(p) * static_cast<float>(i % 1000) + offset;
    EXPECT_EQ(wrong, 0);
    if (comm.rank() != p - 1) t.set_zero();
    comm.broadcast(t, p - 1);
    for (std::int64_t i = 0; i < n; ++i)
      wrong += t.data<float>()[i] != static_cast<float>(p) * static_cast<float>(i % 1000) + offset;
    EXPECT_EQ(wrong, 0);
  });
}

TEST_P(CommTest, SeveralRequestsInFlightWhateverTheTiming) {
  run([](Comm& comm) {
    constexpr int kRequests = 200;  // more than MPI operations share tags for
    std::vector<Tensor> tensors;
    std::vector<Request> requests;
    for (int k = 0; k < kRequests; ++k) tensors.push_back(numbered<float>(1 + 37 * k, comm.rank() + k));
    for (int k = 0; k < kRequests; ++k) {
      // Every rank dawdles at another place.
      if (k % comm.size() == comm.rank() && k < 20) std::this_thread::sleep_for(1ms);
      requests.push_back(comm.all_reduce_async(tensors[static_cast<std::size_t>(k)], ReduceOp::sum));
      if (k == 100) comm.barrier();  // other collectives may come between start and wait
    }
    for (Request& request : requests) request.wait();
    const int p = comm.size();
    for (int k = 0; k < kRequests; ++k)
      expect_all<float>(tensors[static_cast<std::size_t>(k)], [=](std::int64_t i) {
        return p * static_cast<double>(i % 50 + 10 * k) + 10 * sum_of_ranks(p);
      });
  });
}

TEST_P(CommTest, EveryCollectiveMayBeInFlight) {
  run([](Comm& comm) {
    const int p = comm.size(), last = p - 1;
    struct Round {
      Tensor sent, gathered, parts, mine, swapped, summed;
    };
    std::vector<Round> rounds;
    std::vector<Request> requests;
    for (int k = 0; k < 5; ++k) {
      if (k == comm.rank()) std::this_thread::sleep_for(2ms);
      rounds.push_back({numbered<bfloat16>(100 + k, comm.rank()), Tensor(Shape{p}, DType::int64),
                        numbered<float>(3 * p, comm.rank() + k), Tensor(Shape{3}), Tensor(Shape{3 * p}),
                        numbered<float>(7, comm.rank())});
      const Round& round = rounds.back();
      requests.push_back(comm.broadcast_async(round.sent, last));
      requests.push_back(
          comm.all_gather_async(Tensor::from(std::vector<std::int64_t>{comm.rank() + k}, Shape{1}), round.gathered));
      requests.push_back(comm.reduce_scatter_async(round.parts, round.mine, ReduceOp::sum));
      requests.push_back(comm.all_to_all_async(round.parts, round.swapped));
      requests.push_back(comm.all_reduce_async(round.summed, ReduceOp::max));
    }
    for (Request& request : requests) request.wait();
    for (int k = 0; k < 5; ++k) {
      const Round& round = rounds[static_cast<std::size_t>(k)];
      EXPECT_EQ(round.sent.to_doubles(), numbered<bfloat16>(100 + k, last).to_doubles());
      expect_all<std::int64_t>(round.gathered, [k](std::int64_t i) { return static_cast<double>(i + k); });
      expect_all<float>(round.mine, [&](std::int64_t i) {
        return p * static_cast<double>((3 * comm.rank() + i) % 50 + 10 * k) + 10 * sum_of_ranks(p);
      });
      expect_all<float>(round.swapped, [&](std::int64_t i) {
        return static_cast<double>((3 * comm.rank() + i % 3) % 50 + 10 * (i / 3 + k));
      });
      expect_all<float>(round.summed, [last](std::int64_t i) { return static_cast<double>(i + 10 * last); });
    }
  });
}

TEST_P(CommTest, GroupsOfAnySizeWorkSideBySide) {
  run([](Comm& world) {
    // 5 ranks make {0, 2, 4} and {1, 3}; a world of one makes one group of one.
    const auto group = world.split([](int rank) { return rank % 2; }, "parity");
    const int expected_size = (world.size() + 1 - world.rank() % 2) / 2;
    ASSERT_EQ(group->size(), expected_size);
    EXPECT_EQ(group->rank(), world.rank() / 2);
    EXPECT_EQ(group->name(), "parity");
    const Tensor t = Tensor::scalar(world.rank());
    group->all_reduce(t, ReduceOp::sum);
    double expected = 0;
    for (int r = world.rank() % 2; r < world.size(); r += 2) expected += r;
    EXPECT_EQ(t.item(), expected);

    // Requests of the world and of a group may be in flight together.
    const Tensor a = Tensor::scalar(1), b = Tensor::scalar(1);
    Request of_world = world.all_reduce_async(a, ReduceOp::sum), of_group = group->all_reduce_async(b, ReduceOp::sum);
    of_group.wait();
    of_world.wait();
    EXPECT_EQ(a.item(), world.size());
    EXPECT_EQ(b.item(), expected_size);
  });
}

TEST_P(CommTest, GroupsSplitAgainDownToOne) {
  run([](Comm& world) {
    const auto half = world.split([](int rank) { return rank / 3; }, "half");
    const auto alone = half->split([](int rank) { return rank; }, "alone");
    EXPECT_EQ(alone->size(), 1);
    const Tensor t = Tensor::scalar(42 + world.rank());
    alone->all_reduce(t, ReduceOp::mean);
    alone->broadcast(t, 0);
    EXPECT_EQ(t.item(), 42 + world.rank());
    const auto same = half->split([](int) { return 1000; }, "same");
    EXPECT_EQ(same->size(), half->size());
    same->all_reduce(t, ReduceOp::max);
    EXPECT_EQ(t.item(), 42 + std::min(world.size() - 1, world.rank() / 3 * 3 + 2));
  });
}

/// Every collective on the memory of a GPU: the same bits and the same traffic as in host memory.
class DeviceCommTest : public CommTest {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, DeviceCommTest, testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param.name; });

/// The result of collective(tensor) on copies of `input` in either memory, between other work on the same stream.
void expect_same_on_device(Comm& comm, const Tensor& input, const std::function<Tensor(const Tensor&)>& collective) {
  const auto run_on = [&](Device device, const std::string& phase) {
    comm.ledger().set_phase(phase);
    const Tensor tensor = input.to(device).clone(), bias = tensor.clone();
    const bool computes = tensor.dtype() == DType::float32;
    if (computes) axpy(1.0, bias, tensor);
    const Tensor result = collective(tensor);
    if (computes) scale_in_place(result, 3.0);
    return result.to(Device{});
  };
  const Tensor on_host = run_on({}, "host"), on_device = run_on(test_gpu(), "device");
  // A GPU has one NaN for all that comes of one.
  const bool is_nan = input.dtype() == DType::float32 && std::isnan(on_host.data<float>()[0]);
  if (is_nan) EXPECT_TRUE(std::isnan(on_device.data<float>()[0]));
  else EXPECT_EQ(std::memcmp(on_host.raw(), on_device.raw(), on_host.bytes()), 0) << name_of(input.dtype());
}

TEST_P(DeviceCommTest, ReductionsAndTransfersEqualThoseInHostMemory) {
  run([](Comm& comm) {
    const int p = comm.size(), rank = comm.rank();
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max}) {
      const auto all_reduce = [&](const Tensor& t) { return comm.all_reduce(t, op), t; };
      expect_same_on_device(comm, rough_floats(4099, rank), all_reduce);
      expect_same_on_device(comm, numbered<double>(7, rank), all_reduce);
      if (op != ReduceOp::mean) expect_same_on_device(comm, numbered<std::int64_t>(7, rank), all_reduce);
      expect_same_on_device(comm, Tensor::scalar(rank == p - 1 ? std::nan("") : rank), all_reduce);
      expect_same_on_device(comm, rough_floats(p * 129, rank), [&](const Tensor& t) {
        const Tensor part(Shape{129}, t.dtype(), t.device());
        comm.reduce_scatter(t, part, op);
        return part;
      });
    }
    expect_same_on_device(comm, numbered<bfloat16>(100, rank),
                          [&](const Tensor& t) { return comm.broadcast(t, p - 1), t; });
    std::vector<std::int64_t> counts;
    for (int r = 0; r < p; ++r) counts.push_back(r % 3 == 1 ? 0 : 4 * r + 2);
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    expect_same_on_device(comm, numbered<float>(counts[static_cast<std::size_t>(rank)], rank), [&](const Tensor& t) {
      const Tensor out(Shape{total}, t.dtype(), t.device());
      comm.all_gather_v(t, out, counts);
      return out;
    });
    const auto traffic = comm.ledger().by_phase();
    EXPECT_EQ(traffic.at("host"), traffic.at("device"));
  });
}

TEST_P(DeviceCommTest, WholeNumbersEqualThoseInHostMemory) {
  run([](Comm& comm) {
    const int p = comm.size(), rank = comm.rank();
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      expect_same_on_device(comm, numbered<std::int64_t>(1001, rank), [&](const Tensor& t) {
        comm.all_reduce(t, op);
        return t;
      });
      expect_same_on_device(comm, numbered<std::int64_t>(p * 33, rank), [&](const Tensor& t) {
        const Tensor part(Shape{33}, t.dtype(), t.device());
        comm.reduce_scatter(t, part, op);
        return part;
      });
    }
    expect_same_on_device(comm, numbered<std::int64_t>(p * 33, rank), [&](const Tensor& t) {
      const Tensor swapped(t.shape(), t.dtype(), t.device());
      comm.all_to_all(t, swapped);
      return swapped;
    });
    expect_same_on_device(comm, numbered<std::int64_t>(7, rank), [&](const Tensor& t) {
      const Tensor all(Shape{7 * p}, t.dtype(), t.device());
      comm.all_gather(t, all);
      comm.broadcast(all, p - 1);
      return all;
    });
    std::vector<std::int64_t> counts;
    for (int r = 0; r < p; ++r) counts.push_back(r % 3 == 1 ? 0 : 4 * r + 2);
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const Tensor mine = numbered<std::int64_t>(counts[static_cast<std::size_t>(rank)], rank);
    expect_same_on_device(comm, mine, [&](const Tensor& t) {
      const Tensor out(Shape{total}, t.dtype(), t.device());
      comm.all_gather_v(t, out, counts);
      return out;
    });
  });
}

TEST_P(DeviceCommTest, RequestsOfGroupsAreInFlightTogether) {
  run([](Comm& world) {
    const Device gpu = test_gpu();
    const auto group = world.split([](int rank) { return rank % 2; }, "parity");
    std::vector<Tensor> tensors;
    std::vector<Request> requests;
    for (int k = 0; k < 20; ++k) {
      Comm& comm = k % 2 == 0 ? world : *group;
      tensors.push_back(numbered<float>(1 + 37 * k, comm.rank()).to(gpu));
      requests.push_back(comm.all_reduce_async(tensors.back(), ReduceOp::sum));
      if (k == 10) world.all_reduce(numbered<float>(5, world.rank()), ReduceOp::sum);
    }
    for (Request& request : requests) request.wait();
    for (int k = 0; k < 20; ++k) {
      const int p = k % 2 == 0 ? world.size() : group->size();
      expect_all<float>(tensors[static_cast<std::size_t>(k)],
                        [p](std::int64_t i) { return p * static_cast<double>(i % 50) + 10 * sum_of_ranks(p); });
    }
  });
}

TEST(ThreadRanks, TensorsInDifferentMemoryAreAnError) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  try {
    run_thread_ranks(2, {.timeout = 30s}, [](Comm& comm) {
      const Device device = comm.rank() == 0 ? Device{} : Device{DeviceKind::cuda, 0};
      comm.all_reduce(Tensor::zeros({8}, DType::float32, device), ReduceOp::sum);
    });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::communication);
    EXPECT_NE(std::string(error.what()).find("are on different devices"), std::string::npos) << error.what();
  }
}

TEST_P(CommTest, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  run([](Comm& comm) {
    const Tensor bytes(Shape{4}, DType::uint8), integers(Shape{4}, DType::int64), floats(Shape{4});
    EXPECT_THROW(comm.all_reduce(bytes, ReduceOp::sum), Error);
    EXPECT_THROW(comm.all_reduce(integers, ReduceOp::mean), Error);
    EXPECT_THROW(comm.all_reduce(Tensor(), ReduceOp::sum), Error);
    EXPECT_THROW(comm.broadcast(floats, comm.size()), Error);
    EXPECT_THROW(comm.all_gather(floats, Tensor(Shape{4 * comm.size() + 1})), Error);
    EXPECT_THROW(comm.reduce_scatter(Tensor(Shape{4 * comm.size() + 1}), floats, ReduceOp::sum), Error);
    EXPECT_THROW(comm.all_to_all(floats, bytes), Error);
    const Tensor uneven(Shape{2 * comm.size() - 1});
    if (comm.size() > 1) {
      EXPECT_THROW(comm.all_to_all(uneven, uneven), Error);
    }
    EXPECT_THROW(comm.split([](int) { return -1; }, "none"), Error);
    EXPECT_EQ(comm.ledger().total().calls, 0);
    comm.barrier();
  });
}

TEST_P(CommTest, LedgerCountsByCollectiveGroupAndPhase) {
  run([](Comm& world) {
    const double p = world.size();
    world.all_reduce(Tensor(Shape{100}), ReduceOp::sum);
    world.ledger().set_phase("full");
    world.barrier();
    world.broadcast(Tensor(Shape{10}, DType::float64), 0);
    const auto alone = world.split([](int rank) { return rank; }, "alone");
    alone->all_reduce(Tensor(Shape{50}), ReduceOp::sum);

    const std::map<LedgerKey, LedgerEntry> entries = world.ledger().entries();
    EXPECT_EQ(entries.size(), 4u);
    const auto expect = [&](Collective what, const char* group, const char* phase, int ranks,
                            std::int64_t payload_bytes, double wire_bytes) {
      const AllReduce algorithm = over_nccl() ? AllReduce::library : AllReduce::direct;
      const Layout layout(std::vector<int>(static_cast<std::size_t>(ranks), 0));
      const LedgerEntry& entry = entries.at({what, group, phase, route_of(what, algorithm, layout)});
      EXPECT_EQ(entry.calls, 1);
      EXPECT_EQ(entry.payload_bytes, payload_bytes);
      EXPECT_DOUBLE_EQ(entry.intra_node_wire_bytes, wire_bytes);
      EXPECT_EQ(entry.inter_node_wire_bytes, 0);
      EXPECT_DOUBLE_EQ(entry.intra_node_sent_bytes, wire_bytes);  // direct or around a ring: on one node it is the same
      EXPECT_EQ(entry.inter_node_sent_bytes, 0);
    };
    expect(Collective::all_reduce, "world", "setup", world.size(), 400, 800 * (p - 1) / p);
    expect(Collective::broadcast, "world", "full", world.size(), 80, 80 * (p - 1) / p);
    expect(Collective::barrier, "world", "full", world.size(), 0, 0);
    expect(Collective::all_reduce, "alone", "full", 1, 200, 0);
    EXPECT_EQ(world.ledger().total().payload_bytes, 680);
    EXPECT_EQ(world.ledger().total_of_phase("full").calls, 3);
    EXPECT_EQ(world.ledger().by_phase().at("setup").payload_bytes, 400);
  });
}

TEST(Ledger, SharesARingBetweenNodesByItsCrossingLinks) {
  Ledger ledger(consecutive_nodes(6, 2));  // nodes {0, 1}, {2, 3}, {4, 5}
  // 0-1-2-3-4-5-0: links 1-2, 3-4 and 5-0 cross. 2 · 5/6 · 600 = 1000 bytes, half of them.
  ledger.count(Collective::all_reduce, "world", {0, 1, 2, 3, 4, 5}, 600);
  // As sent by a direct exchange: 2 · 5 parts of 100 bytes each, 2 · 4 of them to other nodes.
  EXPECT_EQ(ledger.total(), (LedgerEntry{1, 600, 500, 500, 200, 800}));
  ledger.set_phase("groups");
  ledger.count(Collective::all_gather, "node", {2, 3}, 600);  // 1/2 · 600, no link crosses
  // 2/3 · 900 = 600; links 1-2 and 2-0 of three cross.
  ledger.count(Collective::reduce_scatter, "mixed", {0, 1, 2}, 900);
  const LedgerEntry groups = ledger.total_of_phase("groups");
  EXPECT_EQ(groups.calls, 2);
  EXPECT_DOUBLE_EQ(groups.intra_node_wire_bytes, 300 + 200);
  EXPECT_DOUBLE_EQ(groups.inter_node_wire_bytes, 400);
  // No ring: 5 of 6 parts of 100 bytes leave a rank, 4 of them for other nodes.
  ledger.set_phase("straight");
  ledger.count(Collective::all_to_all, "world", {0, 1, 2, 3, 4, 5}, 600);
  EXPECT_EQ(ledger.total_of_phase("straight"), (LedgerEntry{1, 600, 100, 400, 100, 400}));
}

TEST(Ledger, CountsNodesFromZero) {
  EXPECT_EQ(Ledger({4, 4, 2, 2}).node_of_rank(), consecutive_nodes(4, 2)) << "transports name a node by its first rank";
}

TEST(Ledger, CountsManyCollectivesAtOnceAsOneByOne) {
  Ledger at_once(consecutive_nodes(7, 3)), one_by_one(consecutive_nodes(7, 3));
  const std::vector<int> everyone{0, 1, 2, 3, 4, 5, 6}, some{2, 3, 4};
  at_once.count(Collective::all_reduce, "world", everyone, 1001, 12345);
  at_once.count(Collective::broadcast, "some", some, 77, 999);
  at_once.count(Collective::all_gather, "some", some, 77, 0);
  for (int i = 0; i < 12345; ++i) one_by_one.count(Collective::all_reduce, "world", everyone, 1001);
  for (int i = 0; i < 999; ++i) one_by_one.count(Collective::broadcast, "some", some, 77);
  EXPECT_EQ(at_once.entries(), one_by_one.entries());
  EXPECT_EQ(at_once.entries().size(), 2u);
  EXPECT_EQ(at_once.total().payload_bytes, 12345 * 1001 + 999 * 77);
}

TEST_P(CommTest, RanksPerNodeSetsTheLedgersNodes) {
  run(
      [](Comm& comm) {
        if (comm.size() != 4) return;
        comm.all_reduce(Tensor(Shape{100}), ReduceOp::sum);
        // Two nodes of two: links 1-2 and 3-0 of four cross. 2 · 3/4 · 400 = 600 bytes.
        const LedgerEntry total = comm.ledger().total();
        EXPECT_EQ(total.payload_bytes, 400);
        EXPECT_EQ(total.intra_node_wire_bytes, 300);
        EXPECT_EQ(total.inter_node_wire_bytes, 300);
      },
      {.ranks_per_node = 2, .timeout = 30s});
}

// --- When things go wrong: threads only; an MPI world does not survive it, see mpi_fault_test.cpp.

/// Runs `body` on four threads and returns what run_thread_ranks throws; `seen` receives each rank's error.
std::string failure_of(const Body& body, std::vector<std::string>* seen = nullptr, std::chrono::seconds timeout = 30s) {
  std::vector<std::string> errors(4);
  std::string thrown = "nothing was thrown";
  try {
    run_thread_ranks(4, {.timeout = timeout}, [&](Comm& comm) {
      try {
        body(comm);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(comm.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  if (seen) *seen = errors;
  return thrown;
}

TEST(ThreadRanks, AFailingRankWakesAllGroupsAndItsOwnErrorIsRethrown) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> seen;
  const std::string thrown = failure_of(
      [](Comm& world) {
        const auto pair = world.split([](int rank) { return rank / 2; }, "pair");
        if (world.rank() == 2) {
          std::this_thread::sleep_for(50ms);
          throw std::runtime_error("disk on fire");
        }
        if (world.rank() == 3) pair->barrier();  // waits for the failing rank
        const Tensor t(Shape{10});
        pair->all_reduce(t, ReduceOp::sum);
        world.barrier();  // waits in another group
      },
      &seen);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_EQ(thrown, "disk on fire");
  for (const int rank : {0, 1, 3}) EXPECT_EQ(seen[static_cast<std::size_t>(rank)], "rank 2 failed: disk on fire");
}

TEST(ThreadRanks, AbortReleasesTheOthers) {
  std::vector<std::string> seen;
  const std::string thrown = failure_of(
      [](Comm& world) {
        if (world.rank() == 1) return world.abort("loss is NaN", 5);
        world.barrier();
      },
      &seen);
  EXPECT_EQ(thrown, "rank 1 failed: loss is NaN");
  EXPECT_EQ(seen[0], "rank 1 failed: loss is NaN");
}

TEST(ThreadRanks, ARankThatReturnsEarlyIsMissedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const std::string thrown = failure_of([](Comm& world) {
    if (world.rank() != 3) world.barrier();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_EQ(thrown, "barrier in group 'world' can never complete: rank 3 ended without taking part");
}

TEST(ThreadRanks, DifferentCallsAreAnErrorOnAllRanks) {
  const auto mismatch = [](const Body& of_rank_2) {
    std::vector<std::string> seen;
    const std::string thrown = failure_of(
        [&](Comm& world) {
          if (world.rank() == 2) of_rank_2(world);
          else world.all_reduce(Tensor::zeros(Shape{100}), ReduceOp::mean);
        },
        &seen);
    for (const std::string& error : seen)
      EXPECT_NE(error.find("ranks disagree on collective 0 of group 'world'"), std::string::npos) << error;
    EXPECT_NE(thrown.find("all_reduce(mean) of 100 float32"), std::string::npos) << thrown;
    return thrown;
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(contains(mismatch([](Comm& c) { c.broadcast(Tensor::zeros(Shape{100}), 0); }),
                       "broadcast(root 0) of 100 float32"));
  EXPECT_TRUE(
      contains(mismatch([](Comm& c) { c.all_reduce(Tensor::zeros(Shape{200}), ReduceOp::mean); }), "of 200 float32"));
  EXPECT_TRUE(
      contains(mismatch([](Comm& c) { c.all_reduce(Tensor::zeros(Shape{100}), ReduceOp::sum); }), "all_reduce(sum)"));
  EXPECT_TRUE(contains(
      mismatch([](Comm& c) { c.all_reduce(Tensor::zeros(Shape{100}, DType::float64), ReduceOp::mean); }), "float64"));
}

TEST(ThreadRanks, AMissingRankIsNamedAfterTheTimeout) {
  const std::string thrown = failure_of(
      [](Comm& world) {
        const auto pair = world.split([](int rank) { return rank % 2; }, "pair");  // {0, 2} and {1, 3}
        if (world.rank() == 3) std::this_thread::sleep_for(1300ms);
        pair->all_reduce(Tensor::zeros(Shape{8}), ReduceOp::sum);
      },
      nullptr, 1s);
  EXPECT_EQ(thrown, "all_reduce(sum) of 8 float32 in group 'pair' waited 1 s on rank 1; missing: rank 3");
}

TEST(ThreadRanks, ErrorsOfCommunicationCarryTheirKind) {
  try {
    run_thread_ranks(2, {.timeout = 30s}, [](Comm& world) {
      if (world.rank() == 0) world.barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::communication);
  }
}

TEST(ThreadRanks, MoreRanksThanCores) {
  run_thread_ranks(16, {.timeout = 30s}, [](Comm& world) {
    for (int i = 0; i < 20; ++i) {
      const Tensor t = rough_floats(100, world.rank());
      world.all_reduce(t, ReduceOp::mean);
      if (i == 0) expect_equal_bits_on_all_ranks(world, t);
    }
  });
}

// Two seconds without a look are those of a program that was stopped.
TEST(Patience, CountsNoTimeInWhichTheProgramWasStopped) {
  using namespace std::chrono_literals;
  Patience patience(1500ms);
  std::this_thread::sleep_for(2s);
  EXPECT_FALSE(patience.is_over());
  const auto looked = Patience::Clock::now();
  while (!patience.is_over()) std::this_thread::sleep_for(10ms);
  EXPECT_GE(Patience::Clock::now() - looked, 1s);
}

}  // namespace
}  // namespace ab
