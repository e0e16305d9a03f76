// SPDX-License-Identifier: MIT
#include "apps/report/comparison.h"

#include <algorithm>

#include "apps/report/svg_chart.h"
#include "apps/report/terminal.h"

namespace ab {
namespace {

// Curve colours are Okabe and Ito's, which readers with any kind of colour vision can tell apart; the dark set lightens those
// that would sink into the background.
constexpr const char* kReportStyle = R"css(
:root { color-scheme: light dark;
  --paper: #f7f7f5; --card: #ffffff; --ink: #1c1e21; --soft: #5d636b; --line: #e6e7e9; --band: #0072b2; --grey: #b4b8bd;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b88600; --c5: #3d9fd3; --c6: #555a60; --c7: #8a5ac2; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #15171a; --card: #1e2125; --ink: #e8e9eb; --soft: #a3a9b1; --line: #31353b; --band: #56b4e9; --grey: #5c626a;
  --c0: #56b4e9; --c1: #f0803c; --c2: #2fc79a; --c3: #e59bc5; --c4: #f0c040; --c5: #9fd4f5; --c6: #b6bbc2; --c7: #b79af0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 86rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
h1 { margin: 0; font-size: 1.75rem; line-height: 1.25; letter-spacing: -.02em; }
h2 { margin: 2.4rem 0 .8rem; font-size: 1.15rem; letter-spacing: -.01em; } h3 { margin: 0; font-size: 1rem; }
header p { margin: .3rem 0 1.6rem; max-width: 46rem; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); gap: 1rem; }
article, figure, .wide { min-width: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
article { display: flex; flex-direction: column; padding: 1rem 1.2rem 1.1rem; border-top: 3px solid currentColor; }
article > * { color: var(--ink); }
.what { margin: .1rem 0 0; color: var(--soft); font-size: .85rem; }
.big { margin: auto 0 .5rem; padding-top: .55rem; font-size: 1.9rem; line-height: 1.2; font-weight: 650; letter-spacing: -.02em; }
.big small { margin-left: .45rem; font-size: .85rem; font-weight: 400; letter-spacing: 0; color: var(--soft); }
dl { display: grid; grid-template-columns: 1fr auto; gap: .2rem .8rem; margin: 0; font-size: .875rem; }
dt { color: var(--soft); } dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 1rem; }
figure { display: flex; flex-direction: column; margin: 0; padding: 1rem 1.1rem .5rem; }
figcaption { font-weight: 600; line-height: 1.35; }
figcaption p { margin: .25rem 0 .6rem; font-size: .84rem; font-weight: 400; line-height: 1.45; color: var(--soft); }
svg { display: block; width: 100%; height: auto; margin-top: auto; overflow: visible; }
.none { color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: 0 0 .6rem; font-size: .84rem; line-height: 1.4; }
.legend i { display: inline-block; margin-right: .45em; vertical-align: middle; }
.lines i, .points .front { width: 1.2em; border-top: 3px solid currentColor; } .lines i.dashed { border-top-style: dashed; }
.points .front { border-top: 2px dotted var(--soft); }
.points i, .bars i { width: .75em; height: .75em; background: currentColor; border-radius: 50%; } .bars i { border-radius: 2px; }
.points .front { height: 0; border-radius: 0; background: none; } .bars i.dashed { opacity: .55; }
.points i.dashed { background: none; border: 2px solid currentColor; }
.point.dashed .dot { fill: var(--card); stroke: currentColor; stroke-width: 2; }
.grid { stroke: var(--line); stroke-width: 1; }
text { font-size: 13.5px; font-variant-numeric: tabular-nums; fill: var(--soft); } .axis { fill: var(--ink); }
@media (max-width: 30rem), (min-width: 44rem) and (max-width: 62rem) { text { font-size: 15px; } }
.curve { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.curve.dashed { stroke-dasharray: 6 4; } .curve.grey { stroke-width: 1.25; } .curve.grey:hover { stroke: var(--ink); }
.mark line { stroke: currentColor; stroke-width: 1.25; stroke-dasharray: 4 3; }
.hit { fill: transparent; } .dot { fill: currentColor; opacity: 0; } .dot.shown, .point:hover .dot { opacity: 1; }
.frontier { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 2 3; }
.range { stroke: currentColor; stroke-width: 2; }
.fill { fill: currentColor; stroke: var(--card); stroke-width: 1; } .fill.dashed { fill-opacity: .55; }
.band { fill: var(--band); } .inside { font-size: 12px; fill: var(--ink); }
.k0 { color: var(--c0); } .k1 { color: var(--c1); } .k2 { color: var(--c2); } .k3 { color: var(--c3); }
.k4 { color: var(--c4); } .k5 { color: var(--c5); } .k6 { color: var(--c6); } .k7 { color: var(--c7); }
.grey, .dominated { color: var(--grey); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } tr:last-child td { border-bottom: 0; }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
@media print { body { max-width: none; } figure, article { break-inside: avoid; } }
)css";

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

/// The first split or cut of each run, at `x_of` its step.
template <class XOf> std::vector<Mark> marks_of(const std::vector<Run>& runs, XOf&& x_of) {
  std::vector<Mark> marks;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::vector<SplitMetrics>& splits = runs[i].splits;
    if (splits.empty()) continue;
    const bool is_cut = std::ranges::any_of(splits[0].sensitivity, [](const auto& of) { return !of.by_sigma.empty(); });
    const char* word = is_cut ? "cut" : "split";
    const std::string more = splits.size() == 1 ? "" : fmt::format(", the first of {} {}s", splits.size(), word);
    marks.push_back({x_of(runs[i], splits[0].step), static_cast<int>(i), word,
                     fmt::format("{}: {} after step {}{}", runs[i].label, word, splits[0].step, more)});
  }
  return marks;
}

std::string section(const std::string& title, const std::string& content) {
  return fmt::format("<section><h2>{}</h2>{}</section>\n", escape_html(title), content);
}

std::string charts(const std::string& title, const std::string& figures) {
  return figures.empty() ? "" : section(title, fmt::format("<div class=\"charts\">{}</div>", figures));
}

std::string cards(const std::vector<Run>& runs) {
  const Run* baseline = dense_baseline(runs);
  const auto in_type = [](const Run& run) { return run.config ? " in " + sent_in(run) : ""; };
  const std::string against = baseline ? in_type(*baseline) : "";
  std::string html = "<section class=\"cards\">";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Summary& s = runs[i].summary;
    const double saving = wire_saving(runs[i], baseline);
    html += fmt::format(
        "<article class=\"k{}\"><h3>{}</h3><p class=\"what\">{} · {} · {} · {}</p>"
        "<p class=\"big\">{}<small>top-1</small></p>"
        "<dl><dt>wire per rank{}</dt><dd>{}</dd><dt>against dense{}</dt><dd>{}{}</dd><dt>model "
        "compressed</dt><dd>{}</dd>"
        "<dt>training time</dt><dd>{}</dd><dt>images per second</dt><dd>{:.0f}</dd></dl></article>",
        i % 8, escape_html(runs[i].label), escape_html(s.method), escape_html(s.model), escape_html(s.dataset),
        counted(s.world_size, "rank"), percent(s.final_val_top1), in_type(runs[i]),
        human_bytes(s.wire_bytes_per_rank_total), against, &runs[i] == baseline ? "baseline" : saved_text(saving, 1),
        saving >= 0 ? " saved" : "", fmt::format("{:.2f} : 1", s.compression_ratio), human_seconds(s.train_seconds),
        s.images_per_second);
  }
  return html + "</section>\n";
}

