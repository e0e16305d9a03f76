#pragma once
// SPDX-License-Identifier: MIT

#include <string>
#include <vector>

namespace ab {

struct CompareConfig {
  std::vector<std::string> folders;
  std::string report;  ///< HTML file to write, or empty
};

/// abtrain compare: the table of comparison.h in the terminal and, on request, the page of report.h.
/// Returns the exit code.
int run_compare(const CompareConfig& config);

}  // namespace ab
