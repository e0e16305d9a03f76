// SPDX-License-Identifier: MIT
#include "tests/ptx/decode.h"

#include <algorithm>
#include <stdexcept>

#include "tests/ptx/operations.h"

namespace ptx {
namespace {

using Words = std::vector<std::string>;

bool has(const Words& parts, const char* modifier) {
  return std::find(parts.begin(), parts.end(), modifier) != parts.end();
}

Words without_brackets(const std::string& text) { return split(text.substr(1, text.size() - 2), ','); }

void set_sources(Instruction& i, const Words& operands, Symbols& symbols) {
  for (std::size_t k = 1; k < operands.size() && k <= 4; ++k) i.from[k - 1] = symbols.slot(operands[k]);
}

/// ld, st; volatile and atomic ones are others.
void decode_access(Instruction& i, const Words& parts, const Words& operands, Symbols& symbols) {
  for (std::size_t k = 1; k + 1 < parts.size(); ++k) {
    const std::string& part = parts[k];
    if (part == "global") i.space = Space::global;
    else if (part == "shared") i.space = Space::shared;
    else if (part == "local") i.space = Space::local;
    else if (part == "param") i.space = Space::parameter;
    else if (part == "v2" || part == "v4") i.count = static_cast<std::uint8_t>(part[1] - '0');
    else if (part != "nc") throw std::runtime_error("an access that is not known: " + part);
  }
  const bool is_load = parts[0] == "ld";
  i.kind = is_load ? Kind::load : Kind::store;
  i.bytes = static_cast<std::uint8_t>(bytes_of(parts.back()));
  i.is_signed = parts.back()[0] == 's';
  const std::vector<int> elements = symbols.slots(operands.at(is_load ? 0 : 1));
  if (elements.size() != i.count) throw std::runtime_error("a vector of another length");
  std::copy(elements.begin(), elements.end(), i.elements);
  symbols.set_address(i, operands.at(is_load ? 1 : 0));
}

/// shfl.sync.bfly.b32 value|valid, source, lanes, clamp, mask
void decode_shuffle(Instruction& i, const Words& parts, const Words& operands, Symbols& symbols) {
  if (parts.size() != 4 || parts[1] != "sync") throw std::runtime_error("a shuffle that is not known");
  i.kind = Kind::shuffle;
  i.shuffle = parts[2] == "bfly"  ? Shuffle::butterfly
              : parts[2] == "idx" ? Shuffle::index
              : parts[2] == "up"  ? Shuffle::up
                                  : Shuffle::down;
  const Words results = split(operands[0], '|');
  i.to = symbols.slot(results[0]);
  if (results.size() > 1) i.was_valid = symbols.slot(results[1]);
  set_sources(i, operands, symbols);
}

/// call.uni (result), function, (arguments)
std::string decode_call(Instruction& i, const Words& operands, Symbols& symbols) {
  i.kind = Kind::call;
  std::size_t n = 0;
  if (operands[0][0] == '(') i.to = symbols.slot(without_brackets(operands[n++])[0]);
  const std::string& name = operands.at(n++);
  if (n < operands.size())
    for (const std::string& argument : without_brackets(operands[n])) i.arguments.push_back(symbols.slot(argument));
  return name;
}

/// mov of one register to several, or of several to one.
void decode_packing(Instruction& i, const Words& parts, const Words& operands, Symbols& symbols) {
  const bool packs = operands[1][0] == '{';
  const std::vector<int> elements = symbols.slots(operands[packs ? 1 : 0]);
  std::copy(elements.begin(), elements.end(), i.elements);
  i.count = static_cast<std::uint8_t>(elements.size());
  i.bytes = static_cast<std::uint8_t>(bytes_of(parts.back()) / elements.size());
  i.operation = packs ? pack : unpack;
  (packs ? i.to : i.from[0]) = symbols.slot(operands[packs ? 0 : 1]);
}

}  // namespace

Instruction decode(std::string statement, Symbols& symbols, std::string& name) {
  constexpr const char* blank = " \t\n";
  Instruction i;
  if (statement[0] == '@') {
    const auto end = statement.find_first_of(blank);
    i.negated = statement[1] == '!';
    i.predicate = symbols.slot(statement.substr(i.negated ? 2 : 1, end - (i.negated ? 2 : 1)));
    statement = trim(statement.substr(end));
  }
  const auto end = std::min(statement.find_first_of(blank), statement.size());
  const Words parts = split(statement.substr(0, end), '.'), operands = split(statement.substr(end), ',');
  const std::string& op = parts[0];
  if (op == "ret" || op == "exit") return i;
  if (operands.empty()) throw std::runtime_error("an instruction without operands");
  if (op == "bra") {
    i.kind = Kind::branch;
    name = operands[0];
  } else if (op == "bar" || op == "barrier") {
    if (!has(parts, "sync") || operands != Words{"0"}) throw std::runtime_error("a barrier of another kind");
    i.kind = Kind::barrier;
  } else if (op == "shfl") {
    decode_shuffle(i, parts, operands, symbols);
  } else if (op == "call") {
    name = decode_call(i, operands, symbols);
  } else if (op == "ld" || op == "st") {
    decode_access(i, parts, operands, symbols);
  } else {
    i.kind = Kind::compute;
    if (op == "mov" && (operands[0][0] == '{' || operands.at(1)[0] == '{')) {
      decode_packing(i, parts, operands, symbols);
      return i;
    }
    i.operation = find_operation(parts);
    if (!i.operation) throw std::runtime_error("an instruction that is not known: " + statement);
    i.to = symbols.slot(operands[0]);
    set_sources(i, operands, symbols);
  }
  return i;
}

}  // namespace ptx
