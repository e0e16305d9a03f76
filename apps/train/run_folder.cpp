// SPDX-License-Identifier: MIT
#include "apps/train/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "apps/methods/method.h"
#include "apps/settings/setting.h"
#include "apps/train/stop_request.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"
#include "engine/core/path.h"
#include "engine/core/say.h"
#include "engine/io/checkpoint.h"
#include "engine/io/checkpoint_folder.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

/// All that a run writes into its folder.
constexpr const char* kRunFiles[] = {kMetricsFile, kSummaryFile,      kModelFile,
                                     kAverageFile, kCheckpointFolder, kConfigFile};

double number(const nlohmann::json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t integer(const nlohmann::json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number_integer() ? at->get<std::int64_t>() : 0;
}

void add_line(const nlohmann::json& line, Run& run) {
  const std::string kind = line.value("kind", "");
  if (kind == "step") {
    run.steps.push_back({integer(line, "step"), integer(line, "epoch"), line.value("phase", ""), number(line, "loss"),
                         number(line, "lr"), number(line, "images_per_second"), number(line, "wire_bytes")});
  } else if (kind == "epoch") {
    run.epochs.push_back({integer(line, "epoch"), integer(line, "step"), number(line, "val_loss"),
                          number(line, "val_top1"), number(line, "val_top5")});
  } else if (kind == "split") {
    SplitMetrics split{integer(line, "step"), {}};
    for (const nlohmann::json& layer : line.at("layers")) {
      split.layers.push_back({layer.at("name"), layer.at("m"), layer.at("n"), layer.at("r")});
      split.sensitivity.emplace_back();
      if (!layer.contains("by_loss")) continue;
      split.sensitivity.back() = {number(layer, "kept"), number(layer, "increase"),
                                  layer.at("by_loss").get<std::vector<double>>(),
                                  layer.at("by_sigma").get<std::vector<double>>()};
    }
    run.splits.push_back(std::move(split));
  } else if (kind == "decision") {
    DecisionMetrics decision{integer(line, "epoch"), integer(line, "step"), {}};
    for (const auto& [name, value] : line.items())
      if (name != "kind" && name != "epoch" && name != "step") decision.values[name] = value.get<std::int64_t>();
    run.decisions.push_back(std::move(decision));
  }
}

/// Whether its config.toml is that of a run, and not somebody's own.
bool holds_saved_config(const std::string& folder) {
  std::error_code ignored;
  const std::string file = in_folder(folder, kConfigFile);
  return fs::is_regular_file(file, ignored) && read_file(file, ErrorKind::config).starts_with(kSavedConfigBegins);
}

bool holds_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kMetricsFile, ignored) || holds_saved_config(folder.string()) ||
         holds_checkpoints((folder / kCheckpointFolder).string());
}

/// Throws Error(kind) when the run in the folder has not written the file, which it does at its end.
void check_ended(const std::string& folder, const char* file, ErrorKind kind) {
  std::error_code ignored;
  if (fs::exists(in_folder(folder, file), ignored)) return;
  if (fs::exists(in_folder(folder, kSummaryFile), ignored))
    throw Error(kind, fmt::format("the run in {} has ended, but its {} is gone", folder, file));
  if (holds_run(folder))
    throw Error(kind,
                fmt::format("the run in {0} has not ended, so it has no {1}; go on with abtrain train --resume {0}",
                            folder, file));
  for (const auto& inside : fs::directory_iterator(folder, ignored))
    if (inside.is_directory(ignored) && ::access(inside.path().c_str(), R_OK | X_OK) == 0 && holds_run(inside.path()))
      throw Error(kind, fmt::format("{0} is no run, but holds folders of runs; give those: {0}/*", folder));
  throw Error(kind, fmt::format("{} holds no finished run: it has no {}", folder, file));
}

/// Skips lines that are no JSON: a killed run, or a disk that was full for a while, leaves half a line.
void read_metrics(const std::string& path, Run& run) {
  std::istringstream lines(read_file(path, ErrorKind::data));
  std::int64_t readable = 0, broken = 0;
  for (std::string text; std::getline(lines, text);) {
    try {
      add_line(nlohmann::json::parse(text), run);
      ++readable;
    } catch (const nlohmann::json::exception&) {
      ++broken;
    }
  }
  AB_CHECK_KIND(data, readable > 0 || broken == 0, "{} holds no metrics: none of its {} lines can be read", path,
                broken);
}

}  // namespace

