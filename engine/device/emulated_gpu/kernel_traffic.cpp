// SPDX-License-Identifier: MIT
#include "engine/device/emulated_gpu/kernel_traffic.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <vector>

#include "engine/core/check.h"

namespace ab::emulated_gpu {

/// Pages of the arena that a kernel has read or written, as faults tell them.
class TouchedPages {
 public:
  TouchedPages() : how_(kArenaBytes / kPageBytes), touched_(kArenaBytes / kPageBytes) {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    current = this;
    AB_ASSERT(sigaction(SIGSEGV, &action, &before_) == 0);
  }
  ~TouchedPages() {
    sigaction(SIGSEGV, &before_, nullptr);
    current = nullptr;
  }

  void begin(std::byte* base, std::size_t bytes) {
    base_ = base;
    bytes_ = bytes;
  }

  /// What was touched since begin(), and closes no page.
  TouchedBytes end() {
    TouchedBytes bytes;
    for (std::size_t i = 0; i < count_; ++i) {
      const int how = how_[touched_[i]].exchange(0);
      if (how & kRead) bytes.read += kPageBytes;
      if (how & kWritten) bytes.written += kPageBytes;
    }
    count_ = 0;
    bytes_ = 0;
    return bytes;
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr int kRead = 1, kWritten = 2;

  /// Opens the page for what was tried. A stray access, and one outside of a kernel, ends the process as it would have
  /// without this.
  static void on_fault(int, siginfo_t* info, void* context) {
    auto* const address = static_cast<std::byte*>(info->si_addr);
    if (current->holds(address) && current->open_page(address, was_write(context))) return;
    sigaction(SIGSEGV, &current->before_, nullptr);
  }

  bool holds(const std::byte* address) const {
    const std::less<const std::byte*> before;
    return !before(address, base_) && before(address, base_ + bytes_);
  }

  bool open_page(const std::byte* address, bool write) {
    const std::size_t page = static_cast<std::size_t>(address - base_) / kPageBytes;
    const int before = how_[page].fetch_or(write ? kWritten : kRead);
    if (before == 0) touched_[count_++] = static_cast<std::uint32_t>(page);
    const bool writable = write || (before & kWritten);
    return mprotect(base_ + page * kPageBytes, kPageBytes, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
  }

  static bool was_write([[maybe_unused]] void* context) {
#ifdef __x86_64__
    return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;  // bit 1 of a page fault's error code
#else
    return false;
#endif
  }

  inline static TouchedPages* current = nullptr;
  struct sigaction before_ {};
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::atomic<int>> how_;
  std::vector<std::uint32_t> touched_;
  std::atomic<std::size_t> count_ = 0;
};

KernelTraffic::KernelTraffic(int device_index) : device_index_(device_index) {
#ifndef __x86_64__
  throw Error(ErrorKind::config, "what kernels read and write can be counted on x86-64 only");
#endif
  pages_ = std::make_unique<TouchedPages>();
  arena(device_index_).set_watch(this);
}

KernelTraffic::~KernelTraffic() { arena(device_index_).set_watch(nullptr); }

void KernelTraffic::kernel_begins(const char* kernel, std::byte* base, std::size_t bytes) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(kernel, nullptr, nullptr, &status), std::free);
  kernel_ = status == 0 ? name.get() : kernel;
  pages_->begin(base, bytes);
}

void KernelTraffic::kernel_ends() {
  const TouchedBytes touched = pages_->end();
  count(kernel_, static_cast<std::size_t>(touched.read), static_cast<std::size_t>(touched.written));
}

void KernelTraffic::count(const std::string& kernel, std::size_t read, std::size_t written) {
  TouchedBytes& bytes = by_kernel_[kernel];
  ++bytes.launches;
  bytes.read += static_cast<std::int64_t>(read);
  bytes.written += static_cast<std::int64_t>(written);
}

}  // namespace ab::emulated_gpu
