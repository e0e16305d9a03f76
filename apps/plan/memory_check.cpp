// SPDX-License-Identifier: MIT
#include "apps/plan/memory_check.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "apps/plan/plan.h"
#include "apps/train/build_run.h"
#include "engine/core/machine.h"
#include "engine/core/memory.h"
#include "engine/core/say.h"
#include "engine/device/device.h"

namespace ab {
namespace {

std::string in_gb(std::int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

std::int64_t largest_side(const TrainConfig& config, const Dataset& images) {
  std::int64_t side = config.image_size > 0 ? config.image_size : images.height;
  for (std::size_t i = 0; i < config.image_sizes.size(); i += 2)
    side = std::max(side, static_cast<std::int64_t>(config.image_sizes[i]));
  return side;
}

/// Of a rank of the run, at most; nothing where no plan can be made, of which training itself will tell.
std::optional<NeededMemory> needed_by_rank(TrainConfig config, const Dataset& images, int world_size) {
  // None of these changes memory. A plan takes one network, and goes through all steps.
  config.network.clear();
  config.warmup_epochs = 0, config.warmup_steps = 0;
  constexpr std::int64_t kEnoughSteps = 100'000;
  if (config.steps > kEnoughSteps || config.epochs > kEnoughSteps) config.epochs = 0, config.steps = kEnoughSteps;
  config.image_size = largest_side(config, images);
  config.image_sizes.clear();
  const double half = find_method(config.method).has_ranks ? 0.5 : 0;
  try {
    return needed_memory(config, {.world_size = world_size, .classes = images.classes, .ratio = half});
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Of the batches that a rank's loader prepares ahead, in host memory.
std::int64_t loader_bytes(const TrainConfig& config, const Dataset& images, int world_size) {
  const std::int64_t side = largest_side(config, images);
  return (prefetched_batches(config, images, world_size) + 1) * config.batch_size * 3 * side * side * 4;
}

/// Why the run does not fit; empty where it does.
std::string obstacle(const TrainConfig& config, const Dataset& images, int world_size, const SharedMemory& share,
                     Device device) {
  const std::optional<NeededMemory> rank = needed_by_rank(config, images, world_size);
  if (!rank) return "";
  const std::int64_t loader = device.kind == DeviceKind::cpu ? loader_bytes(config, images, world_size) : 0;
  const std::int64_t needed = share.ranks * (rank->peak + loader);
  if (needed <= share.available) return "";
  const std::string ranks = fmt::format("{} rank{}", share.ranks, share.ranks == 1 ? "" : "s");
  constexpr const char* kAnyway = "--ignore-memory tries it all the same";
  if (share.ranks * rank->held > share.available)
    return fmt::format(
        "parameters, gradients and optimizer state of {} need {} of memory, and {} are left; take fewer ranks or a "
        "smaller model; {}",
        ranks, in_gb(share.ranks * rank->held), in_gb(share.available), kAnyway);
  const std::int64_t of_batch = rank->peak - rank->held + loader;
  const std::int64_t fits =
      (share.available / share.ranks - rank->held) * config.batch_size / std::max<std::int64_t>(1, of_batch);
  return fmt::format(
      "the run needs about {} of memory for {}, {} of it activations and images, and {} are left; {}; {}",
      in_gb(needed), ranks, in_gb(share.ranks * of_batch), in_gb(share.available),
      fits >= 1 ? fmt::format("--batch-size {} might fit", fits) : "not even a batch of one image would fit", kAnyway);
}

}  // namespace

SharedMemory shared_memory(Device device, Comm& world) {
  // Launchers may show every process a GPU of its own as number 0.
  const std::string memory_of = device.kind == DeviceKind::cuda ? cuda_bus_address(device.index) : "host";
  const std::size_t place = std::hash<std::string>{}(name_of_machine() + "/" + memory_of);
  const Tensor all({world.size(), 2}, DType::int64);
  const Uncounted uncounted(world.ledger());
  world.barrier();
  const std::vector<std::int64_t> own{static_cast<std::int64_t>(place), memory(device).available()};
  world.all_gather(Tensor::from(own, {2}), all);
  SharedMemory share{0, std::numeric_limits<std::int64_t>::max()};
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::int64_t* const of_rank = all.data<std::int64_t>() + 2 * rank;
    if (of_rank[0] != own[0]) continue;
    ++share.ranks;
    share.available = std::min(share.available, of_rank[1]);
  }
  return share;
}

void check_memory(const TrainConfig& config, const Dataset& images, int world_size, const SharedMemory& share,
                  Device device) {
  if (config.ignore_memory) return;
  std::string reason;
  try {
    reason = obstacle(config, images, world_size, share, device);
  } catch (const std::exception& error) {  // of the estimate, and not of the run
    say(stderr, "warning: the memory that the run needs could not be estimated: {}\n", in_our_words(error).what());
  }
  AB_CHECK(reason.empty(), "{}", reason);
}

}  // namespace ab
