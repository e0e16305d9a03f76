// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_attention.h"

#include <array>
#include <cmath>
#include <utility>

namespace ab::cuda {
namespace {

/// Where elements (n, h, i, j) lie: Σ index · stride.
struct GraphTensor {
  enum class Place : std::uint8_t { memory, between, number };  ///< between: from one operation to the next alone

  std::int64_t id = 0;
  std::array<std::int64_t, 4> dims{}, strides{};
  DType dtype = DType::float32;
  Place place = Place::memory;
};
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

CudnnDescriptor tensor(const GraphTensor& t) {
  const bool is_number = t.place == Place::number;
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, storage_type(t.dtype, "attention"))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(t.dims))
      .set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(t.strides))
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, is_number ? std::int64_t{sizeof(float)} : kCudnnAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.place == Place::between)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, is_number)
      .finalize();
  return descriptor;
}

/// The operations of a graph, to be added in an order in which every tensor is written before it is read. They return y.
class GraphBuilder {
 public:
  /// y = x · b of the last two dimensions
  GraphTensor matmul(const GraphTensor& x, const GraphTensor& b, const GraphTensor& y) {
    return add(matmul_operation(DType::float32, tensor(x), tensor(b), tensor(y)), y);
  }
  /// y is x's memory, by other strides.
  GraphTensor reshape(const GraphTensor& x, const GraphTensor& y) {
    return add(reshape_operation(tensor(x), tensor(y)), y);
  }
  /// Over the last dimension of x.
  GraphTensor reduce(cudnnReduceTensorOp_t what, const GraphTensor& x, const GraphTensor& y) {
    return add(reduction_operation(what, tensor(x), tensor(y)), y);
  }
  /// Element by element; b is repeated along dimensions where it has one element.
  GraphTensor pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& b, const GraphTensor& y) {
    return add(pointwise_operation(mode, DType::float32, tensor(x), tensor(b), tensor(y)), y);
  }
  GraphTensor pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& y) {
    return add(pointwise_operation(mode, DType::float32, tensor(x), tensor(y)), y);
  }
  CudnnDescriptor finish(const CudnnTarget& target) const { return operation_graph(operations_, target); }

 private:
  GraphTensor add(CudnnDescriptor operation, const GraphTensor& y) {
    operations_.push_back(std::move(operation));
    return y;
  }

  std::vector<CudnnDescriptor> operations_;
};

CudnnDescriptor forward_graph(const AttentionSpec& spec, const CudnnTarget& target) {
  Tensors t(spec);
  GraphBuilder graph;
  const GraphTensor k = Tensors::transposed(t.packed(AttentionTensor::k));
  const GraphTensor scores = graph.matmul(t.packed(AttentionTensor::q), k, t.scores_between());
  const GraphTensor z =
      graph.pointwise(CUDNN_POINTWISE_MUL, scores, t.number(AttentionTensor::scale), t.scores_between());
  const GraphTensor largest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, z, t.rows_between());
  const GraphTensor shifted = graph.pointwise(CUDNN_POINTWISE_SUB, z, largest, t.scores_between());
  const GraphTensor e = graph.pointwise(CUDNN_POINTWISE_EXP, shifted, t.scores_between());
  const GraphTensor total = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, e, t.rows_between());
  const GraphTensor log_total = graph.pointwise(CUDNN_POINTWISE_LOG, total, t.rows_between());
  graph.pointwise(CUDNN_POINTWISE_ADD, largest, log_total, t.rows(AttentionTensor::log_sums));
  const GraphTensor p = graph.pointwise(CUDNN_POINTWISE_DIV, e, total, t.scores_between(spec.dtype));
  graph.matmul(p, t.packed(AttentionTensor::v), t.output(AttentionTensor::y));
  return graph.finish(target);
}

