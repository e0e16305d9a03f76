// SPDX-License-Identifier: MIT
#include "tests/ptx/launch.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>

#include "tests/ptx/faults.h"

namespace ptx {
namespace {

constexpr int kWarp = 32;
constexpr const char* kSpecialRegisters[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                             "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                             "%nctaid.y", "%nctaid.z", "%laneid",  "%warpid"};

}  // namespace

Launch::Launch(const Module& module, const Function& function, dim3 grid, dim3 block, const std::uint8_t* parameters)
    : module_(module),
      function_(function),
      grid_(grid),
      block_(block),
      count_(static_cast<int>(block.x * block.y * block.z)),
      parameters_(parameters),
      order_(setting("PTX_ORDER", 0)),
      threads_(static_cast<std::size_t>(count_)),
      warps_(static_cast<std::size_t>((count_ + kWarp - 1) / kWarp)),
      slots_(threads_.size() * static_cast<std::size_t>(function.slots), 0xdeadbeefcafef00d),
      local_stride_(function.local_bytes),
      local_(threads_.size() * local_stride_, 0xff),
      shared_(function.shared_bytes),
      shared_states_(function.shared_bytes),
      last_used_(function.code.size()) {
  std::iota(warps_.begin(), warps_.end(), 0);
  for (std::size_t k = 0; k < std::size(kSpecialRegisters); ++k)
    if (const auto it = function.special_registers.find(kSpecialRegisters[k]); it != function.special_registers.end())
      special_slots_.emplace_back(it->second, k);
}

void Launch::run() {
  const std::lock_guard lock(device_mutex());
  current_.launch = static_cast<std::uint32_t>(++statistics().launches);
  function_.ran.resize(function_.code.size());
  ++function_.block_sizes[count_];
  std::vector<std::uint64_t> blocks(std::uint64_t{grid_.x} * grid_.y * grid_.z);
  std::iota(blocks.begin(), blocks.end(), std::uint64_t{0});
  std::mt19937_64 random(order_);
  if (order_) std::shuffle(blocks.begin(), blocks.end(), random);
  for (const std::uint64_t block : blocks) {
    if (order_) {
      std::shuffle(warps_.begin(), warps_.end(), random);
      lane_flip_ = static_cast<int>(random() % kWarp);
    }
    run_block(block);
  }
  statistics().threads += blocks.size() * threads_.size();
  statistics().instructions += executed_;
}

void Launch::start_block(std::uint64_t id) {
  current_.block = static_cast<std::uint32_t>(id);
  current_.phase = 0;
  std::fill(shared_.begin(), shared_.end(), 0xff);
  std::fill(shared_states_.begin(), shared_states_.end(), ByteState{});
  for (int t = 0; t < count_; ++t) {
    Thread& thread = this->thread(t);
    thread.slots = slots_.data() + static_cast<std::size_t>(t) * static_cast<std::size_t>(function_.slots);
    thread.next = 0;
    thread.state = Thread::State::ready;
    for (const auto& [slot, value] : function_.constants) thread.slots[slot] = value;
    const std::uint8_t* const local = local_.data() + static_cast<std::size_t>(t) * local_stride_;
    for (const auto& [slot, offset] : function_.local_variables)
      thread.slots[slot] = reinterpret_cast<Slot>(local + offset);
    const auto lane = static_cast<unsigned>(t);
    const Slot special[] = {lane % block_.x,
                            lane / block_.x % block_.y,
                            lane / block_.x / block_.y,
                            block_.x,
                            block_.y,
                            block_.z,
                            id % grid_.x,
                            id / grid_.x % grid_.y,
                            id / grid_.x / grid_.y,
                            grid_.x,
                            grid_.y,
                            grid_.z,
                            lane % kWarp,
                            lane / kWarp};
    for (const auto& [slot, which] : special_slots_) thread.slots[slot] = special[which];
  }
}

void Launch::run_block(std::uint64_t id) {
  start_block(id);
  while (true) {
    bool progress = false;
    for (const int warp : warps_) progress |= run_warp(warp);
    const auto has_ended = [](const Thread& t) { return t.state == Thread::State::ended; };
    if (std::all_of(threads_.begin(), threads_.end(), has_ended)) return;
    if (!pass_barrier() && !progress) return report_hang();
  }
}

/// Whether all threads that go on had come to a barrier.
bool Launch::pass_barrier() {
  int waiting = 0, ended = 0, first = -1;
  for (int t = count_; t-- > 0;) {
    if (thread(t).state == Thread::State::ended) ++ended;
    if (thread(t).state == Thread::State::at_barrier) ++waiting, first = t;
  }
  if (waiting == 0 || waiting + ended < count_) return false;
  current_.thread = static_cast<std::uint16_t>(first);
  const Instruction& barrier = next_of(first);
  if (ended > 0) fault(barrier, "a barrier that some threads do not reach, as they have ended");
  for (int t = 0; t < count_; ++t) {
    if (thread(t).state != Thread::State::at_barrier) continue;
    if (next_of(t).line != barrier.line)
      fault(barrier, "threads wait at different barriers", ", the other at line " + std::to_string(next_of(t).line));
    ++thread(t).next;
    thread(t).state = Thread::State::ready;
  }
  ++current_.phase;
  return true;
}

void Launch::report_hang() {
  for (int t = 0; t < count_; ++t) {
    if (thread(t).state == Thread::State::ended) continue;
    current_.thread = static_cast<std::uint16_t>(t);
    return fault(next_of(t), "the kernel hangs: a barrier or a shuffle that not all threads reach");
  }
}

/// Whether any thread of it could go on.
bool Launch::run_warp(int warp) {
  const int begin = warp * kWarp;
  for (bool progress = false;; progress = true) {
    bool ran = false;
    for (int lane = 0; lane < kWarp; ++lane) {
      const int t = begin + (lane ^ lane_flip_);
      if (t >= count_ || thread(t).state != Thread::State::ready) continue;
      run_thread(t);
      ran = true;
    }
    if (!pass_shuffle(begin)) return progress || ran;
  }
}

void Launch::run_thread(int t) {
  Thread& thread = this->thread(t);
  current_.thread = static_cast<std::uint16_t>(t);
  Slot* const slots = thread.slots;
  const Instruction* const code = function_.code.data();
  std::uint8_t* const ran = function_.ran.data();
  for (std::size_t next = thread.next;;) {
    const Instruction& i = code[next];
    ++executed_;
    if (i.predicate >= 0 && (slots[i.predicate] != 0) == i.negated) {
      ++next;
      continue;
    }
    ran[next] = 1;
    switch (i.kind) {
      case Kind::compute: i.operation(i, slots), ++next; break;
      case Kind::branch: next = static_cast<std::size_t>(i.target); break;
      case Kind::load: load(i, slots), ++next; break;
      case Kind::store: store(i, slots), ++next; break;
      case Kind::call: call(i, slots), ++next; break;
      default:
        thread.next = next;
        thread.state = i.kind == Kind::barrier   ? Thread::State::at_barrier
                       : i.kind == Kind::shuffle ? Thread::State::at_shuffle
                                                 : Thread::State::ended;
        return;
    }
  }
}

/// Of a function that computes and branches, and no more: none of ours that is called does.
void Launch::call(const Instruction& i, Slot* caller) {
  const Function& f = module_.functions[static_cast<std::size_t>(i.target)];
  std::vector<Slot> slots(static_cast<std::size_t>(f.slots));
  Slot* const s = slots.data();
  for (const auto& [slot, value] : f.constants) s[slot] = value;
  for (std::size_t k = 0; k < i.arguments.size(); ++k) s[f.arguments[k]] = caller[i.arguments[k]];
  for (std::size_t next = 0;;) {
    const Instruction& inner = f.code[next++];
    ++executed_;
    if (inner.predicate >= 0 && (s[inner.predicate] != 0) == inner.negated) continue;
    if (inner.kind == Kind::end) break;
    if (inner.kind == Kind::compute) inner.operation(inner, s);
    else if (inner.kind == Kind::branch) next = static_cast<std::size_t>(inner.target);
    else if (inner.kind == Kind::load && inner.space == Space::argument) s[inner.elements[0]] = s[inner.from[0]];
    else if (inner.kind == Kind::store && inner.space == Space::argument) s[inner.from[0]] = s[inner.elements[0]];
    else return fault(i, "calls a function that accesses memory or waits");
  }
  if (i.to >= 0) caller[i.to] = s[f.result];
}

}  // namespace ptx
