#pragma once
// SPDX-License-Identifier: MIT

#include <cstdint>
#include <string>

namespace ab {

struct EvalConfig {
  std::string model_file;  ///< model.safetensors, or the run folder that holds it
  std::string dataset;     ///< as trained when empty
  std::string data_dir;
  std::int64_t val_samples = 0;  ///< the first N test images; 0: all
  int threads = 0;               ///< 0: all cores
};

/// abtrain eval: prints loss, top-1 and top-5 of a saved model over the test images. Returns the exit code.
int run_eval(const EvalConfig& config);

}  // namespace ab
