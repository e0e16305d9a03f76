// SPDX-License-Identifier: MIT
#include "apps/paper/traffic_figures.h"

#include <limits>

#include "ablowrank/groups/phases.h"

namespace ab {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kEvaluation = "evaluation";

double saved(double bytes, double dense_bytes) { return dense_bytes > 0 ? 1 - bytes / dense_bytes : kUnknown; }

double in_phase(const std::map<std::string, double>& bytes, const std::string& phase) {
  const auto at = bytes.find(phase);
  return at == bytes.end() ? 0 : at->second;
}

std::int64_t low_rank_steps(const Summary& run) {
  const auto at = run.steps_by_phase.find(name_of(Phase::low_rank));
  return at == run.steps_by_phase.end() ? 0 : at->second;
}

/// Bytes of a low-rank step against those of a dense step; `bytes` by phase.
double saved_per_step(const Summary& run, const std::map<std::string, double>& bytes, const Summary& dense,
                      const std::map<std::string, double>& dense_bytes) {
  const std::int64_t steps = low_rank_steps(run);
  if (steps == 0 || dense.steps == 0) return kUnknown;
  return saved(in_phase(bytes, name_of(Phase::low_rank)) / static_cast<double>(steps),
               in_phase(dense_bytes, "full") / static_cast<double>(dense.steps));
}

}  // namespace

TrafficFigures traffic_figures(const Summary& run, const Summary& dense) {
  const auto training = [](const Summary& s) {
    return s.wire_bytes_per_rank_total - in_phase(s.wire_bytes_per_rank_by_phase, kEvaluation);
  };
  TrafficFigures figures;
  figures.low_rank_steps = static_cast<double>(low_rank_steps(run)) / static_cast<double>(run.steps);
  figures.compression = run.compression_ratio;
  figures.run = saved(run.wire_bytes_per_rank_total, dense.wire_bytes_per_rank_total);
  figures.run_inter_node = saved(run.inter_node_bytes_per_rank_total, dense.inter_node_bytes_per_rank_total);
  figures.training = saved(training(run), training(dense));
  figures.low_rank = saved_per_step(run, run.wire_bytes_per_rank_by_phase, dense, dense.wire_bytes_per_rank_by_phase);
  figures.training_inter_node = figures.low_rank_inter_node = kUnknown;
  return figures;
}

TrafficFigures traffic_figures(const RunPlan& run, const RunPlan& dense) {
  const auto inter_node = [](const RunPlan& plan) {
    std::map<std::string, double> bytes;
    for (const auto& [phase, traffic] : plan.traffic) bytes[phase] = traffic.inter_node;
    return bytes;
  };
  const std::map<std::string, double> bytes = inter_node(run), dense_bytes = inter_node(dense);
  TrafficFigures figures = traffic_figures(run.summary, dense.summary);
  figures.training_inter_node =
      saved(run.summary.inter_node_bytes_per_rank_total - in_phase(bytes, kEvaluation),
            dense.summary.inter_node_bytes_per_rank_total - in_phase(dense_bytes, kEvaluation));
  figures.low_rank_inter_node = saved_per_step(run.summary, bytes, dense.summary, dense_bytes);
  return figures;
}

}  // namespace ab
