#pragma once
// SPDX-License-Identifier: MIT

#include <string>

namespace ab {

/// abtrain inspect: draws what a safetensors file (or the model of a run folder) holds: per layer its shape,
/// the rank r of its factors, its share of the parameters and its leading singular values. Returns the exit
/// code; throws Error(checkpoint) for a file that cannot be read.
int run_inspect(const std::string& file_or_folder);

/// The same as text, `width` columns wide.
std::string inspect_text(const std::string& file, int width);

}  // namespace ab
