#pragma once
// SPDX-License-Identifier: MIT
//
// What a training run is made of, and where its values come from: command-line flags win over the TOML file
// of --config, which wins over the defaults below. config.cpp declares every setting once; flags, TOML keys,
// --help and the saved config.toml all follow from that table.
// Settings that are one of a few words stay strings: after resolve_train_config() they hold an allowed word.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ab {

/// AB-training (arXiv 2405.01067), flags --ab.*, TOML table [ab].
struct AbConfig {
  std::string preset = "default";  ///< ab_presets.h: replaces the defaults of the settings below

  std::int64_t warmup_steps = 400;     ///< W: full-rank steps before the first split
  std::int64_t cycle_steps = 100;      ///< S: steps from one synchronisation to the next
  std::int64_t full_rank_steps = 20;   ///< D: of those, full-rank steps after the synchronisation
  std::int64_t lr_rebound_steps = 0;   ///< R: linear ramp of the rate after every transition
  bool paper_schedule = false;         ///< order of transitions as in the authors' release, step for step

  std::string sync = "tangent";       ///< full | with-stale | only-learned | only-b | tangent
  std::string setup = "groups";       ///< groups | individual: who averages factor gradients
  int group_size = -1;                ///< ranks per group; -1: two halves of the world
  std::string gauge = "orthonormal";  ///< split-sigma | orthonormal: where the singular values go

  bool cut_at_warmup = true;          ///< cut ranks at the first split as well
  std::string rank_policy = "ratio";  ///< sigma-cutoff | ratio | energy | fixed
  double sigma_cutoff = 0.15;         ///< keep sigma_i > c * sigma_1
  double ratio = 0.5;                 ///< keep r = ratio * min(m, n)
  double energy = 0.9;                ///< keep this fraction of the sum of sigma_i^2
  std::int64_t fixed_rank = 16;       ///< keep r = fixed_rank
  std::int64_t rank_multiple = 0;     ///< round r up to a multiple of this; 0: as the device likes it

  std::string rest = "drop";            ///< drop | keep: what the cut leaves over
  std::string moments = "project";      ///< project | reset | truncate: optimizer state at a split
  std::string execution = "auto";       ///< auto | factors | form-w: how a factored layer computes
  std::string svd = "gram";             ///< gram | direct
  std::string final_model = "factors";  ///< factors | dense: what a run that ends in a low-rank phase leaves
  std::vector<std::string>
      always_sync;  ///< parameters that are never factorised; empty: the model's own list

  bool operator==(const AbConfig&) const = default;
};

struct TrainConfig {
  std::string model = "resnet20";     ///< one of model_names() in layers/models/models.h
  double width = 1.0;                 ///< multiplies the channels of the model
  std::int64_t image_size = 0;        ///< height and width that the model sees; 0: as the data set has them
  double dropout = 0.0;               ///< before the classifier
  double drop_path = 0.0;             ///< stochastic depth: rate of the last block, rising linearly from 0
  bool qkv_bias = true;               ///< of vision transformers
  bool zero_init_residual = false;    ///< the last norm of every residual block starts at zero
  std::string init = "default";       ///< default | ortho | rand | sloped: spectrum of the initial matrices
  std::string weights;                ///< safetensors file, or the run folder that holds it, to start from
  std::string dataset = "synthetic";  ///< cifar10 | cifar100 | imagenet | synthetic
  std::string data_dir;            ///< folder of the files; for synthetic: of the cache (may be empty)
  std::int64_t train_samples = 0;  ///< use N images; 0: all
  std::int64_t val_samples = 0;
  bool augment = true;
  double mixup = 0.0;                  ///< alpha of the Beta distribution; 0: off
  double cutmix = 0.0;                 ///< the same; with both, one of them is drawn for each batch
  int rand_augment = 0;                ///< operations per image; 0: off
  int rand_augment_magnitude = 9;      ///< 0 to 30
  double random_erasing = 0.0;         ///< probability per image

