// SPDX-License-Identifier: MIT
#include "tests/ptx/cudnn_execution.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <set>

#include "tests/ptx/elements.h"
#include "tests/ptx/memory.h"

namespace ptx {
namespace {

using Index = std::vector<std::int64_t>;

std::size_t at(std::int64_t place) { return static_cast<std::size_t>(place); }

template <class F> void for_each_index(const Index& dims, const F& f) {
  Index index(dims.size());
  const std::int64_t count = std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
  for (std::int64_t k = 0; k < count; ++k) {
    f(index);
    for (std::size_t d = dims.size(); d-- > 0; index[d] = 0)
      if (++index[d] < dims[d]) break;
  }
}

GraphTensor tensor(const Descriptor& operation, int name) { return GraphTensor(*operation.part(name)); }

double normal_cdf(double v) { return 0.5 * (1 + std::erf(v / std::numbers::sqrt2)); }
double normal_density(double v) { return std::exp(-0.5 * v * v) / std::sqrt(2 * std::numbers::pi); }

double pointwise(cudnnPointwiseMode_t mode, double x, double b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_RELU_FWD: return x < 0 ? 0 : x;
    case CUDNN_POINTWISE_GELU_FWD: return x * normal_cdf(x);
    default: give_up("cuDNN: a pointwise mode that the double does not know");
  }
}

}  // namespace

ab::DType cudnn_dtype(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT: return ab::DType::float32;
    case CUDNN_DATA_DOUBLE: return ab::DType::float64;
    case CUDNN_DATA_HALF: return ab::DType::float16;
    case CUDNN_DATA_BFLOAT16: return ab::DType::bfloat16;
    default: give_up("cuDNN: a type that the double does not know");
  }
}

GraphTensor::GraphTensor(const Descriptor& d)
    : id(d.get<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
      alignment(d.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
      dims(d.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
      strides(d.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES)),
      dtype(cudnn_dtype(d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE))),
      is_virtual(d.is_set(CUDNN_ATTR_TENSOR_IS_VIRTUAL)),
      is_by_value(d.is_set(CUDNN_ATTR_TENSOR_IS_BY_VALUE)) {}

std::int64_t GraphTensor::count() const {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}
std::int64_t GraphTensor::extent() const {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) last += (dims[d] - 1) * strides[d];
  return last + 1;
}
std::int64_t GraphTensor::place(const Index& index) const {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (dims[d] > 1) sum += index[d] * strides[d];
  return sum;
}

CudnnExecution::CudnnExecution(const Descriptor& plan, const Descriptor& pack)
    : operations_(plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                      ->part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
                      ->at(CUDNN_ATTR_OPERATIONGRAPH_OPS)
                      .parts),
      workspace_(pack.get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)) {
  const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != pointers.size()) give_up("cuDNN: not as many addresses as tensors");
  for (std::size_t k = 0; k < ids.size(); ++k) addresses_[ids[k]] = pointers[k];
  std::set<std::int64_t> wanted;
  for (const DescriptorRef& operation : operations_)
    for (const auto& [name, attribute] : operation->attributes)
      for (const DescriptorRef& part : attribute.parts) {
        if (part->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
        const GraphTensor t(*part);
        if (t.is_virtual) continue;
        wanted.insert(t.id);
        if (!addresses_.contains(t.id)) give_up("cuDNN: no address for tensor " + std::to_string(t.id));
        const void* const address = addresses_[t.id];
        if (t.is_by_value) numbers_[t.id] = get_number(address, t.dtype);
        else if (reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(t.alignment) != 0)
          report("cuDNN: a tensor is less aligned than its descriptor says");
      }
  for (const auto& [id, address] : addresses_)
    if (!wanted.contains(id)) report("cuDNN: an address for a tensor that is not in the graph");
}

void CudnnExecution::run() {
  use_workspace(workspace_, kCudnnWorkspaceBytes, "cuDNN: the workspace");
  for (const DescriptorRef& operation : operations_) compute(*operation);
  // At the end, so that a graph which reads what it overwrites shows.
  for (const auto& [id, t] : results_) store(t);
}

const CudnnExecution::Values& CudnnExecution::read(const GraphTensor& t) {
  if (const auto it = values_.find(t.id); it != values_.end()) return it->second;
  Values& values = values_[t.id];
  if (t.is_by_value) return values = {numbers_.at(t.id)};
  values.resize(at(t.extent()));
  if (t.is_virtual) return report("cuDNN: a virtual tensor is read before it is written"), values;
  const char* const from = static_cast<const char*>(addresses_.at(t.id));
  if (!is_on_device(from, values.size() * size_of(t.dtype), "cuDNN reads")) return values;
  // A tensor may be strided, and then what lies between belongs to others.
  for_each_index(t.dims, [&](const Index& i) {
    const std::int64_t place = t.place(i);
    if (!is_defined(from + at(place) * size_of(t.dtype), size_of(t.dtype)))
      report("cuDNN reads what nobody has written");
    values[at(place)] = get_element(from, place, t.dtype);
  });
  return values;
}

