// SPDX-License-Identifier: MIT
#include "apps/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/report/comparison.h"
#include "apps/report/frontier.h"
#include "apps/report/report_style.h"
#include "apps/report/svg_chart.h"
#include "apps/report/terminal.h"

namespace ab {
namespace {

constexpr const char* kPageBegins = "<!doctype html>\n<html lang=\"en\"><head>";
constexpr const char* kGenerator = "<meta name=\"generator\" content=\"abtrain\">";

/// One curve for each run, in the run's colour.
template <class PointsOf>
std::vector<Curve> curves_of(const std::vector<Run>& runs, bool marked, PointsOf&& points_of) {
  std::vector<Curve> curves;
  for (std::size_t i = 0; i < runs.size(); ++i)
    curves.push_back({runs[i].label, points_of(runs[i]), static_cast<int>(i), marked});
  return curves;
}

/// Bytes sent until `step`: the latest record at or before it.
double bytes_until(const Run& run, std::int64_t step) {
  double bytes = 0;
  for (const StepMetrics& m : run.steps)
    if (m.step <= step) bytes = m.wire_bytes;
  return bytes;
}

std::string cards(const std::vector<Run>& runs) {
  const Run* baseline = dense_baseline(runs);
  const auto in_type = [](const Run& run) { return run.config ? ", in " + sent_in(run) : ""; };
  const std::string against = baseline ? in_type(*baseline) : "";
  std::string html = "<section class=\"cards\">";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Summary& s = runs[i].summary;
    const double saving = wire_saving(runs[i], baseline);
    html += fmt::format(
        "<article class=\"k{}\"><h2>{}</h2><p class=\"what\">{} · {} · {} · {}</p>"
        "<p class=\"big\">{}<small>top-1</small></p>"
        "<dl><dt>sent per rank{}</dt><dd>{}</dd><dt>saved against dense{}</dt><dd>{}</dd><dt>model "
        "compressed</dt><dd>{}</dd>"
        "<dt>training time</dt><dd>{}</dd><dt>images per second</dt><dd>{:.0f}</dd></dl></article>",
        i % 8, escape_html(runs[i].label), escape_html(s.method), escape_html(s.model), escape_html(s.dataset),
        counted(s.world_size, "rank"), percent(s.final_val_top1), in_type(runs[i]),
        human_bytes(s.wire_bytes_per_rank_total), against, &runs[i] == baseline ? "baseline" : saved_text(saving, 1),
        fmt::format("{:.2f} : 1", s.compression_ratio), human_seconds(s.train_seconds), s.images_per_second);
  }
  return html + "</section>\n";
}

std::string table(const std::vector<Run>& runs) {
  const Run* baseline = dense_baseline(runs);
  std::string html =
      "<section "
      "class=\"wide\"><table><thead><tr><th>run<th>method<th>model<th>ranks<th>steps<th>epochs<th>seed"
      "<th>final top-1<th>best top-1<th>val loss<th>sent in<th>wire per rank<th>saved<th>compression<th>time<th>images/s"
      "</tr></thead><tbody>";
  for (const Run& run : runs) {
    const Summary& s = run.summary;
    html += fmt::format(
        "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.4f}<td>{}<td>{}<td>{}<td>{:.2f} : 1<td>{}<td>"
        "{:.0f}</tr>",
        escape_html(run.label), escape_html(s.method), escape_html(s.model), s.world_size, s.steps, s.epochs, s.seed,
        percent(s.final_val_top1), percent(s.best_val_top1), s.final_val_loss, sent_in(run),
        human_bytes(s.wire_bytes_per_rank_total), saved_text(wire_saving(run, baseline), 1), s.compression_ratio,
        human_seconds(s.train_seconds), s.images_per_second);
  }
  return html + "</tbody></table></section>\n";
}

std::string phase_chart(const std::vector<Run>& runs) {
  const std::vector<std::string> phases = phases_of(runs);
  BarChart chart{"Where the bytes go: sent per rank, by phase", "bytes per rank", NumberStyle::bytes, phases, {}};
  for (const Run& run : runs) {
    StackedBar bar{run.label, {}};
    for (const std::string& phase : phases) {
      const auto at = run.summary.wire_bytes_per_rank_by_phase.find(phase);
      bar.parts.push_back(at == run.summary.wire_bytes_per_rank_by_phase.end() ? 0 : at->second);
    }
    chart.bars.push_back(std::move(bar));
  }
  return draw(chart);
}

/// Each layer a row; a band from one split to the next, as dark as r is close to n.
std::string rank_chart(const Run& run) {
  BandChart chart{fmt::format("Rank r of every layer: {}", run.label), "step", 0, {}};
  chart.x_end = static_cast<double>(std::max(run.summary.steps, run.splits.back().step));
  for (std::size_t i = 0; i < run.splits.size(); ++i) {
    const double begin = static_cast<double>(run.splits[i].step);
    const double end = i + 1 < run.splits.size() ? static_cast<double>(run.splits[i + 1].step) : chart.x_end;
    for (const LayerRank& layer : run.splits[i].layers) {
      auto row =
          std::find_if(chart.rows.begin(), chart.rows.end(), [&](const BandRow& r) { return r.label == layer.name; });
      if (row == chart.rows.end()) row = chart.rows.insert(row, BandRow{layer.name, {}});
      row->bands.push_back(
          {begin, end, static_cast<double>(layer.r) / static_cast<double>(std::max<std::int64_t>(1, layer.n)),
           std::to_string(layer.r),
           fmt::format("{} ({}×{}): r = {} from step {} to {}", layer.name, layer.m, layer.n, layer.r, begin, end)});
    }
  }
  return draw(chart);
}

/// What the directions of each layer hold at the last cut: of what they are worth to the loss, or of the weight itself.
std::string worth_chart(const Run& run, bool by_loss) {
  const SplitMetrics& cut = run.splits.back();
  LineChart chart{fmt::format("What the largest directions hold {}: {}",
                              by_loss ? "of what the loss depends on" : "of the squared singular values", run.label),
                  "share of the directions",
                  "share held",
                  NumberStyle::percent,
                  NumberStyle::percent,
                  true,
                  {}};
  for (std::size_t i = 0; i < cut.layers.size(); ++i) {
    const std::vector<double>& shares = by_loss ? cut.sensitivity[i].by_loss : cut.sensitivity[i].by_sigma;
    if (shares.empty()) continue;
    Curve curve{cut.layers[i].name, {}, static_cast<int>(i)};
    for (std::size_t k = 0; k < shares.size(); ++k)
      curve.points.push_back({static_cast<double>(k) / static_cast<double>(shares.size() - 1), shares[k]});
    chart.curves.push_back(std::move(curve));
  }
  return chart.curves.empty() ? "" : draw(chart);
}

std::string charts(const std::vector<Run>& runs) {
  std::string html = "<section class=\"charts\">";
  html += draw(LineChart{"Training loss", "step", "loss", NumberStyle::plain, NumberStyle::plain, false,
                         curves_of(runs, false, [](const Run& run) {
                           std::vector<Point> points;
                           for (const StepMetrics& m : run.steps)
                             points.push_back({static_cast<double>(m.step), m.loss});
                           return points;
                         })});
  html += draw(LineChart{"Accuracy on the validation images", "step", "top-1", NumberStyle::plain, NumberStyle::percent,
                         false, curves_of(runs, true, [](const Run& run) {
                           std::vector<Point> points;
                           for (const EpochMetrics& m : run.epochs)
                             points.push_back({static_cast<double>(m.step), m.val_top1});
                           return points;
                         })});
  html += draw(LineChart{"Bytes sent by rank 0", "step", "bytes, cumulative", NumberStyle::plain, NumberStyle::bytes,
                         true, curves_of(runs, false, [](const Run& run) {
                           std::vector<Point> points{{0, 0}};
                           for (const StepMetrics& m : run.steps)
                             points.push_back({static_cast<double>(m.step), m.wire_bytes});
                           return points;
                         })});
  html += draw(LineChart{"What the bytes of rank 0 bought", "bytes sent", "top-1", NumberStyle::bytes,
                         NumberStyle::percent, false, curves_of(runs, true, [](const Run& run) {
                           std::vector<Point> points;
                           for (const EpochMetrics& m : run.epochs)
                             points.push_back({bytes_until(run, m.step), m.val_top1});
                           return points;
                         })});
  html += frontier_charts(runs);
  html += phase_chart(runs);
  for (const Run& run : runs)
    if (!run.splits.empty()) html += rank_chart(run) + worth_chart(run, true) + worth_chart(run, false);
  return html + "</section>\n";
}

}  // namespace

bool is_report_html(const std::string& text) {
  const std::string head = text.substr(0, text.find("<style>"));
  return head.starts_with(kPageBegins) &&
         (head.find(kGenerator) != head.npos || head.find("<title>abtrain: ") != head.npos);
}

std::string report_html(const std::vector<Run>& runs) {
  std::vector<std::string> labels;
  for (const Run& run : runs) labels.push_back(run.label);
  const std::string title = fmt::format("abtrain: {}", fmt::join(labels, ", "));
  return fmt::format(
             "{}<meta charset=\"utf-8\">{}"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{}</title>\n"
             "<style>{}</style></head>\n<body><header><h1>{} {} compared</h1><p>Bytes are what one rank puts "
             "on "
             "the wire under ring algorithms, mean over ranks; rest the pointer on a point to read "
             "it.</p></header>\n",
             kPageBegins, kGenerator, escape_html(title), kReportStyle, runs.size(),
             runs.size() == 1 ? "run" : "runs") +
         cards(runs) + charts(runs) + table(runs) + "</body></html>\n";
}

}  // namespace ab
