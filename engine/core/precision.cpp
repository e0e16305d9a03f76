// SPDX-License-Identifier: MIT
#include "engine/core/precision.h"

#include <algorithm>

namespace ab {
namespace {

thread_local bool tf32_on = false;

}  // namespace

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names{"fp32", "tf32", "bf16", "fp16"};
  return names;
}

Precision precision_named(const std::string& name) {
  const std::vector<std::string>& names = precision_names();
  const auto found = std::find(names.begin(), names.end(), name);
  AB_CHECK(found != names.end(), "there is no precision '{}'; there are {}", name, fmt::join(names, ", "));
  return static_cast<Precision>(found - names.begin());
}

bool tf32_allowed() { return tf32_on; }
Tf32Scope::Tf32Scope(Precision precision) : before_(tf32_on) { tf32_on = precision == Precision::tf32; }
Tf32Scope::~Tf32Scope() { tf32_on = before_; }

}  // namespace ab
