// SPDX-License-Identifier: MIT
#include "apps/train/summary.h"

#include <nlohmann/json.hpp>

#include "apps/train/stop_request.h"
#include "engine/core/check.h"

namespace ab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kTotals = 4;  // before the phases in a traffic_row()

/// Calls visit(name, member) for every field: one list serves both directions.
template <class S, class Visit> void for_each_field(S& s, Visit&& visit) {
  visit("method", s.method);
  visit("model", s.model);
  visit("dataset", s.dataset);
  visit("world_size", s.world_size);
  visit("steps", s.steps);
  visit("epochs", s.epochs);
  visit("seed", s.seed);
  visit("train_seconds", s.train_seconds);
  visit("images_per_second", s.images_per_second);
  visit("waiting_seconds_by_phase", s.waiting_seconds_by_phase);
  visit("waiting_not_measured", s.waiting_not_measured);
  visit("compression_seconds", s.compression_seconds);
  visit("image_waiting_seconds", s.image_waiting_seconds);
  visit("flops_per_second", s.flops_per_second);
  visit("peak_share", s.peak_share);
  visit("joules", s.joules);
  visit("joules_from", s.joules_from);
  visit("final_val_loss", s.final_val_loss);
  visit("final_val_top1", s.final_val_top1);
  visit("final_val_top5", s.final_val_top5);
  visit("best_val_top1", s.best_val_top1);
  visit("average_val_top1", s.average_val_top1);
  visit("views_val_top1", s.views_val_top1);
  visit("train_samples", s.train_samples);
  visit("train_classes", s.train_classes);
  visit("val_samples", s.val_samples);
  visit("val_classes", s.val_classes);
  ImageCache::Use::for_each_number(s.images, visit);
  visit("bad_images", s.bad_images);
  visit("bad_image_names", s.bad_image_names);
  visit("parameters_full", s.parameters_full);
  visit("parameters_final", s.parameters_final);
  visit("compression_ratio", s.compression_ratio);
  visit("wire_bytes_per_rank_total", s.wire_bytes_per_rank_total);
  visit("inter_node_bytes_per_rank_total", s.inter_node_bytes_per_rank_total);
  visit("sent_bytes_per_rank_total", s.sent_bytes_per_rank_total);
  visit("inter_node_sent_bytes_per_rank_total", s.inter_node_sent_bytes_per_rank_total);
  visit("wire_bytes_by_rank", s.wire_bytes_by_rank);
  visit("wire_bytes_per_rank_by_phase", s.wire_bytes_per_rank_by_phase);
  visit("steps_by_phase", s.steps_by_phase);
  visit("per_layer", s.per_layer);
}

}  // namespace

static void to_json(Json& json, const LayerRank& layer) {
  json = {{"name", layer.name}, {"m", layer.m}, {"n", layer.n}, {"r", layer.r}};
}

static void from_json(const Json& json, LayerRank& layer) {
  layer = {json.at("name"), json.at("m"), json.at("n"), json.at("r")};
}

std::vector<double> traffic_row(const Ledger& ledger) {
  const LedgerEntry total = ledger.total();
  std::vector<double> row{total.wire_bytes(), total.inter_node_wire_bytes, total.sent_bytes(),
                          total.inter_node_sent_bytes};
  AB_ASSERT(row.size() == kTotals);
  for (const auto& [phase, entry] : ledger.by_phase()) row.push_back(entry.wire_bytes());
  return row;
}

void set_traffic(const std::vector<double>& rows, const std::vector<std::string>& phases, Summary& summary) {
  const std::size_t columns = kTotals + phases.size();
  const auto mean_of_column = [&](std::size_t column) {
    double sum = 0;
    for (std::size_t i = column; i < rows.size(); i += columns) sum += rows[i];
    return sum / static_cast<double>(rows.size() / columns);
  };
  summary.wire_bytes_by_rank.clear();
  for (std::size_t i = 0; i < rows.size(); i += columns) summary.wire_bytes_by_rank.push_back(rows[i]);
  summary.wire_bytes_per_rank_total = mean_of_column(0);
  summary.inter_node_bytes_per_rank_total = mean_of_column(1);
  summary.sent_bytes_per_rank_total = mean_of_column(2);
  summary.inter_node_sent_bytes_per_rank_total = mean_of_column(3);
  for (std::size_t i = 0; i < phases.size(); ++i)
    summary.wire_bytes_per_rank_by_phase[phases[i]] = mean_of_column(kTotals + i);
}

double exposed_seconds(const Summary& summary) {
  double seconds = 0;
  for (const auto& [phase, waiting] : summary.waiting_seconds_by_phase)
    if (phase != "setup" && phase != "evaluation" && phase != StopAgreement::kLabel) seconds += waiting;
  return seconds;
}

std::string to_json(const Summary& summary) {
  Json json;
  for_each_field(summary, [&](const char* name, const auto& member) { json[name] = member; });
  return json.dump(2) + "\n";
}

Summary summary_from_json(const std::string& text, const std::string& file) {
  const Json json = Json::parse(text, nullptr, false);
  AB_CHECK_KIND(data, json.is_object(), "{} is not a summary of a run: it is not a JSON object", file);
  Summary summary;
  for_each_field(summary, [&]<class T>(const char* name, T& member) {
    const auto at = json.find(name);
    AB_CHECK_KIND(data, at != json.end(), "{} is not a summary of a run: it lacks \"{}\"", file, name);
    if constexpr (std::is_same_v<T, double>) {
      if (at->is_null()) {
        member = std::numeric_limits<double>::quiet_NaN();
        return;
      }
    }
    try {
      at->get_to(member);
    } catch (const nlohmann::json::exception&) {
      throw Error(ErrorKind::data, fmt::format("{} is damaged: \"{}\" has the wrong type", file, name));
    }
  });
  return summary;
}

}  // namespace ab