std::string table(const std::vector<Run>& runs) {
  const Run* baseline = dense_baseline(runs);
  std::string html =
      "<div class=\"wide\"><table><thead><tr><th>run<th>method<th>model<th>ranks<th>steps<th>epochs<th>seed"
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
  return section("All numbers", html + "</tbody></table></div>");
}

std::string phase_chart(const std::vector<Run>& runs) {
  constexpr int kFirstColour =
      3;  // of a phase: elsewhere in the palette than curves, so that nobody takes one for a run
  RowChart chart{.title = "Bytes by phase of training",
                 .how = "A bar shows what a rank sends in the whole run, phase after phase; shorter is better.",
                 .x = {"wire per rank", NumberStyle::bytes},
                 .row_height = 36,
                 .band_height = 24,
                 .label_width = 130};
  for (const std::string& phase : phases_of(runs))
    chart.legend.emplace_back(kFirstColour + static_cast<int>(chart.legend.size()), phase);
  for (const Run& run : runs) {
    RowChart::Row& row = chart.rows.emplace_back(RowChart::Row{run.label});
    double end = 0;
    for (const auto& [colour, phase] : chart.legend) {
      const auto at = run.summary.wire_bytes_per_rank_by_phase.find(phase);
      if (at == run.summary.wire_bytes_per_rank_by_phase.end() || at->second <= 0) continue;
      const std::string hover = fmt::format("{}, {}: {}", run.label, phase, human_bytes(at->second));
      row.bands.push_back({.begin = end, .end = end + at->second, .colour = colour, .hover = hover});
      end += at->second;
    }
    chart.x_end = std::max(chart.x_end, 1.02 * end);
  }
  return draw(chart);
}

