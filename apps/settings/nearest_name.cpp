// SPDX-License-Identifier: MIT
#include "apps/settings/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace ab {

std::string nearest_name(const std::string& name, const std::vector<std::string>& known) {
  const auto distance = [](const std::string& a, const std::string& b) {  // Levenshtein's, row by row
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= b.size(); ++j) {
        const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    return row.back();
  };
  if (name.size() > 100) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known)
    if (const std::size_t d = distance(name, candidate); d < best_distance) best = candidate, best_distance = d;
  return best;
}

}  // namespace ab
