// SPDX-License-Identifier: MIT
#pragma once
// Names and sizes in a file of statistics (saved_statistics.h).

#include <string>

#include "src/convert/calibration/saved_statistics.h"

namespace moe::statistics {

constexpr const char* kFormat = "moe statistics";
constexpr const char* kMetadata = "{\"__metadata__\":";
constexpr const char* kVersion = "2";
constexpr const char* kTokens = "tokens";
constexpr const char* kSquares = "mean_squares";
constexpr const char* kMoments = "second_moments";
constexpr uint64_t kLengthBytes = 8;        // in front of the header
constexpr size_t kPiece = size_t{1} << 16;  // values read or written at once

/// 16 hexadecimal digits.
std::string hex(uint64_t value);
std::string tensor_name(const std::string& key, const char* kind);
/// Second moments of n channels.
uint64_t n_moments(int32_t n);

}  // namespace moe::statistics