  std::string method = "dense";  ///< dense | ab
  int ranks = 1;                 ///< in-process ranks; under mpirun the launcher decides
  int ranks_per_node = 0;        ///< how the ledger tells inter-node from intra-node; 0: one node
  std::string device = "cpu";    ///< cpu | cuda | cuda:N (run_device.h)
  int threads = 0;               ///< per rank; 0: cores / ranks
  std::string cuda_graph = "auto";  ///< auto | on | off: launch a step as one graph (step_graph.h)
  std::string sync_bn = "off";   ///< off | group | world: who shares batch-norm statistics
  double bucket_mb = 4.0;        ///< gradients are reduced in buckets of this size
  std::int64_t timeout_s = 300;  ///< how long a collective waits for a peer
  std::string transport = "auto";  ///< auto | threads | mpi | nccl: what ranks talk over (run_transport.h)
  std::string rendezvous;          ///< where processes meet for NCCL (engine/comm/rendezvous.h; a flag only)
  bool share_gpu = false;          ///< several processes on one GPU over NCCL, to check results (a flag only)

  std::int64_t epochs = 0;  ///< exactly one of epochs and steps is above 0
  std::int64_t steps = 0;
  std::int64_t batch_size = 128;  ///< per rank and micro-batch
  std::int64_t accumulate = 1;    ///< micro-batches per update
  std::uint64_t seed = 0;
  std::string precision = "fp32";  ///< fp32 | tf32 | bf16 | fp16
  bool autotune = false;           ///< time the algorithms that a GPU's libraries offer (engine/core/plan_choice.h)
  bool deterministic = false;      ///< take only algorithms that repeat bit for bit

  std::string optimizer = "sgd";  ///< sgd | adamw
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 5e-4;
  bool decay_vectors = true;        ///< weight decay on biases and norms too
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double max_grad_norm = 0.0;  ///< 0: no clipping
  double label_smoothing = 0.0;
  double ema_decay = 0.0;  ///< of the averaged weights that are validated and saved beside the model; 0: off

  std::string schedule = "cosine";  ///< constant | step | cosine
  double warmup_epochs = 0.0;       ///< linear warm-up of the rate; at most one of the two is above 0
  std::int64_t warmup_steps = 0;
  double min_lr = 0.0;           ///< start of the warm-up and end of the cosine
  double lr_step_epochs = 30.0;  ///< schedule step: multiply by the factor every so many epochs
  double lr_step_factor = 0.1;

  std::string out;              ///< run folder; runs/<model>_<method> when not given
  bool overwrite = false;       ///< replace a run that is there already (a flag only, never saved)
  std::int64_t eval_every = 1;  ///< epochs between validations; 0: only at the end
  std::int64_t log_every = 10;  ///< steps between lines of metrics.jsonl
  std::int64_t save_every = 0;  ///< steps between checkpoints; 0: only when told to stop
  int keep_checkpoints = 2;     ///< older ones are removed
  std::string resume;           ///< a run folder, or "auto": this run's own, if it has a checkpoint (a flag only)

  AbConfig ab;

  bool operator==(const TrainConfig&) const = default;
};

/// A flag as it was given: its TOML key ("batch_size", "ab.cycle_steps") and its text.
using FlagValue = std::pair<std::string, std::string>;

/// What a configuration is for: a plan reads no images, so it needs no folder of them.
enum class ConfigUse { train, plan };

/// Defaults, then the preset, then `config_file` (may be empty), then `flags`; all values checked.
/// Throws Error(config) with the place, the allowed values and, for an unknown key, the nearest known one.
TrainConfig resolve_train_config(const std::vector<FlagValue>& flags, const std::string& config_file,
                                 ConfigUse use = ConfigUse::train);

/// The same for the text of a configuration file that messages call `name`.
TrainConfig resolve_config_text(const std::vector<FlagValue>& flags, const std::string& text, const std::string& name,
                                ConfigUse use = ConfigUse::train);

/// Throws Error(config) that lists the settings in which `now` differs from the run that it shall continue, save
/// those that may change: where data and results are, device, transport, threads, timeouts, how often to
/// log and save.
void check_resumable(const TrainConfig& saved, const TrainConfig& now);

/// Every setting as TOML; reading it back gives an equal TrainConfig.
std::string to_toml(const TrainConfig& config);

/// One line of --help.
struct FlagHelp {
  std::string key;      ///< "ab.cycle_steps"
  std::string flag;     ///< "--ab.cycle-steps"
  std::string text;     ///< what it does, allowed range, default
  std::string section;  ///< heading in --help
  std::string value;    ///< "INT", "NUM", "WORD", "TEXT", "LIST"; empty for a switch
};
std::vector<FlagHelp> train_flag_help();

/// The known name nearest to `name` by edit distance, or empty when none is near enough to be meant.
std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

}  // namespace ab
