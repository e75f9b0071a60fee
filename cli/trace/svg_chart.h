// SPDX-License-Identifier: MIT
#pragma once
// Charts as SVG for a page, styled by its classes: s0 to s3 for curves, l0 to l4 for levels.

#include <cstddef>
#include <string>
#include <vector>

namespace moe_cli {

/// For any place in a page: escapes markup, and replaces unprintable or invalid UTF-8 by '?'.
std::string html_text(const std::string& text);

/// Curves over tokens 0, 1, 2 ..., from 0 to `top`; percentages if top is 1. Each curve contains
/// its values in data-values; if there are more than pixels they are averaged first.
class LineChart {
 public:
  LineChart(std::string x_name, double top) : x_name_(std::move(x_name)), top_(top) {}
  void add(std::string name, size_t style, const std::vector<double>& values);
  /// A vertical line before token `at`.
  void mark(size_t at, std::string name);
  std::string svg() const;

 private:
  struct Curve {
    std::string name;
    size_t style;
    std::vector<double> values;
  };
  double x_of(double token) const;
  double y_of(double value) const;
  std::string grid() const;
  std::string names() const;

  std::string x_name_;
  double top_;
  size_t n_tokens_ = 0;
  size_t mark_ = 0;
  std::string mark_name_;
  std::vector<Curve> curves_;
};

/// Cells of one of five levels, or none.
class HeatMap {
 public:
  HeatMap(size_t n_columns, size_t n_rows) : n_columns_(n_columns), n_rows_(n_rows) {}
  /// From left to right in each row, rows from the top.
  void set(size_t column, size_t row, size_t level);
  std::string svg(const char* x_name, const char* y_name,
                  const std::vector<std::string>& levels) const;

 private:
  size_t n_columns_;
  size_t n_rows_;
  std::string cells_[5];
};

}  // namespace moe_cli
