// SPDX-License-Identifier: MIT
// Reads sizes with units, and writes bytes, counts and times for people.
#include "cli/io/units.h"

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>

#include "cli/common.h"

namespace moe_cli {

uint64_t parse_bytes(const char* option, const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const double value = std::strtod(text.c_str(), &end);
  std::string unit = end;
  for (const char* tail : {"iB", "ib", "B", "b"}) {
    const size_t n = std::strlen(tail);
    if (unit.size() >= n && unit.compare(unit.size() - n, n, tail) == 0) {
      unit.resize(unit.size() - n);
      break;
    }
  }
  static const std::string kUnits = "KMGT";
  double factor = 1;
  if (unit.size() == 1) {
    const size_t i =
        kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
    factor = i == std::string::npos ? 0 : std::pow(1024.0, static_cast<double>(i) + 1);
  }
  const double bytes = value * factor;
  const bool whole = factor > 1 || bytes == std::floor(bytes);
  if (end == text.c_str() || unit.size() > 1 || !whole || !(bytes >= 1)) {
    throw UsageError(std::string(option) + ": '" + text +
                     "' is not a size; expected a number above 0 with K, M, G or T, such as 2G");
  }
  if (errno != 0 || bytes > 1e18)
    throw UsageError(std::string(option) + ": '" + text + "' is too large");
  return static_cast<uint64_t>(bytes);
}

std::string format_bytes(uint64_t bytes) {
  static const char* const kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double v = static_cast<double>(bytes);
  size_t unit = 0;
  while (v >= 1000 && unit + 1 < std::size(kUnits)) {
    v /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || v >= 100 ? "%.0f %s" : "%.1f %s", v, kUnits[unit]);
  return text;
}

std::string counted(uint64_t n, const std::string& what, const std::string& plural) {
  const std::string many = plural.empty() ? what + "s" : plural;
  return std::to_string(n) + " " + (n == 1 ? what : many);
}

std::string format_time(int64_t time) {
  const auto when = static_cast<std::time_t>(time);
  std::tm local{};
  if (localtime_r(&when, &local) == nullptr) return "";
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02d %02d:%02d", local.tm_year + 1900,
                local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min);
  return text;
}

std::string format_seconds(double seconds) {
  const double ms = seconds * 1e3;
  char text[32];
  std::snprintf(text, sizeof text, ms < 1 ? "%.3f ms" : ms < 10 ? "%.2f ms" : "%.1f ms", ms);
  if (ms >= 1e3) std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

}  // namespace moe_cli
