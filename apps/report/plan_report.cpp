// SPDX-License-Identifier: MIT
#include "apps/report/plan_report.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/methods/method.h"
#include "apps/report/terminal.h"
#include "apps/settings/setting.h"
#include "engine/sync/compressed_gradients.h"

namespace ab {
namespace {

using Json = nlohmann::ordered_json;

double saving(double bytes, double dense_bytes) { return 1 - bytes / dense_bytes; }

/// The saving of a run; where training decides how much is sent, the least.
std::string saved_by(const RunPlan& plan, double bytes, double dense_bytes) {
  const double saved = saving(bytes, dense_bytes);
  if (!plan.least || !std::isfinite(saved)) return saved_text(saved, 1);
  if (saved < 0) return fmt::format("≤ {:.1f} × as much", std::ceil(10 * (1 - saved)) / 10);
  return fmt::format("≥ {:.0f} %", std::floor(100 * saved));
}

/// A duration by a model of time, of which two digits are meant.
std::string duration(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  const auto in = [seconds](double unit, const char* name) {
    double count = seconds / unit;
    if (count >= 10) {
      const double tens = std::pow(10, std::floor(std::log10(count)) - 1);
      count = std::round(count / tens) * tens;
    }
    return fmt::format("{:.{}f} {}", count, count < 9.95 && unit > 1e-6 ? 1 : 0, name);
  };
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 0.995e-3) return in(1e-6, "µs");
  if (seconds < 0.995) return in(1e-3, "ms");
  return seconds < 99.5 ? in(1, "s") : seconds < 99.5 * kMinute ? in(kMinute, "min") : in(kHour, "h");
}

/// The share of the model's parameters that the run leaves.
std::string what_remains(const Summary& s) {
  if (!std::isfinite(s.compression_ratio)) return "training decides how many remain";
  if (s.parameters_final == s.parameters_full) return "as many at the end";
  return fmt::format("{} at the end ({:.2f} : 1 as stored)", human_count(static_cast<double>(s.parameters_final)),
                     s.compression_ratio);
}

std::string title(const RunPlan& plan) {
  const Summary& s = plan.summary;
  const int nodes = plan.ranks_per_node > 0 ? (s.world_size + plan.ranks_per_node - 1) / plan.ranks_per_node : 1;
  return fmt::format("{} on {}, {}: {} on {}, batch {} each; {} in {} of {}, {}\n{} parameters, {}\n", s.model,
                     s.dataset, s.method, counted(s.world_size, "rank"), counted(nodes, "node"), plan.batch_size,
                     counted(s.steps, "step"), counted(s.epochs, "epoch"), plan.steps_per_epoch,
                     counted(plan.evaluations, "validation"), human_count(static_cast<double>(s.parameters_full)),
                     what_remains(s));
}

std::string traffic_table(const RunPlan& plan) {
  std::set<std::string> kinds;
  for (const auto& [phase, traffic] : plan.traffic)
    for (const auto& [kind, bytes] : traffic.wire_by_kind) kinds.insert(kind);
  if (kinds.size() < 2) kinds.clear();
  std::vector<std::string> headings{"per rank", "times", "payload", "wire"};
  for (const std::string& kind : kinds) headings.push_back(kind + " ranks");
  headings.insert(headings.end(), {"in node", "across", "comm."});
  if (plan.step_seconds > 0) headings.push_back("exposed");

  TextTable table(headings);
  PhaseTraffic all;
  PhaseTime all_time;
  const auto add = [&](const std::string& name, const PhaseTraffic& t, const PhaseTime& time) {
    std::vector<std::string> cells{name, t.times > 0 ? std::to_string(t.times) : "", human_bytes(t.payload),
                                   human_bytes(t.wire())};
    for (const std::string& kind : kinds)
      cells.push_back(t.wire_by_kind.contains(kind) ? human_bytes(t.wire_by_kind.at(kind)) : "-");
    for (const double bytes : {t.intra_node, t.inter_node}) cells.push_back(human_bytes(bytes));
    cells.push_back(duration(time.communication));
    if (plan.step_seconds > 0) cells.push_back(duration(time.exposed()));
    table.add(std::move(cells));
  };
  for (const std::string& phase : plan.phases) {
    const PhaseTraffic& t = plan.traffic.at(phase);
    const PhaseTime& time = plan.time.at(phase);
    add(phase, t, time);
    all.payload += t.payload, all.intra_node += t.intra_node, all.inter_node += t.inter_node;
    for (const auto& [kind, bytes] : t.wire_by_kind) all.wire_by_kind[kind] += bytes;
    all_time.communication += time.communication, all_time.hidden += time.hidden;
  }
  add("total", all, all_time);
  return fmt::format("\n{}", table.str());
}

/// For a run whose traffic training decides.
std::string bounds(const RunPlan& plan) {
  if (!plan.least) return "";
  return fmt::format(
      "\nTraining decides how much is sent. This is the most it can send and keep; the least is {} on the wire, {} of it "
      "across.\n"
      "--{} RUN plans with what a run decided.\n",
      human_bytes(plan.least->wire), human_bytes(plan.least->inter_node),
      find_method(plan.summary.method).has_ranks ? "factors-from" : "decisions-from");
}

/// For a run that is over before its method begins.
std::string never_begins(const RunPlan& plan) {
  const Method& method = find_method(plan.summary.method);
  const auto& steps = plan.summary.steps_by_phase;
  if (!method.has_ranks && steps.size() == 1 && steps.contains(CompressedGradients::kWarmup))
    return "\nThe warm-up of the method does not end in this run: nothing in it is compressed.\n";
  const bool splits = std::ranges::any_of(plan.phases, [](const auto& phase) { return phase.starts_with("low-rank"); });
  if (!method.has_ranks || splits) return "";
  return "\nNo weight is split in this run: nothing in it is low-rank.\n";
}

std::string dense_table(const RunPlan& plan) {
  const Summary& s = plan.summary;
  if (s.world_size == 1) return "";
  const bool is_dense = s.method == kBaseline;
  std::vector<std::string> headings{"dense data parallel, gradients in", "wire", "across", "comm."};
  if (plan.step_seconds > 0) headings.push_back("exposed");
  if (!is_dense) headings.insert(headings.end(), {"wire saved", "across saved"});
  TextTable table(headings);
  const auto add = [&](const char* name, const DenseRun& dense) {
    std::vector<std::string> cells{name, human_bytes(dense.wire_bytes), human_bytes(dense.inter_node_bytes),
                                   duration(dense.time.communication)};
    if (plan.step_seconds > 0) cells.push_back(duration(dense.time.exposed()));
    if (!is_dense) {
      cells.push_back(saved_by(plan, s.wire_bytes_per_rank_total, dense.wire_bytes));
      cells.push_back(saved_by(plan, s.inter_node_bytes_per_rank_total, dense.inter_node_bytes));
    }
    table.add(std::move(cells));
  };
  add("fp32", plan.dense_float32);
  add("bf16", plan.dense_bfloat16);
  return fmt::format("\n{}", table.str());
}

std::string memory_table(const RunPlan& plan) {
  TextTable table(
      {"memory per rank", "weights", "gradients", "optimizer", "buffers", "average", "method", "activations", "total"});
  for (const auto& [when, use] : plan.memory) {
    std::vector<std::string> cells{when};
    for (const std::int64_t bytes : {use.weights, use.gradients, use.optimizer, use.buffers, use.average, use.method,
                                     use.activations, use.total()})
      cells.push_back(human_bytes(static_cast<double>(bytes)));
    table.add(std::move(cells));
  }
  return fmt::format("\n{}", table.str());
}

/// So that cores, which decode and augment images, keep up with the steps: bench/RESULTS.md has the rate.
std::string loading(const RunPlan& plan) {
  constexpr double kImagesPerCore = 800;
  if (plan.decoded_per_second == 0) return "";
  const double cores = plan.decoded_per_second / kImagesPerCore;
  const int ranks =
      std::min(plan.ranks_per_node > 0 ? plan.ranks_per_node : plan.summary.world_size, plan.summary.world_size);
  return fmt::format("\nloading: {:.0f} images/s take {} a rank and {:.0f} a node, at {:.0f} images/s a core\n",
                     plan.decoded_per_second, counted(static_cast<std::int64_t>(std::ceil(cores)), "core"),
                     std::ceil(cores * ranks), kImagesPerCore);
}

/// Where images come from, and how long those of other nodes keep the links busy.
std::string image_sources(const RunPlan& plan) {
  if (!plan.images) return "";
  const ImagePlan& images = *plan.images;
  std::vector<std::string> sources;
  const auto add = [&](double count, const char* where) {
    if (count > 0) sources.push_back(fmt::format("{} from {}", human_count(count), where));
  };
  add(images.from_memory, "memory"), add(images.from_nodes, "the memory of other nodes");
  add(images.from_disk, "the disk"), add(images.from_files, "their files");
  std::string text =
      fmt::format("\nimages of an epoch, once kept (500x375 pixels, files of {}): {}\nA node could keep {} of them.\n",
                  human_bytes(images.file_bytes), fmt::join(sources, ", "), human_bytes(images.bytes_of_node));
  if (images.from_nodes == 0) return text;
  const double computing = static_cast<double>(plan.steps_per_epoch) / static_cast<double>(plan.summary.steps) *
                           plan.whole_updates * plan.step_seconds;
  return text +
         fmt::format(
             "{} of their pixels cross nodes in an epoch: {} on each node's link, which the times above leave out{}.\n",
             human_bytes(images.bytes_from_nodes),
             duration(images.bytes_from_nodes / images.nodes / plan.links.inter_node.bandwidth),
             computing > 0 ? fmt::format(", beside {} of computing", duration(computing)) : "");
}

/// Whether they cost the network more than the method saves.
std::string images_beside_gradients(const RunPlan& plan) {
  if (!plan.images || plan.images->from_nodes == 0) return "";
  const ImagePlan& images = *plan.images;
  const Summary& s = plan.summary;
  const double gradients = s.inter_node_bytes_per_rank_total * s.world_size *
                           static_cast<double>(plan.steps_per_epoch) / static_cast<double>(s.steps);
  return fmt::format(
      "Gradients of all ranks are {}{}.\n"
      "--cache-share off takes {} images from files ({}) in their place; node takes none, and trains each node on 1/{} of all.\n",
      human_bytes(gradients),
      images.gradients_saved > 0 && images.bytes_from_nodes > images.gradients_saved
          ? fmt::format(", {} less than dense training's: images cost more than the method saves",
                        human_bytes(images.gradients_saved))
          : "",
      human_count(images.files_when_off), human_bytes(images.files_when_off * images.file_bytes), images.nodes);
}

std::string words_of(const Link& link) {
  const bool is_fast = link.bandwidth >= 1e9, is_near = link.latency < 1e-3;
  return fmt::format("{:g} {} and {:g} {}", link.bandwidth / (is_fast ? 1e9 : 1e6), is_fast ? "GB/s" : "MB/s",
                     link.latency * (is_near ? 1e6 : 1e3), is_near ? "µs" : "ms");
}

std::string notes(const RunPlan& plan) {
  std::string text = fmt::format(
      "payload: buffers of collectives; wire: what a rank sends for them on a ring, mean over ranks; in "
      "node, across:\n"
      "on links within a node and between nodes.\n"
      "comm.: rounds · latency + bytes as sent / bandwidth on the slowest rank, {}, with\n"
      "{} for a node, {} for a rank inside it (--network).\n",
      plan.all_reduce == AllReduce::library ? "all collectives by NCCL, taken for rings"
                                            : fmt::format("all-reduces by --allreduce {}", name_of(plan.all_reduce)),
      words_of(plan.links.inter_node), words_of(plan.links.intra_node));
  if (plan.step_seconds > 0)
    text +=
        "exposed: what of it delays the run: buckets leave during backward, 2/3 of what a batch computes, once full.\n";
  else text += "How much of it delays the run depends on the computing of a step: give --step-ms.\n";
  return "\n" + text +
         "memory: average: --ema-decay; method: buckets, residuals, the rest of a cut, and batches at hand; activations: what\n"
         "a step holds beside these at its peak. Libraries take more.\n";
}

std::string in_lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

Json phase_json(const RunPlan& plan, const std::string& phase) {
  const PhaseTraffic& t = plan.traffic.at(phase);
  const PhaseTime& time = plan.time.at(phase);
  Json json{{"times", t.times}, {"payload_bytes_per_rank", t.payload}, {"wire_bytes_per_rank", t.wire()}};
  for (const auto& [kind, bytes] : t.wire_by_kind)
    json[fmt::format("wire_bytes_per_{}_rank", in_lower_case(kind))] = bytes;
  json["intra_node_bytes_per_rank"] = t.intra_node;
  json["inter_node_bytes_per_rank"] = t.inter_node;
  json["communication_seconds"] = time.communication;
  json["hidden_seconds"] = time.hidden;
  return json;
}

Json dense_json(const Summary& s, const DenseRun& dense) {
  return {{"wire_bytes_per_rank_total", dense.wire_bytes},
          {"inter_node_bytes_per_rank_total", dense.inter_node_bytes},
          {"communication_seconds", dense.time.communication},
          {"hidden_seconds", dense.time.hidden},
          {"saved", saving(s.wire_bytes_per_rank_total, dense.wire_bytes)},
          {"saved_inter_node", saving(s.inter_node_bytes_per_rank_total, dense.inter_node_bytes)}};
}

Json memory_json(const PhaseMemory& row) {
  const MemoryUse& use = row.use;
  return {{"when", row.when},           {"weights", use.weights},         {"gradients", use.gradients},
          {"optimizer", use.optimizer}, {"buffers", use.buffers},         {"average", use.average},
          {"method", use.method},       {"activations", use.activations}, {"total", use.total()}};
}

}  // namespace

