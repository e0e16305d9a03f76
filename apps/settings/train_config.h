#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of a training run, and their defaults. From flags and files it comes by apps/settings/config.h; a program
// that uses the library fills it in by itself.
// Settings that are one of a few words and have no type of their own are strings.

#include <any>
#include <cstdint>
#include <map>
#include <string>
#include <typeindex>
#include <vector>

#include "data/sampler.h"
#include "data/transform.h"
#include "engine/comm/route.h"
#include "engine/core/dtype.h"
#include "engine/optim/schedule.h"
#include "engine/sync/batch_norm_sync.h"
#include "layers/models/models.h"
#include "layers/weight.h"

namespace ab {

/// The method that all others are measured against, and that trains when none is chosen.
inline constexpr const char* kBaseline = "dense";
/// The preset of a method whose settings are ours.
inline constexpr const char* kOurPreset = "default";
/// The word of --precision and --bucket-mb for what a run chooses, and saves.
inline constexpr const char* kAuto = "auto";
/// --bucket-mb auto; as 0 until settle_bucket() (apps/plan/method_choice.h) has chosen.
inline constexpr double kAutoBucket = -1;

/// What the nodes of a run do with the images that each keeps (data/image_cache.h): any rank trains on any image, and nodes send each
/// other what they keep; each node trains on its own part of the images (Sampler::nodes); any rank on any image, and nodes keep what
/// they come across.
enum class CacheShare : std::uint8_t { world, node, off };

/// What a run does about an image that cannot be read or decoded: it ends, or goes on without it (LoaderOptions::bad_images).
enum class OnBadImage { fail, skip };

/// The options of all methods, each of a type of its own. A method that nobody asked about has its defaults, so that who
/// holds these need not know which methods there are.
class MethodOptions {
 public:
  /// T: default-constructible and copyable.
  template <class T> const T& of() const {
    static const T defaults{};
    const auto at = held_.find(typeid(T));
    return at == held_.end() ? defaults : *std::any_cast<T>(&at->second);
  }
  template <class T> T& of() { return *std::any_cast<T>(&held_.try_emplace(typeid(T), T{}).first->second); }

 private:
  std::map<std::type_index, std::any> held_;
};

struct TrainConfig {
  std::string model = "resnet20";   ///< one of model_names() in layers/models/models.h
  double width = 1.0;               ///< multiplies the channels of the model
  std::int64_t image_size = 0;      ///< height and width that the model sees; 0: as the data set has them
  std::vector<double> image_sizes;  ///< S, E, …: E epochs at size S, one after the other, before those at image_size
  double dropout = 0.0;             ///< before the classifier
  double drop_path = 0.0;           ///< stochastic depth: rate of the last block, rising linearly from 0
  bool qkv_bias = true;             ///< of vision transformers
  Init init = Init::drawn;          ///< how the initial values are changed
  std::string weights;              ///< safetensors file, or the run folder that holds it, to start from
  std::string dataset = "synthetic";  ///< one of dataset_names() in data/datasets.h
  std::string data_dir;               ///< folder of the files; for synthetic: of the cache (may be empty)
  std::int64_t train_samples = 0;     ///< use N images; 0: all
  std::int64_t val_samples = 0;
  std::int64_t val_from_train = 0;  ///< validate on N training images, which training leaves out; 0: on the test images
  bool val_views = false;           ///< EvaluationOptions::views too, after the last step
  bool augment = true;
  int shift = 0;                     ///< Augmentation::shift
  double mixup = 0.0;                ///< alpha of the Beta distribution; 0: off
  double cutmix = 0.0;               ///< the same; with both, one of them is drawn for each batch
  std::vector<double> rand_augment;  ///< operations per image and their strength, 0 to 30; empty: off
  bool trivial_augment = false;      ///< in place of rand_augment
  std::vector<double> color_jitter;  ///< Augmentation::color_jitter, with hue or without; empty: off
  int repeated_augment = 1;          ///< LoaderOptions::repeats
  double random_erasing = 0.0;       ///< probability per image
  Framing framing;                   ///< how files of any size come to the model's
  Shuffle shuffle = Shuffle::full;
  double cache_gb = 0;       ///< 10^9 bytes of memory of a machine in which decoded images stay (ImageCache)
  std::string cache_disk;    ///< folder on a disk of the machine for copies of files; empty: none
  double cache_disk_gb = 0;  ///< 10^9 bytes of it; 0: nine tenths of what is free
  CacheShare cache_share = CacheShare::world;
  OnBadImage on_bad_image = OnBadImage::fail;
  std::int64_t max_bad_images = 100;  ///< more end the run all the same

