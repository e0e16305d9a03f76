#pragma once
// SPDX-License-Identifier: MIT

#include <string>
#include <vector>

namespace ab {

/// The known name nearest to `name` by edit distance, or empty when none is near enough to be meant.
std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

}  // namespace ab
