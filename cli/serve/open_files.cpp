// SPDX-License-Identifier: MIT
// Raises the limit of open files: libmicrohttpd would try again and again to accept a connection
// for which there is no file left.
#include "cli/serve/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "cli/common.h"
#include "cli/serve/lingering.h"

namespace moe_cli {
namespace {

constexpr rlim_t kOtherFiles = 32;  // those that the server opens later

rlim_t n_open_files() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  return static_cast<rlim_t>(std::distance(begin(files), end(files)));
}

}  // namespace

int make_room_for_connections(int n) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return n;
  const rlim_t others = n_open_files() + kOtherFiles + Lingering::kMost;
  const rlim_t needed = others + static_cast<rlim_t>(n);
  if (limit.rlim_cur >= needed) return n;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return n;
  const std::string text = "--max-connections " + std::to_string(n) + ": needs " +
                           std::to_string(needed) + " open files, and the limit is " +
                           std::to_string(limit.rlim_cur) + " (ulimit -Hn)";
  if (limit.rlim_cur < others + 2) throw CallError(MOE_ERR_IO, text);
  const int fit = static_cast<int>(limit.rlim_cur - others);
  std::fprintf(stderr, "moe: %s; at most %d connections\n", text.c_str(), fit);
  return fit;
}

}  // namespace moe_cli
