#pragma once
// SPDX-License-Identifier: MIT
//
// PTX as it is interpreted: every register, constant and special register of a function is a slot of 64 bits that each
// thread has for itself. The subset is what nvcc makes of our kernels; anything else is an error that names its line.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ptx {

using Slot = std::uint64_t;
struct Instruction;
using Operation = void (*)(const Instruction&, Slot*);

enum class Kind : std::uint8_t { compute, load, store, branch, barrier, shuffle, call, end };
/// `argument` is what a called function is given, and what it returns: a slot.
enum class Space : std::uint8_t { generic, global, shared, local, parameter, argument };
enum class Shuffle : std::uint8_t { butterfly, index, down, up };

struct Instruction {
  Operation operation = nullptr;  // of compute
  Kind kind = Kind::end;
  Space space = Space::generic;  // of load and store
  Shuffle shuffle = Shuffle::butterfly;
  std::uint8_t bytes = 0, count = 1;  // of each element that is loaded, stored or packed; elements
  bool is_signed = false;
  bool negated = false;         // runs where the predicate is false
  int predicate = -1;           // slot; -1: always runs
  int to = -1, was_valid = -1;  // slots; of a shuffle: whether it read a lane
  int from[4] = {-1, -1, -1, -1};
  int elements[4] = {-1, -1, -1, -1};  // slots of what is loaded, stored, packed or unpacked
  std::int64_t offset = 0;             // of an address, or in the parameters
  int target = -1;                     // of a branch: index of an instruction; of a call: of a function
  std::vector<int> arguments;          // of a call
  int line = 0;                        // in the file
};

struct Parameter {
  std::string name;
  std::size_t offset = 0, bytes = 0;
};

struct Function {
  std::string name, file;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::vector<int> arguments;  // slots, of a function that is called
  int result = -1;
  std::vector<Instruction> code;
  int slots = 0;
  std::vector<std::pair<int, Slot>> constants;               // slot, value
  std::vector<std::pair<int, std::size_t>> local_variables;  // slot of the address, offset
  std::map<std::string, int> special_registers;
  std::size_t shared_bytes = 0, local_bytes = 0;
  int max_threads = 1024;

  // Of what ran.
  mutable std::vector<std::uint8_t> ran;             // by instruction
  mutable std::map<int, std::uint64_t> block_sizes;  // launches by threads of a block
};

struct Module {
  std::string path;
  std::vector<std::unique_ptr<std::vector<std::uint8_t>>> constants;  // arrays of the file, which kernels only read
  std::vector<Function> functions;
  std::map<std::string, int> index_of;

  const Function* find(const std::string& name) const {
    const auto it = index_of.find(name);
    return it == index_of.end() ? nullptr : &functions[static_cast<std::size_t>(it->second)];
  }
};

/// Throws std::runtime_error with file and line for what is not known.
std::unique_ptr<Module> parse(const std::string& path);

}  // namespace ptx
