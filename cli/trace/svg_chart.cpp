// SPDX-License-Identifier: MIT
#include "cli/trace/svg_chart.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace moe_cli {
namespace {

constexpr double kLeft = 56, kTop = 10, kWidth = 600, kHeight = 210, kNames = 144;
constexpr size_t kMostValues = 600;
constexpr double kNameHeight = 15;

__attribute__((format(printf, 1, 2))) std::string text_of(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

// Length of the UTF-8 character at i; 0 if invalid.
size_t character_bytes(const std::string& text, size_t i) {
  const auto at = [&](size_t k) { return static_cast<unsigned char>(text[i + k]); };
  const size_t n = at(0) < 0x80 ? 1 : at(0) < 0xc2 ? 0 : at(0) < 0xe0 ? 2 : at(0) < 0xf0 ? 3 : 4;
  if (at(0) > 0xf4 || i + n > text.size()) return 0;
  for (size_t k = 1; k < n; ++k) {
    if ((at(k) & 0xc0) != 0x80) return 0;
  }
  return n;
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return text_of("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) +
         html_text(text) + "</text>";
}

// 1, 2 or 5 times a power of ten, so that about `n` fit into `range`.
size_t tick_step(size_t range, size_t n) {
  for (size_t ten = 1;; ten *= 10) {
    for (const size_t times : {size_t{1}, size_t{2}, size_t{5}}) {
      if (range / (times * ten) <= n) return times * ten;
    }
  }
}

}  // namespace

std::string html_text(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t n = character_bytes(text, i);
    const char c = text[i];
    if (n == 0 || static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      out += '?';
    } else if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'') {
      out += text_of("&#%d;", c);
    } else {
      out.append(text, i, n);
    }
    i += std::max<size_t>(1, n);
  }
  return out;
}

// --- Curves --------------------------------------------------------------------------------------

void LineChart::add(std::string name, size_t style, const std::vector<double>& values) {
  n_tokens_ = std::max(n_tokens_, values.size());
  Curve curve{std::move(name), style, {}};
  const size_t n = std::min(values.size(), kMostValues);
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = i * values.size() / n;
    const size_t end = (i + 1) * values.size() / n;
    double sum = 0;
    for (size_t v = begin; v < end; ++v) sum += values[v];
    curve.values.push_back(sum / static_cast<double>(end - begin));
  }
  curves_.push_back(std::move(curve));
}

void LineChart::mark(size_t at, std::string name) {
  mark_ = at;
  mark_name_ = std::move(name);
}

double LineChart::x_of(double token) const {
  return kLeft + kWidth * token / static_cast<double>(std::max<size_t>(1, n_tokens_ - 1));
}

double LineChart::y_of(double value) const { return kTop + kHeight * (1 - value / top_); }

std::string LineChart::grid() const {
  std::string out;
  const bool share = top_ == 1;
  const size_t most = share ? 100 : static_cast<size_t>(top_);
  const size_t step = share ? 25 : tick_step(most, 6);
  for (size_t v = 0; v <= most; v += step) {
    const double y = y_of(top_ * static_cast<double>(v) / static_cast<double>(most));
    out += text_of("<path class=\"grid\" d=\"M%.1f %.1fh%.0f\"/>", kLeft, y, kWidth);
    out += label(kLeft - 8, y + 4, "end", std::to_string(v) + (share ? " %" : ""));
  }
  const size_t last = n_tokens_ - 1;
  for (size_t t = 0; t <= last; t += tick_step(last, 8)) {
    out += label(x_of(static_cast<double>(t)), kTop + kHeight + 18, "middle", std::to_string(t));
  }
  out += label(kLeft + kWidth / 2, kTop + kHeight + 36, "middle", x_name_);
  if (mark_ > 0 && mark_ < n_tokens_) {
    const double x = x_of(static_cast<double>(mark_) - 0.5);
    out += text_of("<path class=\"mark\" d=\"M%.1f %.1fv%.0f\"/>", x, kTop, kHeight);
    out += label(x + 5, kTop + kHeight - 6, "start", mark_name_);
  }
  return out + "\n";
}

