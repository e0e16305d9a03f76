// SPDX-License-Identifier: MIT
#include "engine/io/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <sstream>

#include "engine/comm/texts.h"
#include "engine/core/atomic_file.h"
#include "engine/core/say.h"
#include "engine/io/checkpoint_folder.h"
#include "engine/io/manifest.h"

namespace ab {
namespace {

/// Counts what ranks exchange in here as the phase "checkpoint".
class CheckpointPhase {
 public:
  explicit CheckpointPhase(Ledger& ledger) : ledger_(ledger), before_(ledger.phase()) {
    ledger_.set_phase("checkpoint");
  }
  ~CheckpointPhase() { ledger_.set_phase(before_); }

 private:
  Ledger& ledger_;
  std::string before_;
};

void warn(const std::string& message) { say(stderr, "warning: {}\n", message); }

/// The shard of `rank`: its values, and the tensors that it is the first to hold.
TensorFile shard_of(int rank, const Manifest& manifest, const StateDict& state) {
  TensorFile shard;
  shard.metadata = state.values();
  for (const StoredTensor& tensor : manifest.tensors)
    if (tensor.shard() == rank) shard.tensors.push_back({tensor.name, state.tensor(tensor.name)});
  return shard;
}

/// A shard in which everything that belongs to `rank` is what the manifest says.
TensorFile read_shard(const std::string& path, int shard, int rank, const Manifest& manifest) {
  const std::string file = shard_path(path, shard);
  TensorFile content = read_safetensors(file);
  if (shard == rank)
    AB_CHECK_KIND(checkpoint, hash_of(content.metadata) == manifest.values[static_cast<std::size_t>(rank)],
                  "{}: its values do not have the hash that the manifest gives", file);
  std::sort(content.tensors.begin(), content.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  auto at = content.tensors.begin();  // the manifest is in order of names too
  for (const StoredTensor& expected : manifest.tensors) {
    if (expected.shard() != shard) continue;
    AB_CHECK_KIND(checkpoint, at != content.tensors.end() && at->name == expected.name,
                  "{}: it lacks the tensor {} of the manifest, or holds one that is not in there", file, expected.name);
    const Tensor& value = (at++)->value;
    AB_CHECK_KIND(checkpoint, value.shape() == expected.shape && value.dtype() == expected.dtype,
                  "{}: tensor {} is {} of {}, the manifest says {} of {}", file, expected.name, value.shape().str(),
                  name_of(value.dtype()), expected.shape.str(), name_of(expected.dtype));
    if (std::binary_search(expected.ranks.begin(), expected.ranks.end(), rank))
      AB_CHECK_KIND(checkpoint, hash_of(value) == expected.hash,
                    "{}: tensor {} does not have the hash that the manifest gives", file, expected.name);
  }
  AB_CHECK_KIND(checkpoint, at == content.tensors.end(), "{}: it holds more tensors than the manifest gives", file);
  return content;
}

/// The state that `rank` saved, from its own shard and those that hold the tensors it shares with lower ranks.
StateDict read_state(const std::string& path, int rank, const Manifest& manifest) {
  std::map<int, std::vector<std::string>> names_in_shard{{rank, {}}};
  for (const StoredTensor& tensor : manifest.tensors)
    if (std::binary_search(tensor.ranks.begin(), tensor.ranks.end(), rank))
      names_in_shard[tensor.shard()].push_back(tensor.name);
  StateDict state;
  for (const auto& [shard, names] : names_in_shard) {
    const TensorFile content = read_shard(path, shard, rank, manifest);
    for (const std::string& name : names) state.put(name, *content.find(name));
    if (shard == rank)
      for (const auto& [name, text] : content.metadata) state.put(name, text);
  }
  return state;
}

/// Collective. The checkpoint at `path` if all ranks can read theirs; otherwise `failures` says why not.
std::optional<Checkpoint> load_checkpoint(const std::string& path, std::int64_t step, Comm& world,
                                          std::string& failures) {
  std::string text;  // read once and sent, so that all ranks decide about the same bytes
  failures = failures_of(world, [&] {
    if (world.rank() == 0) text = read_file(manifest_path(path), ErrorKind::checkpoint, Manifest::kMaxBytes);
  });
  if (!failures.empty()) return {};
  text = gather_texts(world, text)[0];
  Manifest manifest;
  failures = failures_of(world, [&] {
    manifest = parse_manifest(text, manifest_path(path));
    AB_CHECK_KIND(checkpoint, manifest.step == step, "{} is that of step {}", manifest_path(path), manifest.step);
  });
  if (!failures.empty()) return {};
  AB_CHECK_KIND(checkpoint, manifest.world_size() == world.size(),
                "the checkpoint {} was saved by {} ranks and cannot be continued by {}: start {}", path,
                manifest.world_size(), world.size(), manifest.world_size());
  Checkpoint checkpoint{step, {}, path};
  failures = failures_of(world, [&] {
    checkpoint.state = read_state(path, world.rank(), manifest);
    check_finite(checkpoint.state);
  });
  if (!failures.empty()) return {};
  return checkpoint;
}

/// Collective. The steps that rank 0 sees in the folder, newest first, so that all ranks try the same ones.
std::vector<std::int64_t> agreed_checkpoints(const std::string& folder, Comm& world) {
  std::string steps;
  const std::string failures = failures_of(world, [&] {
    if (world.rank() == 0) steps = fmt::format("{}", fmt::join(checkpoints_in(folder), " "));
  });
  AB_CHECK_KIND(checkpoint, failures.empty(), "cannot look for checkpoints: {}", failures);
  std::istringstream agreed(gather_texts(world, steps)[0]);
  return {std::istream_iterator<std::int64_t>(agreed), {}};
}

}  // namespace

void save_checkpoint(const std::string& folder, std::int64_t step, const StateDict& state, int keep, Comm& world) {
  AB_CHECK(step >= 0 && keep >= 1, "save_checkpoint: step {} and keep {} must be at least 0 and 1", step, keep);
  const CheckpointPhase phase(world.ledger());
  const std::string broken = failures_of(world, [&] { check_finite(state); });
  AB_CHECK_KIND(numerics, broken.empty(),
                "the state of step {} is not saved, {}; lower --lr, lengthen the warm-up, or set --max-grad-norm", step,
                broken);
  const bool leads = world.rank() == 0;
  const auto all_ranks_do = [&](const std::function<void()>& part) {
    const std::string failures = failures_of(world, part);
    AB_CHECK_KIND(checkpoint, failures.empty(), "cannot save the checkpoint {}: {}", checkpoint_path(folder, step),
                  failures);
  };

  std::unique_ptr<UnpublishedCheckpoint> unpublished;  // of rank 0
  std::string my_manifest;
  all_ranks_do([&] {
    if (leads) {
      const std::string stays = remove_leftovers(folder);
      if (!stays.empty()) warn(stays + "; it is in nobody's way");
      unpublished = std::make_unique<UnpublishedCheckpoint>(folder, step);
    }
    my_manifest = to_json(describe(step, state));
  });
  const std::string path = gather_texts(world, leads ? unpublished->path() : "")[0];
  const std::vector<std::string> manifests = gather_texts(world, my_manifest);
  Manifest manifest;
  all_ranks_do([&] {
    std::vector<Manifest> of_ranks;
    for (std::size_t rank = 0; rank < manifests.size(); ++rank)
      of_ranks.push_back(parse_manifest(manifests[rank], fmt::format("what rank {} brings", rank)));
    manifest = merge(of_ranks);
    write_safetensors(shard_path(path, world.rank()), shard_of(world.rank(), manifest, state));
  });
  all_ranks_do([&] {
    if (!leads) return;
    const std::string text = to_json(manifest);
    AB_CHECK_KIND(checkpoint, text.size() <= Manifest::kMaxBytes,
                  "its {} has {} bytes, of which nobody reads more than {}", manifest_path(path), text.size(),
                  Manifest::kMaxBytes);
    write_file_atomically(manifest_path(path), text);
    unpublished->publish();
  });
  if (!leads) return;
  try {
    remove_old_checkpoints(folder, step, keep);
  } catch (const Error& problem) {
    warn(fmt::format("{}; an old checkpoint stays", problem.what()));
  }
}

std::optional<Checkpoint> load_newest_checkpoint(const std::string& folder, Comm& world) {
  const CheckpointPhase phase(world.ledger());
  if (world.rank() == 0) restore_replaced(folder);
  const std::vector<std::int64_t> steps = agreed_checkpoints(folder, world);
  std::string failures;
  for (const std::int64_t step : steps) {
    const std::string path = checkpoint_path(folder, step);
    if (auto checkpoint = load_checkpoint(path, step, world, failures)) return checkpoint;
    if (world.rank() == 0) warn(fmt::format("the checkpoint {} is passed over: {}", path, failures));
  }
  AB_CHECK_KIND(checkpoint, steps.empty(), "none of the {} checkpoints in {} can be used; the oldest: {}", steps.size(),
                folder, failures);
  return {};
}

int ranks_of_newest_checkpoint(const std::string& folder) {
  const auto known = [](const auto& look) -> decltype(look()) {
    try {
      return look();
    } catch (const Error&) {
      return {};  // told, or passed over with a warning, when the run goes on
    }
  };
  for (const std::int64_t step : known([&] { return checkpoints_in(folder); })) {
    const std::string file = manifest_path(checkpoint_path(folder, step));
    const int ranks = known(
        [&] { return parse_manifest(read_file(file, ErrorKind::checkpoint, Manifest::kMaxBytes), file).world_size(); });
    if (ranks > 0) return ranks;
  }
  return 0;
}

Checkpoint load_checkpoint_of(std::int64_t step, const std::string& folder, Comm& world) {
  const CheckpointPhase phase(world.ledger());
  if (world.rank() == 0) restore_replaced(folder);
  const std::vector<std::int64_t> steps = agreed_checkpoints(folder, world);
  AB_CHECK_KIND(checkpoint, std::find(steps.begin(), steps.end(), step) != steps.end(),
                "{} holds no checkpoint of step {}; there are those of {}", folder, step,
                steps.empty() ? "no step" : fmt::format("{}", fmt::join(steps.rbegin(), steps.rend(), ", ")));
  std::string failures;
  auto checkpoint = load_checkpoint(checkpoint_path(folder, step), step, world, failures);
  AB_CHECK_KIND(checkpoint, checkpoint.has_value(), "the checkpoint {} cannot be used: {}",
                checkpoint_path(folder, step), failures);
  return *std::move(checkpoint);
}

}  // namespace ab
