// SPDX-License-Identifier: MIT
#include "apps/plan/memory_check.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>

#include "apps/methods/method.h"
#include "apps/plan/activations.h"
#include "apps/plan/plan.h"
#include "apps/train/build_run.h"
#include "engine/core/memory.h"

namespace ab {
namespace {

std::string in_gb(std::int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

/// What a rank holds beside activations, at most; nothing where no plan can be made, of which training itself will tell.
std::optional<std::int64_t> planned_bytes(TrainConfig config, const Dataset& images, int world_size) {
  config.network.clear();  // it changes no memory, and a plan takes one alone
  try {
    const double half = find_method(config.method).has_ranks ? 0.5 : 0;
    return largest_memory(plan_run(config, {.world_size = world_size, .classes = images.classes, .ratio = half}));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

SharedMemory shared_memory(Device device, Comm& world) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::size_t place =
      std::hash<std::string>{}(fmt::format("{}/{}/{}", host.data(), static_cast<int>(device.kind), device.index));
  const Tensor all({world.size(), 2}, DType::int64);
  const Ledger of_training = world.ledger();
  world.barrier();
  const std::vector<std::int64_t> own{static_cast<std::int64_t>(place), memory(device).available()};
  world.all_gather(Tensor::from(own, {2}), all);
  world.ledger() = of_training;
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
  const std::optional<std::int64_t> fixed = planned_bytes(config, images, world_size);
  if (!fixed) return;
  const std::string ranks = fmt::format("{} rank{}", share.ranks, share.ranks == 1 ? "" : "s");
  constexpr const char* kAnyway = "--ignore-memory tries it all the same";
  AB_CHECK(share.ranks * *fixed <= share.available,
           "parameters, gradients and optimizer state of {} need {} of memory, and {} are left; take fewer ranks or a "
           "smaller model; {}",
           ranks, in_gb(share.ranks * *fixed), in_gb(share.available), kAnyway);
  std::int64_t per_image = 0;
  try {
    per_image = activation_bytes(make_model_spec(config, images.classes, images.height), config, device);
  } catch (const OutOfMemory&) {
    throw Error(ErrorKind::config, fmt::format("of the {} that are left for {}, a step with few images takes more; {}",
                                               in_gb(share.available), ranks, kAnyway));
  }
  const std::int64_t activations = share.ranks * config.batch_size * per_image;
  const std::int64_t needed = share.ranks * *fixed + activations;
  if (needed <= share.available) return;
  const std::int64_t fits = (share.available / share.ranks - *fixed) / std::max<std::int64_t>(1, per_image);
  throw Error(ErrorKind::config,
              fmt::format("the run needs about {} of memory for {}, {} of it activations, and {} are left; {}; {}",
                          in_gb(needed), ranks, in_gb(activations), in_gb(share.available),
                          fits >= 1 ? fmt::format("--batch-size {} would fit", fits)
                                    : "not even a batch of one image would fit",
                          kAnyway));
}

}  // namespace ab
