// SPDX-License-Identifier: MIT
#include "apps/report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/report/terminal.h"

namespace ab {
namespace {

constexpr double kWidth = 480, kHeight = 300;
constexpr double kLeft = 60, kRight = 20, kTop = 12, kBottom = 48;
constexpr double kMarkRow = 19;  // height of a word above the curves
constexpr int kColours = 8;
constexpr std::size_t kMaxPoints = 400;  // more than a pixel holds
constexpr std::size_t kMaxHovers = 80;

bool finite(const Point& p) { return std::isfinite(p.x) && std::isfinite(p.y); }

std::string colour_class(int colour) {
  if (colour == kGrey) return "grey";
  return fmt::format("k{}{}", colour % kColours, colour >= kColours ? " dashed" : "");
}

/// A linear map from data to the page.
struct Scale {
  double low, high, from, to;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

/// At most kMaxPoints, each the mean of as many neighbours.
std::vector<Point> thinned(const std::vector<Point>& points) {
  std::vector<Point> finite_points;
  std::copy_if(points.begin(), points.end(), std::back_inserter(finite_points), finite);
  const std::size_t group = (finite_points.size() + kMaxPoints - 1) / kMaxPoints;
  if (group <= 1) return finite_points;
  std::vector<Point> means;
  for (std::size_t i = 0; i < finite_points.size(); i += group) {
    const std::size_t end = std::min(i + group, finite_points.size());
    Point mean;
    for (std::size_t j = i; j < end; ++j) mean.x += finite_points[j].x, mean.y += finite_points[j].y;
    means.push_back({mean.x / static_cast<double>(end - i), mean.y / static_cast<double>(end - i)});
  }
  return means;
}

std::string figure(const std::string& title, const std::string& how, const std::string& legend, double height,
                   const std::string& body) {
  return fmt::format(
      "<figure><figcaption>{}<p>{}</p></figcaption>{}<svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">{}</svg></figure>\n",
      escape_html(title), escape_html(how), legend, kWidth, height, escape_html(title), body);
}

std::string nothing_drawn(const std::string& title, const std::string& how, const char* why) {
  return figure(title, how, fmt::format("<p class=\"none\">{}</p>", why), 1, "");
}

/// The class of its key, and a label.
using LegendEntry = std::pair<std::string, std::string>;

/// Keys that look like what is drawn: "lines", "points" or "bars".
std::string legend_of(const char* drawn, const std::vector<LegendEntry>& entries) {
  std::string text = fmt::format("<div class=\"legend {}\">", drawn);
  for (const auto& [key, label] : entries)
    text += fmt::format("<span><i class=\"{}\"></i>{}</span>", key, escape_html(shorten(label, 32)));
  return text + "</div>";
}

struct Unit {
  double size;
  const char* name;
};

/// The unit of an axis that reaches `high`.
Unit unit_of(double high, NumberStyle style) {
  static const std::vector<Unit> kBytes{{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}, {1e15, "PB"}};
  static const std::vector<Unit> kCounts{{1, ""}, {1e3, "thousands"}, {1e6, "millions"}, {1e9, "billions"}};
  static const std::vector<Unit> kTimes{{1, "s"}, {60, "min"}, {3600, "h"}};
  if (style == NumberStyle::percent) return {0.01, "%"};
  const bool is_plain = style == NumberStyle::plain, is_time = style == NumberStyle::seconds;
  const double least = is_plain ? 10 : is_time ? 5 : 1;  // of an axis' numbers, but in the smallest unit
  const std::vector<Unit>& units = is_plain ? kCounts : is_time ? kTimes : kBytes;
  Unit unit = units.front();
  for (const Unit& larger : units)
    if (high >= least * larger.size) unit = larger;
  return unit;
}

/// Calls draw_tick(position, text), and returns the label with its unit.
template <class DrawTick> std::string axis(const Scale& scale, const Axis& of, int count, DrawTick&& draw_tick) {
  const Unit unit = unit_of(std::max(std::abs(scale.low), std::abs(scale.high)), of.style);
  for (const double tick : axis_ticks(scale.low / unit.size, scale.high / unit.size, count))
    draw_tick(scale(tick * unit.size), fmt::format("{:.6g}", tick));
  return escape_html(of.label + (*unit.name ? ", " : "") + unit.name);
}

std::string x_axis(const Scale& x, double top, double bottom, const Axis& of) {
  std::string svg;
  const std::string label = axis(x, of, 6, [&](double at, const std::string& text) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
        "<text class=\"tick\" text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{3}\">{4}</text>",
        at, top, bottom, bottom + 19, text);
  });
  return svg + fmt::format("<text class=\"axis\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{}\">{}</text>",
                           (x.from + x.to) / 2, bottom + 41, label);
}

std::string y_axis(const Scale& y, const Axis& of) {
  std::string svg;
  const std::string label = axis(y, of, 5, [&](double at, const std::string& text) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">{}</text>",
        kLeft, kWidth - kRight, at, at, kLeft - 8, at + 4.5, text);
  });
  return svg + fmt::format(
                   "<text class=\"axis\" text-anchor=\"middle\" transform=\"translate(15 {:.1f}) "
                   "rotate(-90)\">{}</text>",
                   (y.from + y.to) / 2, label);
}