std::string in_folder(const std::string& folder, const char* file) { return (fs::path(folder) / file).string(); }

std::string model_path(const std::string& file_or_folder) {
  std::error_code ignored;
  if (!fs::is_directory(file_or_folder, ignored)) return file_or_folder;
  check_ended(file_or_folder, kModelFile, ErrorKind::checkpoint);
  return in_folder(file_or_folder, kModelFile);
}

bool is_file_of_run(const std::string& path) {
  std::error_code ignored;
  for (fs::path at = fs::absolute(path, ignored).lexically_normal(); at.has_relative_path(); at = at.parent_path())
    if (std::ranges::find(kRunFiles, at.filename().string()) != std::end(kRunFiles) && holds_run(at.parent_path()))
      return true;
  return false;
}

void check_run_folder(const TrainConfig& config) {
  std::error_code ignored;
  const auto holds = [&](const char* file) { return fs::exists(in_folder(config.out, file), ignored); };
  // A run that ended before its first checkpoint, or before anything, begins anew.
  const bool has_begun = holds_saved_config(config.out), begins_again = has_begun && config.resume == "auto";
  for (const char* file : kRunFiles) {
    AB_CHECK(has_begun || !holds(file),
             "--out {} already holds {}, but no configuration of a run, so these files may be somebody's own; choose "
             "another folder",
             config.out, file);
    AB_CHECK(config.overwrite || begins_again || std::string_view(file) == kConfigFile || !holds(file),
             "--out {0} already holds a run ({1}); {2}choose another folder, or replace it with --overwrite",
             config.out, file, holds("checkpoints") ? fmt::format("go on with --resume {}, ", config.out) : "");
  }
  for (const char* file : {RequestFiles::kStop, RequestFiles::kSave})
    AB_CHECK(has_begun || !holds(file),
             "--out {} already holds {}, which a run would take for a request and remove; choose another folder",
             config.out, file);
  const std::string why = fs::exists(config.out, ignored) ? "" : why_missing(config.out);
  AB_CHECK(why.empty(), "--out {} cannot be created{}", config.out, why);
  fs::path existing = fs::absolute(config.out);
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  AB_CHECK(fs::is_directory(existing, ignored), "--out {} cannot be created: {} is not a folder", config.out,
           existing.string());
  AB_CHECK(::access(existing.c_str(), W_OK | X_OK) == 0, "--out {} cannot be written: {}: {}", config.out,
           existing.string(), std::strerror(errno));
}

Start start_of(const TrainConfig& config) {
  AB_CHECK(config.resume_step == 0 || !config.resume.empty(),
           "--resume-step {} chooses a checkpoint of a run that goes on; give --resume too", config.resume_step);
  if (config.resume.empty()) return Start::anew;
  std::error_code ignored;
  const auto holds = [&](const char* file) { return fs::exists(in_folder(config.out, file), ignored); };
  if (holds(kConfigFile)) {
    TrainConfig saved = settle_config(resolve_train_config({}, in_folder(config.out, kConfigFile)));
    saved.ranks = config.ranks;  // check_ranks() asks the checkpoint: a launcher, too, says how many there are
    check_resumable(saved, settle_config(config));
  }
  if (holds(kSummaryFile)) {
    AB_CHECK(
        config.resume_step == 0,
        "the run in {} is complete and does not go on from step {}; start one from its model with --weights {} --out "
        "FOLDER",
        config.out, config.resume_step, config.out);
    return Start::finished;
  }
  if (fs::is_directory(config.out, ignored) && holds_checkpoints(in_folder(config.out, kCheckpointFolder))) {
    AB_CHECK_KIND(checkpoint, holds(kConfigFile),
                  "--resume {}: it has checkpoints, but no {} that says how they were trained; copy it from their run",
                  config.out, kConfigFile);
    return Start::from_checkpoint;
  }
  AB_CHECK_KIND(checkpoint, config.resume == "auto" && config.resume_step == 0,
                "--resume {}: the run has no checkpoint; save some with --save-every", config.out);
  return Start::anew;
}

