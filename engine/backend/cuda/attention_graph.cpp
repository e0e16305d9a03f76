// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/attention_graph.h"

namespace ab {
namespace {

using Operation = GraphNode::Operation;
using Place = GraphTensor::Place;

/// The tensors of a graph: [N, H, T, d] in the places of qkv or y, [N, H, T, T] scores and [N, H, T, 1] rows.
class Tensors {
 public:
  explicit Tensors(const AttentionSpec& spec) : spec_(spec) {}

  /// Q, K, V or their gradients, side by side in [N, T, 3, H, d].
  GraphTensor packed(AttentionTensor id) const { return of_heads(id, 3 * features()); }
  /// y or its gradient: [N, T, H, d]
  GraphTensor output(AttentionTensor id) const { return of_heads(id, features()); }
  GraphTensor rows(AttentionTensor id) const { return in_memory(id, row_dims(), row_strides(), DType::float32); }
  GraphTensor dense(AttentionTensor id) const {
    return in_memory(id, head_dims(),
                     {spec_.heads * spec_.tokens * spec_.width, spec_.tokens * spec_.width, spec_.width, 1},
                     DType::float32);
  }
  GraphTensor number(AttentionTensor id) const {
    return {static_cast<std::int64_t>(id), {1, 1, 1, 1}, {1, 1, 1, 1}, DType::float32, Place::number};
  }

  GraphTensor scores_between(DType dtype = DType::float32) {
    return between({spec_.samples, spec_.heads, spec_.tokens, spec_.tokens}, score_strides(), dtype);
  }
  GraphTensor rows_between() { return between(row_dims(), row_strides(), DType::float32); }
  /// An element-wise product in the layout of y.
  GraphTensor products_between() {
    return between(head_dims(), {spec_.heads * spec_.tokens * spec_.width, spec_.tokens * spec_.width, features(), 1},
                   DType::float32);
  }
  /// The memory of `x`, with its last two dimensions exchanged.
  GraphTensor transposed_between(const GraphTensor& x, DType dtype) {
    GraphTensor t = transposed(x);
    return between(t.dims, t.strides, dtype);
  }

  static GraphTensor transposed(GraphTensor t) {
    std::swap(t.dims[2], t.dims[3]);
    std::swap(t.strides[2], t.strides[3]);
    return t;
  }

 private:
  using Four = std::array<std::int64_t, 4>;

  static constexpr std::int64_t kFirstBetween = 100;

  std::int64_t features() const { return spec_.heads * spec_.width; }
  Four head_dims() const { return {spec_.samples, spec_.heads, spec_.tokens, spec_.width}; }
  Four row_dims() const { return {spec_.samples, spec_.heads, spec_.tokens, 1}; }
  Four row_strides() const { return {spec_.heads * spec_.tokens, spec_.tokens, 1, 1}; }
  Four score_strides() const {
    return {spec_.heads * spec_.tokens * spec_.tokens, spec_.tokens * spec_.tokens, spec_.tokens, 1};
  }

  GraphTensor of_heads(AttentionTensor id, std::int64_t token_stride) const {
    return in_memory(id, head_dims(), {spec_.tokens * token_stride, spec_.width, token_stride, 1}, spec_.dtype);
  }
  static GraphTensor in_memory(AttentionTensor id, const Four& dims, const Four& strides, DType dtype) {
    return {static_cast<std::int64_t>(id), dims, strides, dtype, Place::memory};
  }
  GraphTensor between(const Four& dims, const Four& strides, DType dtype) {
    return {kFirstBetween + count_++, dims, strides, dtype, Place::between};
  }

  AttentionSpec spec_;
  std::int64_t count_ = 0;
};

class GraphBuilder {
 public:
  GraphTensor operator()(Operation operation, const GraphTensor& x, const GraphTensor& b, const GraphTensor& y) {
    graph_.push_back({operation, x, b, y});
    return y;
  }
  GraphTensor operator()(Operation operation, const GraphTensor& x, const GraphTensor& y) {
    return (*this)(operation, x, {}, y);
  }
  AttentionGraph take() { return std::move(graph_); }