std::string draw_curve(const Curve& curve, const LineChart& chart, const Scale& x, const Scale& y) {
  const std::vector<Point> points = thinned(curve.points);
  std::string path;
  for (const Point& p : points) path += fmt::format("{:.1f},{:.1f} ", x(p.x), y(p.y));
  std::string svg = fmt::format("<g><title>{}</title><polyline class=\"curve {}\" points=\"{}\"/></g>",
                                escape_html(curve.label), colour_class(curve.colour), path);
  if (curve.colour == kGrey) return svg;
  const std::size_t stride = std::max<std::size_t>(1, points.size() / kMaxHovers);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % stride != 0 && i + 1 != points.size()) continue;
    svg += fmt::format(
        "<g class=\"point\"><title>{}: {} at {} {}</title><circle class=\"hit\" cx=\"{:.1f}\" cy=\"{:.1f}\" "
        "r=\"7\"/>"
        "<circle class=\"dot {}{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/></g>",
        escape_html(curve.label), number_text(points[i].y, chart.y.style), escape_html(chart.x.label),
        number_text(points[i].x, chart.x.style), x(points[i].x), y(points[i].y), colour_class(curve.colour),
        curve.marked ? " shown" : "", x(points[i].x), y(points[i].y));
  }
  return svg;
}

/// Where the word of a mark stands.
struct MarkWord {
  int row = 0;         ///< 0 is the highest
  bool shown = false;  ///< not where the mark before has the same word at the same place
};

/// A word begins at its line and lies above the lines to the right of it, so no line crosses it.
std::vector<MarkWord> mark_words(const std::vector<Mark>& marks, const Scale& x) {
  constexpr double kCharacter = 9.5;
  std::vector<MarkWord> words;
  std::vector<double> ends;  // of the words in each row
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const double begin = x(marks[i].x), end = begin + kCharacter * (text_width(marks[i].text) + 1);
    if (i > 0 && marks[i - 1].text == marks[i].text && begin - x(marks[i - 1].x) < 2) {
      words.push_back({words.back().row, false});
      continue;
    }
    while (!ends.empty() && ends.back() <= begin) ends.pop_back();  // below a word that goes on there is no room
    words.push_back({static_cast<int>(ends.size()), true});
    ends.push_back(end);
  }
  return words;
}

std::string draw_marks(const std::vector<Mark>& marks, const std::vector<MarkWord>& words, const Scale& x,
                       double bottom) {
  std::string svg;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const double at = x(marks[i].x), top = kMarkRow * words[i].row + 2;
    svg += fmt::format(
        "<g class=\"mark {}\"><title>{}</title><rect class=\"hit\" x=\"{:.1f}\" y=\"{}\" width=\"8\" height=\"{}\"/>"
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>",
        colour_class(marks[i].colour), escape_html(marks[i].hover), at - 4, top, bottom - top, at, at, top, bottom);
    if (words[i].shown)
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>", at + 4, top + 13, escape_html(marks[i].text));
    svg += "</g>";
  }
  return svg;
}

}  // namespace

