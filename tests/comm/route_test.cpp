// SPDX-License-Identifier: MIT
//
// How collectives travel: the messages of every algorithm, what they cost, and a network that holds them back.
#include "engine/comm/route.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <numeric>

#include "engine/comm/comm.h"
#include "engine/comm/ledger.h"
#include "engine/comm/virtual_network.h"
#include "engine/core/random.h"

namespace ab {
namespace {

constexpr AllReduce kAlgorithms[] = {AllReduce::direct, AllReduce::ring, AllReduce::tree, AllReduce::two_level};

Layout nodes_of(int ranks, int ranks_per_node) { return Layout(consecutive_nodes(ranks, ranks_per_node)); }

Layout scattered() { return Layout({0, 1, 0, 1, 2, 2}); }

std::vector<Layout> layouts() {
  std::vector<Layout> all{scattered()};
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (int per_node = 0; per_node <= 4; ++per_node) all.push_back(nodes_of(ranks, per_node));
  return all;
}

/// Exchanges the messages of all ranks, round by round, with nothing of any transport.
class Exchange {
 public:
  Exchange(const CollectiveCall& call, const Route& route, const Layout& layout) : call_(call), layout_(layout) {
    for (int rank = 0; rank < layout.ranks(); ++rank)
      all_.push_back(message_rounds(call.what, route, layout, rank, call.root));
  }

  void run(std::vector<Tensor>& buffers) {
    std::size_t rounds = 0;
    for (const MessageRounds& of_rank : all_) rounds = std::max(rounds, of_rank.rounds.size());
    for (std::size_t i = 0; i < rounds; ++i) {
      for (std::size_t rank = 0; rank < all_.size(); ++rank)
        if (i < all_[rank].rounds.size()) send(static_cast<int>(rank), all_[rank].rounds[i], buffers[rank]);
      for (std::size_t rank = 0; rank < all_.size(); ++rank)
        if (i < all_[rank].rounds.size()) receive(static_cast<int>(rank), all_[rank].rounds[i], buffers[rank]);
    }
    for (const auto& [link, messages] : under_way_) EXPECT_TRUE(messages.empty()) << "a message that nobody receives";
  }

  std::int64_t inter_parts = 0, intra_parts = 0;

 private:
  ElementRange range(const Transfer& transfer, int rank) const {
    const int parts = all_[static_cast<std::size_t>(rank)].parts;
    return {part_of_rank(call_.elements, transfer.first, parts).begin,
            part_of_rank(call_.elements, transfer.last - 1, parts).end};
  }
  void send(int rank, const Round& round, const Tensor& buffer) {
    for (const Transfer& transfer : round.sends) {
      const ElementRange sent = range(transfer, rank);
      under_way_[{rank, transfer.peer}].push_back(buffer.slice(sent.begin, sent.end).clone());
      const auto node = [&](int r) { return layout_.node_of[static_cast<std::size_t>(r)]; };
      const std::int64_t share = layout_.ranks() / all_[static_cast<std::size_t>(rank)].parts;  // parts are 1/p or all
      (node(rank) == node(transfer.peer) ? intra_parts : inter_parts) += share * (transfer.last - transfer.first);
    }
  }
  void receive(int rank, const Round& round, const Tensor& buffer) {
    std::map<int, Tensor> operands;
    ElementRange place{0, call_.elements};
    for (const Transfer& transfer : round.receives) {
      std::deque<Tensor>& messages = under_way_[{transfer.peer, rank}];
      ASSERT_FALSE(messages.empty()) << "rank " << rank << " waits for ever for " << transfer.peer;
      place = range(transfer, rank);
      if (round.operands.empty()) buffer.slice(place.begin, place.end).copy_from(messages.front());
      else operands[transfer.peer] = messages.front();
      messages.pop_front();
    }
    if (round.operands.empty()) return;
    operands[rank] = buffer.slice(place.begin, place.end);
    std::vector<const void*> sources;
    for (const int operand : round.operands) sources.push_back(operands.at(operand).raw());
    void* const destination = operands[rank].raw();
    const bool partial = call_.op == ReduceOp::mean && !round.completes_sum;
    reduce_in_rank_order(Device{}, call_.dtype, partial ? ReduceOp::sum : call_.op, sources, {&destination, 1},
                         place.size(), layout_.ranks());
  }

