#pragma once
// SPDX-License-Identifier: MIT
//
// Facts that only numbers can tell. A rehearsal has none, and is told: assumed, bounded, or taken from a run. A strategy
// asks here before it looks at numbers to decide what it sends. Whatever else reads numbers says what it takes them for
// (Tensor::item()).

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace ab {

struct Unknowns {
  static constexpr std::int64_t kAtTheEnd = -1;  ///< the cut that leaves factors when a run ends

  /// The rank r of a weight after that cut, the first of which is 0.
  std::function<std::int64_t(const std::string& weight, std::int64_t cut)> rank{};
  /// The decisions at the end of an epoch, as SyncStrategy::decision() names it.
  std::function<std::map<std::string, std::int64_t>(std::int64_t epoch)> decision{};

  /// Those of the rehearsal on this thread; null in a run.
  static const Unknowns* current() { return in_scope(); }

  /// A rehearsal on this thread.
  class Scope {
   public:
    explicit Scope(const Unknowns& unknowns) : before_(std::exchange(in_scope(), &unknowns)) {}
    ~Scope() { in_scope() = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Unknowns* before_;
  };

 private:
  static const Unknowns*& in_scope() {
    static thread_local const Unknowns* unknowns = nullptr;
    return unknowns;
  }
};

}  // namespace ab
