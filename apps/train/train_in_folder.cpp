// SPDX-License-Identifier: MIT
#include "apps/train/train_in_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "apps/model_file/model_file.h"
#include "apps/settings/config.h"
#include "apps/settings/hardware.h"
#include "apps/train/run_folder.h"
#include "apps/train/run_images.h"
#include "engine/comm/texts.h"
#include "engine/core/atomic_file.h"
#include "engine/core/say.h"
#include "engine/io/checkpoint_folder.h"
#include "engine/io/run_lock.h"

namespace ab {
namespace {

/// The ranks whose hash is not that of rank 0.
std::vector<int> ranks_unlike_first(std::size_t hash, Comm& world) {
  const Tensor all({world.size()}, DType::int64);
  world.all_gather(Tensor::from(std::vector<std::int64_t>{static_cast<std::int64_t>(hash)}, {1}), all);
  std::vector<int> different;
  for (int rank = 0; rank < world.size(); ++rank)
    if (all.data<std::int64_t>()[rank] != all.data<std::int64_t>()[0]) different.push_back(rank);
  return different;
}

/// The lines "key = value" of TOML, each with its table.
std::set<std::string> settings_in(const std::string& toml) {
  std::set<std::string> settings;
  std::istringstream text(toml);
  std::string table;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('[')) table = line.substr(1, line.find(']') - 1) + '.';
    else if (!line.empty() && !line.starts_with('#')) settings.insert(table + line);
  }
  return settings;
}

/// The settings that differ: "rank 0: lr = 0.1; rank 3: lr = 0.2". Empty where nothing is.
std::string difference(const std::string& first, const std::string& other, int rank) {
  const std::set<std::string> a = settings_in(first), b = settings_in(other);
  std::vector<std::string> beyond_b, beyond_a;
  std::ranges::set_difference(a, b, std::back_inserter(beyond_b));
  std::ranges::set_difference(b, a, std::back_inserter(beyond_a));
  if (beyond_a.empty() && beyond_b.empty()) return "";
  return fmt::format(" (rank 0: {}; rank {}: {})", fmt::join(beyond_b, ", "), rank, fmt::join(beyond_a, ", "));
}

/// Ranks started with different flags would train different models, and ranks that see a different state of the run
/// folder would begin at a different step: refuse.
void check_same_config(const TrainConfig& config, Start start, Comm& world) {
  TrainConfig shared = config;  // less what may differ from node to node
  shared.data_dir.clear(), shared.out.clear(), shared.threads = shared.loader_threads = 0, shared.cache_gb = 0;
  shared.cache_disk.clear(), shared.cache_disk_gb = 0;
  shared.device = shared.device.substr(0, shared.device.find(':'));  // each may name a GPU of its own
  const std::string text = to_toml(shared);
  const std::size_t hash = std::hash<std::string>{}(text) + static_cast<std::size_t>(start) +
                           31 * static_cast<std::size_t>(config.resume_step);
  const std::vector<int> different = ranks_unlike_first(hash, world);
  if (different.empty()) return;
  const std::vector<std::string> texts = gather_texts(world, text);
  const std::string unlike = difference(texts[0], texts[static_cast<std::size_t>(different[0])], different[0]);
  throw Error(
      ErrorKind::config,
      fmt::format("rank(s) {} started with settings that differ from rank 0's, or see a different run folder{}: "
                  "all ranks need the same flags and one file system{}",
                  fmt::join(different, ", "), unlike,
                  unlike.find("precision = ") == std::string::npos
                      ? ""
                      : "; --precision auto is another type on another processor, so name one"));
}

/// Nodes with different files, or different lists of them, would not train on one order of images: refuse.
void check_same_data(const TrainAndTest& data, Comm& world) {
  const std::vector<int> different = ranks_unlike_first(data.hash(), world);
  AB_CHECK_KIND(data, different.empty(), "rank(s) {} found other images than rank 0: give all nodes the same data set",
                fmt::join(different, ", "));
}

/// A rank that cannot write its part of a checkpoint says so now, and not when the run is told to stop or has trained to
/// its end. A network disk may show to one machine only after a while what another has written.
void check_sees_folder(const TrainConfig& config, int rank) {
  const double patience = std::min(60.0, 0.5 * static_cast<double>(config.timeout_s));  // seconds
  const Stopwatch waited;
  const auto sees = [&] {
    std::error_code ignored;
    return std::filesystem::exists(in_folder(config.out, kConfigFile), ignored);
  };
  while (!sees() && waited.seconds() < patience) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  AB_CHECK(sees(), "rank {} does not see the run folder {}: checkpoints need a file system that all ranks share", rank,
           config.out);
}

