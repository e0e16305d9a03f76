// SPDX-License-Identifier: MIT
//
// cuDNN's graph interface: one engine that plans every graph and computes it by its documentation.
//   PTX_CUDNN=0   it does not start
#include <utility>

#include "tests/ptx/cudnn_execution.h"
#include "tests/ptx/streams.h"

namespace {

using ptx::Descriptor;

struct Handle {
  std::shared_ptr<Descriptor> descriptor = std::make_shared<Descriptor>();
};
std::shared_ptr<Descriptor>& of(cudnnBackendDescriptor_t d) { return static_cast<Handle*>(d)->descriptor; }
cudaStream_t& stream_of(cudnnHandle_t handle) { return *reinterpret_cast<cudaStream_t*>(handle); }

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE: return 8;
    default: return 4;
  }
}

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_INITIALIZED";
}
void cudnnGetLastErrorString(char* text, std::size_t size) {
  if (size > 0) *text = 0;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (!ptx::setting("PTX_CUDNN", 1)) return CUDNN_STATUS_NOT_INITIALIZED;
  return *handle = reinterpret_cast<cudnnHandle_t>(new cudaStream_t{}), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return delete &stream_of(handle), CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return stream_of(handle) = stream, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* d) {
  auto* made = new Handle;
  made->descriptor->type = type;
  return *d = made, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  return delete static_cast<Handle*>(d), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  if (of(d)->is_finalized) ptx::report("cuDNN: a descriptor is changed after it was finalized");
  ptx::Attribute a;
  a.type = type;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (std::int64_t i = 0; i < count; ++i) {
      a.parts.push_back(of(static_cast<const cudnnBackendDescriptor_t*>(values)[i]));
      if (!a.parts.back()->is_finalized) ptx::report("cuDNN: a part of a descriptor is not finalized");
    }
  } else {
    const auto* const begin = static_cast<const std::uint8_t*>(values);
    a.bytes.assign(begin, begin + bytes_of(type) * static_cast<std::size_t>(count));
  }
  of(d)->attributes[name] = std::move(a);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
  Descriptor& descriptor = *of(d);
  if (descriptor.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR &&
      descriptor.get<int>(CUDNN_ATTR_ENGINEHEUR_MODE) != CUDNN_HEUR_MODE_A)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return descriptor.is_finalized = true, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t, std::int64_t* count, void* values) {
  if (!of(d)->is_finalized) ptx::report("cuDNN: a descriptor is asked before it was finalized");
  *count = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      Descriptor& configuration = *of(*static_cast<cudnnBackendDescriptor_t*>(values));
      configuration.attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = of(d)->at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      configuration.is_finalized = true;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      of(*static_cast<cudnnBackendDescriptor_t*>(values))->is_finalized = true;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: return *count = 0, CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return *static_cast<std::int64_t*>(values) = ptx::kCudnnWorkspaceBytes, CUDNN_STATUS_SUCCESS;
    default: ptx::give_up("cuDNN: an attribute that the double does not give");
  }
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const ptx::CudnnExecution execution(*of(plan), *of(pack));
  ptx::enqueue(stream_of(handle), [execution] { ptx::CudnnExecution(execution).run(); });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
