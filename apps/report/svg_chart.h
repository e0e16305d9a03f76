#pragma once
// SPDX-License-Identifier: MIT
//
// Charts as inline SVG, for pages that need nothing but themselves: a title, a sentence that says how to read it, axes with
// their units. Colours are CSS variables --c0 … --c7 of the page, so that light and dark follow the reader's setting; curve
// number i takes colour i mod 8 and, past the eighth, dashes. Points carry a <title>, which browsers show when the pointer
// rests on them.

#include <string>
#include <utility>
#include <vector>

namespace ab {

/// How a number is written in hover titles, and its axis scaled: 0.5 as "50 %" and 50 on an axis in %.
enum class NumberStyle { plain, percent, bytes, seconds };

std::string number_text(double value, NumberStyle style);
/// Safe inside HTML text and attributes.
std::string escape_html(const std::string& text);

struct Axis {
  std::string label;  ///< the unit comes after it, where the style has one
  NumberStyle style = NumberStyle::plain;
};

struct Point {
  double x = 0, y = 0;
};

constexpr int kGrey = -1;

struct Curve {
  std::string label;
  std::vector<Point> points;  ///< by ascending x; points that are not finite are left out
  int colour = 0;             ///< kGrey: behind the others, named on hover and not in the legend
  bool marked = false;        ///< a dot at every point
};

/// A vertical line with a word above it.
struct Mark {
  double x = 0;
  int colour = 0;
  std::string text, hover;
};

struct LineChart {
  std::string title, how;
  Axis x, y;
  bool y_from_zero = false;
  std::vector<Curve> curves;
  std::vector<Mark> marks;
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
  std::string title, how;
  Axis x, y;
  std::vector<FrontierPoint> points;  ///< all finite
};
/// With the Pareto front, a line along the points that nobody dominates: as high as can be had for so much.
std::string draw(const FrontierChart& chart);

/// Rows of bands over x: bars that are stacks of parts, or stretches that are as dark as their value.
struct RowChart {
  struct Band {
    double begin = 0, end = 0;
    int colour = 0;  ///< kShade: by `fraction`, from 0 to 1
    double fraction = 0;
    std::string text{};  ///< in the band, where it has room
    std::string hover{};
  };
  struct Row {
    std::string label;
    std::vector<Band> bands{};
  };
  std::string title, how;
  Axis x;
  double x_end = 0;
  double row_height = 20, band_height = 18, label_width = 192;
  std::vector<std::pair<int, std::string>> legend{};  ///< colours and what they stand for
  std::vector<Row> rows{};
};
constexpr int kShade = -2;
/// Says so when there is nothing to draw.
std::string draw(const RowChart& chart);

/// Round axis positions from at or above `low` to at or below `high`, about `count` of them.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace ab