std::string number_text(double value, NumberStyle style) {
  if (style == NumberStyle::bytes) return human_bytes(value);
  if (style == NumberStyle::percent) return fmt::format("{:.4g} %", 100 * value);
  if (style == NumberStyle::seconds) return human_seconds(value);
  if (std::abs(value) >= 10000) return human_count(value);
  return fmt::format("{:.4g}", value);
}

std::string escape_html(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') safe += "&amp;";
    else if (c == '<') safe += "&lt;";
    else if (c == '>') safe += "&gt;";
    else if (c == '"') safe += "&quot;";
    else safe += c;
  }
  return safe;
}

std::vector<double> axis_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  constexpr double kDigits = 1e14;  // closer together, numbers of this size cannot be counted
  if (std::max(std::abs(low), std::abs(high)) > kDigits * power) return {low};
  const double step = power * (rough / power <= 1 ? 1 : rough / power <= 2 ? 2 : rough / power <= 5 ? 5 : 10);
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    ticks.push_back(i * step + 0.0);  // + 0.0 turns -0 into 0
  return ticks;
}

std::string draw(const LineChart& chart) {
  double x_low = 0, x_high = 0;
  double y_low = std::numeric_limits<double>::infinity(), y_high = -y_low;
  std::vector<LegendEntry> entries;
  for (const Curve& curve : chart.curves) {
    if (curve.colour != kGrey) entries.emplace_back(colour_class(curve.colour), curve.label);
    for (const Point& p : thinned(curve.points)) {
      x_high = std::max(x_high, p.x);
      y_low = std::min(y_low, p.y);
      y_high = std::max(y_high, p.y);
    }
  }
  if (!(y_low <= y_high)) return nothing_drawn(chart.title, chart.how, "Nothing was recorded.");
  if (chart.y_from_zero) y_low = std::min(0.0, y_low);
  const double margin = y_high > y_low ? 0.05 * (y_high - y_low) : std::max(1e-9, 0.05 * std::abs(y_high));
  if (!(x_high > x_low)) x_high = x_low + 1;
  const Scale x{x_low, x_high, kLeft, kWidth - kRight};
  std::vector<Mark> marks = chart.marks;
  std::ranges::stable_sort(marks, {}, &Mark::x);
  const std::vector<MarkWord> words = mark_words(marks, x);
  const double top = kTop + kMarkRow * (words.empty() ? 0 : std::ranges::max(words, {}, &MarkWord::row).row + 1);
  const double bottom = top + kHeight - kTop - kBottom;
  const Scale y{chart.y_from_zero ? y_low : y_low - margin, y_high + margin, bottom, top};

  std::string svg = x_axis(x, top, bottom, chart.x) + y_axis(y, chart.y) + draw_marks(marks, words, x, bottom);
  for (const bool grey : {true, false})
    for (const Curve& curve : chart.curves)
      if ((curve.colour == kGrey) == grey) svg += draw_curve(curve, chart, x, y);
  return figure(chart.title, chart.how, legend_of("lines", entries), bottom + kBottom, svg);
}

