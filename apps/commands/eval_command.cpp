// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>

#include "apps/model_file/model_file.h"
#include "apps/report/terminal.h"
#include "apps/settings/hardware.h"
#include "apps/train/evaluate.h"
#include "apps/train/run_folder.h"
#include "data/datasets.h"
#include "engine/core/machine.h"
#include "engine/core/say.h"
#include "engine/core/threads.h"

namespace ab {
namespace {

struct EvalFlags {
  std::string model_file, model, dataset, data_dir, device = "cpu", precision = "fp32";
  std::int64_t classes = 0, image_size = 0, val_samples = 0;
  std::string interpolation;
  std::optional<int> resize;
  int threads = 0;
  bool views = false;
};

/// The folder of the images that the run was trained on, when the model is given as that of a run; empty when it is not there.
std::string data_dir_of_run(const EvalFlags& config, const std::string& dataset) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(config.model_file, ignored)) return "";
  const std::optional<TrainConfig> run = config_of_run(config.model_file);
  return run && run->dataset == dataset && std::filesystem::is_directory(run->data_dir, ignored) ? run->data_dir : "";
}

std::shared_ptr<const Dataset> test_images(const EvalFlags& config, const std::string& dataset) {
  const DatasetEntry& entry = find_dataset(dataset);
  const std::string folder = config.data_dir.empty() ? data_dir_of_run(config, dataset) : config.data_dir;
  const std::shared_ptr<const Dataset> images =
      entry.load(folder_of(entry, folder), 0, config.val_samples, /*saves_lists=*/true).test;
  for (const std::string& warning : images->warnings) say(stderr, "warning: {}\n", warning);
  return images;
}

/// The dense model that the flags describe, filled from a file that does not.
LoadedModel load_foreign(const EvalFlags& config, const Dataset& images, const TensorFile& content,
                         const std::string& file, Device device) {
  LoadedModel loaded;
  loaded.info.spec = {.name = config.model,
                      .classes = config.classes > 0 ? config.classes : images.classes,
                      .image_size = config.image_size > 0 ? config.image_size : images.height,
                      .draw = false};
  loaded.model = make_model(loaded.info.spec, device);
  loaded.remarks = load_weights(*loaded.model, content, file).remarks;
  return loaded;
}

int run_eval(const EvalFlags& config) {
  set_compute_threads(config.threads, 1);
  start_compute_threads();
  const BoundedHostMemory bounded(bytes_until_the_end_of_each());
  const Device device = choose_device(config.device);
  const std::string file = model_path(config.model_file);
  const TensorFile content = read_safetensors(file);
  const bool described = describes_its_model(content);
  AB_CHECK_KIND(checkpoint, described || !config.model.empty(),
                "{}: abtrain did not write it, so it does not say what model it holds; give --model and --dataset",
                file);
  AB_CHECK(!described || (config.model.empty() && config.classes == 0),
           "{} says itself what model it holds; leave out --model and --classes", file);
  AB_CHECK(described || !config.dataset.empty(), "{} does not say what it was trained on; give --dataset", file);

  LoadedModel loaded;
  if (described) loaded = model_from_file(content, file, device);
  const std::string dataset = config.dataset.empty() ? loaded.info.dataset : config.dataset;
  const std::shared_ptr<const Dataset> images = test_images(config, dataset);
  if (!described) loaded = load_foreign(config, *images, content, file, device);
  for (const std::string& remark : loaded.remarks) say(stderr, "{}: {}\n", file, remark);
  const ModelSpec& spec = loaded.info.spec;
  AB_CHECK(images->classes == spec.classes, "the model tells {} classes apart, {} has {}", spec.classes, dataset,
           images->classes);
  const std::int64_t image_size = config.image_size > 0 ? config.image_size : spec.image_size;
  Framing framing = loaded.info.framing;
  if (!config.interpolation.empty())
    framing.interpolation = config.interpolation == "bicubic" ? Interpolation::bicubic : Interpolation::bilinear;
  framing.shorter = config.resize.value_or(image_size == spec.image_size ? framing.shorter : 0);
  const Evaluation result = *evaluate(*loaded.model, *images, *make_self_comm(),
                                      {.image_size = image_size,
                                       .framing = framing,
                                       .precision = precision_named(config.precision),
                                       .views = config.views});
  AB_CHECK_KIND(numerics, std::isfinite(result.loss), "{}: the loss is not finite: its values are too large", file);
  print_text(fmt::format("{}: {} on {} of {}\nloss {:.4f}   top-1 {:.2f} %   top-5 {:.2f} %\n", file, spec.name,
                         counted(result.samples, "test image"), dataset, result.loss, 100 * result.top1,
                         100 * result.top5));
  return 0;
}

}  // namespace

Command eval_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("eval", "loss and accuracy of a saved model over all test images");
  const auto flags = std::make_shared<EvalFlags>();
  add_path(parser, "--model-file", flags->model_file, "model.safetensors, or the run folder that holds it")->required();
  parser->add_option("--model", flags->model, "network in a file of torchvision or timm: resnet50, vit_b_16 …");
  parser->add_option("--classes", flags->classes, "with --model: its outputs; as the data set has when not given")
      ->check(CLI::Range(1, 1000000));
  parser
      ->add_option("--image-size", flags->image_size,
                   "height and width that the model sees; as trained, or as the data set has them, when not given")
      ->check(CLI::Range(1, 1024));
  parser
      ->add_option("--interpolation", flags->interpolation,
                   "bilinear or bicubic; as trained, or bilinear, when not given")
      ->check(CLI::IsMember({"bilinear", "bicubic"}));
  parser
      ->add_option(
          "--resize", flags->resize,
          "shorter side of an image before its centre is cut; as trained, or 256/224 of --image-size, when not given")
      ->check(CLI::Range(0, 4096));
  parser
      ->add_option("--dataset", flags->dataset,
                   fmt::format("{}; as trained when not given", fmt::join(dataset_names(), ", ")))
      ->check(CLI::IsMember(dataset_names()));
  add_path(parser, "--data-dir", flags->data_dir,
           "folder of the CIFAR binary files, or of ImageNet's train and val; as trained for a run "
           "folder, and for cifar10 environment ABTRAIN_DATA_DIR, when not given");
  parser->add_option("--val-samples", flags->val_samples, "the first N test images only; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000000}));
  parser->add_option("--device", flags->device, "processor: cpu (default), cuda, or cuda:N for GPU N");
  parser->add_option("--threads", flags->threads, "0: all cores")->check(CLI::Range(0, 1024));
  parser->add_option("--precision", flags->precision, "type of activations: fp32, tf32 (GPUs only), bf16 or fp16")
      ->check(CLI::IsMember(precision_names()));
  parser->add_flag("--val-views", flags->views, "over six views of each image: shifted by a pixel and mirrored");
  return {parser, [flags] { return run_eval(*flags); }};
}

}  // namespace ab
