// SPDX-License-Identifier: MIT
#include "engine/sync/daso.h"

#include <map>

namespace ab {

DasoPace next_pace(const DasoPace& pace, const DasoOptions& options) {
  const DasoPace next =
      pace.skips > 1 ? DasoPace{pace.skips / 2, pace.wait - 1} : DasoPace{options.max_skips, options.max_skips / 4};
  return {next.skips, std::clamp<std::int64_t>(next.wait, 1, next.skips)};
}

namespace {

/// The state that decides about all that is to come: the pace and for how long the loss has not fallen.
struct Standing {
  DasoPace pace;
  std::int64_t bad_epochs = 0;
  auto operator<=>(const Standing&) const = default;
};

/// The best way to a standing: sends so far, and the standing one epoch before.
struct Way {
  std::int64_t sends = 0;
  std::optional<Standing> from{};
};

}  // namespace

std::vector<DasoPace> extreme_paces(const DasoOptions& options, const DasoCalendar& calendar, bool most) {
  std::vector<std::map<Standing, Way>> ways(1);
  ways[0][{{options.start_skips, options.start_wait}}] = {};
  bool first = true;  // the first loss is the best so far
  for (std::int64_t epoch = 0; epoch + 1 < calendar.epochs(); ++epoch) {
    std::map<Standing, Way> next;
    const bool decides = calendar.decides_after(epoch);
    for (const auto& [standing, way] : ways.back()) {
      const std::int64_t sends = way.sends + (calendar.blocking(epoch) ? 0 : calendar.sends(epoch, standing.pace));
      const auto go = [&, &from = standing](const Standing& to) {
        const auto [at, is_new] = next.try_emplace(to, Way{sends, from});
        if (!is_new && (most ? sends > at->second.sends : sends < at->second.sends)) at->second = {sends, from};
      };
      if (!decides) {
        go(standing);
        continue;
      }
      go({standing.pace, 0});
      if (first) continue;
      if (standing.bad_epochs < options.patience) go({standing.pace, standing.bad_epochs + 1});
      else go({next_pace(standing.pace, options), 0});
    }
    first = first && !decides;
    ways.push_back(std::move(next));
  }
  const std::int64_t last = calendar.epochs() - 1;
  std::optional<Standing> at;
  std::int64_t best = 0;
  for (const auto& [standing, way] : ways.back()) {
    const std::int64_t sends = way.sends + (calendar.blocking(last) ? 0 : calendar.sends(last, standing.pace));
    if (!at || (most ? sends > best : sends < best)) at = standing, best = sends;
  }
  std::vector<DasoPace> paces(ways.size());
  for (std::size_t epoch = ways.size(); epoch-- > 0;) {
    paces[epoch] = at->pace;
    at = ways[epoch].at(*at).from;
  }
  return paces;
}

}  // namespace ab
