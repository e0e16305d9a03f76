// SPDX-License-Identifier: MIT
#include "apps/eval_command.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "apps/build_run.h"
#include "apps/evaluate.h"
#include "apps/model_file.h"
#include "apps/run_folder.h"
#include "engine/core/threads.h"

namespace ab {

int run_eval(const EvalConfig& config) {
  set_compute_threads(config.threads, 1);
  const std::string file = std::filesystem::is_directory(config.model_file)
                               ? in_folder(config.model_file, kModelFile)
                               : config.model_file;
  LoadedModel loaded = model_from_file(read_safetensors(file), file);
  const std::string dataset = config.dataset.empty() ? loaded.info.dataset : config.dataset;
  std::string data_dir = config.data_dir;
  if (const char* folder = std::getenv("ABTRAIN_DATA_DIR");
      data_dir.empty() && dataset == "cifar10" && folder)
    data_dir = folder;
  AB_CHECK(!data_dir.empty() || dataset == "synthetic", "dataset {} needs --data-dir", dataset);

  TrainConfig data;
  data.dataset = dataset;
  data.data_dir = data_dir;
  data.val_samples = config.val_samples;
  const ImageSet images = load_data(data).test;
  AB_CHECK(images.classes == loaded.info.classes, "the model tells {} classes apart, {} has {}",
           loaded.info.classes, dataset, images.classes);
  const Evaluation result = evaluate(*loaded.model, images, *make_self_comm());
  AB_CHECK_KIND(numerics, std::isfinite(result.loss),
                "{}: the loss is not finite: the model holds NaN or infinity", file);
  std::printf("%s: %s on %lld test images of %s\nloss %.4f   top-1 %.2f %%   top-5 %.2f %%\n", file.c_str(),
              loaded.info.model.c_str(), static_cast<long long>(result.samples), dataset.c_str(), result.loss,
              100 * result.top1, 100 * result.top5);
  return 0;
}

}  // namespace ab
