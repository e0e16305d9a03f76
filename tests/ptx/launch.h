#pragma once
// SPDX-License-Identifier: MIT
//
// Runs a kernel: one block after the other, each thread until it waits for its warp or its block. Accesses are checked
// against memory (bounds, alignment, races, what nobody has written), barriers and shuffles for threads that do not come.
//   PTX_ORDER=n   blocks, warps and lanes take turns in an order drawn from n

#include <vector_types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"

namespace ptx {

class Launch {
 public:
  /// `parameters`: as the function lays them out.
  Launch(const Module& module, const Function& function, dim3 grid, dim3 block, const std::uint8_t* parameters);
  void run();

 private:
  struct Thread {
    enum class State : std::uint8_t { ready, at_barrier, at_shuffle, ended };
    Slot* slots = nullptr;
    std::size_t next = 0;  // instruction
    State state = State::ready;
  };

  void run_block(std::uint64_t block);
  void start_block(std::uint64_t block);
  bool run_warp(int warp);
  void run_thread(int thread);
  void call(const Instruction& i, Slot* caller);
  bool pass_barrier();
  bool pass_shuffle(int warp);
  bool all_lanes_wait(const Instruction& i, int first, std::uint32_t mask);
  void exchange(const Instruction& i, int begin, std::uint32_t mask);
  void report_hang();

  // access.cpp
  void load(const Instruction& i, Slot* slots);
  void store(const Instruction& i, Slot* slots);
  /// Where to read or write; null after a fault.
  std::uint8_t* locate(const Instruction& i, const Slot* slots, bool writes);
  std::uint8_t* locate_shared(const Instruction& i, std::uint64_t address, std::size_t bytes, bool writes);
  std::uint8_t* locate_global(const Instruction& i, std::uint64_t address, std::size_t bytes, bool writes);
  void check(const Instruction& i, ByteState* bytes, std::size_t count, bool writes, const char* memory);
  /// `current_`'s thread does something wrong.
  void fault(const Instruction& i, const std::string& what, const std::string& details = {});

  Thread& thread(int t) { return threads_[static_cast<std::size_t>(t)]; }
  const Instruction& next_of(int t) { return function_.code[thread(t).next]; }

  const Module& module_;
  const Function& function_;
  const dim3 grid_, block_;
  const int count_;  // threads of a block
  const std::uint8_t* parameters_;
  const std::uint64_t order_;
  Toucher current_;
  int lane_flip_ = 0;
  std::uint64_t executed_ = 0;
  std::vector<Thread> threads_;
  std::vector<int> warps_;  // in the order in which they take turns
  std::vector<std::pair<int, std::size_t>> special_slots_;
  std::vector<Slot> slots_;
  std::size_t local_stride_;
  std::vector<std::uint8_t> local_, shared_;
  std::vector<ByteState> shared_states_;
  std::vector<Allocation*> last_used_;  // by instruction
};

}  // namespace ptx