std::string plan_text(const RunPlan& plan) {
  return title(plan) + traffic_table(plan) + never_begins(plan) + bounds(plan) + dense_table(plan) +
         memory_table(plan) + loading(plan) + image_sources(plan) + images_beside_gradients(plan) + notes(plan);
}

std::string bucket_note(const RunPlan& plan, const BucketPlan& best) {
  constexpr double kWorthSaying = 0.01;  // of the run
  const double exposed = plan.exposed_seconds(), less = best.plan.exposed_seconds();
  if (exposed - less < kWorthSaying * plan.run_seconds()) return "";
  return fmt::format("\n{} would expose {} in place of {}.\n", flags_text(bucket_flags(best.config)), duration(less),
                     duration(exposed));
}

namespace {

std::string choice_title(const BucketPlan& first) {
  const RunPlan& plan = first.plan;
  const TrainConfig& config = first.config;
  return fmt::format("{} on {}: {}, {} a node, batch {} each, {} on {}; {} of {}\n{} between nodes, {} inside{}\n\n",
                     plan.summary.model, plan.summary.dataset, counted(plan.summary.world_size, "rank"),
                     config.ranks_per_node > 0 ? config.ranks_per_node : plan.summary.world_size, plan.batch_size,
                     config.precision, config.device, counted(plan.summary.steps, "step"), duration(plan.step_seconds),
                     words_of(plan.links.inter_node), words_of(plan.links.intra_node),
                     config.network.empty() ? ": assumed, give --network" : "");
}

}  // namespace

