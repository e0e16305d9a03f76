#pragma once
// SPDX-License-Identifier: MIT
//
// Plain-text drawing: tables, bars, and numbers as people read them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ab {

/// Writes to stdout what a command was asked for. Throws Error(data) where it cannot be written; a reader that has gone
/// away wants no more of it.
void print_text(std::string_view text);

/// Columns of the terminal that `descriptor` (stdout) goes to, asked anew in every call; 100 when it goes elsewhere.
int terminal_width(int descriptor = 1);

/// Columns that UTF-8 text takes: two for each wide character, as of Chinese, none for an accent that follows its letter.
int text_width(std::string_view text);
/// As much of the text, from its beginning, as fits into `width` columns.
std::string_view beginning(std::string_view text, int width);
/// Shortens to `width` columns, with … for what is left out in the middle.
std::string shorten(std::string_view text, int width);

/// Nearly every weight's name ends in .weight; leaving that out leaves room for the rest.
std::string short_name(const std::string& weight);

/// Text of a file from elsewhere, with a blank for each character that a terminal would obey.
std::string without_controls(std::string_view text);

/// Breaks lines at blanks so that none is longer than `width`, where words allow it.
std::string wrap(std::string_view text, int width);

/// "12.3 MB", "1.2 GB": powers of 1000.
std::string human_bytes(double bytes);
/// "1.23 M", "456 k".
std::string human_count(double count);
/// "62 % of 220 GFLOP/s".
std::string of_peak(double flops_per_second, double share);
/// "1 rank", "4 ranks".
std::string counted(std::int64_t count, std::string_view noun);
/// "70.31 %", or "-" for what is not finite.
std::string percent(double fraction, int decimals = 2);
/// The saving beside a baseline: "70.31 %", or where more is sent "1.20 × as much".
std::string saved_text(double fraction, int decimals = 2);
/// "3 min 12 s", "4.2 s".
std::string human_seconds(double seconds);

/// One character per value, ▁ to █, scaled to the first value.
std::string spark_bars(const std::vector<double>& values);
/// A horizontal bar of `fraction` of `width` columns, in eighths.
std::string bar(double fraction, int width);

/// Rows under headings; the first column and others named in `left` are aligned left, the rest right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headings, std::vector<std::size_t> left = {});
  void add(std::vector<std::string> cells);
  /// Two spaces between columns, a rule under the headings, a line feed at the end of each line.
  std::string str() const;
  /// The same in Markdown, as readable.
  std::string markdown() const;

 private:
  std::vector<int> widths() const;
  std::string aligned(std::size_t row, std::size_t column, int width) const;
  bool is_left(std::size_t column) const;

  std::vector<std::vector<std::string>> rows_;  // the headings first
  std::vector<std::size_t> left_;
};

}  // namespace ab
