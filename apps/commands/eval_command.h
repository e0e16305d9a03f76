#pragma once
// SPDX-License-Identifier: MIT

#include <cstdint>
#include <string>

namespace ab {

struct EvalConfig {
  std::string model_file;       ///< model.safetensors, or the run folder that holds it
  std::string model;            ///< what the file holds, when abtrain did not write it
  std::int64_t classes = 0;     ///< of `model`; 0: as the data set has
  std::int64_t image_size = 0;  ///< that the model sees; 0: as trained, or as the data set has
  std::string dataset;          ///< as trained when empty
  std::string data_dir;
  std::int64_t val_samples = 0;  ///< the first N test images; 0: all
  std::string device = "cpu";    ///< cpu | cuda | cuda:N
  int threads = 0;               ///< 0: all cores
  std::string precision = "fp32";
};

/// abtrain eval: prints loss, top-1 and top-5 of a saved model over the test images. Returns the exit code.
int run_eval(const EvalConfig& config);

}  // namespace ab
