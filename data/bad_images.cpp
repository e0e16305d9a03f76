// SPDX-License-Identifier: MIT
#include "data/bad_images.h"

#include "engine/core/check.h"
#include "engine/core/say.h"

namespace ab {

void BadImages::add(const std::string& name, const std::string& reason, const char* then) {
  constexpr int kMostTold = 10;
  const std::lock_guard lock(mutex_);
  if (names_.insert(name).second && ++told_ <= kMostTold)
    say(stderr, "warning: {}; {}{}\n", reason, then,
        told_ == kMostTold ? "; summary.json counts the bad images that follow" : "");
  check(std::ssize(names_), name);
}

std::set<std::string> BadImages::names() const {
  const std::lock_guard lock(mutex_);
  return names_;
}

void BadImages::add_all(const std::set<std::string>& all) {
  const std::lock_guard lock(mutex_);
  names_.insert(all.begin(), all.end());
  if (!all.empty()) check(std::ssize(all), *all.begin());
}

void BadImages::check(std::int64_t count, const std::string& name) const {
  AB_CHECK_KIND(data, count <= most_,
                "{} image{} could not be read or decoded, {} among them, and --max-bad-images allows {}", count,
                count == 1 ? "" : "s", name, most_);
}

}  // namespace ab