std::string draw(const FrontierChart& chart) {
  double x_high = 0, y_low = std::numeric_limits<double>::infinity(), y_high = -y_low;
  std::vector<FrontierPoint> frontier;
  for (const FrontierPoint& p : chart.points) {
    x_high = std::max(x_high, p.x), y_low = std::min(y_low, p.low), y_high = std::max(y_high, p.high);
    if (!p.dominated) frontier.push_back(p);
  }
  const double margin = y_high > y_low ? 0.08 * (y_high - y_low) : std::max(1e-9, 0.05 * std::abs(y_high));
  const Scale x{0, x_high > 0 ? 1.04 * x_high : 1, kLeft, kWidth - kRight};
  const Scale y{y_low - margin, y_high + margin, kHeight - kBottom, kTop};
  std::string svg = x_axis(x, kTop, kHeight - kBottom, chart.x) + y_axis(y, chart.y);

  std::ranges::sort(frontier, {}, &FrontierPoint::x);
  std::string path;
  for (std::size_t i = 0; i < frontier.size(); ++i) {
    const double top = y(frontier[i].y), end = i + 1 < frontier.size() ? frontier[i + 1].x : x.high;
    path += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(frontier[i].x), top, x(end), top);
  }
  svg += fmt::format("<polyline class=\"frontier\" points=\"{}\"/>", path);
  std::vector<LegendEntry> entries;
  for (const FrontierPoint& p : chart.points) {
    if (!p.dominated) entries.emplace_back(colour_class(p.colour), p.label);
    svg += fmt::format(
        "<g class=\"point {0}\"><title>{1}: {2} ({3} to {4}) for {5}</title>"
        "<line class=\"range\" x1=\"{6:.1f}\" x2=\"{6:.1f}\" y1=\"{7:.1f}\" y2=\"{8:.1f}\"/>"
        "<circle class=\"dot shown\" cx=\"{6:.1f}\" cy=\"{9:.1f}\" r=\"5\"/></g>",
        p.dominated ? "dominated" : colour_class(p.colour), escape_html(p.label), number_text(p.y, chart.y.style),
        number_text(p.low, chart.y.style), number_text(p.high, chart.y.style), number_text(p.x, chart.x.style), x(p.x),
        y(p.low), y(p.high), y(p.y));
  }
  if (frontier.size() < chart.points.size()) entries.emplace_back("dominated", "dominated");
  entries.emplace_back("front", "Pareto front");
  return figure(chart.title, chart.how, legend_of("points", entries), kHeight, svg);
}

std::string draw(const RowChart& chart) {
  constexpr double kDigit = 7, kLetter = 9;  // width of a character inside a band, and of a label
  if (!(chart.x_end > 0)) return nothing_drawn(chart.title, chart.how, "Nothing was sent.");
  const double bottom = kTop + chart.row_height * static_cast<double>(chart.rows.size());
  const Scale x{0, chart.x_end, chart.label_width, kWidth - kRight};
  std::string svg = x_axis(x, kTop, bottom, chart.x);
  double middle = kTop + chart.row_height / 2;
  for (const RowChart::Row& row : chart.rows) {
    const int label_columns = static_cast<int>(chart.label_width / kLetter);
    svg += fmt::format("<text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">{}<title>{}</title></text>",
                       chart.label_width - 8, middle + 4, escape_html(shorten(row.label, label_columns)),
                       escape_html(row.label));
    for (const RowChart::Band& band : row.bands) {
      const double width = x(band.end) - x(band.begin);
      const std::string look = band.colour != kShade
                                   ? fmt::format("class=\"fill {}\"", colour_class(band.colour))
                                   : fmt::format("class=\"band\" fill-opacity=\"{:.2f}\"", 0.08 + 0.34 * band.fraction);
      svg += fmt::format("<g><title>{}</title><rect {} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>",
                         escape_html(band.hover), look, x(band.begin), middle - chart.band_height / 2,
                         std::max(0.5, width - 0.8), chart.band_height);
      if (!band.text.empty() && width > kDigit * (text_width(band.text) + 1))
        svg += fmt::format("<text class=\"inside\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
                           x(band.begin) + width / 2, middle + 3.5, escape_html(band.text));
      svg += "</g>";
    }
    middle += chart.row_height;
  }
  std::vector<LegendEntry> entries;
  for (const auto& [colour, label] : chart.legend) entries.emplace_back(colour_class(colour), label);
  return figure(chart.title, chart.how, entries.empty() ? "" : legend_of("bars", entries), bottom + kBottom, svg);
}

}  // namespace ab
