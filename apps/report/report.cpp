// SPDX-License-Identifier: MIT
#include "apps/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/report/comparison.h"
#include "apps/report/frontier.h"
#include "apps/report/svg_chart.h"
#include "apps/report/terminal.h"

namespace ab {
namespace {

// Curve colours are Okabe and Ito's, which readers with any kind of colour vision can tell apart; the dark set lightens those
// that would sink into the background.
constexpr const char* kReportStyle = R"css(
:root { color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1c1e21; --soft: #62676e; --line: #e3e4e6; --band: #0072b2;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b88600; --c5: #3d9fd3; --c6: #555a60; --c7: #8a5ac2; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #15171a; --card: #1e2125; --ink: #e8e9eb; --soft: #9da3ab; --line: #33373d; --band: #56b4e9;
  --c0: #56b4e9; --c1: #f0803c; --c2: #2fc79a; --c3: #e59bc5; --c4: #f0c040; --c5: #9fd4f5; --c6: #b6bbc2; --c7: #b79af0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.2rem 1.4rem 4rem; max-width: 84rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { margin: 0; font-size: 1.9rem; letter-spacing: -.02em; } h2 { margin: 0; font-size: 1.05rem; }
header p { margin: .2rem 0 1.6rem; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1rem; margin-bottom: 1rem; }
article, figure, .wide { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
article { padding: 1rem 1.2rem; border-top: 4px solid currentColor; }
article > * { color: var(--ink); }
.what { margin: 0; color: var(--soft); font-size: .85rem; }
.big { margin: .5rem 0 .6rem; font-size: 2rem; font-weight: 650; letter-spacing: -.02em; }
.big small { margin-left: .45rem; font-size: .85rem; font-weight: 400; letter-spacing: 0; color: var(--soft); }
dl { display: grid; grid-template-columns: 1fr auto; gap: .15rem .8rem; margin: 0; font-size: .88rem; }
dt { color: var(--soft); } dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem; align-items: start; }
figure { margin: 0; padding: 1rem 1.1rem .4rem; min-width: 0; }
figcaption { font-weight: 600; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.none { color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: .15rem 0 .2rem; font-size: .84rem; color: var(--soft); }
.legend i { display: inline-block; width: 1.1em; margin-right: .4em; border-top: 3px solid currentColor; vertical-align: middle; }
.legend i.dashed { border-top-style: dashed; }
.grid { stroke: var(--line); stroke-width: 1; }
.tick, .axis { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
.axis { font-size: 12.5px; fill: var(--ink); }
.curve { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.curve.dashed { stroke-dasharray: 6 4; }
.hit { fill: transparent; } .dot { fill: currentColor; opacity: 0; } .dot.shown, .point:hover .dot { opacity: 1; }
.frontier { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 2 3; }
.range { stroke: currentColor; stroke-width: 2; } .dominated { color: var(--soft); opacity: .55; }
.fill { fill: currentColor; stroke: var(--card); stroke-width: 1; } .fill.dashed { fill-opacity: .55; }
.band { fill: var(--band); } .inside { font-size: 11px; fill: var(--ink); }
.k0 { color: var(--c0); } .k1 { color: var(--c1); } .k2 { color: var(--c2); } .k3 { color: var(--c3); }
.k4 { color: var(--c4); } .k5 { color: var(--c5); } .k6 { color: var(--c6); } .k7 { color: var(--c7); }
.wide { margin-top: 1rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .65rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } tr:last-child td { border-bottom: 0; }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
@media print { body { max-width: none; } figure, article { break-inside: avoid; } }
)css";

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

/// The share of the directions of each layer at the last cut: in the loss's sensitivity, or in the weight itself.
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