CudnnDescriptor backward_graph(const AttentionSpec& spec, bool deterministic, const CudnnTarget& target) {
  Tensors t(spec);
  GraphBuilder graph;
  const GraphTensor q = t.packed(AttentionTensor::q), dy = t.output(AttentionTensor::dy);
  const GraphTensor k_transposed = Tensors::transposed(t.packed(AttentionTensor::k));
  const GraphTensor v_transposed = Tensors::transposed(t.packed(AttentionTensor::v));
  const GraphTensor scale = t.number(AttentionTensor::scale);

  const GraphTensor of_y = graph.pointwise(CUDNN_POINTWISE_MUL, dy, t.output(AttentionTensor::y), t.products_between());
  const GraphTensor sums = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_y, t.rows_between());
  const GraphTensor row_sums =
      graph.pointwise(CUDNN_POINTWISE_MUL, sums, t.number(AttentionTensor::one), t.rows(AttentionTensor::row_sums));

  const GraphTensor scores = graph.matmul(q, k_transposed, t.scores_between());
  const GraphTensor z = graph.pointwise(CUDNN_POINTWISE_MUL, scores, scale, t.scores_between());
  const GraphTensor shifted =
      graph.pointwise(CUDNN_POINTWISE_SUB, z, t.rows(AttentionTensor::log_sums), t.scores_between());
  const GraphTensor p = graph.pointwise(CUDNN_POINTWISE_EXP, shifted, t.scores_between());
  const GraphTensor p_transposed = graph.reshape(p, t.transposed_between(p, spec.dtype));
  graph.matmul(p_transposed, dy, t.packed(AttentionTensor::dv));

  const GraphTensor dp = graph.matmul(dy, v_transposed, t.scores_between());
  const GraphTensor centred = graph.pointwise(CUDNN_POINTWISE_SUB, dp, row_sums, t.scores_between());
  const GraphTensor dz = graph.pointwise(CUDNN_POINTWISE_MUL, centred, p, t.scores_between());
  const GraphTensor ds = graph.pointwise(CUDNN_POINTWISE_MUL, dz, scale, t.scores_between());
  const GraphTensor ds_transposed = graph.reshape(ds, t.transposed_between(ds, spec.dtype));
  graph.matmul(ds_transposed, q, t.packed(AttentionTensor::dk));

  const GraphTensor k = graph.reshape(k_transposed, t.transposed_between(k_transposed, spec.dtype));
  const GraphTensor dq = t.packed(AttentionTensor::dq);
  if (deterministic) {
    graph.matmul(ds, k, dq);
  } else {
    const GraphTensor dq_sums = graph.matmul(ds, k, t.dense(AttentionTensor::dq_sums));
    graph.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sums, dq);
  }
  return graph.finish(target);
}

}  // namespace

bool can_fuse_attention(const AttentionSpec& spec, std::size_t cudnn_version) {
  constexpr std::int64_t kTile = 128;
  constexpr std::size_t kReadsWithinBounds = 91501;  // 9.15.1
  if (spec.dtype != DType::bfloat16 && spec.dtype != DType::float16) return false;
  if (spec.width % 8 != 0 || spec.width > 128 || spec.tokens < 2) return false;
  if (spec.tokens % kTile == kTile / 2) return false;
  return spec.tokens % kTile == 0 || cudnn_version >= kReadsWithinBounds;
}

CudnnAttention::CudnnAttention(const CudnnAttentionKey& key, const CudnnTarget& target)
    : deterministic_(key.deterministic),
      scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(key.spec.width)))) {
  const auto is_precise = [&](const NumericalNotes& notes) { return keeps_precision(notes, key.spec.dtype, false); };
  try {
    for (const bool backward : {false, true}) {
      graphs_.push_back(backward ? backward_graph(key.spec, key.deterministic, target)
                                 : forward_graph(key.spec, target));
      std::vector<CudnnPlan> found = find_plans(graphs_.back(), target, PlanChoice::heuristic, is_precise);
      if (found.empty()) break;
      // cuDNN notes nothing of the order in which the backward kernel adds up dQ; the graph decides it.
      found.front().is_deterministic = key.deterministic || !backward;
      plans_.push_back(std::move(found.front()));
    }
  } catch (const Error&) {
    // cuDNN refuses the graph as a whole; there are the products.
  }
  if (plans_.size() < 2) plans_.clear();
}

void CudnnAttention::execute(cudnnHandle_t handle, const CudnnPlan& plan, const Addresses& addresses, void* workspace) {
  std::vector<CudnnOperand> operands;
  for (const auto& [id, address] : addresses) operands.push_back({static_cast<std::int64_t>(id), address});
  operands.push_back({static_cast<std::int64_t>(AttentionTensor::scale), &scale_});
  if (addresses.contains(AttentionTensor::dy))
    operands.push_back({static_cast<std::int64_t>(AttentionTensor::one), &one_});
  cuda::execute(handle, plan, operands, workspace);
}

}  // namespace ab::cuda
