// SPDX-License-Identifier: MIT
#include "apps/train/run_images.h"

#include <algorithm>
#include <random>

#include "data/image_cache.h"
#include "engine/comm/texts.h"
#include "engine/core/check.h"
#include "engine/core/machine.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr const char *kFingerprint = "images", *kContents = "image_contents";

std::int64_t classes_with_images(const Dataset& set) { return set.classes - std::ssize(labels_without_images(set)); }

std::string images_text(const Dataset& set) {
  const std::int64_t classes = classes_with_images(set);
  return fmt::format("{} image{} of {} class{}{}", set.count, set.count == 1 ? "" : "s", classes,
                     classes == 1 ? "" : "es", classes == set.classes ? "" : fmt::format(" (of {})", set.classes));
}

}  // namespace

RunImages::RunImages(const TrainAndTest& data) : fingerprint_(static_cast<std::int64_t>(data.fingerprint())) {
  for (const std::uint64_t hash : data.contents()) contents_.push_back(static_cast<std::int64_t>(hash));
}

void RunImages::save(StateDict& state) const {
  state.put(kFingerprint, fingerprint_);
  state.put(kContents, Tensor::from(contents_, {static_cast<std::int64_t>(contents_.size())}));
}

std::string RunImages::compare(const StateDict& state) const {
  std::size_t different = 0;
  bool same = state.integer(kFingerprint) == fingerprint_;
  if (same) {
    const Tensor saved = state.tensor(kContents);
    same = saved.dtype() == DType::int64 && saved.numel() == static_cast<std::int64_t>(contents_.size());
    for (std::size_t i = 0; same && i < contents_.size(); ++i)
      different += saved.data<std::int64_t>()[i] != contents_[i] ? 1 : 0;
    same = same && 4 * different <= contents_.size();
  }
  AB_CHECK_KIND(data, same, "the checkpoint was saved with other images; give the data set that the run began with");
  if (different == 0) return "";
  return fmt::format("{} of {} image files that were looked at have another size than when the checkpoint was saved",
                     different, contents_.size());
}

namespace {

struct NodesOfJob {
  std::vector<std::size_t> first_of_rank;  ///< for each rank the first one of its node
  std::vector<std::string> machines;       ///< of each rank

  std::size_t number_of(int rank) const {
    std::size_t number = 0;
    for (std::size_t r = 0; r < first_of_rank[static_cast<std::size_t>(rank)]; ++r) number += first_of_rank[r] == r;
    return number;
  }
};

/// Ranks of one node of the ledger and one machine share a cache.
NodesOfJob nodes_of(Comm& processes) {
  const std::vector<int>& node_of_rank = processes.ledger().node_of_rank();
  std::vector<std::string> nodes = gather_texts(processes, name_of_machine());
  NodesOfJob job{{}, nodes};
  for (std::size_t r = 0; r < nodes.size(); ++r) nodes[r] += fmt::format(" {}", node_of_rank[r]);
  for (const std::string& node : nodes)
    job.first_of_rank.push_back(static_cast<std::size_t>(std::ranges::find(nodes, node) - nodes.begin()));
  return job;
}

std::uint64_t random_token() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

/// The nodes of a job send each other what they keep of the training images.
CacheNodes share_among(const NodesOfJob& job, const std::shared_ptr<const CachedImages>& kept, Comm& processes) {
  const auto rank = static_cast<std::size_t>(processes.rank());
  const std::uint64_t token = std::stoull(gather_texts(processes, std::to_string(random_token())).front());
  CacheNodes nodes{.own = static_cast<std::int64_t>(job.number_of(processes.rank()))};
  if (job.first_of_rank[rank] == rank)
    nodes.server = std::make_shared<ImageServer>(token, [kept](std::int64_t number) {
      thread_local Image buffer;
      return kept->find(number, buffer);
    });
  const std::vector<std::string> ports =
      gather_texts(processes, nodes.server ? std::to_string(nodes.server->port()) : "");
  std::vector<HostPort> servers;
  for (std::size_t r = 0; r < ports.size(); ++r) {
    const std::string& machine = job.machines[r];
    const std::string host = machine == job.machines[rank] ? "localhost" : machine.substr(0, machine.find('/'));
    if (!ports[r].empty()) servers.push_back({host, std::stoi(ports[r])});
  }
  nodes.nodes = std::make_shared<ImageNodes>(std::move(servers), token);
  return nodes;
}

}  // namespace

