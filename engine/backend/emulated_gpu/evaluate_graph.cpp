// SPDX-License-Identifier: MIT
#include "engine/backend/emulated_gpu/evaluate_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/check.h"

namespace ab::emulated_gpu {
namespace {

using Operation = GraphNode::Operation;

/// A tensor and where it is; indices along a dimension of one element all mean that one.
struct View {
  const GraphTensor* tensor;
  double* base;

  std::int64_t dim(std::size_t d) const { return tensor->dims[d]; }
  double& at(std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t index[] = {n, h, i, j};
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < 4; ++d)
      if (dim(d) > 1) offset += index[d] * tensor->strides[d];
    return base[offset];
  }
};

template <class F> void for_each_element(const GraphTensor& t, const F& f) {
  for (std::int64_t n = 0; n < t.dims[0]; ++n)
    for (std::int64_t h = 0; h < t.dims[1]; ++h)
      for (std::int64_t i = 0; i < t.dims[2]; ++i)
        for (std::int64_t j = 0; j < t.dims[3]; ++j) f(n, h, i, j);
}

double element_wise(Operation operation, double x, double b) {
  switch (operation) {
    case Operation::multiply: return x * b;
    case Operation::add: return x + b;
    case Operation::subtract: return x - b;
    case Operation::divide: return x / b;
    case Operation::exp: return std::exp(x);
    case Operation::log: return std::log(x);
    case Operation::identity: return x;
    default: throw Bug("bug in abtrain: not an element-wise operation");
  }
}

void compute(Operation operation, const View& x, const View& b, const View& y) {
  for_each_element(*y.tensor, [&](auto n, auto h, auto i, auto j) {
    double value = operation == Operation::max ? -std::numeric_limits<double>::infinity() : 0;
    switch (operation) {
      case Operation::matmul:
        for (std::int64_t k = 0; k < x.dim(3); ++k) value += x.at(n, h, i, k) * b.at(n, h, k, j);
        break;
      case Operation::max:
        for (std::int64_t k = 0; k < x.dim(3); ++k) value = std::max(value, x.at(n, h, i, k));
        break;
      case Operation::sum:
        for (std::int64_t k = 0; k < x.dim(3); ++k) value += x.at(n, h, i, k);
        break;
      default: value = element_wise(operation, x.at(n, h, i, j), b.tensor ? b.at(n, h, i, j) : 0);
    }
    y.at(n, h, i, j) = value;
  });
}

std::size_t extent(const GraphTensor& t) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < 4; ++d) last += (t.dims[d] - 1) * t.strides[d];
  return static_cast<std::size_t>(last + 1);
}

}  // namespace

void evaluate_graph(const AttentionGraph& graph, const std::map<AttentionTensor, double*>& addresses) {
  std::map<std::int64_t, std::vector<double>> between;
  std::map<std::int64_t, double*> base;
  for (const auto& [id, address] : addresses) base[static_cast<std::int64_t>(id)] = address;
  const auto view = [&](const GraphTensor& t) {
    const auto at = base.find(t.id);
    AB_ASSERT(at != base.end());
    return View{&t, at->second};
  };
  for (const GraphNode& node : graph) {
    if (node.operation == Operation::reshape) {
      base[node.y.id] = view(node.x).base;
      continue;
    }
    if (node.y.place == GraphTensor::Place::between) {
      std::vector<double>& memory = between[node.y.id];
      memory.assign(extent(node.y), 0);
      base[node.y.id] = memory.data();
    }
    compute(node.operation, view(node.x), has_b(node.operation) ? view(node.b) : View{}, view(node.y));
  }
}

}  // namespace ab::emulated_gpu
