#pragma once
// SPDX-License-Identifier: MIT
//
// Charts as inline SVG, for pages that need nothing but themselves. Colours are CSS variables --c0 … --c7 of
// the page, so that light and dark follow the reader's setting; curve number i takes colour i mod 8 and, past
// the eighth, dashes. Points carry a <title>, which browsers show when the pointer rests on them.

#include <string>
#include <vector>

namespace ab {

/// How numbers on an axis and in hover titles are written.
enum class NumberStyle { plain, percent, bytes };

std::string number_text(double value, NumberStyle style);
/// Safe inside HTML text and attributes.
std::string escape_html(const std::string& text);

struct Point {
  double x = 0, y = 0;
};

struct Curve {
  std::string label;
  std::vector<Point> points;  ///< by ascending x; points that are not finite are left out
  int colour = 0;
  bool marked = false;  ///< a dot at every point
};

struct LineChart {
  std::string title, x_label, y_label;
  NumberStyle x_style = NumberStyle::plain, y_style = NumberStyle::plain;
  bool y_from_zero = false;
  std::vector<Curve> curves;
};
/// A <figure> with axes, grid, legend and curves; says so when there is nothing to draw.
std::string draw(const LineChart& chart);

/// Points with a range of y; those that another dominates, with more y for less x, are grey.
struct FrontierPoint {
  std::string label;
  double x = 0, y = 0, low = 0, high = 0;
  int colour = 0;
  bool dominated = false;
};
struct FrontierChart {
  std::string title, x_label, y_label;
  NumberStyle x_style = NumberStyle::plain, y_style = NumberStyle::plain;
  std::vector<FrontierPoint> points;  ///< all finite
};
/// With a line along the points that nobody dominates: as high as can be had for so much.
std::string draw(const FrontierChart& chart);

struct StackedBar {
  std::string label;
  std::vector<double> parts;  ///< one for each entry of BarChart::parts
};
struct BarChart {
  std::string title, x_label;
  NumberStyle style = NumberStyle::plain;
  std::vector<std::string> parts;
  std::vector<StackedBar> bars;
};
/// Horizontal bars, each a stack of parts.
std::string draw(const BarChart& chart);

/// A row of bands over x, each as dark as its value.
struct BandRow {
  std::string label;
  struct Band {
    double begin = 0, end = 0;
    double fraction = 0;  ///< 0 to 1
    std::string text, hover;
  };
  std::vector<Band> bands;
};
struct BandChart {
  std::string title, x_label;
  double x_end = 0;
  std::vector<BandRow> rows;
};
std::string draw(const BandChart& chart);

/// Round axis positions from at or above `low` to at or below `high`, about `count` of them.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace ab
