// SPDX-License-Identifier: MIT
#include "apps/settings/setting.h"

#include "apps/settings/section.h"
#include "data/datasets.h"
#include "engine/core/precision.h"
#include "layers/models/models.h"

namespace ab {
namespace {

using T = TrainConfig;

Section<T> section(std::vector<Setting>& all, const char* title) {
  return Section<T>(
      all, title, "", [](auto& config) -> auto& { return config; });
}

void declare_data(std::vector<Setting>& all) {
  auto s = section(all, "Model and data");
  s.name("model", &T::model, model_names(), "network to train");
  s.name("dataset", &T::dataset, dataset_names(),
         "images to train on; synthetic ones are drawn on first use and cached");
  Setting& folder =
      s.value("data_dir", &T::data_dir,
              "folder of the CIFAR binary files (cifar10: environment ABTRAIN_DATA_DIR when not given), of ImageNet's "
              "train and val (folders or tar archives), or of the synthetic set's cache");
  folder.may_change = folder.never_empty = folder.is_path = true;
  s.number("train_samples", &T::train_samples, 0, 1e9,
           "train on N images only, the first or, for imagenet, some of every class; 0: all");
  s.number("val_samples", &T::val_samples, 0, 1e9, "validate on N images only; 0: all");
  s.number(
      "val_from_train", &T::val_from_train, 0, 1e9,
      "validate on N training images, of all classes in proportion, which training leaves out; 0: on the test images");
  s.value("val_views", &T::val_views,
          "after the last step, validate over six views of each image too: shifted by a pixel and mirrored; with "
          "--ema-decay by the averaged weights")
      .may_change = true;
  s.number("width", &T::width, 0, 16, "multiplies the channels of the model").above_low = true;
  s.number("image_size", &T::image_size, 0, 1024, "height and width that the model sees; 0: as the data set has them");
  Setting& sizes = s.numbers(
      "image_sizes", &T::image_sizes, 1, 1024,
      "S,E,...: imagenet: first E epochs with images of S pixels, and so on; later ones and validation have --image-size");
  sizes.beside = {"dataset", {"imagenet"}};
  s.number("dropout", &T::dropout, 0, 0.99, "share of features dropped before the classifier");
  s.number("drop_path", &T::drop_path, 0, 0.99,
           "stochastic depth: how often the last residual branch is skipped; earlier ones less, linearly");
  s.value("qkv_bias", &T::qkv_bias, "bias of queries, keys and values in vision transformers");
  s.choice(
      "init", &T::init, {{"default", Init::drawn}, {"ortho", Init::ortho}, {"dirac", Init::dirac}},
      "initial weights: as PyTorch draws them; matrices with all singular values one; or convolutions that pass their "
      "first channels on");
  Setting& weights =
      s.value("weights", &T::weights,
              "start from these weights: a run folder, or a safetensors file with torchvision's or timm's names");
  weights.never_empty = weights.is_path = true;
}

void declare_images(std::vector<Setting>& all) {
  auto s = section(all, "Images");
  s.value("augment", &T::augment, "random crops and flips of the training images (imagenet: of random size and shape)");
  s.number(
       "shift", &T::shift, 0, 8,
       "instead of crops and flips of --augment, shifts by up to N pixels with reflected borders, and each image flipped "
       "in every second epoch; 0: no")
      .beside = {"augment", {"true"}};
  const Section<Framing> framing(
      all, "Images", "", [](auto& config) -> auto& { return config.framing; });
  framing.choice("interpolation", &Framing::interpolation,
                 {{"bilinear", Interpolation::bilinear}, {"bicubic", Interpolation::bicubic}},
                 "how images of another size are scaled, in training and in validation");
  Setting& min_area = framing.number("min_crop", &Framing::min_area, 0, 1,
                                     "imagenet: the least share of an image that a random crop of --augment shows");
  min_area.above_low = true;
  min_area.beside = {"dataset", {"imagenet"}};
  Setting& decode = framing.choice(
      "decode", &Framing::decode, {{"exact", Decode::exact}, {"fast", Decode::fast}},
      "imagenet: training decodes all pixels of a JPEG; or, where the part in view has 2, 4 or 8 times the height and width "
      "of the result or more, 1/2, 1/4 or 1/8 of the size, with slightly other pixels. Validation decodes all");
  decode.beside = {"dataset", {"imagenet"}};
  Setting& shorter = framing.number(
      "resize", &Framing::shorter, 0, 4096,
      "imagenet: shorter side of an image before its centre is cut for validation; 0: 256/224 of --image-size");
  shorter.beside = {"dataset", {"imagenet"}};
  s.number("mixup", &T::mixup, 0, 100, "blend pairs of images: alpha of the Beta distribution; 0: never");
  s.number("cutmix", &T::cutmix, 0, 100, "paste a part of another image: alpha of the Beta distribution; 0: never");
  s.numbers("rand_augment", &T::rand_augment, 0, 30,
            "N,M: random image operations per image, up to 10, and their strength; none when empty");
  s.value("trivial_augment", &T::trivial_augment,
          "one random image operation of random strength per image (TrivialAugment), in place of --rand-augment");
  s.numbers(
      "color_jitter", &T::color_jitter, 0, 10,
      "B,C,S or B,C,S,H: brightness, contrast and saturation of each image times 1-B to 1+B and so on, and hue turned by up to "
      "H of the circle, in random order, before --rand-augment; none when empty");
  s.number(
      "repeated_augment", &T::repeated_augment, 1, kMostRepeats,
      "every image N times in a row, each time augmented anew; an epoch keeps its steps and shows one of N images");
  s.number("random_erasing", &T::random_erasing, 0, 1, "how often a rectangle of an image is erased");
  s.choice("shuffle", &T::shuffle, {{"full", Shuffle::full}, {"blocks", Shuffle::blocks}},
           "the order of an epoch: of all images alike; or blocks of 1024 images that lie together in archives of "
           "abtrain data pack, mixed 16 at a time, so that reads stay near each other");
  s.number(
       "cache_gb", &T::cache_gb, 0, 1e6,
       "GB of memory of each node in which images from files stay decoded, for all its ranks; results do not change")
      .may_change = true;
  Setting& disk =
      s.value("cache_disk", &T::cache_disk,
              "folder on a disk of each machine that keeps copies of image files, for later epochs and jobs");
  disk.may_change = disk.is_path = true;
  Setting& disk_gb = s.number("cache_disk_gb", &T::cache_disk_gb, 0, 1e9,
                              "GB of that disk for this data set; 0: nine tenths of what is free");
  disk_gb.may_change = true, disk_gb.beside = {"cache_disk", {}};
  Setting& share = s.choice(
      "cache_share", &T::cache_share,
      {{"world", CacheShare::world}, {"node", CacheShare::node}, {"off", CacheShare::off}},
      "nodes send each other the images that they keep in memory; or each trains on a part of the images, and keeps "
      "those; or neither");
  share.may_change = true, share.kept_word = "node";
  s.choice(
       "on_bad_image", &T::on_bad_image, {{"fail", OnBadImage::fail}, {"skip", OnBadImage::skip}},
       "an image that cannot be read or decoded ends the run; or is named in summary.json, and another takes its place")
      .may_change = true;
  Setting& most = s.number("max_bad_images", &T::max_bad_images, 0, 1e9,
                           "with skip: more bad images than these end the run, on all ranks since its start");
  most.may_change = true, most.beside = {"on_bad_image", {"skip"}};
}

/// Both bring defaults, which are in place before any value is given (config.cpp).
void declare_method(const Section<T>& s) {
  std::vector<std::string> names, presets;
  for (const Method& method : methods()) {
    names.push_back(method.name);
    for (const Preset& preset : method.presets)
      presets.push_back(fmt::format("for {} {}, {}", method.name, preset.name, preset.help));
  }
  Setting& method = s.name("method", &T::method, names, "how ranks keep their models together");
  method.brings_defaults = true;
  method.set = [](TrainConfig& config, const Value& name) { choose_method(config, std::get<std::string>(name)); };
  static const std::string help =
      fmt::format("published settings that the method starts from: {}, ours; {}", kOurPreset, fmt::join(presets, "; "));
  Setting& preset = s.value("preset", &T::preset, help.c_str());
  preset.brings_defaults = preset.never_empty = true;
  preset.set = [](TrainConfig& config, const Value& name) {
    choose_method(config, config.method, std::get<std::string>(name));
  };
}

/// Settings that several methods have.
void declare_of_methods(std::vector<Setting>& all) {
  std::vector<std::string> dense_start, factors;
  for (const Method& method : methods()) {
    if (method.dense_start) dense_start.push_back(method.name);
    if (method.has_factors) factors.push_back(method.name);
  }
  auto s = section(all, "Several methods");
  s.number("dense_steps", &T::dense_steps, -1, kMany,
           "steps at the start that exchange everything, before a method compresses gradients or averages less often; "
           "-1: a tenth of the run, for local none")
      .beside = {"method", dense_start};
  s.choice("execution", &T::execution,
           {{"auto", Execution::automatic}, {"factors", Execution::factors}, {"form-w", Execution::form_w}},
           "compute with the two factors of a weight, with W = A*B, or with the cheaper of them")
      .beside = {"method", factors};
  s.number("rank_multiple", &T::rank_multiple, 0, 1024,
           "round ranks r of weights up to a multiple of this; 0: of 8 on a GPU, of 1 on a CPU")
      .beside = {"method", factors};
}

void declare_ranks(std::vector<Setting>& all) {
  auto s = section(all, "Ranks");
  declare_method(s);
  s.number("ranks", &T::ranks, 1, 65536,
           "ranks inside this process, 1024 at most; under mpirun, srun or torchrun the launcher decides");
  s.number(
      "ranks_per_node", &T::ranks_per_node, 0, 1024,
      "every N ranks share a node, for counters, --network and methods that tell nodes apart; 0: counters take every "
      "machine for a node, such methods every rank");
  s.value("device", &T::device,
          "cpu, cuda, or cuda:N for GPU N; for cuda, ranks of one process share GPU 0, and processes take GPUs in turn")
      .may_change = true;
  s.name(
       "cuda_graph", &T::cuda_graph, {"auto", "on", "off"},
       "capture forward and backward of a step in a CUDA graph, with the same results; auto: on a GPU, unless gradients "
       "travel while backward computes, batch norm is synchronised or memory is short")
      .may_change = true;
  s.number("threads", &T::threads, 0, 1024, "threads per rank; 0: the cores that a rank has for itself").may_change =
      true;
  s.number("loader_threads", &T::loader_threads, 0, 1024,
           "threads per rank that read images and prepare batches; 0: as many as --threads")
      .may_change = true;
}

void declare_communication(std::vector<Setting>& all) {
  auto s = section(all, "Communication");
  s.choice("sync_bn", &T::sync_bn, {{"off", SyncBn::off}, {"group", SyncBn::group}, {"world", SyncBn::world}},
           "ranks that share batch-norm statistics in every step: none, those that share gradients, or all");
  Setting& bucket = s.number(
      "bucket_mb", &T::bucket_mb, 0, 1024,
      "gradients are reduced in buckets of this many MiB; 0: 4 between CPUs, 25 between GPUs; auto: the size that delays "
      "the run least by plan's model of --network, with steps that compute as long as they communicate");
  bucket.may_change = true;
  bucket.at_auto = kAutoBucket;
  s.choice(
      "comm_dtype", &T::comm_dtype, {{"fp32", DType::float32}, {"bf16", DType::bfloat16}, {"fp16", DType::float16}},
      "type of gradients, or of changes of parameters, on the wire. With "
      "16 bits every rank's are rounded once, summed in float32, and the sum is rounded once (nccl: at every hop); fp16 ends at 65504");
  s.choice("allreduce", &T::all_reduce,
           {{"direct", AllReduce::direct},
            {"ring", AllReduce::ring},
            {"tree", AllReduce::tree},
            {"two-level", AllReduce::two_level},
            {"auto", AllReduce::automatic}},
           "how all-reduces travel: every rank sums its part and hands it to all; around a ring or up and down a tree, "
           "which round at every hop; inside the nodes, across and inside; or as a model of the network says. nccl "
           "chooses for itself");
  s.value(
      "network", &T::network,
      "let threads and mpi ranks of one machine wait as over this network between nodes (--ranks-per-node): "
      "'latency=4ms,bandwidth=20Gbps', one way, of a node's card in each direction; node-latency and node-bandwidth "
      "inside nodes; '; from 500: bandwidth=1Gbps' after 500 updates. plan counts with it");
  s.number("timeout_s", &T::timeout_s, 1, 86400,
           "seconds a collective waits for a peer before all ranks stop; a rank waits half of them for an image")
      .may_change = true;
  s.name("transport", &T::transport, {"auto", "threads", "mpi", "nccl"},
         "link between ranks; auto: threads in one process, mpi between processes on CPUs, nccl between processes "
         "on GPUs")
      .may_change = true;
  s.value(
       "rendezvous", &T::rendezvous,
       "meeting place of processes for nccl: tcp://HOST:PORT of rank 0, or file:///PATH on a file system they share; "
       "when not given: over MPI under mpirun, at MASTER_ADDR and MASTER_PORT under torchrun, on the first node "
       "under srun")
      .flag_only = true;
  s.value("share_gpu", &T::share_gpu,
          "let several nccl processes use one GPU, to check results; speed means nothing then")
      .flag_only = true;
}

void declare_run(std::vector<Setting>& all) {
  auto s = section(all, "Run");
  s.number("epochs", &T::epochs, 1, 1e6, "passes over the training images (10 when neither this nor steps is given)")
      .unset_at_zero = true;
  s.number("steps", &T::steps, 1, kMany, "optimizer updates, instead of epochs").unset_at_zero = true;
  s.number("batch_size", &T::batch_size, 1, 65536, "images per rank and step");
  s.number("accumulate", &T::accumulate, 1, 65536, "micro-batches of --batch-size whose gradients make one update");
  s.number("seed", &T::seed, 0, kMany, "seed of initialisation, shuffling and augmentation");
  std::vector<std::string> precisions = precision_names();
  precisions.insert(precisions.begin(), kAuto);
  s.name(
      "precision", &T::precision, precisions,
      "type of activations and of what products and convolutions read; weights, gradients and optimizer state are "
      "float32. tf32: float32 that GPUs multiply faster. fp16: with loss scaling. auto: bf16 where it is multiplied (GPUs, AMX, AVX512-BF16 of AMD)");
  s.value("autotune", &T::autotune,
          "on a GPU, time algorithms for every convolution and product, seconds for a new shape, and take the fastest")
      .may_change = true;
  s.value("deterministic", &T::deterministic,
          "two runs on equal GPUs give equal bits: only algorithms that repeat are used. On a CPU runs always do");
  s.value("ignore_memory", &T::ignore_memory,
          "start even where parameters, gradients and the activations of a batch need more memory than there is")
      .flag_only = true;
  Setting& out = s.value("out", &T::out,
                         "run folder for config.toml, metrics.jsonl, summary.json and model.safetensors "
                         "(runs/MODEL_METHOD when not given)");
  out.may_change = out.never_empty = out.is_path = true;
  s.value("overwrite", &T::overwrite, "replace a run that is in the folder already").flag_only = true;
  s.number("eval_every", &T::eval_every, 0, 1e6, "epochs between validations; 0: only after the last step");
  s.number("log_every", &T::log_every, 1, kMany, "steps between lines of metrics.jsonl").may_change = true;
  s.number(
       "save_every", &T::save_every, 0, kMany,
       "steps between checkpoints; 0: only when the run is told to stop or lacks an image, and before the last validation")
      .may_change = true;
  s.number("keep_checkpoints", &T::keep_checkpoints, 1, 1000, "how many checkpoints stay; older ones are removed")
      .may_change = true;
  Setting& resume =
      s.value("resume", &T::resume,
              "continue the run in this folder from its newest checkpoint; auto: that in --out, if it has one");
  resume.flag_only = resume.never_empty = resume.is_path = true;
  Setting& step = s.number("resume_step", &T::resume_step, 1, kMany,
                           "with resume: continue from the checkpoint of this step, and set later ones aside");
  step.unset_at_zero = step.flag_only = true;
}

void declare_optimizer(std::vector<Setting>& all) {
  auto s = section(all, "Optimizer and schedule");
  s.name("optimizer", &T::optimizer, {"sgd", "adamw", "lars"}, "update rule");
  s.number("lr", &T::lr, 0, 1000, "peak learning rate, whatever the number of ranks and images");
  s.number("momentum", &T::momentum, 0, 1, "momentum of sgd and lars").beside = {"optimizer", {"sgd", "lars"}};
  s.value("nesterov", &T::nesterov, "Nesterov's momentum, for sgd").beside = {"optimizer", {"sgd"}};
  s.number("weight_decay", &T::weight_decay, 0, 100, "coupled for sgd and lars, decoupled for adamw");
  s.value("decay_vectors", &T::decay_vectors, "weight decay on biases and norm parameters too");
  Setting& trust = s.number("lars_trust", &T::lars_trust, 0, 1000,
                            "lars: share of a weight's norm that an update at learning rate 1 changes it by");
  trust.above_low = true, trust.beside = {"optimizer", {"lars"}};
  s.value(
      "lars_share_rates", &T::lars_share_rates,
      "lars: each rank works out the rates of some weights, and all gather them (PTO); where gradients are averaged");
  s.number("vector_lr", &T::vector_lr, 0, 1000,
           "learning rate of biases and norm parameters, as a multiple of --lr; their weight decay stays")
      .above_low = true;
  s.numbers("betas", &T::betas, 0, 0.9999999, "decay of adamw's first and second moment").beside = {"optimizer",
                                                                                                    {"adamw"}};
  Setting& epsilon = s.number("epsilon", &T::epsilon, 0, 1, "added to the denominator of adamw");
  epsilon.above_low = true, epsilon.beside = {"optimizer", {"adamw"}};
  s.number("max_grad_norm", &T::max_grad_norm, 0, 1e9, "scale gradients down to this joint L2 norm; 0: never");
  s.number("label_smoothing", &T::label_smoothing, 0, 0.99, "share of the target spread over all classes");
  s.number("ema_decay", &T::ema_decay, 0, 0.9999999,
           "validate and save a moving average of the weights too, with this decay per update; 0: no");
  using enum LrSchedule::Kind;
  s.choice("schedule", &T::schedule, {{"constant", constant}, {"step", step}, {"cosine", cosine}, {"linear", linear}},
           "learning rate after the warm-up");
  s.number("warmup_epochs", &T::warmup_epochs, 0, 1e6, "linear warm-up of the learning rate");
  s.number("warmup_steps", &T::warmup_steps, 0, kMany, "the same in steps, instead of --warmup-epochs");
  s.number("min_lr", &T::min_lr, 0, 1000, "start of the warm-up and end of cosine and linear");
  Setting& epochs =
      s.number("lr_step_epochs", &T::lr_step_epochs, 0, 1e6, "schedule step: epochs between cuts of the rate");
  epochs.above_low = true, epochs.beside = {"schedule", {"step"}};
  s.number("lr_step_factor", &T::lr_step_factor, 0, 1, "schedule step: factor of each cut").beside = {"schedule",
                                                                                                      {"step"}};
}

}  // namespace

const std::vector<Setting>& train_settings() {
  static const std::vector<Setting> settings = [] {
    std::vector<Setting> all;
    declare_data(all);
    declare_images(all);
    declare_ranks(all);
    declare_communication(all);
    declare_run(all);
    declare_optimizer(all);
    declare_of_methods(all);
    for (const Method& method : methods())
      if (method.declare) method.declare(all);
    return all;
  }();
  return settings;
}

}  // namespace ab
