// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/thread_context.h"

#include "engine/core/memory.h"

namespace ab::cpu {
namespace {

// One engine for the process: oneDNN shares compiled kernels between threads through it.
const dnnl::engine& process_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

}  // namespace

ThreadContext::ThreadContext() : engine_(process_engine()), stream_(engine_) {}

ThreadContext::~ThreadContext() {
  if (scratch_) memory(Device{}).release(scratch_, scratch_bytes_);
}

ThreadContext& ThreadContext::current() {
  thread_local ThreadContext context;
  return context;
}

std::byte* ThreadContext::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    Memory& host = memory(Device{});
    if (scratch_) host.release(scratch_, scratch_bytes_);
    scratch_ = nullptr;
    scratch_ = static_cast<std::byte*>(host.allocate(bytes));
    scratch_bytes_ = bytes;
  }
  return scratch_;
}

OneDnnConv& ThreadContext::conv(const OneDnnConvKey& key) {
  const auto it = convs_.find(key);
  return it != convs_.end() ? it->second : convs_.try_emplace(key, engine_, key).first->second;
}

}  // namespace ab::cpu
