// SPDX-License-Identifier: MIT
#include "tests/ptx/symbols.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <stdexcept>

#include "tests/ptx/operations.h"

namespace ptx {
namespace {

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

bool is_special_register(const std::string& name) {
  if (name == "%laneid" || name == "%warpid") return true;
  for (const char* family : {"%tid", "%ntid", "%ctaid", "%nctaid"})
    for (const char* axis : {".x", ".y", ".z"})
      if (name == std::string(family) + axis) return true;
  return false;
}

}  // namespace

std::string trim(const std::string& text) {
  constexpr const char* blank = " \t\r\n";
  const auto begin = text.find_first_not_of(blank);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
    if (c == separator && depth == 0) parts.emplace_back();
    else parts.back() += c;
  }
  for (std::string& part : parts) part = trim(part);
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::size_t Declaration::bytes() const { return bytes_of(type) * count; }

Declaration parse_declaration(const std::string& text) {
  Declaration d;
  std::stringstream words(text);
  for (std::string word; words >> word;) {
    if (word == ".align") words >> d.align;
    else if (word[0] != '.') d.name += word;
    else if (std::isdigit(static_cast<unsigned char>(word.back())) || word == ".pred") d.type = word.substr(1);
    else if (d.space.empty() && word != ".visible" && word != ".extern") d.space = word.substr(1);
  }
  if (const auto bracket = d.name.find('['); bracket != std::string::npos) {
    d.count = std::stoul(d.name.substr(bracket + 1));
    d.name.resize(bracket);
  }
  if (d.type.empty()) throw std::runtime_error("a declaration without a type: " + text);
  d.align = std::max(d.align, bytes_of(d.type));
  return d;
}

void Symbols::declare(const std::string& statement) {
  for (const std::string& name : split(statement, ',')) {
    // .reg .b32 %r, %q: the second has the first's type.
    const std::string head = statement.substr(0, statement.find_last_of(' ', statement.find(',')) + 1);
    Declaration d = parse_declaration(name[0] == '.' ? name : head + name);
    std::map<std::string, Symbol>& scope = scopes_.back();
    Function& f = function_;
    if (d.space == "reg") {
      const auto angle = d.name.find('<');
      if (angle == std::string::npos) {
        scope[d.name] = {Space::generic, f.slots++};
        continue;
      }
      const int count = std::stoi(d.name.substr(angle + 1));
      for (int k = 0; k < count; ++k) scope[d.name.substr(0, angle) + std::to_string(k)] = {Space::generic, f.slots++};
    } else if (d.space == "param") {
      if (d.bytes() > sizeof(Slot)) throw std::runtime_error("an argument of more than 8 bytes");
      add_argument(d.name);
    } else if (d.space == "shared") {
      f.shared_bytes = round_up(f.shared_bytes, d.align);
      scope[d.name] = {Space::shared, -1, f.shared_bytes};
      f.shared_bytes += d.bytes();
    } else if (d.space == "local") {
      f.local_bytes = round_up(f.local_bytes, 16);
      f.local_variables.emplace_back(f.slots, f.local_bytes);
      scope[d.name] = {Space::local, f.slots++};
      f.local_bytes = round_up(f.local_bytes + d.bytes(), 16);
    } else {
      throw std::runtime_error("a declaration that is not known: " + statement);
    }
  }
}

void Symbols::add_parameter(const Parameter& p) { scopes_.back()[p.name] = {Space::parameter, -1, p.offset}; }
int Symbols::add_argument(const std::string& name) {
  scopes_.back()[name] = {Space::argument, function_.slots};
  return function_.slots++;
}

const Symbols::Symbol* Symbols::find(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto it = scope->find(name); it != scope->end()) return &it->second;
  return nullptr;
}

int Symbols::constant(Slot value) {
  const auto [it, is_new] = constants_.try_emplace(value, function_.slots);
  if (is_new) function_.constants.emplace_back(function_.slots++, value);
  return it->second;
}

int Symbols::slot(const std::string& operand) {
  if (const Symbol* symbol = find(operand)) {
    // Addresses of shared memory and of parameters count from where these begin.
    if (symbol->space == Space::shared || symbol->space == Space::parameter) return constant(symbol->offset);
    if (symbol->slot >= 0) return symbol->slot;
  }
  if (const auto it = constants_of_file_.find(operand); it != constants_of_file_.end()) return constant(it->second);
  if (is_special_register(operand) || operand == "_") {  // _ takes what is not wanted
    const auto [it, is_new] = function_.special_registers.try_emplace(operand, function_.slots);
    if (is_new) ++function_.slots;
    return it->second;
  }
  // Floating-point constants are their bits: 0f3F800000, 0d3FF0000000000000.
  if (operand.size() > 2 && operand[0] == '0' && (std::tolower(operand[1]) == 'f' || std::tolower(operand[1]) == 'd'))
    return constant(std::stoull(operand.substr(2), nullptr, 16));
  if (operand[0] == '-') return constant(static_cast<Slot>(std::stoll(operand, nullptr, 0)));
  if (std::isdigit(static_cast<unsigned char>(operand[0]))) return constant(std::stoull(operand, nullptr, 0));
  throw std::runtime_error("an operand that is not known: " + operand);
}

std::vector<int> Symbols::slots(const std::string& operand) {
  if (operand[0] != '{') return {slot(operand)};
  std::vector<int> all;
  for (const std::string& part : split(operand.substr(1, operand.size() - 2), ',')) all.push_back(slot(part));
  return all;
}

void Symbols::set_address(Instruction& i, const std::string& operand) {
  const std::string inside = operand.substr(1, operand.size() - 2);
  const auto plus = inside.find('+');
  const std::string base = trim(inside.substr(0, plus));
  if (plus != std::string::npos) i.offset = std::stoll(trim(inside.substr(plus + 1)), nullptr, 0);
  const Symbol* symbol = find(base);
  if (symbol && symbol->space == Space::parameter) {
    i.space = Space::parameter;
  }
  if (symbol && symbol->space == Space::argument) {
    if (i.offset != 0 || i.count != 1) throw std::runtime_error("a part of an argument: " + operand);
    i.space = Space::argument;
  }
  i.from[0] = slot(base);
}

}  // namespace ptx