std::string choice_text(const std::vector<MethodPlan>& plans) {
  constexpr double kNear = 0.5, kLess = 0.97;  // points of top-1; of the time of dense training
  TextTable table({"--method", "bucket", "run", "exposed", "of run", "across", "memory", "model", "below dense"});
  std::string left_out;
  const MethodPlan *dense = nullptr, *soonest = nullptr;
  const auto seconds = [](const MethodPlan* row) { return row->best.plan.run_seconds(); };
  for (const MethodPlan& row : plans) {
    if (!row.can_train) {
      left_out +=
          fmt::format("{0} cannot train so; abtrain plan --method {0} says why.\n", row.method->flags[0].second);
      continue;
    }
    const RunPlan& plan = row.best.plan;
    std::int64_t memory = 0;
    for (const PhaseMemory& phase : plan.memory) memory = std::max(memory, phase.use.total());
    const double ratio = plan.summary.compression_ratio, bucket = row.best.config.bucket_mb;
    const double below = std::max(0.0, std::round(10 * row.method->points_below) / 10);
    table.add({row.method->name, bucket > 0 ? fmt::format("{:.4g}", bucket) : "", duration(plan.run_seconds()),
               duration(plan.exposed_seconds()), percent(plan.exposed_seconds() / plan.run_seconds(), 0),
               human_bytes(plan.summary.inter_node_bytes_per_rank_total), human_bytes(static_cast<double>(memory)),
               std::isfinite(ratio) ? fmt::format("{:.1f} : 1", ratio) : "by training",
               row.as_measured ? fmt::format("{:.1f}", below) : "–"});
    // Dense training in 16 bits, but where it is slower.
    if (row.method->flags[0].second == kBaseline && (!dense || seconds(&row) * kLess < seconds(dense))) dense = &row;
    if (row.as_measured && below <= kNear && (!soonest || seconds(&row) < seconds(soonest))) soonest = &row;
  }
  const double share = soonest ? seconds(soonest) / seconds(dense) : 1;
  const std::string choice =
      share < kLess ? fmt::format(
                          "Of all within half a point of dense training this takes the least time, {:.0f} % less than "
                          "dense:\n  {}\n",
                          100 * (1 - share), flags_text(soonest->flags))
                    : fmt::format("Nothing within half a point of dense training saves 3 % of its time:\n  {}\n",
                                  flags_text(dense->flags));
  return choice_title(plans.front().best) + table.str() + "\n" + left_out + choice + loading(plans.front().best.plan) +
         image_sources(plans.front().best.plan) +
         "\n--method: with --comm-dtype bf16 where nothing is said. bucket: the best --bucket-mb where it is not the default.\n"
         "run: computing of all steps, and what communication delays it (exposed). Not counted: validations, decoding,\n"
         "what methods compute beside a step, and what thin factors save. across: bytes that a rank sends between nodes.\n"
         "memory: of a rank at its peak; libraries take more. below dense: points of top-1 that conv6_cifar lost on\n"
         "CIFAR-10 in twelve epochs: an order of methods, not the loss of another net (–: with other settings than there).\n";
}