/// Each layer a row; a band for as long as splits choose the same r, as dark as it is close to n.
std::string rank_chart(const Run& run) {
  RowChart chart{.title = "Rank r of every layer: " + run.label,
                 .how = "A row is a weight, and a band is the darker, the more of its n directions the rank r keeps.",
                 .x = {"step"},
                 .x_end = static_cast<double>(std::max({std::int64_t{1}, run.summary.steps, run.splits.back().step}))};
  for (std::size_t i = 0; i < run.splits.size(); ++i) {
    const double begin = static_cast<double>(run.splits[i].step);
    const double end = i + 1 < run.splits.size() ? static_cast<double>(run.splits[i + 1].step) : chart.x_end;
    for (const LayerRank& layer : run.splits[i].layers) {
      const std::string name = short_name(layer.name), text = fmt::format("{} of {}", layer.r, layer.n);
      auto row = std::ranges::find(chart.rows, name, &RowChart::Row::label);
      if (row == chart.rows.end()) row = chart.rows.insert(row, RowChart::Row{name});
      double from = begin;
      if (!row->bands.empty() && row->bands.back().text == text) {
        from = row->bands.back().begin;
        row->bands.pop_back();
      }
      row->bands.push_back(
          {from, end, kShade, static_cast<double>(layer.r) / static_cast<double>(std::max<std::int64_t>(1, layer.n)),
           text,
           fmt::format("{} ({}×{}): r = {} from step {} to {}", layer.name, layer.m, layer.n, layer.r, from, end)});
    }
  }
  return draw(chart);
}

/// The share of the directions of each layer at the last cut: in the loss's sensitivity, or in the weight itself.
std::string worth_chart(const Run& run, bool by_loss) {
  constexpr std::size_t kColoured = 6;
  const SplitMetrics& cut = run.splits.back();
  std::vector<std::size_t> observed;
  const auto shares_of = [&](std::size_t i) -> const std::vector<double>& {
    return by_loss ? cut.sensitivity[i].by_loss : cut.sensitivity[i].by_sigma;
  };
  for (std::size_t i = 0; i < cut.layers.size(); ++i)
    if (!shares_of(i).empty()) observed.push_back(i);
  if (observed.empty()) return "";
  std::ranges::stable_sort(observed, std::ranges::greater{},
                           [&](std::size_t i) { return cut.layers[i].m * cut.layers[i].n; });
  const char* colours = observed.size() <= kColoured
                            ? "."
                            : "; the six largest weights have colours, the rest are grey and named on hover.";
  LineChart chart{
      (by_loss ? "Sensitivity of the loss, by directions: " : "Squared singular values, by directions: ") + run.label,
      std::string("An early rise shows a weight ") +
          (by_loss ? "of which few directions matter to the loss" : "that few directions nearly make up") + colours,
      {"directions, largest first", NumberStyle::percent},
      {by_loss ? "their share of the sensitivity" : "their share of Σσ²", NumberStyle::percent},
      true,
      {},
      {}};
  for (std::size_t rank = 0; rank < observed.size(); ++rank) {
    const std::vector<double>& shares = shares_of(observed[rank]);
    Curve curve{short_name(cut.layers[observed[rank]].name), {}, rank < kColoured ? static_cast<int>(rank) : kGrey};
    for (std::size_t k = 0; k < shares.size(); ++k)
      curve.points.push_back({static_cast<double>(k) / static_cast<double>(shares.size() - 1), shares[k]});
    chart.curves.push_back(std::move(curve));
  }
  return draw(chart);
}

