// SPDX-License-Identifier: MIT
#include "apps/report/terminal.h"

#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "engine/core/check.h"

namespace ab {
namespace {

constexpr int kWidthElsewhere = 100, kWidthUnknown = 80;

/// The bytes of the first character of UTF-8 text, and the columns that it takes.
std::pair<std::size_t, int> first_character(std::string_view text) {
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (!utf8) {  // not installed: a column each
    std::size_t end = 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    return {end, 1};
  }
  const locale_t before = ::uselocale(utf8);
  wchar_t character = 0;
  std::mbstate_t state{};
  const std::size_t bytes = std::mbrtowc(&character, text.data(), text.size(), &state);
  const int columns = ::wcwidth(character);
  ::uselocale(before);
  const bool is_one = bytes > 0 && bytes <= text.size();
  return {is_one ? bytes : 1, is_one && columns >= 0 ? columns : 1};
}

/// Three significant digits and a unit: 1234567 -> "1.23 M".
std::string scaled(double value, std::initializer_list<const char*> units) {
  if (!std::isfinite(value)) return "-";
  auto unit = units.begin();
  while (std::abs(value) >= 999.5 && unit + 1 != units.end()) value /= 1000, ++unit;
  const int decimals = value == std::floor(value) && unit == units.begin() ? 0
                       : std::abs(value) < 9.995                           ? 2
                       : std::abs(value) < 99.95                           ? 1
                                                                           : 0;
  const std::string number = fmt::format("{:.{}f}", value, decimals);
  return **unit == '\0' ? number : number + " " + *unit;
}

}  // namespace

void print_text(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  AB_CHECK_KIND(data, written || errno == EPIPE, "the output cannot be written: {}", std::strerror(errno));
}

int terminal_width(int descriptor) {
  winsize size{};
  if (!::isatty(descriptor)) return kWidthElsewhere;
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::min<int>(size.ws_col, 200) : kWidthUnknown;
}

int text_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const auto [bytes, columns] = first_character(text);
    width += columns;
    text.remove_prefix(bytes);
  }
  return width;
}

std::string_view beginning(std::string_view text, int width) {
  std::size_t end = 0;
  while (end < text.size()) {
    const auto [bytes, columns] = first_character(text.substr(end));
    if ((width -= columns) < 0) break;
    end += bytes;
  }
  return text.substr(0, end);
}

std::string shorten(std::string_view text, int width) {
  if (text_width(text) <= width || width < 3) return std::string(text);
  const int front = (width - 1) / 2, back = width - 1 - front;
  std::string_view end = text;
  while (text_width(end) > back) end.remove_prefix(first_character(end).first);
  return fmt::format("{}…{}", beginning(text, front), end);
}

std::string short_name(const std::string& weight) {
  return weight.ends_with(".weight") ? weight.substr(0, weight.size() - 7) : weight;
}

std::string without_controls(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are controls too; the first byte of their UTF-8 is no character alone.
    const bool two_bytes = c == 0xC2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xE0) == 0x80;
    plain += c < 0x20 || c == 0x7f || two_bytes ? ' ' : text[i];
    i += two_bytes ? 1 : 0;
  }
  return plain;
}

std::string wrap(std::string_view text, int width) {
  std::string lines;
  int column = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const bool fits = column + 1 + text_width(word) <= width;
    if (column > 0) lines += fits ? ' ' : '\n';
    column = (column > 0 && fits ? column + 1 : 0) + text_width(word);
    lines += word;
  }
  return lines;
}

std::string human_bytes(double bytes) { return scaled(bytes, {"B", "kB", "MB", "GB", "TB", "PB"}); }

std::string human_count(double count) { return scaled(count, {"", "k", "M", "G", "T"}); }

std::string of_peak(double flops_per_second, double share) {
  return fmt::format("{:.0f} % of {}FLOP/s", 100 * share, human_count(flops_per_second / share));
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string percent(double fraction, int decimals) {
  return std::isfinite(fraction) ? fmt::format("{:.{}f} %", 100 * fraction, decimals) : "-";
}

std::string saved_text(double fraction, int decimals) {
  return fraction < 0 ? fmt::format("{:.{}f} × as much", 1 - fraction, decimals) : percent(fraction, decimals);
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string spark_bars(const std::vector<double>& values) {
  static constexpr const char* kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const double value : values) {
    const double fraction = values.front() > 0 ? value / values.front() : 0;
    text += kLevels[std::clamp(static_cast<int>(std::lround(fraction * 7)), 0, 7)];
  }
  return text;
}

std::string bar(double fraction, int width) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * 8));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[eighths % 8];
  return text + std::string(static_cast<std::size_t>(std::max(0, width - (eighths + 7) / 8)), ' ');
}

TextTable::TextTable(std::vector<std::string> headings, std::vector<std::size_t> left) : left_(std::move(left)) {
  left_.push_back(0);
  rows_.push_back(std::move(headings));
}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::vector<int> TextTable::widths() const {
  std::vector<int> widths(rows_.front().size(), 0);
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], text_width(row[c]));
  return widths;
}

bool TextTable::is_left(std::size_t column) const {
  return std::find(left_.begin(), left_.end(), column) != left_.end();
}

std::string TextTable::aligned(std::size_t row, std::size_t column, int width) const {
  const std::string& cell = rows_[row][column];
  const std::string padding(static_cast<std::size_t>(width - text_width(cell)), ' ');
  return is_left(column) ? cell + padding : padding + cell;
}

std::string TextTable::str() const {
  const std::vector<int> width = widths();
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < width.size(); ++c) line += (c > 0 ? "  " : "") + aligned(r, c, width[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    if (r > 0) continue;
    for (std::size_t c = 0; c < width.size(); ++c) {
      if (c > 0) text += "  ";
      for (int i = 0; i < width[c]; ++i) text += "─";
    }
    text += "\n";
  }
  return text;
}

std::string TextTable::markdown() const {
  std::vector<int> width = widths();
  for (int& w : width) w = std::max(w, 3);
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < width.size(); ++c) text += (c > 0 ? " | " : "| ") + aligned(r, c, width[c]);
    text += " |\n";
    if (r > 0) continue;
    for (std::size_t c = 0; c < width.size(); ++c) {
      const std::string dashes(static_cast<std::size_t>(width[c]) + 1, '-');
      text += is_left(c) ? "|" + dashes + "-" : "|" + dashes + ":";
    }
    text += "|\n";
  }
  return text;
}

}  // namespace ab
