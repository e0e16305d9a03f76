#pragma once
// SPDX-License-Identifier: MIT
//
// What --out FILE may replace, for every command that writes a file where its user says.

#include <string>
#include <vector>

namespace ab {

/// A kind of file that a command writes.
struct OutKind {
  const char* what;                                 ///< "a plan"
  const char* ending;                               ///< of its name: ".json"
  bool (*wrote_one)(const std::string& file_name);  ///< whether the file holds one, by abtrain
};

extern const OutKind kReportPage, kPlanFile, kModelExport, kPaperTable;

/// The file that `--out out` stands for, links followed. Throws Error(config), and leaves everything as it is, unless that is
/// free, empty or a file of the same kind by abtrain, and neither one of `inputs`, which the command reads, nor of a run.
std::string out_file(const std::string& out, const OutKind& kind, const std::vector<std::string>& inputs = {});

}  // namespace ab