/// What changes from step to step.
std::string course_charts(const std::vector<Run>& runs) {
  const std::vector<Mark> marks =
      marks_of(runs, [](const Run&, std::int64_t step) { return static_cast<double>(step); });
  const auto over_steps = [](const auto& records, auto value) {
    std::vector<Point> points;
    for (const auto& m : records) points.push_back({static_cast<double>(m.step), m.*value});
    return points;
  };
  const auto chart = [&](const char* title, const char* how, const Axis& y, bool from_zero, bool marked,
                         auto points_of) {
    return draw(LineChart{title, how, {"step"}, y, from_zero, curves_of(runs, marked, points_of), marks});
  };
  return chart("Training loss",
               "A curve shows how far a run's answers lie from the labels of its training images; lower is better.",
               {"cross entropy, nats"}, false, false,
               [&](const Run& run) { return over_steps(run.steps, &StepMetrics::loss); }) +
         chart("Accuracy on the validation images",
               "A point shows the share of validation images whose class a run names right; higher is better.",
               {"top-1", NumberStyle::percent}, false, true,
               [&](const Run& run) { return over_steps(run.epochs, &EpochMetrics::val_top1); }) +
         chart("Bytes sent by rank 0",
               "A curve adds up what rank 0 has sent since the start; a flat stretch sends nothing.",
               {"sent since the start", NumberStyle::bytes}, true, false, [&](const Run& run) {
                 std::vector<Point> points = over_steps(run.steps, &StepMetrics::wire_bytes);
                 points.insert(points.begin(), {0, 0});
                 return points;
               });
}

std::string accuracy_by_bytes(const std::vector<Run>& runs) {
  return draw(LineChart{"Accuracy for the bytes sent so far",
                        "A run moves right with what rank 0 sends and up with what it learns; the upper left is best.",
                        {"sent since the start", NumberStyle::bytes},
                        {"top-1", NumberStyle::percent},
                        false,
                        curves_of(runs, true,
                                  [](const Run& run) {
                                    std::vector<Point> points;
                                    for (const EpochMetrics& m : run.epochs)
                                      points.push_back({bytes_until(run, m.step), m.val_top1});
                                    return points;
                                  }),
                        marks_of(runs, bytes_until)});
}

}  // namespace

std::string report_html(const std::vector<Run>& runs) {
  std::vector<std::string> labels;
  std::string ranks, directions;
  for (const Run& run : runs) {
    labels.push_back(run.label);
    if (run.splits.empty()) continue;
    ranks += rank_chart(run);
    directions += worth_chart(run, true) + worth_chart(run, false);
  }
  const std::string title = fmt::format("abtrain: {}", fmt::join(labels, ", "));
  return fmt::format(
             "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" content=\"abtrain\">"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{}</title>\n"
             "<style>{}</style></head>\n<body><header><h1>{} compared</h1><p>Bytes are what one rank puts on the wire "
             "under ring algorithms, in the mean over ranks. Rest the pointer on a point, a bar or a curve to read "
             "it.</p></header>\n",
             escape_html(title), kReportStyle, counted(static_cast<std::int64_t>(runs.size()), "run")) +
         cards(runs) + charts("Training, step by step", course_charts(runs)) +
         charts("Accuracy and its cost", accuracy_by_bytes(runs) + frontier_charts(runs) + phase_chart(runs)) +
         charts("Layers after each split", ranks) + charts("Layers at the last cut", directions) + table(runs) +
         "</body></html>\n";
}

}  // namespace ab
