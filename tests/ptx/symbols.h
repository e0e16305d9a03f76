#pragma once
// SPDX-License-Identifier: MIT
//
// The names of a function's PTX, and the slots that stand for them.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tests/ptx/program.h"

namespace ptx {

/// `text` at each `separator`, that is not inside brackets; parts are trimmed.
std::vector<std::string> split(const std::string& text, char separator);
std::string trim(const std::string& text);

/// A variable of a declaration: .shared .align 4 .b8 name[16]
struct Declaration {
  std::string space, type, name;
  std::size_t align = 1, count = 1;
  std::size_t bytes() const;
};
/// Of several when the declaration ends in name<n>.
Declaration parse_declaration(const std::string& text);

class Symbols {
 public:
  /// `constants`: addresses of the file's arrays.
  Symbols(Function& function, const std::map<std::string, Slot>& constants)
      : function_(function), constants_of_file_(constants), scopes_(1) {}

  void open_scope() { scopes_.emplace_back(); }
  /// Returns how many scopes are left.
  std::size_t close_scope() { return scopes_.pop_back(), scopes_.size(); }

  void declare(const std::string& statement);
  void add_parameter(const Parameter& parameter);
  int add_argument(const std::string& name);

  /// The slot of a register, a constant, a special register or an address.
  int slot(const std::string& operand);
  /// Of {a, b}, or of a single operand.
  std::vector<int> slots(const std::string& operand);
  int constant(Slot value);
  /// Sets where an instruction loads or stores: [base + offset]
  void set_address(Instruction& i, const std::string& operand);

 private:
  struct Symbol {
    Space space;  // generic: a register; shared: an address that is known
    int slot = -1;
    std::size_t offset = 0;
  };
  const Symbol* find(const std::string& name) const;

  Function& function_;
  const std::map<std::string, Slot>& constants_of_file_;
  std::vector<std::map<std::string, Symbol>> scopes_;
  std::map<Slot, int> constants_;
};

}  // namespace ptx
