// SPDX-License-Identifier: MIT
#include "engine/comm/collective_call.h"

namespace ab {
namespace {

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
      case AllReduce::library: {
        std::vector<int> everyone;
        for (int r = 0; r < part.ranks(); ++r) everyone.push_back(r);
        part.complete(everyone);
      }
    }
  }
}

}  // namespace ab
