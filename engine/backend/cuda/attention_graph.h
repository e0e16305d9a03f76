#pragma once
// SPDX-License-Identifier: MIT
//
// Fused attention as graphs of small operations: the forms that cuDNN (9.11 to 9.19, sm_90) recognises and runs as one
// kernel each, in which scores and probabilities never reach memory (Dao et al. 2022, arXiv 2205.14135). A graph is data
// that cudnn_attention.cpp hands to cuDNN. With Z = Q Kᵀ / √d and P = softmax(Z), for each head:
//   forward     y = P V,  L = ln Σ exp Z by rows
//   backward    P = exp(Z − L),  dV = Pᵀ dy,  dS = P ∘ (dy Vᵀ − rowsum(dy ∘ y)) / √d,  dQ = dS K,  dK = dSᵀ Q

#include <array>
#include <cstdint>
#include <vector>

#include "engine/backend/backend.h"

namespace ab {

/// The tensors of a graph that have an address. K and V are seen transposed where a product reads them so.
enum class AttentionTensor : std::int64_t {
  q = 1,
  k = 2,  ///< as Kᵀ
  v = 3,  ///< backward: as Vᵀ
  y = 4,
  log_sums = 5,  ///< L, float32
  scale = 6,     ///< 1 / √d, a number
  dy = 8,
  dq = 9,
  dk = 10,
  dv = 11,
  row_sums = 12,  ///< rowsum(dy ∘ y), float32; scratch
  dq_sums = 13,   ///< dQ before it is rounded, float32; scratch, not in a deterministic graph
  one = 15,       ///< a number
};

/// Where elements (n, h, i, j) lie: Σ index · stride.
struct GraphTensor {
  enum class Place : std::uint8_t { memory, between, number };  ///< between: from one operation to the next alone

  std::int64_t id = 0;
  std::array<std::int64_t, 4> dims{}, strides{};
  DType dtype = DType::float32;
  Place place = Place::memory;
};

struct GraphNode {
  /// matmul: y = x · b of the last two dimensions. reshape: y is x's memory, by other strides. The reductions are over the
  /// last dimension of x. The others are element by element; b is repeated along dimensions where it has one element.
  enum class Operation : std::uint8_t {
    matmul,
    reshape,
    max,
    sum,
    multiply,
    add,
    subtract,
    divide,
    exp,
    log,
    identity
  };

  Operation operation;
  GraphTensor x, b, y;  ///< b: of matmul, multiply, add, subtract and divide
};
bool has_b(GraphNode::Operation operation);

/// In an order in which every tensor is written before it is read.
using AttentionGraph = std::vector<GraphNode>;

AttentionGraph attention_forward_graph(const AttentionSpec& spec);
/// `deterministic`: dQ is summed in one order, with more scratch, instead of by whichever block comes first.
AttentionGraph attention_backward_graph(const AttentionSpec& spec, bool deterministic);

/// Where Q, K and V of a packed qkv begin, in elements.
inline std::int64_t offset_of_part(const AttentionSpec& spec, int part) { return part * spec.heads * spec.width; }

/// Whether `cudnn_version` (as cudnnGetVersion() gives it) computes these graphs rightly: 16 bits, widths of multiples of 8 up
/// to 128, at least two tokens. Left out are versions and numbers of tokens with known faults: T = 64 modulo 128, whose last
/// tile the backward kernel does not mask (cudnn-frontend issues 628 and 1072), and, before 9.15.1, every T that does not fill
/// its tiles.
bool can_fuse_attention(const AttentionSpec& spec, std::size_t cudnn_version);

}  // namespace ab
