#pragma once
// SPDX-License-Identifier: MIT

#include <string>

namespace ab {

struct ExportConfig {
  std::string model_file;             ///< model.safetensors, or the run folder that holds it
  std::string names = "torchvision";  ///< torchvision | timm
  std::string factors = "merged";     ///< merged | ab: factored weights as W, or as their factors
  std::string out;                    ///< when empty: NAME_timm.safetensors beside NAME.safetensors
};

/// abtrain export: writes a model of ours under the names of a PyTorch library. Returns the exit code.
int run_export(const ExportConfig& config);

}  // namespace ab
