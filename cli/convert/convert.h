// SPDX-License-Identifier: MIT
#pragma once
// Shared by the parts of `moe convert`: options and report.

#include <string>
#include <vector>

#include "cli/common.h"

namespace moe_cli {

struct ConvertOptions {
  std::string source;
  std::string destination;
  std::string weights = "auto";
  std::string size;      // most bytes of the file; empty: as many as `weights` need
  double most_bits = 0;  // per weight; 0: the same
  std::string compress = "none";
  std::vector<std::string> overrides;
  std::vector<std::string> ignored_keys;
  std::string calibrate;  // file
  std::string statistics;
  std::string save_statistics;
  int32_t split_ffn = 0;
  std::string split_by = "clusters";
  int32_t threads = 0;
  bool verify = false;
  bool allow_zeros = false;
  bool i2_s_arm = false;
  bool no_mtp = false;
  bool json = false;
  bool list = false;
};

/// The JSON objects that the library reported. Shows progress on stderr. Throws.
std::vector<std::string> convert(const ConvertOptions& o);

/// Warnings on stderr alone, from these.
void print_conversion_warnings(const ConvertOptions& o, const std::vector<std::string>& reports);
/// Warnings, and results on stdout.
void print_conversion(const ConvertOptions& o, const std::vector<std::string>& reports,
                      double seconds);

}  // namespace moe_cli
