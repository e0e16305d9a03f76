// SPDX-License-Identifier: MIT
#include "apps/plan/memory_check.h"

#include <algorithm>

#include "apps/methods/method.h"
#include "apps/plan/activations.h"
#include "apps/plan/plan.h"
#include "apps/train/build_run.h"
#include "engine/core/memory.h"

namespace ab {
namespace {

std::string in_gb(std::int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

void check_memory(const TrainConfig& config, const Dataset& images, int world_size, int sharing, Device device) {
  if (config.ignore_memory) return;
  const std::int64_t available = memory(device).available();
  const ModelSpec spec = make_model_spec(config, images.classes, images.height);
  const RunPlan plan = plan_run(
      config,
      {.world_size = world_size, .classes = images.classes, .ratio = find_method(config.method).has_ranks ? 0.5 : 0});
  std::int64_t fixed = 0;
  for (const MemoryRow& row : plan.memory) fixed = std::max(fixed, row.use.total());
  const std::int64_t per_image = activation_bytes(spec, config, device);
  const std::int64_t rank = fixed + config.batch_size * per_image;
  if (sharing * rank <= available) return;
  const std::int64_t fits = per_image > 0 ? (available / sharing - fixed) / per_image : 0;
  const std::string advice =
      fits >= 1 ? fmt::format("--batch-size {} would fit", fits) : "not even a batch of one image would fit";
  throw Error(
      ErrorKind::config,
      fmt::format("the run needs about {} of memory for {} rank{}, {} of it activations, and {} are left; {}, and "
                  "--ignore-memory tries it all the same",
                  in_gb(sharing * rank), sharing, sharing == 1 ? "" : "s",
                  in_gb(sharing * config.batch_size * per_image), in_gb(available), advice));
}

}  // namespace ab