 private:
  AttentionGraph graph_;
};

}  // namespace

bool has_b(Operation operation) {
  switch (operation) {
    case Operation::matmul:
    case Operation::multiply:
    case Operation::add:
    case Operation::subtract:
    case Operation::divide: return true;
    default: return false;
  }
}

AttentionGraph attention_forward_graph(const AttentionSpec& spec) {
  Tensors t(spec);
  GraphBuilder add;
  const GraphTensor k = Tensors::transposed(t.packed(AttentionTensor::k));
  const GraphTensor scores = add(Operation::matmul, t.packed(AttentionTensor::q), k, t.scores_between());
  const GraphTensor z = add(Operation::multiply, scores, t.number(AttentionTensor::scale), t.scores_between());
  const GraphTensor largest = add(Operation::max, z, t.rows_between());
  const GraphTensor shifted = add(Operation::subtract, z, largest, t.scores_between());
  const GraphTensor e = add(Operation::exp, shifted, t.scores_between());
  const GraphTensor total = add(Operation::sum, e, t.rows_between());
  const GraphTensor log_total = add(Operation::log, total, t.rows_between());
  add(Operation::add, largest, log_total, t.rows(AttentionTensor::log_sums));
  const GraphTensor p = add(Operation::divide, e, total, t.scores_between(spec.dtype));
  add(Operation::matmul, p, t.packed(AttentionTensor::v), t.output(AttentionTensor::y));
  return add.take();
}

AttentionGraph attention_backward_graph(const AttentionSpec& spec, bool deterministic) {
  Tensors t(spec);
  GraphBuilder add;
  const GraphTensor q = t.packed(AttentionTensor::q), dy = t.output(AttentionTensor::dy);
  const GraphTensor k_transposed = Tensors::transposed(t.packed(AttentionTensor::k));
  const GraphTensor v_transposed = Tensors::transposed(t.packed(AttentionTensor::v));
  const GraphTensor scale = t.number(AttentionTensor::scale);

  const GraphTensor of_y = add(Operation::multiply, dy, t.output(AttentionTensor::y), t.products_between());
  const GraphTensor sums = add(Operation::sum, of_y, t.rows_between());
  const GraphTensor row_sums =
      add(Operation::multiply, sums, t.number(AttentionTensor::one), t.rows(AttentionTensor::row_sums));

  const GraphTensor scores = add(Operation::matmul, q, k_transposed, t.scores_between());
  const GraphTensor z = add(Operation::multiply, scores, scale, t.scores_between());
  const GraphTensor shifted = add(Operation::subtract, z, t.rows(AttentionTensor::log_sums), t.scores_between());
  const GraphTensor p = add(Operation::exp, shifted, t.scores_between());
  const GraphTensor p_transposed = add(Operation::reshape, p, t.transposed_between(p, spec.dtype));
  add(Operation::matmul, p_transposed, dy, t.packed(AttentionTensor::dv));

  const GraphTensor dp = add(Operation::matmul, dy, v_transposed, t.scores_between());
  const GraphTensor centred = add(Operation::subtract, dp, row_sums, t.scores_between());
  const GraphTensor dz = add(Operation::multiply, centred, p, t.scores_between());
  const GraphTensor ds = add(Operation::multiply, dz, scale, t.scores_between());
  const GraphTensor ds_transposed = add(Operation::reshape, ds, t.transposed_between(ds, spec.dtype));
  add(Operation::matmul, ds_transposed, q, t.packed(AttentionTensor::dk));

  const GraphTensor k = add(Operation::reshape, k_transposed, t.transposed_between(k_transposed, spec.dtype));
  const GraphTensor dq = t.packed(AttentionTensor::dq);
  if (deterministic) {
    add(Operation::matmul, ds, k, dq);
  } else {
    const GraphTensor dq_sums = add(Operation::matmul, ds, k, t.dense(AttentionTensor::dq_sums));
    add(Operation::identity, dq_sums, dq);
  }
  return add.take();
}

bool can_fuse_attention(const AttentionSpec& spec, std::size_t cudnn_version) {
  constexpr std::int64_t kTile = 128;
  constexpr std::size_t kReadsWithinBounds = 91501;  // 9.15.1
  if (spec.dtype != DType::bfloat16 && spec.dtype != DType::float16) return false;
  if (spec.width % 8 != 0 || spec.width > 128 || spec.tokens < 2) return false;
  if (spec.tokens % kTile == kTile / 2) return false;
  return spec.tokens % kTile == 0 || cudnn_version >= kReadsWithinBounds;
}

}  // namespace ab
