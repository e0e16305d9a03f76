#pragma once
// SPDX-License-Identifier: MIT
//
// The options of all methods in one value, each of a type of its own. A method that nobody asked about has
// its defaults, so that who holds these need not know which methods there are.

#include <any>
#include <map>
#include <typeindex>

namespace ab {

class MethodOptions {
 public:
  /// T: default-constructible, copyable and comparable.
  template <class T> const T& of() const {
    static const T defaults{};
    const auto at = held_.find(typeid(T));
    return at == held_.end() ? defaults : *std::any_cast<T>(&at->second.value);
  }
  template <class T> T& of() {
    const auto [at, is_new] = held_.try_emplace(typeid(T), Held{T{}, &holds<T>});
    return *std::any_cast<T>(&at->second.value);
  }

  bool operator==(const MethodOptions& other) const { return agrees_with(other) && other.agrees_with(*this); }

 private:
  struct Held {
    std::any value;
    bool (*equals)(const MethodOptions&, const std::any&);
  };

  template <class T> static bool holds(const MethodOptions& options, const std::any& value) {
    return options.of<T>() == *std::any_cast<T>(&value);
  }
  /// Whether `other` has the values that are held here.
  bool agrees_with(const MethodOptions& other) const {
    for (const auto& [type, held] : held_)
      if (!held.equals(other, held.value)) return false;
    return true;
  }

  std::map<std::type_index, Held> held_;
};

}  // namespace ab