  const CollectiveCall call_;
  const Layout& layout_;
  std::vector<MessageRounds> all_;
  std::map<std::pair<int, int>, std::deque<Tensor>> under_way_;
};

/// Floats of very different size: their sum depends on the order of the additions.
std::vector<Tensor> rough_buffers(int ranks, std::int64_t elements, DType dtype) {
  std::vector<Tensor> buffers;
  for (int rank = 0; rank < ranks; ++rank) {
    const Philox random{7, static_cast<std::uint64_t>(rank)};
    Tensor t(Shape{elements}, dtype);
    for (std::int64_t i = 0; i < elements; ++i) {
      const float value =
          random.normal(static_cast<std::uint64_t>(i)) * std::exp2f(static_cast<float>((i + rank) % 12));
      if (dtype == DType::float32) t.data<float>()[i] = value;
      else t.data<bfloat16>()[i] = value;
    }
    buffers.push_back(t);
  }
  return buffers;
}

TEST(Route, EveryAlgorithmGivesAllRanksTheSumAndSendsWhatItSays) {
  for (const Layout& layout : layouts())
    for (const AllReduce algorithm : kAlgorithms) {
      const int p = layout.ranks();
      const CollectiveCall call{.what = Collective::all_reduce, .dtype = DType::float32, .elements = 3 * p + 1};
      std::vector<Tensor> buffers;
      for (int rank = 0; rank < p; ++rank) {
        Tensor& t = buffers.emplace_back(Shape{call.elements});
        for (std::int64_t i = 0; i < call.elements; ++i) t.data<float>()[i] = static_cast<float>(i + (1 << rank));
      }
      const Route route = route_of(call.what, algorithm, layout);
      Exchange exchange(call, route, layout);
      exchange.run(buffers);
      for (const Tensor& t : buffers)
        for (std::int64_t i = 0; i < call.elements; ++i)
          ASSERT_EQ(t.data<float>()[i], static_cast<float>(p * i + (1 << p) - 1)) << name_of(algorithm) << " of " << p;
      EXPECT_EQ(exchange.inter_parts, route.inter_parts) << name_of(algorithm) << " of " << p;
      EXPECT_EQ(exchange.intra_parts, route.intra_parts) << name_of(algorithm) << " of " << p;
    }
}

TEST(Route, TheOtherCollectivesSendWhatTheySay) {
  for (const Layout& layout : layouts())
    for (const Collective what :
         {Collective::broadcast, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
      const CollectiveCall call{
          .what = what, .dtype = DType::float32, .elements = 2 * layout.ranks(), .root = layout.ranks() / 2};
      std::vector<Tensor> buffers = rough_buffers(layout.ranks(), call.elements, DType::float32);
      const Tensor at_root = buffers[static_cast<std::size_t>(call.root)].clone();
      const Route route = route_of(what, AllReduce::tree, layout);
      Exchange exchange(call, route, layout);
      exchange.run(buffers);
      EXPECT_EQ(exchange.inter_parts, route.inter_parts);
      EXPECT_EQ(exchange.intra_parts, route.intra_parts);
      if (what != Collective::broadcast) continue;
      for (const Tensor& t : buffers) EXPECT_EQ(t.to_doubles(), at_root.to_doubles());
    }
}

TEST(Route, RanksThatShareMemoryRoundAsThoseThatSendMessages) {
  for (const Layout& layout :
       {nodes_of(2, 1), nodes_of(3, 2), nodes_of(4, 2), nodes_of(5, 0), nodes_of(8, 4), scattered()})
    for (const AllReduce algorithm : kAlgorithms)
      for (const DType dtype : {DType::float32, DType::bfloat16})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max}) {
          const CollectiveCall call{.what = Collective::all_reduce, .dtype = dtype, .elements = 101, .op = op};
          const Route route = route_of(call.what, algorithm, layout);
          std::vector<Tensor> sent = rough_buffers(layout.ranks(), call.elements, dtype);
          std::vector<Tensor> shared = rough_buffers(layout.ranks(), call.elements, dtype);
          Exchange(call, route, layout).run(sent);
          for (int rank = 0; rank < layout.ranks(); ++rank) reduce_shared_part(route, layout, call, rank, shared);
          for (int rank = 0; rank < layout.ranks(); ++rank) {
            ASSERT_EQ(sent[static_cast<std::size_t>(rank)].to_doubles(), sent[0].to_doubles());
            ASSERT_EQ(shared[static_cast<std::size_t>(rank)].to_doubles(), sent[0].to_doubles())
                << name_of(algorithm) << " over " << layout.ranks() << " ranks";
          }
        }
}

TEST(Route, TwoLevelsNeedNodesOfEqualSize) {
  const auto algorithm = [](const Layout& layout) {
    return route_of(Collective::all_reduce, AllReduce::two_level, layout).algorithm;
  };
  EXPECT_EQ(algorithm(nodes_of(8, 4)), AllReduce::two_level);
  EXPECT_EQ(algorithm(scattered()), AllReduce::two_level);
  EXPECT_EQ(algorithm(nodes_of(8, 0)), AllReduce::direct);  // one node
  EXPECT_EQ(algorithm(nodes_of(8, 1)), AllReduce::direct);  // nothing inside a node
  EXPECT_EQ(algorithm(nodes_of(8, 3)), AllReduce::direct);
  EXPECT_EQ(route_of(Collective::broadcast, AllReduce::two_level, nodes_of(8, 4)).algorithm, AllReduce::direct);
}

// 16 ranks on 4 nodes: a direct exchange puts n (p-n)/(p-1) = 3.2 times as much between nodes as a ring, two levels least.
TEST(Route, BytesAsSentBetweenNodes) {
  std::map<AllReduce, double> sent;
  for (const AllReduce algorithm : kAlgorithms) {
    Ledger ledger(consecutive_nodes(16, 4), {.all_reduce = algorithm});
    std::vector<int> everyone(16);
    for (int rank = 0; rank < 16; ++rank) everyone[static_cast<std::size_t>(rank)] = rank;
    ledger.count(Collective::all_reduce, "world", everyone, 1600, 10);
    const LedgerEntry total = ledger.total();
    EXPECT_DOUBLE_EQ(total.wire_bytes(), 30000) << "the ring that compares methods";
    EXPECT_DOUBLE_EQ(total.inter_node_wire_bytes, 7500);
    sent[algorithm] = total.inter_node_sent_bytes;
    Ledger again(consecutive_nodes(16, 4));
    again.from_text(ledger.to_text());
    EXPECT_EQ(again.entries(), ledger.entries());
  }
  EXPECT_DOUBLE_EQ(sent.at(AllReduce::ring), 7500);
  EXPECT_DOUBLE_EQ(sent.at(AllReduce::direct), 3.2 * 7500);
  EXPECT_DOUBLE_EQ(sent.at(AllReduce::two_level), 10.0 * 1600 * 2 * 3 / 16);
}

TEST(RouteLedger, RefusesTextThatIsCutOffOrNamesNoAlgorithm) {
  Ledger ledger(consecutive_nodes(8, 4));
  ledger.from_text("2 world full 8 2 5 4000 0 2 1 1\n");
  EXPECT_THROW(ledger.from_text("2 world full 8 2 5 4000 0 2 1\n"), Error);
  EXPECT_THROW(ledger.from_text("2 world full 8 2 5 4000 9 2 1 1\n"), Error);
  EXPECT_THROW(ledger.from_text("7 world full 8 2 5 4000 0 2 1 1\n"), Error);
}

constexpr double kPayload = 25.6e6 * 4, kSlow = 20e9 / 8;

double seconds_of(AllReduce algorithm, const LinkModel& links, const Layout& layout, double bytes) {
  return links.seconds(Collective::all_reduce, route_of(Collective::all_reduce, algorithm, layout), 1,
                       static_cast<std::int64_t>(bytes));
}

// ResNet-50 over 8 nodes at 4 ms and 20 Gbit/s, by hand.
TEST(LinkModel, AlphaAndBetaOfEveryAlgorithm) {
  const LinkModel links{{4e-3, kSlow}, {1e-6, 1e12}};
  const Layout layout = nodes_of(8, 1);
  const double once = kPayload / kSlow;
  EXPECT_NEAR(seconds_of(AllReduce::ring, links, layout, kPayload), 14 * 4e-3 + 1.75 * once, 1e-9);
  EXPECT_NEAR(seconds_of(AllReduce::direct, links, layout, kPayload), 7 * 2 * 4e-3 + 1.75 * once, 1e-9);  // 7 segments
  EXPECT_NEAR(seconds_of(AllReduce::tree, links, layout, 1e6), 6 * (4e-3 + 1e6 / kSlow), 1e-9);
  const Layout four_by_four = nodes_of(16, 4);
  EXPECT_NEAR(seconds_of(AllReduce::two_level, links, four_by_four, 1e6),
              2 * (1e-6 + 0.75e6 / 1e12) + 2 * (4e-3 + 0.75e6 / kSlow), 1e-9);
  EXPECT_NEAR(seconds_of(AllReduce::direct, links, four_by_four, 1e6), 2 * (4e-3 + 3e6 / kSlow), 1e-9);
  EXPECT_EQ(seconds_of(AllReduce::ring, links, nodes_of(1, 1), 1e6), 0);
}

TEST(LinkModel, ChoosesRoundsForSmallPayloadsAndBytesForLargeOnes) {
  const LinkModel slow{{4e-3, kSlow}, {1e-6, 1e12}};
  EXPECT_EQ(slow.fastest(nodes_of(8, 1), 1000), AllReduce::direct);
  EXPECT_EQ(slow.fastest(nodes_of(16, 4), 10'000'000), AllReduce::two_level);
  const LinkModel no_latency{{0, kSlow}, {0, kSlow}};
  EXPECT_EQ(no_latency.fastest(nodes_of(16, 4), 10'000'000), AllReduce::ring);
}

/// Over ranks 0, 1, ... of the world.
VirtualCollective all_reduce_of(std::int64_t bytes, AllReduce algorithm, const Layout& layout, const LinkModel& links) {
  std::vector<int> world(static_cast<std::size_t>(layout.ranks()));
  std::iota(world.begin(), world.end(), 0);
  return {
      Collective::all_reduce, route_of(Collective::all_reduce, algorithm, layout), layout, world, 0, {bytes}, links};
}

/// When each member of a collective has the result if it starts at `starts[member]`.
std::vector<NetworkTime> arrival_times(VirtualTraffic& traffic, const VirtualCollective& collective,
                                       const std::vector<NetworkTime>& starts) {
  const std::int64_t number = traffic.add(collective);
  for (std::size_t member = 0; member < starts.size(); ++member)
    traffic.start(number, static_cast<int>(member), starts[member]);
  std::vector<NetworkTime> over;
  for (std::size_t member = 0; member < starts.size(); ++member)
    over.push_back(traffic.over(number, static_cast<int>(member), 0));
  return over;
}

/// A virtual network of its own.
struct TestNetwork {
  explicit TestNetwork(const std::vector<int>& nodes)
      : cards(std::make_unique<VirtualCard[]>(VirtualNetwork::card_count(nodes))), network(nodes, cards.get()) {}
  std::unique_ptr<VirtualCard[]> cards;
  VirtualNetwork network;
};

TEST(VirtualNetwork, CardsAreBusyAndMessagesToOneNodeQueue) {
  const LinkModel links{{1e-3, 1e6}, {1e-6, 1e9}};  // 1 ms, 1 byte a microsecond
  TestNetwork of_four(consecutive_nodes(4, 1));
  VirtualNetwork& network = of_four.network;
  const VirtualNetwork::Message first{0, 1, 1000}, second{0, 2, 1000}, third{3, 1, 500};
  EXPECT_EQ(network.leave(first, 0, links), 1'000'000);
  EXPECT_EQ(network.leave(second, 0, links), 2'000'000);  // behind the first
  EXPECT_EQ(network.leave(third, 0, links), 500'000);
  EXPECT_EQ(network.arrive(third, 500'000, links), 1'500'000);
  EXPECT_EQ(network.arrive(first, 1'000'000, links),
            2'500'000);  // behind the third, from 0.5 to 1.5 ms, then 1 ms on its way
  EXPECT_EQ(network.arrive(second, 2'000'000, links), 3'000'000);
  EXPECT_EQ(network.leave(third, 10'000'000, links), 10'500'000);  // all free again
  EXPECT_EQ(network.card_of(0).bytes_sent, 2000);
  EXPECT_EQ(network.card_of(1).bytes_received, 1500);
  TestNetwork of_two(consecutive_nodes(4, 2));
  EXPECT_EQ(of_two.network.leave(first, 0, links), 1000);  // inside a node
  EXPECT_EQ(of_two.network.card_of(0).bytes_sent, 0);
}

// Ranks that start together: what the model of network.h promises is what the network gives.
TEST(VirtualTraffic, TakesTheTimeThatTheModelPromises) {
  const LinkModel links{{2e-3, 1e8}, {1e-4, 1e9}};
  for (const auto& [ranks, per_node] : {std::pair{4, 1}, {8, 1}, {8, 2}, {16, 4}})
    for (const AllReduce algorithm : kAlgorithms) {
      VirtualTraffic traffic(consecutive_nodes(ranks, per_node));
      const VirtualCollective sum = all_reduce_of(1'600'000, algorithm, nodes_of(ranks, per_node), links);
      const std::vector<NetworkTime> over =
          arrival_times(traffic, sum, std::vector<NetworkTime>(sum.world_ranks.size()));
      const double longest = static_cast<double>(*std::max_element(over.begin(), over.end())) * 1e-9;
      const double promised = links.seconds(Collective::all_reduce, sum.route, 1, 1'600'000);
      EXPECT_NEAR(longest, promised, 0.08 * promised) << name_of(algorithm) << " over " << ranks << ", " << per_node;
      traffic.over(0, 0, 1'000'000'000);  // cards count what has passed them
      std::int64_t sent = 0;
      for (int rank = 0; rank < ranks; rank += per_node) sent += traffic.card_of(rank).bytes_sent;
      EXPECT_EQ(sent, sum.route.inter_parts * (1'600'000 / ranks));
    }
}

TEST(VirtualTraffic, ALateRankHoldsTheOthersUp) {
  VirtualTraffic traffic(consecutive_nodes(2, 1));
  const auto over = arrival_times(
      traffic, all_reduce_of(2000, AllReduce::direct, nodes_of(2, 1), {{1e-3, 1e6}, {0, 1e9}}), {0, 5'000'000});
  EXPECT_EQ(over, (std::vector<NetworkTime>{9'000'000, 9'000'000}));
}

// Eight bytes take 14 latencies around the ring. A megabyte that sets out meanwhile is not kept waiting, as messages pass
// the cards when they come; it delays the ring's messages that come meanwhile: one by what is left of its first half, the
// next, which comes when the second half does, by all of that.
TEST(VirtualTraffic, ACollectiveInFlightHoldsUpWhatIsDueNotWhatIsToCome) {
  const LinkModel links{{4e-3, 1e9}, {0, 1e12}};
  const Layout layout = nodes_of(8, 1);
  const VirtualCollective question = all_reduce_of(8, AllReduce::ring, layout, links);
  const VirtualCollective gradients = all_reduce_of(1'000'000, AllReduce::direct, layout, links);
  const std::vector<NetworkTime> at_once(8), later(8, 3'500'000);  // they keep cards busy until 4.375 ms
  VirtualTraffic alone(layout.node_of), traffic(layout.node_of);
  const NetworkTime undisturbed = arrival_times(alone, gradients, later).front();
  const NetworkTime answered = arrival_times(traffic, question, at_once).front();
  EXPECT_NEAR(static_cast<double>(answered), 14 * 4e6, 1e3);
  EXPECT_NEAR(static_cast<double>(arrival_times(traffic, gradients, later).front()), static_cast<double>(undisturbed),
              1e3);
  const NetworkTime delayed = traffic.over(0, 0, undisturbed);
  EXPECT_NEAR(static_cast<double>(delayed - answered), 0.375e6 + 0.875e6, 1e3);
  EXPECT_EQ(traffic.over(0, 0, delayed), delayed);
}

// What starts meanwhile may also be to somebody's advantage: it delays what was ahead of them.
TEST(VirtualTraffic, WhatIsExpectedMayBecomeSooner) {
  const LinkModel links{{10e-3, 1e6}, {0, 1e12}};
  const Layout pair = nodes_of(2, 1);
  const auto broadcast = [&](std::int64_t bytes, std::vector<int> ranks) {
    return VirtualCollective{Collective::broadcast,
                             route_of(Collective::broadcast, AllReduce::direct, pair),
                             pair,
                             std::move(ranks),
                             0,
                             {bytes},
                             links};
  };
  VirtualTraffic traffic(nodes_of(4, 1).node_of);
  const VirtualCollective sum = all_reduce_of(20'000, AllReduce::direct, pair, links);  // of ranks 0 and 1
  arrival_times(traffic, sum, {0, 0});
  const NetworkTime expected = arrival_times(traffic, broadcast(40'000, {2, 1}), {12'000'000, 12'000'000}).back();
  arrival_times(traffic, broadcast(80'000, {0, 3}), {13'000'000, 13'000'000});  // delays the sum's second half
  EXPECT_LT(traffic.over(1, 1, 13'000'000), expected);
}

// Groups of every kind come and go.
TEST(VirtualTraffic, EverythingIsOverSomeDay) {
  const LinkModel links{{1e-4, 1e8}, {1e-6, 1e9}};
  VirtualTraffic traffic(consecutive_nodes(6, 2));
  NetworkTime now = 0;
  for (const Collective what : {Collective::all_reduce, Collective::broadcast, Collective::all_gather,
                                Collective::reduce_scatter, Collective::all_to_all, Collective::barrier})
    for (const std::vector<int>& ranks : {std::vector{0, 1, 2, 3, 4, 5}, {1, 4, 5}, {3}}) {
      std::vector<int> nodes;
      for (const int rank : ranks) nodes.push_back(rank / 2);
      const Layout layout(nodes);
      for (const AllReduce algorithm : kAlgorithms) {
        const Route route = route_of(what, algorithm, layout);
        const std::int64_t number = traffic.add({what, route, layout, ranks, 0, {700, 0, 10'000}, links});
        for (int member = 0; member < layout.ranks(); ++member) traffic.start(number, member, now + member);
        NetworkTime last = now;
        for (int member = 0; member < layout.ranks(); ++member)
          last = std::max(last, traffic.over(number, member, now));
        for (int member = 0; member < layout.ranks(); ++member) EXPECT_LE(traffic.over(number, member, last), last);
        traffic.forget(number);
        now = last;
      }
    }
}

TEST(NetworkWords, AreReadWithTheirUnits) {
  const NetworkShape shape = parse_network(
      "latency=4ms, bandwidth=20 Gbit/s, node-latency = 2 us, node-bandwidth=300GB/s; from 500: bandwidth=1Mbps");
  ASSERT_EQ(shape.parts.size(), 2u);
  EXPECT_EQ(shape.at(499).links, (LinkModel{{4e-3, 2.5e9}, {2e-6, 3e11}}));
  EXPECT_EQ(shape.at(500).links, (LinkModel{{4e-3, 1.25e5}, {2e-6, 3e11}}));
  EXPECT_EQ(parse_network("latency=1s").at(0).links, (LinkModel{{1, 1e30}, kUnshaped}));
  EXPECT_EQ(parse_network("latency=1s").at(0).assumed,
            (LinkModel{{1, LinkModel{}.inter_node.bandwidth}, LinkModel{}.intra_node}));
  EXPECT_FALSE(parse_network("").shaped());
  for (const char* wrong : {"latency", "latency=4", "latency=4 min", "latency=-1ms", "latency=nanms", "bandwidth=0Gbps",
                            "4ms", "latency=1ms;latency=2ms", "latency=1ms; from 0: latency=2ms",
                            "latency=1ms; from 9: latency=2ms; from 9: latency=3ms", "latency=1ms,,bandwidth=1Gbps"})
    EXPECT_THROW(parse_network(wrong), Error) << wrong;
}

}  // namespace
}  // namespace ab