void check_ranks(const TrainConfig& config, int world_size, bool launched) {
  if (config.resume.empty()) return;
  const int ranks = ranks_of_newest_checkpoint(in_folder(config.out, kCheckpointFolder));
  if (ranks == 0 || ranks == world_size) return;
  AB_CHECK(launched,
           "a run goes on with as many ranks as it began with, but now has --ranks {} (it was {}); leave it away",
           world_size, ranks);
  throw Error(
      ErrorKind::checkpoint,
      fmt::format("the run in {} has {} ranks, and the launcher started {}: start {} (mpirun -np {}), or none: without "
                  "a launcher they are threads",
                  config.out, ranks, world_size, ranks, ranks));
}

TrainConfig settle_config(TrainConfig config) {
  if (config.rank_multiple > 0 && config.bucket_mb != kAutoBucket) return config;
  std::error_code ignored;
  const std::string file = in_folder(config.out, kConfigFile);
  const bool goes_on = !config.resume.empty() && fs::exists(file, ignored);
  const TrainConfig begun = goes_on ? resolve_train_config({}, file) : config;
  if (config.rank_multiple == 0) config.rank_multiple = rank_multiple(begun);
  if (config.bucket_mb == kAutoBucket)
    for (const Setting* bucket : bucket_settings(begun)) bucket->set(config, bucket->get(begun));
  return config;
}

void create_run_folder(const TrainConfig& config) {
  std::error_code problem;
  std::vector<std::string> parents;  // of the folders that are new
  const fs::path whole = (fs::absolute(config.out) / "").lexically_normal().parent_path();
  for (fs::path at = whole; !fs::exists(at, problem) && at.has_relative_path(); at = at.parent_path())
    parents.push_back(at.parent_path().string());
  fs::create_directories(config.out, problem);
  AB_CHECK(!problem, "--out {} cannot be created: {}", config.out, problem.message());
  for (const std::string& parent : parents) sync_folder(parent);
}

void remove_half_written_files(const TrainConfig& config) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(config.out, ignored), end; !ignored && at != end; at.increment(ignored))
    for (const char* file : {kSummaryFile, kModelFile, kAverageFile, kConfigFile})
      if (is_temporary_of(at->path().filename().string(), file)) found.push_back(at->path());
  for (const fs::path& path : found) fs::remove(path, ignored);
}

void begin_run_folder(const TrainConfig& config) {
  check_run_folder(config);
  std::error_code problem;
  for (const char* file : kRunFiles) {
    fs::remove_all(in_folder(config.out, file), problem);
    AB_CHECK(!problem, "--out {}: cannot remove {} of the earlier run: {}", config.out, file, problem.message());
  }
  record_config(config);
}

void record_config(const TrainConfig& config) {
  TrainConfig recorded = config;
  for (std::string* path : {&recorded.out, &recorded.data_dir, &recorded.weights}) *path = absolute_path(*path);
  const std::string text = to_toml(recorded), file = in_folder(config.out, kConfigFile);
  std::error_code ignored;
  if (fs::exists(file, ignored) && read_file(file, ErrorKind::config) == text) return;
  write_file_atomically(file, text);
}

void remove_last_checkpoint(const TrainConfig& config, std::int64_t step) {
  if (config.save_every > 0 && step % config.save_every == 0) return;
  const std::string folder = in_folder(config.out, kCheckpointFolder);
  std::error_code ignored;
  if (fs::exists(checkpoint_path(folder, step), ignored)) remove_checkpoint(folder, step);
  if (fs::is_empty(folder, ignored)) fs::remove(folder, ignored);
}

Summary read_summary(const std::string& file_or_folder) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(file_or_folder, ignored);
  const std::string file = is_folder ? in_folder(file_or_folder, kSummaryFile) : file_or_folder;
  if (is_folder) check_ended(file_or_folder, kSummaryFile, ErrorKind::data);
  return summary_from_json(read_file(file, ErrorKind::data), file);
}

std::optional<TrainConfig> config_of_run(const std::string& folder) {
  try {
    return resolve_train_config({}, in_folder(folder, kConfigFile), ConfigUse::plan);
  } catch (const Error&) {
    return {};
  }
}

Run read_run(const std::string& folder) {
  std::error_code ignored;
  AB_CHECK_KIND(data, fs::is_directory(folder, ignored), "there is no run folder {}", folder);
  Run run;
  run.folder = folder;
  fs::path path = fs::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  run.label = path.filename().string();
  run.summary = read_summary(folder);
  read_metrics(in_folder(folder, kMetricsFile), run);
  run.config = config_of_run(folder);  // without it too, what was measured can be compared
  return run;
}

}  // namespace ab