CudnnExecution::Values& CudnnExecution::write(const GraphTensor& t) {
  if (t.is_by_value) report("cuDNN: a graph writes a number");
  if (!t.is_virtual) results_.insert_or_assign(t.id, t);
  return values_[t.id] = Values(at(t.extent()));
}

void CudnnExecution::store(const GraphTensor& t) {
  char* const to = static_cast<char*>(addresses_.at(t.id));
  const Values& values = values_.at(t.id);
  if (!is_on_device(to, values.size() * size_of(t.dtype), "cuDNN writes")) return;
  for_each_index(t.dims, [&](const Index& i) {
    const std::int64_t place = t.place(i);
    set_element(to, place, t.dtype, values[at(place)]);
    set_defined(to + at(place) * size_of(t.dtype), size_of(t.dtype));
  });
}

void CudnnExecution::compute(const Descriptor& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return convolve(operation);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return apply_pointwise(operation);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduce(operation);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return multiply(operation);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return reshape(operation);
    default: give_up("cuDNN: an operation that the double does not know");
  }
}

void CudnnExecution::apply_pointwise(const Descriptor& operation) {
  const auto mode = operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                        ->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  if (mode == CUDNN_POINTWISE_RELU_BWD || mode == CUDNN_POINTWISE_GELU_BWD)
    return apply_activation_gradient(operation, mode);
  const GraphTensor x = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  const bool has_b = operation.find(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const GraphTensor b = has_b ? tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) : x;
  const GraphTensor y = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const Values of_x = read(x), of_b = read(b);
  Values& of_y = write(y);
  for_each_index(y.dims, [&](const Index& i) {
    of_y[at(y.place(i))] = pointwise(mode, of_x[at(x.place(i))], of_b[at(b.place(i))]);
  });
}

void CudnnExecution::apply_activation_gradient(const Descriptor& operation, cudnnPointwiseMode_t mode) {
  const GraphTensor x = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  const GraphTensor dy = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
  const GraphTensor dx = tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
  const Values of_x = read(x), of_dy = read(dy);
  Values& of_dx = write(dx);
  for_each_index(dx.dims, [&](const Index& i) {
    const double z = of_x[at(x.place(i))], d = of_dy[at(dy.place(i))];
    const double slope = mode == CUDNN_POINTWISE_GELU_BWD ? normal_cdf(z) + z * normal_density(z) : z > 0 ? 1 : 0;
    of_dx[at(dx.place(i))] = d * slope;
  });
}

void CudnnExecution::reduce(const Descriptor& operation) {
  const auto op =
      operation.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
  const bool is_max = op == CUDNN_REDUCE_TENSOR_MAX;
  if (!is_max && op != CUDNN_REDUCE_TENSOR_ADD) give_up("cuDNN: a reduction that the double does not know");
  const GraphTensor x = tensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  const GraphTensor y = tensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  const Values of_x = read(x);
  Values& of_y = write(y);
  if (is_max) std::fill(of_y.begin(), of_y.end(), -INFINITY);
  for_each_index(x.dims, [&](const Index& i) {
    double& result = of_y[at(y.place(i))];
    const double value = of_x[at(x.place(i))];
    result = is_max ? std::max(result, value) : result + value;
  });
}

void CudnnExecution::multiply(const Descriptor& operation) {
  const GraphTensor a = tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  const GraphTensor b = tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  const GraphTensor c = tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const std::size_t column = c.dims.size() - 1, row = column - 1;
  const std::int64_t inner = a.dims[column];
  if (inner != b.dims[row] || a.dims[row] != c.dims[row] || b.dims[column] != c.dims[column])
    give_up("cuDNN: matrices that do not fit each other");
  const Values of_a = read(a), of_b = read(b);
  Values& of_c = write(c);
  for_each_index(c.dims, [&](const Index& i) {
    Index in_a = i, in_b = i;
    in_a[column] = 0, in_b[row] = 0;
    const std::int64_t first_a = a.place(in_a), first_b = b.place(in_b);
    double sum = 0;
    for (std::int64_t k = 0; k < inner; ++k)
      sum += of_a[at(first_a + k * a.strides[column])] * of_b[at(first_b + k * b.strides[row])];
    of_c[at(c.place(i))] = sum;
  });
}

void CudnnExecution::reshape(const Descriptor& operation) {
  const GraphTensor y = tensor(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  const Values from = read(tensor(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
  Values& to = write(y);
  if (from.size() != to.size()) give_up("cuDNN: a reshape to another size");
  to = from;
}

}  // namespace ptx