TrainAndTest in_cache(const TrainAndTest& data, const TrainConfig& config, Comm* processes) {
  if (!data.train->reads_files()) return data;
  const std::int64_t images = data.train->count + data.test->count;
  const CacheRoom room{static_cast<std::int64_t>(config.cache_gb * 1e9), config.cache_disk,
                       static_cast<std::int64_t>(config.cache_disk_gb * 1e9)};
  const std::string set = room.disk.empty() ? "" : fmt::format("{:016x}", data.hash());
  std::shared_ptr<ImageCache> cache;
  const auto make = [&] {
    if (room.memory_bytes > 0 || !room.disk.empty()) cache = std::make_shared<ImageCache>(images, room, set);
  };
  CacheNodes nodes;
  if (!processes) {
    make();
  } else {
    const Uncounted uncounted(processes->ledger());
    const NodesOfJob job = nodes_of(*processes);
    const auto rank = static_cast<std::size_t>(processes->rank()), first = job.first_of_rank[rank];
    if (first == rank) make();
    // The settings of each node's first rank count; all ranks must come to the same conclusion.
    const char share = config.cache_share == CacheShare::world && room.memory_bytes > 0 ? '+' : '-';
    const std::vector<std::string> handles = gather_texts(*processes, cache ? share + cache->handle() : "");
    if (first != rank && !handles[first].empty())
      cache = std::make_shared<ImageCache>(handles[first].substr(1), room.disk, set);
    const auto shares = [&](std::size_t r) { return handles[r].starts_with('+'); };
    if (std::ranges::all_of(job.first_of_rank, shares) &&
        std::ranges::any_of(job.first_of_rank, [](std::size_t r) { return r != 0; }))
      nodes = share_among(job, std::make_shared<CachedImages>(data.train, cache, 0), *processes);
  }
  if (!cache) return data;
  return {std::make_shared<CachedImages>(data.train, cache, 0, std::move(nodes)),
          std::make_shared<CachedImages>(data.test, cache, data.train->count)};
}

void tell_images(const TrainConfig& config, const TrainAndTest& data) {
  for (const auto& set : {data.train, data.test})
    for (const std::string& warning : set->warnings) say(stderr, "warning: {}\n", warning);
  const std::int64_t classes = classes_with_images(*data.train);
  if (config.train_samples > 0 && classes < data.train->classes)
    say(stderr, "warning: --train-samples {} leaves images of {} of {} classes to train on\n", config.train_samples,
        classes, data.train->classes);
  say(stdout, "training on {}, validating on {}\n", images_text(*data.train), images_text(*data.test));
}

std::map<std::string, std::int64_t> images_so_far(const TrainAndTest& data) {
  const auto* cached = dynamic_cast<const CachedImages*>(data.train.get());
  if (!cached) return {};
  std::map<std::string, std::int64_t> counts;
  const ImageCache::Use use = cached->use_of_cache();
  ImageCache::Use::for_each_number(use, [&](const std::string& name, std::int64_t count) {
    if (name.find("_from_") != std::string::npos) counts[name] = count;
  });
  return counts;
}

void count_images(const TrainAndTest& data, Summary& summary) {
  summary.train_samples = data.train->count;
  summary.train_classes = classes_with_images(*data.train);
  summary.val_classes = classes_with_images(*data.test);
  if (const auto* cached = dynamic_cast<const CachedImages*>(data.train.get())) summary.images = cached->use_of_cache();
}

}  // namespace ab