/// The model with the values of --weights, or null without.
std::unique_ptr<Layer> load_start(const TrainConfig& config, const TrainAndTest& data) {
  if (config.weights.empty()) return nullptr;
  const ModelSpec spec = make_model_spec(config, data.train->classes, data.train->height);
  std::unique_ptr<Layer> model = make_model(spec, choose_device(config.device));
  const std::string file = model_path(config.weights);
  const LoadedWeights loaded = load_weights(*model, read_safetensors(file), file, OtherClassifier::keep_own);
  for (const std::string& remark : loaded.remarks) say(stderr, "{}: {}\n", file, remark);
  if (!loaded.kept.empty())
    say(stderr, "warning: {} has {}; {} start from drawn values\n", file,
        loaded.had_classifier ? "a different number of classes than " + config.dataset : "no classifier",
        fmt::join(loaded.kept, " and "));
  return model;
}

/// The newest checkpoint, or that of --resume-step; then those after it are out of the way.
Checkpoint load_start_checkpoint(const TrainConfig& config, Comm& world) {
  const std::string folder = in_folder(config.out, kCheckpointFolder);
  if (config.resume_step == 0) {
    std::optional<Checkpoint> newest = load_newest_checkpoint(folder, world);
    AB_CHECK_KIND(checkpoint, newest, "--resume: the checkpoints in {} are gone", folder);
    return std::move(*newest);
  }
  Checkpoint checkpoint = load_checkpoint_of(config.resume_step, folder, world);
  if (world.rank() == 0)
    for (const std::string& path : set_later_checkpoints_aside(folder, config.resume_step))
      say(stdout, "a later checkpoint is now {}\n", path);
  return checkpoint;
}

/// A full disk costs the record, not the run.
void record_changes(const TrainConfig& config) {
  try {
    record_config(config);
  } catch (const Error& problem) {
    say(stderr, "warning: {}; the next start has to be told again what this one changed\n", problem.what());
  }
}

/// The finished run. A checkpoint that stays behind costs its place on the disk and no more.
void write_result(const TrainConfig& config, const TrainAndTest& data, const TrainResult& result) {
  const ModelInfo info{make_model_spec(config, data.train->classes, data.train->height), config.dataset,
                       config.framing};
  write_safetensors(in_folder(config.out, kModelFile), model_to_file(*result.model, info));
  if (result.average) write_safetensors(in_folder(config.out, kAverageFile), model_to_file(*result.average, info));
  write_file_atomically(in_folder(config.out, kSummaryFile), to_json(result.summary));
  try {
    remove_last_checkpoint(config, result.summary.steps);
  } catch (const Error& problem) {
    say(stderr, "warning: {}; the last checkpoint stays\n", problem.what());
  }
}

}  // namespace

std::optional<TrainResult> train_in_folder(const TrainConfig& asked, Comm& world, const TrainAndTest& data,
                                           const TrainListener& listener, bool is_checked) {
  TrainConfig config = settle_config(asked);
  config.ranks = world.size();  // as a launcher has it
  AB_CHECK(!config.out.empty(), "a run needs a folder; set TrainConfig::out");
  if (!is_checked) check_run(config, find_method(config.method), world.size());
  const Start start = start_of(config);
  check_same_config(config, start, world);
  check_same_data(data, world);
  if (start == Start::finished) return std::nullopt;
  check_length(config, find_method(config.method), data.train->count, world.size());
  const bool keeps_folder = world.rank() == 0;
  // Read before the folder is touched: a file that does not fit leaves no trace, and --out may replace its run.
  std::unique_ptr<Layer> model = keeps_folder && start == Start::anew ? load_start(config, data) : nullptr;
  std::optional<RunLock> lock;
  world.barrier();  // all have looked at the folder as it was
  if (keeps_folder) {
    create_run_folder(config);
    lock.emplace(config.out);
    AB_CHECK(start_of(config) == start, "another run has used {} meanwhile; give the command again", config.out);
    remove_half_written_files(config);
    if (start == Start::anew) begin_run_folder(config);
  }
  world.barrier();
  check_sees_folder(config, world.rank());
  std::optional<Checkpoint> checkpoint;
  if (start == Start::from_checkpoint) checkpoint = load_start_checkpoint(config, world);

  std::optional<MetricsLog> log;
  if (keeps_folder) {
    if (checkpoint) record_changes(config);
    log.emplace(in_folder(config.out, kMetricsFile), checkpoint ? checkpoint->state.integer(kLogBytes) : 0);
    if (checkpoint && listener.on_resume) listener.on_resume(*checkpoint);
  }
  TrainListener on_rank_0 = keeps_folder ? listener : TrainListener{};
  if (log) on_rank_0.log = &*log;
  TrainResult result = train(config, world, data, on_rank_0, std::move(checkpoint), std::move(model));
  if (keeps_folder && !result.stopped) write_result(config, data, result);
  return result;
}

}  // namespace ab