std::string plan_json(const RunPlan& plan) {
  Json json = Json::parse(to_json(plan.summary));
  Json& own = json["plan"];
  own["ranks_per_node"] = plan.ranks_per_node;
  own["batch_size"] = plan.batch_size;
  own["steps_per_epoch"] = plan.steps_per_epoch;
  own["evaluations"] = plan.evaluations;
  own["step_seconds"] = plan.step_seconds > 0 ? Json(plan.step_seconds) : Json();
  for (const auto& [name, link] :
       {std::pair{"inter_node", plan.links.inter_node}, {"intra_node", plan.links.intra_node}})
    own["links"][name] = {{"latency_seconds", link.latency}, {"bytes_per_second", link.bandwidth}};
  for (const std::string& phase : plan.phases) own["phases"][phase] = phase_json(plan, phase);
  if (plan.least)
    own["least"] = {{"wire_bytes_per_rank_total", plan.least->wire},
                    {"inter_node_bytes_per_rank_total", plan.least->inter_node}};
  own["dense_float32"] = dense_json(plan.summary, plan.dense_float32);
  own["dense_bfloat16"] = dense_json(plan.summary, plan.dense_bfloat16);
  for (const PhaseMemory& row : plan.memory) own["memory_per_rank"].push_back(memory_json(row));
  return json.dump(2) + "\n";
}

}  // namespace ab