  std::string method = kBaseline;   ///< one of methods() in apps/methods/method.h; choose_method() brings its defaults
  std::string preset = kOurPreset;  ///< where its settings started from
  int ranks = 1;                    ///< in-process ranks; under mpirun the launcher decides
  int ranks_per_node = 0;           ///< how the ledger tells inter-node from intra-node; 0: one node
  std::string device = "cpu";       ///< cpu | cuda | cuda:N (apps/settings/hardware.h)
  int threads = 0;                  ///< per rank; 0: cores / ranks
  int loader_threads = 0;           ///< LoaderOptions::threads; 0: as many as `threads`
  std::string cuda_graph = "auto";  ///< auto | on | off: launch a step as one graph (apps/train/train_step.h)
  SyncBn sync_bn = SyncBn::off;     ///< who shares batch-norm statistics
  double bucket_mb = 0;             ///< gradients are reduced in buckets of this size; 0: gradient_wire() chooses
  DType comm_dtype = DType::float32;         ///< of gradients on the wire: float32, bfloat16 or float16
  AllReduce all_reduce = AllReduce::direct;  ///< how all-reduces travel (engine/comm/route.h)
  std::string network;                       ///< what collectives travel over, in words (network.h); empty: as it is
  std::int64_t timeout_s = 300;              ///< how long a collective waits for a peer
  std::string transport = "auto";  ///< auto | threads | mpi | nccl: what ranks talk over (apps/train/run_transport.h)
  std::string rendezvous;          ///< where processes meet for NCCL (engine/comm/rendezvous.h; a flag only)
  bool share_gpu = false;          ///< several processes on one GPU over NCCL, to check results (a flag only)

  std::int64_t epochs = 0;  ///< exactly one of epochs and steps is above 0
  std::int64_t steps = 0;
  std::int64_t batch_size = 128;  ///< per rank and micro-batch
  std::int64_t accumulate = 1;    ///< micro-batches per update
  std::uint64_t seed = 0;
  std::string precision = "fp32";  ///< fp32 | tf32 | bf16 | fp16
  bool autotune = false;           ///< time the algorithms that a GPU's libraries offer (engine/backend/plan_choice.h)
  bool deterministic = false;      ///< take only algorithms that repeat bit for bit
  bool ignore_memory = false;      ///< start even if it does not seem to fit (apps/plan/memory_check.h; a flag only)

  std::string optimizer = "sgd";  ///< sgd | adamw | lars
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 5e-4;
  bool decay_vectors = true;      ///< weight decay on biases and norms too
  double vector_lr = 1.0;         ///< the rate of biases and norms, as a multiple of lr
  double lars_trust = 0.001;      ///< LarsOptions::trust
  bool lars_share_rates = false;  ///< LarsOptions::sharing
  std::vector<double> betas{0.9, 0.999};
  double epsilon = 1e-8;
  double max_grad_norm = 0.0;  ///< 0: no clipping
  double label_smoothing = 0.0;
  double ema_decay = 0.0;  ///< of the averaged weights that are validated and saved beside the model; 0: off

  LrSchedule::Kind schedule = LrSchedule::Kind::cosine;
  double warmup_epochs = 0.0;  ///< linear warm-up of the rate; at most one of the two is above 0
  std::int64_t warmup_steps = 0;
  double min_lr = 0.0;           ///< start of the warm-up and end of cosine and linear
  double lr_step_epochs = 30.0;  ///< schedule step: multiply by the factor every so many epochs
  double lr_step_factor = 0.1;

  std::string out;              ///< run folder; runs/<model>_<method> when not given
  bool overwrite = false;       ///< replace a run that is there already (a flag only, never saved)
  std::int64_t eval_every = 1;  ///< epochs between validations; 0: only at the end
  std::int64_t log_every = 10;  ///< steps between lines of metrics.jsonl
  std::int64_t save_every = 0;  ///< steps between checkpoints; 0: only when told to stop and before the last validation
  int keep_checkpoints = 2;     ///< older ones are removed
  std::string resume;           ///< a run folder, or "auto": this run's own, if it has a checkpoint (a flag only)
  std::int64_t resume_step = 0;  ///< of the checkpoint to resume from; 0: the newest (a flag only)

  std::int64_t dense_steps =
      -1;  ///< steps that exchange everything before a method sends less; -1: as suits the method
  Execution execution = Execution::automatic;  ///< of factorised weights
  std::int64_t rank_multiple = 0;  ///< ranks of factors are rounded up to a multiple; 0: what suits the device
  MethodOptions method_options;    ///< of every method, the chosen one among them

  /// Those of one method: of<AbOptions>().
  template <class Options> const Options& of() const { return method_options.of<Options>(); }
  template <class Options> Options& of() { return method_options.of<Options>(); }
};

}  // namespace ab
