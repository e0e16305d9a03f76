// SPDX-License-Identifier: MIT
//
// A file of PTX: arrays of constants, and functions whose statements decode.cpp reads.
#include <cctype>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "tests/ptx/decode.h"
#include "tests/ptx/operations.h"

namespace ptx {
namespace {

std::string read_without_comments(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::string text;
  for (std::string line; std::getline(file, line);) text += line.substr(0, line.find("//")) + '\n';
  return text;
}

class Parser {
 public:
  explicit Parser(const std::string& path) : text_(read_without_comments(path)), module_(std::make_unique<Module>()) {
    module_->path = path;
  }

  std::unique_ptr<Module> run() {
    try {
      while (skip_blank()) read_top_level();
      for (auto& [function, at, name] : calls_)  // now that all functions are known
        module_->functions[function].code[at].target = module_->index_of.at(name);
    } catch (const std::exception& e) {
      throw std::runtime_error(module_->path + ":" + std::to_string(line_) + ": " + e.what());
    }
    return std::move(module_);
  }

 private:
  bool skip_blank() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) next();
    return at_ < text_.size();
  }
  char next() {
    if (at_ >= text_.size()) throw std::runtime_error("the file ends too early");
    line_ += text_[at_] == '\n';
    return text_[at_++];
  }

  void read_top_level() {
    std::string head;
    while (true) {
      const char c = next();
      if (c == ';') break;
      if (c == '{' && head.find('=') == std::string::npos) return read_function(head);
      head += c;
      const bool is_line =
          head.starts_with(".version") || head.starts_with(".target") || head.starts_with(".address_size");
      if (c == '\n' && is_line) return;
    }
    if (head.find(".func") == std::string::npos) add_constants(head);  // else it is announced
  }

  /// .global .align 4 .b8 name[24] = {65, 144, …}
  void add_constants(const std::string& statement) {
    const auto equals = statement.find('=');
    const Declaration d = parse_declaration(statement.substr(0, equals));
    if (d.space != "global" && d.space != "const") throw std::runtime_error("not known: " + statement);
    auto array = std::make_unique<std::vector<std::uint8_t>>(d.bytes());
    if (equals != std::string::npos) {
      std::string values = trim(statement.substr(equals + 1));
      if (values[0] == '{') values = values.substr(1, values.size() - 2);
      std::uint8_t* to = array->data();
      for (const std::string& value : split(values, ',')) {
        const Slot element = std::stoull(value, nullptr, 0);
        std::memcpy(to, &element, bytes_of(d.type));
        to += bytes_of(d.type);
      }
    }
    constants_[d.name] = reinterpret_cast<Slot>(array->data());
    module_->constants.push_back(std::move(array));
  }

  static std::vector<Parameter> read_parameters(const std::string& list) {
    std::vector<Parameter> parameters;
    std::size_t end = 0;
    for (const std::string& text : split(list, ',')) {
      const Declaration d = parse_declaration(text);
      end = (end + d.align - 1) / d.align * d.align;
      parameters.push_back({d.name, end, d.bytes()});
      end += d.bytes();
    }
    return parameters;
  }

  /// .visible .entry name(parameters) .maxntid 256, 1, 1      .func (result) name(parameters)
  void read_function(const std::string& head) {
    Function f;
    Symbols symbols(f, constants_);
    f.file = module_->path.substr(module_->path.rfind('/') + 1);
    const bool is_kernel = head.find(".entry") != std::string::npos;
    std::string rest = trim(head.substr(head.find(is_kernel ? ".entry" : ".func") + (is_kernel ? 6 : 5)));
    if (rest[0] == '(') {
      const auto close = rest.find(')');
      f.result = symbols.add_argument(read_parameters(rest.substr(1, close - 1))[0].name);
      rest = trim(rest.substr(close + 1));
    }
    const auto open = rest.find('('), close = rest.find(')');
    f.name = trim(rest.substr(0, open));
    if (open != std::string::npos) f.parameters = read_parameters(rest.substr(open + 1, close - open - 1));
    if (!f.parameters.empty()) f.parameter_bytes = f.parameters.back().offset + f.parameters.back().bytes;
    for (const Parameter& p : f.parameters) {
      if (is_kernel) symbols.add_parameter(p);
      else f.arguments.push_back(symbols.add_argument(p.name));
    }
    if (const auto at = head.find(".maxntid"); at != std::string::npos) f.max_threads = std::stoi(head.substr(at + 8));
    read_body(f, symbols);
    module_->index_of[f.name] = static_cast<int>(module_->functions.size());
    module_->functions.push_back(std::move(f));
  }

  void read_body(Function& f, Symbols& symbols) {
    std::map<std::string, int> labels;
    std::vector<std::pair<std::size_t, std::string>> jumps;
    while (true) {
      if (!skip_blank()) throw std::runtime_error("a function without an end");
      if (text_[at_] == '{' || text_[at_] == '}') {
        if (next() == '{') symbols.open_scope();
        else if (symbols.close_scope() == 0) break;
        continue;
      }
      const int line = line_;
      const auto [statement, is_label] = read_statement();
      if (is_label) {
        labels[statement] = static_cast<int>(f.code.size());
      } else if (statement[0] == '.') {
        if (!statement.starts_with(".pragma") && !statement.starts_with(".loc ")) symbols.declare(statement);
      } else if (!statement.empty()) {
        std::string name;
        f.code.push_back(decode(statement, symbols, name));
        f.code.back().line = line;
        if (f.code.back().kind == Kind::branch) jumps.emplace_back(f.code.size() - 1, name);
        if (f.code.back().kind == Kind::call) calls_.emplace_back(module_->functions.size(), f.code.size() - 1, name);
      }
    }
    for (const auto& [at, label] : jumps) f.code[at].target = labels.at(label);
    f.code.emplace_back();  // also a function without ret ends
  }

  /// Up to a semicolon, or a label up to its colon.
  std::pair<std::string, bool> read_statement() {
    std::string statement;
    while (true) {
      const char c = next();
      if (c == ';') return {trim(statement), false};
      if (c == ':' && statement.find_first_of(" \t\n") == std::string::npos) return {statement, true};
      statement += c;
    }
  }

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::unique_ptr<Module> module_;
  std::map<std::string, Slot> constants_;
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> calls_;
};

}  // namespace

std::unique_ptr<Module> parse(const std::string& path) { return Parser(path).run(); }

}  // namespace ptx
