// SPDX-License-Identifier: MIT
#pragma once
// Sizes, numbers and times as text.

#include <cstdint>
#include <string>

namespace moe_cli {

/// "2G", "512M", "1.5GiB", "4096": bytes. Throws UsageError with the option's name. (CLI11's
/// AsSizeValue accepts only integers.)
uint64_t parse_bytes(const char* option, const std::string& text);
std::string format_bytes(uint64_t bytes);
/// "1 line", "2 lines".
std::string counted(uint64_t n, const std::string& what, const std::string& plural = "");
/// "2026-11-26 01:20", of this machine's clock; `time` is seconds since 1970.
std::string format_time(int64_t time);
std::string format_seconds(double seconds);  // "0.042 ms", "12.3 ms", "4.56 s"

}  // namespace moe_cli