// Placed at the end of each curve without overlaps.
std::string LineChart::names() const {
  std::vector<std::pair<double, const Curve*>> at;
  for (const Curve& c : curves_) at.emplace_back(y_of(c.values.back()), &c);
  std::sort(at.begin(), at.end());
  for (size_t i = 1; i < at.size(); ++i) {
    at[i].first = std::max(at[i].first, at[i - 1].first + kNameHeight);
  }
  at.back().first = std::min(at.back().first, kTop + kHeight);
  for (size_t i = at.size() - 1; i-- > 0;) {
    at[i].first = std::min(at[i].first, at[i + 1].first - kNameHeight);
  }
  std::string out;
  for (const auto& [y, curve] : at) {
    out += text_of("<text class=\"name s%zu\" x=\"%.1f\" y=\"%.1f\">", curve->style,
                   kLeft + kWidth + 8, y + 4) +
           html_text(curve->name) + "</text>\n";
  }
  return out;
}

std::string LineChart::svg() const {
  std::string out = text_of("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n",
                            kLeft + kWidth + kNames, kTop + kHeight + 46) +
                    grid();
  for (const Curve& c : curves_) {
    std::string points;
    std::string values;
    const double each = static_cast<double>(std::max<size_t>(1, n_tokens_ - 1)) /
                        static_cast<double>(std::max<size_t>(1, c.values.size() - 1));
    for (size_t i = 0; i < c.values.size(); ++i) {
      points += text_of("%s%.1f %.1f", i == 0 ? "M" : "L", x_of(each * static_cast<double>(i)),
                        y_of(c.values[i]));
      values += text_of("%s%.4g", i == 0 ? "" : " ", c.values[i]);
    }
    out += text_of("<path class=\"curve s%zu\" ", c.style) + "data-name=\"" + html_text(c.name) +
           "\" data-values=\"" + values + "\" d=\"" + points + "\"/>\n";
  }
  return out + names() + "</svg>\n";
}

// --- Heat map ------------------------------------------------------------------------------------

void HeatMap::set(size_t column, size_t row, size_t level) {
  cells_[level] += "M" + std::to_string(column) + " " + std::to_string(row) + "h1v1h-1z";
}

std::string HeatMap::svg(const char* x_name, const char* y_name,
                         const std::vector<std::string>& levels) const {
  const double width = kWidth + kNames / 2;
  const double cell = width / static_cast<double>(n_columns_);
  const double row = std::clamp(420 / static_cast<double>(n_rows_), std::min(cell, 6.0), 16.0);
  const double height = row * static_cast<double>(n_rows_);
  std::string out =
      text_of("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", kLeft + kWidth + kNames,
              kTop + height + 72) +
      text_of("<g transform=\"translate(%.1f %.1f) scale(%.4f %.4f)\">", kLeft, kTop, cell, row) +
      text_of("<path class=\"empty\" d=\"M0 0h%zuv%zuh-%zuz\"/>\n", n_columns_, n_rows_,
              n_columns_);
  for (size_t l = 0; l < std::size(cells_); ++l) {
    out += text_of("<path class=\"l%zu\" d=\"", l) + cells_[l] + "\"/>\n";
  }
  out += "</g>\n";
  for (size_t c = 0; c < n_columns_; c += tick_step(n_columns_, 16)) {
    out += label(kLeft + cell * (static_cast<double>(c) + 0.5), kTop + height + 18, "middle",
                 std::to_string(c));
  }
  const auto fit = static_cast<size_t>(std::max(2.0, height / kNameHeight));
  for (size_t r = 0; r < n_rows_; r += tick_step(n_rows_, fit)) {
    out +=
        label(kLeft - 8, kTop + row * (static_cast<double>(r) + 0.5) + 4, "end", std::to_string(r));
  }
  out += label(kLeft + width / 2, kTop + height + 36, "middle", x_name);
  out += text_of("<text transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\">",
                 kTop + height / 2) +
         html_text(y_name) + "</text>\n";
  double x = kLeft;
  for (size_t l = 0; l < levels.size(); ++l) {
    out += text_of("<rect class=\"l%zu\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\"/>", l, x,
                   kTop + height + 50) +
           label(x + 20, kTop + height + 62, "start", levels[l]);
    x += 36 + 7.2 * static_cast<double>(levels[l].size());
  }
  return out + "\n</svg>\n";
}

}  // namespace moe_cli
